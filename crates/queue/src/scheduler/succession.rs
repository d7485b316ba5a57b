//! Which setup replaces which.
//!
//! A setup replaces those that it names in `replaces` only if all of this is true:
//!
//! 1. `replaces` is not circular: it leads neither from the setup to itself, nor to others that
//!    replace each other;
//! 2. no older setup names one of them too;
//! 3. it has no problem and is not being deleted.
//!
//! While 1 or 2 is violated ([`ReplaceConflict`]) the setup replaces no other, and no younger
//! setup replaces what it names: nothing is moved or deleted until a user has resolved it.
//!
//! Rule 3 can be violated and recover without a user, for example while a restarted operator
//! does not know the nodes. Meanwhile the setup does not replace another one that exists. It still
//! replaces names that no setup has any more: what runs under such a name counts nowhere else.

use std::collections::HashMap;
use std::fmt;

use crate::{Setup, SetupName};

/// Which setup replaces which. It is never circular.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Succession {
    /// Setups that are named in `replaces`, each with its designated successor.
    designated: HashMap<SetupName, SetupName>,
    /// Those of them that are replaced.
    successors: HashMap<SetupName, SetupName>,
    conflicts: HashMap<SetupName, ReplaceConflict>,
}

/// Why a setup cannot replace what it names, whatever else is true of it. The `Display`
/// implementation is for users: what is wrong, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReplaceConflict {
    /// It names itself.
    Itself,
    /// Its `replaces` is circular, through this one.
    Circular(SetupName),
    /// An older setup names the same one.
    Claimed { replaced: SetupName, older: SetupName },
}

impl fmt::Display for ReplaceConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplaceConflict::Itself => {
                f.write_str("it replaces itself: remove its name from replaces")
            }
            ReplaceConflict::Circular(by) => write!(
                f,
                "replaces is circular, through \"{by}\": remove a name from replaces of \
                 one of them"
            ),
            ReplaceConflict::Claimed { replaced, older } => write!(
                f,
                "\"{older}\", which is older, replaces \"{replaced}\" too: remove it from \
                 replaces of one of them"
            ),
        }
    }
}

impl Succession {
    /// Computes which setup replaces which. `replacing` are the setups that name others;
    /// `exists` returns whether there is a setup of a name.
    pub(super) fn of(mut replacing: Vec<&Setup>, exists: impl Fn(&SetupName) -> bool) -> Self {
        replacing.sort_by_key(|setup| (setup.created, &setup.name));
        let cycles = find_cycles(&replacing);
        let mut oldest: HashMap<&SetupName, &SetupName> = HashMap::new();
        for (setup, replaced) in replacing.iter().flat_map(|setup| named_by(setup)) {
            oldest.entry(replaced).or_insert(&setup.name);
        }
        let mut all = Succession::default();
        for setup in replacing {
            let name = &setup.name;
            let claimed = || {
                let mut older = setup.replaces.iter().map(|replaced| (replaced, oldest[replaced]));
                older.find(|(_, older)| *older != name)
            };
            let conflict = match (cycles.get(name), claimed()) {
                (Some(by), _) if *by == name => Some(ReplaceConflict::Itself),
                (Some(by), _) => Some(ReplaceConflict::Circular((*by).clone())),
                (None, Some((replaced, older))) => Some(ReplaceConflict::Claimed {
                    replaced: replaced.clone(),
                    older: older.clone(),
                }),
                (None, None) => None,
            };
            if let Some(contradiction) = conflict {
                all.conflicts.insert(name.clone(), contradiction);
                continue;
            }
            let is_ready = setup.problem.is_none() && !setup.terminating;
            for replaced in &setup.replaces {
                all.designated.insert(replaced.clone(), name.clone());
                if is_ready || !exists(replaced) {
                    all.successors.insert(replaced.clone(), name.clone());
                }
            }
        }
        all
    }

    /// The setup that has replaced this one, the last in the chain of its successors; or itself.
    pub(super) fn current<'a>(&'a self, name: &'a SetupName) -> &'a SetupName {
        self.successors_of(name).last().unwrap_or(name)
    }

    /// The chain of setups that have replaced this one, the current one last.
    pub(super) fn successors_of(&self, name: &SetupName) -> impl Iterator<Item = &SetupName> {
        chain(&self.successors, name)
    }

    /// Whether a setup has replaced another one, or will do so as soon as it can be used.
    pub(super) fn is_designated_successor(&self, setup: &SetupName, other: &SetupName) -> bool {
        chain(&self.designated, other).any(|designated| designated == setup)
    }

    /// Why a setup does not replace those that it names, if there is a conflict.
    pub(super) fn conflict(&self, name: &SetupName) -> Option<&ReplaceConflict> {
        self.conflicts.get(name)
    }

