//! Which setup takes the place of which.

use std::collections::HashMap;

use crate::{Setup, SetupName};

/// Setups that were replaced, each with its successor. It has no circles: of two setups
/// that contradict each other the older counts, and the other replaces nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Succession {
    successors: HashMap<SetupName, SetupName>,
    /// Those that do not count, each with the one that does.
    conflicts: HashMap<SetupName, SetupName>,
}

impl Succession {
    /// Who replaces whom among these setups, given from the oldest to the youngest.
    pub(super) fn of<'a>(setups: impl Iterator<Item = &'a Setup>) -> Succession {
        let mut all = Succession::default();
        for setup in setups {
            let replaced = || setup.replaces.iter().filter(|replaced| **replaced != setup.name);
            match replaced().find_map(|replaced| all.opponent(setup, replaced)) {
                Some(older) => {
                    all.conflicts.insert(setup.name.clone(), older);
                }
                None => all
                    .successors
                    .extend(replaced().map(|replaced| (replaced.clone(), setup.name.clone()))),
            }
        }
        all
    }

    /// The last in the chain of successors: the setup itself if nobody replaces it.
    pub(super) fn heir<'a>(&'a self, name: &'a SetupName) -> &'a SetupName {
        self.chain(name).last().unwrap_or(name)
    }

    /// The older setup because of which this one does not count.
    pub(super) fn conflict(&self, name: &SetupName) -> Option<&SetupName> {
        self.conflicts.get(name)
    }

    /// Whether nobody takes another's place or wants to.
    pub(super) fn is_empty(&self) -> bool {
        self.successors.is_empty() && self.conflicts.is_empty()
    }

    /// Who stands against one setup replacing another: who has done so already, or the
    /// other itself, if it has come to the place of the first.
    fn opponent(&self, setup: &Setup, replaced: &SetupName) -> Option<SetupName> {
        let has_done_so = self.successors.get(replaced);
        has_done_so.or_else(|| self.chain(&setup.name).find(|heir| *heir == replaced)).cloned()
    }

    fn chain<'a>(&'a self, name: &'a SetupName) -> impl Iterator<Item = &'a SetupName> {
        std::iter::successors(self.successors.get(name), |heir| self.successors.get(heir))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::setup;

    fn named(name: &str) -> SetupName {
        SetupName::new("team", name)
    }

    fn replacing(name: &str, replaced: &[&str]) -> Setup {
        let replaces = replaced.iter().map(|name| named(name)).collect();
        Setup { replaces, ..setup(&format!("team/{name}")) }
    }

    fn succession(setups: &[Setup]) -> Succession {
        Succession::of(setups.iter())
    }

    #[test]
    fn q19_a_chain_of_successors_ends_at_the_last() {
        let all = succession(&[replacing("b", &["a"]), replacing("c", &["b", "x"])]);
        for name in ["a", "b", "c", "x"] {
            assert_eq!(all.heir(&named(name)), &named("c"));
        }
        assert_eq!(all.heir(&named("other")), &named("other"));
    }

    #[test]
    fn q19_of_two_successors_the_older_wins() {
        let all = succession(&[replacing("b", &["a"]), replacing("c", &["x", "a"])]);
        assert_eq!(all.heir(&named("a")), &named("b"));
        assert_eq!(all.conflict(&named("c")), Some(&named("b")));
        assert_eq!(all.conflict(&named("b")), None);
        // The one in conflict takes nothing, because it admits nothing.
        assert_eq!(all.heir(&named("x")), &named("x"));
    }

    #[test]
    fn q19_a_circle_is_cut_at_the_youngest() {
        let all =
            succession(&[replacing("b", &["a"]), replacing("c", &["b"]), replacing("a", &["c"])]);
        assert_eq!(all.heir(&named("a")), &named("c"));
        assert_eq!(all.conflict(&named("a")), Some(&named("c")));
        let itself = succession(&[replacing("a", &["a"])]);
        assert_eq!(itself, Succession::default());
    }
}
