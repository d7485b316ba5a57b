//! The events of a job, as `flux job eventlog --format=json` prints them: one JSON object per line.
//! Follows Flux RFC 18 and RFC 21.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::JobspecUpdate;

/// An event of a job, of those that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It was submitted.
    Submitted {
        /// The number of the user who has submitted it.
        user: u32,
        /// Its urgency.
        urgency: u32,
    },
    /// It got this urgency later.
    Urgency(u32),
    /// Its jobspec was changed.
    Updated(JobspecUpdate),
    /// A memo with these keys was written.
    Memo(Vec<String>),
    /// The jobs and times that it waited for are over.
    DependenciesMet,
    /// It got resources.
    Allocated,
    /// Something has happened to it.
    Exception(JobException),
    /// Its tasks have exited; the wait status of the worst.
    Finished(i32),
    /// Nothing of it is left.
    Clean,
}

/// An exception of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobException {
    /// What it is, such as `cancel`.
    pub kind: String,
    /// From 0 to 7. With 0 the job is ended.
    pub severity: u32,
    /// Why; may be empty.
    pub note: String,
}

/// A line whose context is not looked at.
#[derive(Deserialize)]
struct NamedLine {
    name: String,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    context: Context,
}

/// What is not used here may be nested deeply: annotations come from users.
#[derive(Default, Deserialize)]
struct Context {
    userid: Option<u32>,
    urgency: Option<u32>,
    #[serde(rename = "type")]
    kind: Option<String>,
    severity: Option<u32>,
    note: Option<String>,
    status: Option<i32>,
}

/// A memo may have any keys, also those of other events.
#[derive(Deserialize)]
struct MemoLine {
    context: BTreeMap<String, IgnoredAny>,
}

impl JobEvent {
    /// The events of a log, in order; `None` if its last line has no end, so that events may be
    /// missing. Other events are left out.
    pub fn parse_log(text: &str) -> Option<Vec<JobEvent>> {
        let is_whole = text.is_empty() || text.ends_with('\n');
        is_whole.then(|| text.lines().filter_map(JobEvent::parse).collect())
    }

    fn parse(line: &str) -> Option<JobEvent> {
        let NamedLine { name } = serde_json::from_str(line).ok()?;
        match name.as_str() {
            // Whether it can be applied is found out when that is done: none may be overlooked.
            "jobspec-update" => return Some(JobEvent::Updated(JobspecUpdate::of_line(line))),
            "memo" => {
                let MemoLine { context } = serde_json::from_str(line).ok()?;
                return Some(JobEvent::Memo(context.into_keys().collect()));
            }
            _ => {}
        }
        let Line { context } = serde_json::from_str(line).ok()?;
        let Context { userid, urgency, kind, severity, note, status } = context;
        Some(match name.as_str() {
            "submit" => JobEvent::Submitted { user: userid?, urgency: urgency? },
            "urgency" => JobEvent::Urgency(urgency?),
            "depend" => JobEvent::DependenciesMet,
            "alloc" => JobEvent::Allocated,
            "exception" => JobEvent::Exception(JobException {
                kind: kind?,
                severity: severity?,
                note: note.unwrap_or_default(),
            }),
            "finish" => JobEvent::Finished(status?),
            "clean" => JobEvent::Clean,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // What flux-core 0.88 printed.
    const LOG: &str = r#"{"timestamp":1794718020.9226317,"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}
{"timestamp":1794718020.9345119,"name":"validate"}
{"timestamp":1794718020.946178,"name":"depend"}
{"timestamp":1794718020.9463487,"name":"priority","context":{"priority":16}}
{"timestamp":1794718020.9549363,"name":"alloc","context":{"annotations":{"sched":{"resource_summary":"rank0/core[0-1]"}}}}
{"timestamp":1794718020.9619653,"name":"start"}
"#;

    #[test]
    fn the_events_of_flux_are_parsed() {
        let submitted = JobEvent::Submitted { user: 0, urgency: 16 };
        let mut expected = vec![submitted, JobEvent::DependenciesMet, JobEvent::Allocated];
        assert_eq!(JobEvent::parse_log(LOG), Some(expected.clone()));
        // The examples of RFC 21.
        let end = r#"{"timestamp":1552593348.073045,"name":"exception","context":{"type":"cancel","severity":0,"note":"Resource hog!","userid":1000}}
{"timestamp":1552593348.088391,"name":"finish","context":{"status":15}}
{"timestamp":1552593348.104432,"name":"clean"}
"#;
        let exception =
            JobException { kind: "cancel".into(), severity: 0, note: "Resource hog!".into() };
        expected.extend([JobEvent::Exception(exception), JobEvent::Finished(15), JobEvent::Clean]);
        assert_eq!(JobEvent::parse_log(&format!("{LOG}{end}")), Some(expected));
        assert_eq!(JobEvent::parse_log(""), Some(Vec::new()));
    }

    /// What flux-core 0.88 printed after `flux update`, `flux job memo` and `flux job urgency`.
    #[test]
    fn changes_of_a_job_are_parsed() {
        let update = r#"{"timestamp":1795120765.2665579,"name":"jobspec-update","context":{"attributes.system.duration":7200.0}}"#;
        let memo = r#"{"timestamp":1795120766.8412175,"name":"memo","context":{"x":{"y":1},"flux-operator-hold":"isolated-run"}}"#;
        let urgency = r#"{"timestamp":1795120766.8574247,"name":"urgency","context":{"userid":0,"urgency":0}}"#;
        let keys = ["flux-operator-hold", "x"].map(str::to_owned);
        assert_eq!(
            JobEvent::parse_log(&format!("{update}\n{memo}\n{urgency}\n")),
            Some(vec![
                JobEvent::Updated(JobspecUpdate::of_line(update)),
                JobEvent::Memo(keys.into()),
                JobEvent::Urgency(0),
            ])
        );
    }

    #[test]
    fn a_log_that_is_cut_off_is_not_used() {
        assert_eq!(JobEvent::parse_log(&LOG[..LOG.len() - 1]), None);
        assert_eq!(JobEvent::parse_log(&LOG[..300]), None);
    }

    /// Users write memos, and they are among the annotations of a job that gets resources.
    #[test]
    fn what_users_write_hides_no_event() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let update = format!("{{\"name\":\"jobspec-update\",\"context\":{deep}}}");
        let log = format!(
            "{{\"name\":\"memo\",\"context\":{{\"urgency\":\"x\",\"status\":{deep}}}}}\n\
             {{\"name\":\"memo\",\"context\":{{\"urgency\":0,\"status\":0}}}}\nnonsense\n{update}\n\
             {{\"name\":\"alloc\",\"context\":{{\"annotations\":{{\"user\":{deep}}}}}}}\n"
        );
        let memo = JobEvent::Memo(["status", "urgency"].map(str::to_owned).into());
        let update = JobEvent::Updated(JobspecUpdate::of_line(&update));
        let expected = vec![memo.clone(), memo, update, JobEvent::Allocated];
        assert_eq!(JobEvent::parse_log(&log), Some(expected));
    }
}
