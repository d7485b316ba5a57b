//! Constraints of jobs (RFC 31): on which nodes a job may run.

use std::collections::HashMap;
use std::fmt;

use flux_operator_flux::{HostList, IdSet, count_values};
use serde_json::Value;

use crate::Job;

/// A parsed constraint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constraint {
    /// Every node matches.
    Any,
    /// The node has the property.
    Property(String),
    /// The node has one of these names.
    Hosts(HostList),
    /// The node has one of these ranks.
    Ranks(IdSet),
    /// All of these match.
    And(Vec<Constraint>),
    /// One of these matches.
    Or(Vec<Constraint>),
    /// This does not match.
    Not(Box<Constraint>),
}

/// Why a constraint cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConstraintError {
    /// It uses an operator that RFC 31 does not have.
    Operator(String),
    /// A value is not what its operator needs.
    Value(String),
    /// There are more of them, or larger ones, than can be compared with nodes.
    TooMany,
}

/// Whether a node matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Match {
    /// It does not.
    No,
    /// It depends on the node's rank or name, which are not known.
    Unknown,
    /// It does.
    Yes,
}

/// How many values the constraints of all jobs may have together, different ones only. They are in memory at
/// the same time, and each takes some 100 bytes.
const MAX_VALUES: usize = 100_000;

/// How deep a constraint may be nested. Those of real jobs have two or three levels.
const MAX_DEPTH: usize = 32;

impl Constraint {
    /// Parses `attributes.system.constraints`.
    pub(crate) fn parse(text: &str) -> Result<Constraint, ConstraintError> {
        let value = serde_json::from_str(text);
        parse(&value.map_err(|_| ConstraintError::Value("its JSON".into()))?, MAX_DEPTH)
    }

    /// Of how many elements it consists, each of which may be compared with a node.
    pub(crate) fn size(&self) -> usize {
        let sum = |all: &[Constraint]| all.iter().map(Constraint::size).sum::<usize>();
        match self {
            Constraint::Any | Constraint::Property(_) | Constraint::Ranks(_) => 1,
            Constraint::Hosts(hosts) => hosts.len().max(1),
            Constraint::And(all) | Constraint::Or(all) => sum(all).saturating_add(1),
            Constraint::Not(negated) => negated.size().saturating_add(1),
        }
    }

    /// Whether it depends on the rank or name of each node.
    pub(crate) fn is_about_nodes(&self) -> bool {
        match self {
            Constraint::Any | Constraint::Property(_) => false,
            Constraint::Hosts(_) | Constraint::Ranks(_) => true,
            Constraint::And(all) | Constraint::Or(all) => {
                all.iter().any(Constraint::is_about_nodes)
            }
            Constraint::Not(negated) => negated.is_about_nodes(),
        }
    }

    /// Whether a node with a property matches, and, if they are known, a rank and name.
    pub(crate) fn matches(&self, property: &str, place: Option<(u32, &str)>) -> Match {
        let of = |known: Option<bool>| match known {
            None => Match::Unknown,
            Some(true) => Match::Yes,
            Some(false) => Match::No,
        };
        match self {
            Constraint::Any => Match::Yes,
            Constraint::Property(name) => of(Some(name == property)),
            Constraint::Hosts(hosts) => of(place.map(|(_, host)| hosts.find(host).is_some())),
            Constraint::Ranks(ranks) => of(place.map(|(rank, _)| ranks.contains(rank))),
            Constraint::And(all) => {
                all.iter().map(|each| each.matches(property, place)).min().unwrap_or(Match::Yes)
            }
            // Flux lets an empty `or` match every node.
            Constraint::Or(any) => {
                any.iter().map(|each| each.matches(property, place)).max().unwrap_or(Match::Yes)
            }
            Constraint::Not(negated) => match negated.matches(property, place) {
                Match::No => Match::Yes,
                Match::Unknown => Match::Unknown,
                Match::Yes => Match::No,
            },
        }
    }
}

impl fmt::Display for ConstraintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConstraintError::Operator(name) => write!(f, "operator {name:?} is not known"),
            ConstraintError::Value(text) => write!(f, "{text} is not valid"),
            ConstraintError::TooMany => {
                f.write_str("the constraints of the jobs in this queue are too large together")
            }
        }
    }
}

fn parse(value: &Value, depth: usize) -> Result<Constraint, ConstraintError> {
    let invalid = || ConstraintError::Value(value.to_string());
    let object = value.as_object().ok_or_else(invalid)?;
    let mut entries = object.iter();
    let (operator, values) = match (entries.next(), entries.next()) {
        (None, _) => return Ok(Constraint::Any),
        (Some(entry), None) if depth > 0 => entry,
        _ => return Err(invalid()),
    };
    let values = values.as_array().ok_or_else(invalid)?;
    let constraints =
        || values.iter().map(|value| parse(value, depth - 1)).collect::<Result<Vec<_>, _>>();
    let texts = || values.iter().map(|value| value.as_str().ok_or_else(invalid));
    match operator.as_str() {
        "and" => Ok(Constraint::And(constraints()?)),
        "or" => Ok(Constraint::Or(constraints()?)),
        "not" => Ok(Constraint::Not(Box::new(Constraint::And(constraints()?)))),
        "properties" => {
            Ok(Constraint::And(texts().map(|text| text.map(property)).collect::<Result<_, _>>()?))
        }
        "hostlist" => {
            let mut hosts = HostList::new();
            for text in texts() {
                let more = text?.parse::<HostList>().map_err(|_| invalid())?;
                hosts.append(&more).map_err(|_| invalid())?;
            }
            Ok(Constraint::Hosts(hosts))
        }
        "ranks" => {
            let sets = texts().map(|text| text?.parse::<IdSet>().map_err(|_| invalid()));
            Ok(Constraint::Ranks(IdSet::union_all(&sets.collect::<Result<Vec<_>, _>>()?)))
        }
        other => Err(ConstraintError::Operator(other.into())),
    }
}