    /// Whether no setup names another one in `replaces`.
    pub(super) fn is_empty(&self) -> bool {
        self.designated.is_empty() && self.conflicts.is_empty()
    }
}

fn chain<'a>(
    links: &'a HashMap<SetupName, SetupName>,
    name: &SetupName,
) -> impl Iterator<Item = &'a SetupName> {
    std::iter::successors(links.get(name), |next| links.get(next))
}

/// A setup with each setup that it names.
fn named_by(setup: &Setup) -> impl Iterator<Item = (&Setup, &SetupName)> {
    setup.replaces.iter().map(move |replaced| (setup, replaced))
}

/// The setups whose `replaces` is circular, each with the first setup in its `replaces` that is
/// part of a cycle or leads into one.
///
/// A setup that names none of those that may be part of a cycle is not part of one, and does
/// not lead into one. It is removed, then those that name only removed ones, and so on (Kahn's
/// algorithm). The number of steps is the number of names, however long the chains are.
fn find_cycles<'a>(replacing: &[&'a Setup]) -> HashMap<&'a SetupName, &'a SetupName> {
    // The number of setups that each one names and that may be part of a cycle.
    let mut unresolved: HashMap<&SetupName, usize> =
        replacing.iter().map(|setup| (&setup.name, 0)).collect();
    let mut named: HashMap<&SetupName, Vec<&SetupName>> = HashMap::new();
    for (setup, replaced) in replacing.iter().flat_map(|setup| named_by(setup)) {
        if unresolved.contains_key(replaced) {
            *unresolved.entry(&setup.name).or_default() += 1;
            named.entry(replaced).or_default().push(&setup.name);
        }
    }
    let mut removable: Vec<&SetupName> =
        unresolved.iter().filter(|(_, names)| **names == 0).map(|(name, _)| *name).collect();
    while let Some(name) = removable.pop() {
        unresolved.remove(name);
        for by in named.remove(name).unwrap_or_default() {
            if let Some(names) = unresolved.get_mut(by) {
                *names -= 1;
                if *names == 0 {
                    removable.push(by);
                }
            }
        }
    }
    let leads = |setup: &&'a Setup| {
        let mut replaced = setup.replaces.iter();
        let by = replaced.find(|replaced| unresolved.contains_key(replaced))?;
        unresolved.contains_key(&setup.name).then_some((&setup.name, by))
    };
    replacing.iter().filter_map(leads).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::setup;
    use crate::{Inactive, SetupProblem};

    fn named(name: &str) -> SetupName {
        SetupName::new("team", name)
    }

    fn replacing(name: &str, replaced: &[&str]) -> Setup {
        let replaces = replaced.iter().map(|name| named(name)).collect();
        Setup { replaces, ..setup(&format!("team/{name}")) }
    }

    fn plain(name: &str) -> Setup {
        replacing(name, &[])
    }

    fn unusable(setup: Setup) -> Setup {
        let mistake = Inactive::unusable(SetupProblem::NodesUnknown, "no nodes");
        Setup { problem: Some(mistake), ..setup }
    }

    /// Which setup replaces which among these setups, created in this order.
    fn succession(setups: &[Setup]) -> Succession {
        let aged: Vec<Setup> = setups
            .iter()
            .zip(0..)
            .map(|(setup, created)| Setup { created, ..setup.clone() })
            .collect();
        let replacing = aged.iter().filter(|setup| !setup.replaces.is_empty()).collect();
        Succession::of(replacing, |name| aged.iter().any(|setup| setup.name == *name))
    }

    /// The names that are replaced.
    fn replaced(all: &Succession) -> Vec<String> {
        let mut replaced: Vec<String> =
            all.successors.keys().map(|name| name.name.to_string()).collect();
        replaced.sort();
        replaced
    }

    fn circle_by(name: &str) -> ReplaceConflict {
        ReplaceConflict::Circular(named(name))
    }

    #[test]
    fn q19_a_chain_of_successors_ends_at_the_last() {
        let all = succession(&[
            plain("a"),
            replacing("b", &["a"]),
            plain("x"),
            replacing("c", &["b", "x"]),
        ]);
        for name in ["a", "b", "c", "x"] {
            assert_eq!(all.current(&named(name)), &named("c"));
            assert_eq!(all.conflict(&named(name)), None);
        }
        assert_eq!(all.current(&named("other")), &named("other"));
    }

    #[test]
    fn q19_of_two_successors_the_older_wins_and_the_other_replaces_none() {
        let all = succession(&[
            plain("a"),
            plain("x"),
            replacing("b", &["a"]),
            replacing("c", &["x", "a"]),
            replacing("d", &["x"]),
        ]);
        assert_eq!(all.current(&named("a")), &named("b"));
        assert_eq!(all.conflict(&named("b")), None);
        let claimed = |replaced, older| {
            Some(ReplaceConflict::Claimed { replaced: named(replaced), older: named(older) })
        };
        assert_eq!(all.conflict(&named("c")), claimed("a", "b").as_ref());
        // No setup gets what one in conflict names: the user who resolves the conflict decides.
        assert_eq!(all.conflict(&named("d")), claimed("x", "c").as_ref());
        assert_eq!(replaced(&all), ["a"]);
    }

    #[test]
    fn q19_a_setup_that_names_itself_replaces_none() {
        let all = succession(&[plain("old"), replacing("a", &["old", "a"])]);
        assert_eq!(replaced(&all), [""; 0]);
        assert_eq!(all.conflict(&named("a")), Some(&ReplaceConflict::Itself));
    }

    #[test]
    fn q19_circular_setups_replace_none() {
        let two = [plain("old"), replacing("a", &["b"]), replacing("b", &["old", "a"])];
        let all = succession(&two);
        assert_eq!(replaced(&all), [""; 0]);
        assert_eq!(all.conflict(&named("a")), Some(&circle_by("b")));
        assert_eq!(all.conflict(&named("b")), Some(&circle_by("a")));
        let three = [replacing("a", &["c"]), replacing("b", &["a"]), replacing("c", &["b"])];
        let all = succession(&three);
        assert_eq!(replaced(&all), [""; 0]);
        for (name, by) in [("a", "c"), ("b", "a"), ("c", "b")] {
            assert_eq!(all.conflict(&named(name)), Some(&circle_by(by)));
        }
    }

    #[test]
    fn q19_setups_that_lead_into_a_cycle_replace_none_and_the_others_do() {
        let all = succession(&[
            plain("old"),
            plain("other"),
            replacing("last", &["chain", "old"]),
            replacing("chain", &["a"]),
            replacing("a", &["b"]),
            replacing("b", &["a"]),
            replacing("apart", &["other"]),
        ]);
        assert_eq!(replaced(&all), ["other"]);
        assert_eq!(all.conflict(&named("last")), Some(&circle_by("chain")));
        assert_eq!(all.conflict(&named("chain")), Some(&circle_by("a")));
        assert_eq!(all.conflict(&named("apart")), None);
    }

    #[test]
    fn q19_an_unusable_setup_does_not_replace_an_existing_one() {
        for unusable in [
            unusable(replacing("new", &["old", "gone"])),
            Setup { terminating: true, ..replacing("new", &["old", "gone"]) },
        ] {
            let all = succession(&[plain("old"), unusable]);
            assert_eq!(all.current(&named("old")), &named("old"));
            assert!(all.is_designated_successor(&named("new"), &named("old")));
            // What still runs under a name that no setup has counts there.
            assert_eq!(all.current(&named("gone")), &named("new"));
            assert_eq!(all.conflict(&named("new")), None);
        }
    }

    #[test]
    fn q19_no_younger_setup_replaces_what_an_unusable_one_names() {
        let all = succession(&[
            plain("old"),
            unusable(replacing("first", &["old"])),
            replacing("second", &["old"]),
        ]);
        assert_eq!(replaced(&all), [""; 0]);
        assert!(all.is_designated_successor(&named("first"), &named("old")));
        assert!(!all.is_designated_successor(&named("second"), &named("old")));
    }

    #[test]
    fn q19_a_chain_continues_behind_an_unusable_setup() {
        let all =
            succession(&[plain("a"), unusable(replacing("b", &["a"])), replacing("c", &["b"])]);
        assert_eq!(all.current(&named("a")), &named("a"));
        assert_eq!(all.current(&named("b")), &named("c"));
        assert!(all.is_designated_successor(&named("c"), &named("a")));
    }

    #[test]
    fn names_that_are_given_twice_count_once() {
        let all = succession(&[
            plain("old"),
            replacing("new", &["old", "old"]),
            replacing("a", &["b", "b"]),
            replacing("b", &["c", "c"]),
        ]);
        assert_eq!(all.current(&named("old")), &named("new"));
        assert_eq!(all.current(&named("c")), &named("a"));
    }

    #[test]
    fn a_long_chain_and_a_long_circle_are_read_without_recursion() {
        let length = 20_000;
        let link =
            |number: usize| replacing(&number.to_string(), &[&((number + 1) % length).to_string()]);
        let circle: Vec<Setup> = (0..length).map(link).collect();
        let circle: Vec<&Setup> = circle.iter().collect();
        let all = Succession::of(circle.clone(), |_| true);
        assert_eq!((all.successors.len(), all.conflicts.len()), (0, length));
        let all = Succession::of(circle[1..].to_vec(), |_| true);
        assert_eq!((all.successors.len(), all.conflicts.len()), (length - 1, 0));
        assert_eq!(all.current(&named("0")), &named("1"));
    }
}