/// A property, or with `^` its negation.
fn property(text: &str) -> Constraint {
    match text.strip_prefix('^') {
        None => Constraint::Property(text.into()),
        Some(name) => Constraint::Not(Box::new(Constraint::Property(name.into()))),
    }
}

/// The constraints of all jobs, equal ones parsed once.
pub(crate) struct Constraints {
    parsed: Vec<Result<Constraint, ConstraintError>>,
    /// For each job, the position of its constraint, if it has one.
    of_jobs: Vec<Option<usize>>,
}

impl Constraints {
    pub(crate) fn parse(jobs: &[Job]) -> Constraints {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut parsed = Vec::new();
        let mut values = 0_usize;
        let texts = jobs.iter().map(|job| job.attributes.get("constraints"));
        let of_jobs = texts
            .map(|text| {
                let text = text?;
                Some(*known.entry(text).or_insert_with(|| {
                    values = values.saturating_add(count_values(text));
                    parsed.push(match values > MAX_VALUES {
                        true => Err(ConstraintError::TooMany),
                        false => Constraint::parse(text),
                    });
                    parsed.len() - 1
                }))
            })
            .collect();
        Constraints { parsed, of_jobs }
    }

    /// Which of the different constraints the job at a position has.
    pub(crate) fn index_of(&self, job: usize) -> Option<usize> {
        self.of_jobs[job]
    }

    /// The constraint of the job at a position.
    pub(crate) fn of(&self, job: usize) -> Result<&Constraint, &ConstraintError> {
        self.of_jobs[job].map_or(Ok(&Constraint::Any), |index| self.parsed[index].as_ref())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Match::{No, Unknown, Yes};
    use super::*;

    #[test]
    fn a_constraint_matches_by_property_rank_and_name() {
        // The node is rank 3, fs-spare-1, with the property spare; then the same without rank.
        let cases = [
            (json!({}), Yes, Yes),
            (json!({"properties": ["spare"]}), Yes, Yes),
            (json!({"properties": ["home"]}), No, No),
            (json!({"properties": ["^home"]}), Yes, Yes),
            (json!({"properties": ["spare", "^spare"]}), No, No),
            (json!({"or": [{"properties": ["home"]}, {"properties": ["spare"]}]}), Yes, Yes),
            (json!({"or": []}), Yes, Yes),
            (json!({"and": []}), Yes, Yes),
            (json!({"not": [{"properties": ["spare"]}]}), No, No),
            (json!({"ranks": ["0-3"]}), Yes, Unknown),
            (json!({"ranks": ["0", "2"]}), No, Unknown),
            (json!({"hostlist": ["fs-spare-[0-1]"]}), Yes, Unknown),
            (json!({"not": [{"hostlist": ["fs-spare-1"]}]}), No, Unknown),
            (json!({"or": [{"ranks": ["0"]}, {"properties": ["spare"]}]}), Yes, Yes),
            (json!({"and": [{"ranks": ["3"]}, {"properties": ["home"]}]}), No, No),
        ];
        for (value, known, unknown) in cases {
            let constraint = Constraint::parse(&value.to_string()).unwrap();
            assert_eq!(constraint.matches("spare", Some((3, "fs-spare-1"))), known, "{value}");
            assert_eq!(constraint.matches("spare", None), unknown, "{value}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_an_error() {
        let cases = [
            (json!({"near": ["x"]}), "operator \"near\" is not known"),
            (json!({"not": [{"near": ["x"]}]}), "operator \"near\" is not known"),
            (json!([]), "[] is not valid"),
            (json!({"ranks": [1]}), "{\"ranks\":[1]} is not valid"),
            (json!({"ranks": ["x"]}), "{\"ranks\":[\"x\"]} is not valid"),
            (json!({"and": [], "or": []}), "{\"and\":[],\"or\":[]} is not valid"),
        ];
        for (value, message) in cases {
            assert_eq!(Constraint::parse(&value.to_string()).unwrap_err().to_string(), message);
        }
        let many = vec![json!({}); MAX_VALUES];
        let job = |id: u64, constraints: serde_json::Value| Job {
            attributes: serde_json::from_value(json!({ "constraints": constraints })).unwrap(),
            ..crate::testing::nodes(id, 1)
        };
        let jobs = [job(1, json!({"properties": ["a"]})), job(2, json!({"or": many}))];
        let constraints = Constraints::parse(&jobs);
        assert_eq!(
            (constraints.of(0).is_ok(), constraints.of(1)),
            (true, Err(&ConstraintError::TooMany))
        );
        let mut deep = json!({});
        for _ in 0..MAX_DEPTH + 1 {
            deep = json!({"not": [deep]});
        }
        assert!(Constraint::parse(&deep.to_string()).is_err());
    }
}
