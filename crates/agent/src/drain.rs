//! Drains ranks that are to be removed, on request of the operator, with Flux's
//! own commands.
//!
//! Those commands are written in Python, so they are run only to make a change or
//! while waiting for jobs. Flux keeps a rank drained even if its broker comes
//! back, so it must be undrained when it is needed again. Ranks that were drained
//! by others stay drained.

use flux_operator_flux::{IdSet, OverlayNode};
use flux_operator_wire::{Drain, Drained};

use crate::flux_command::FluxCommand;

/// The drain reason, which identifies the ranks that this agent has drained.
const DRAIN_REASON: &str = "the cluster shrinks";

/// Applies drain requests, and remembers which have been applied.
pub struct Drainer {
    command: FluxCommand,
    /// Which ranks are drained, if that is known.
    drained: Option<DrainedRanks>,
    /// The last request that has been applied.
    applied: Option<Drain>,
    /// The last request whose ranks were found to be without jobs.
    idle: Option<Drain>,
}

/// The drained ranks, as listed by Flux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DrainedRanks {
    all: IdSet,
    /// Those drained by this agent.
    ours: IdSet,
    /// Those where jobs still run.
    busy: IdSet,
}

impl Drainer {
    /// Creates it without a request. An instance that was `restored` from an archive may have
    /// ranks that were drained earlier.
    pub fn new(command: FluxCommand, restored: bool) -> Drainer {
        let known = (!restored).then(DrainedRanks::default);
        Drainer { command, drained: known, applied: None, idle: None }
    }

    /// Applies a request, unless it has been applied already. A failure is retried when the
    /// operator repeats the request.
    pub fn apply(&mut self, drain: &Drain) {
        self.applied = self.apply_ranks(&drain.ranks).then(|| drain.clone());
    }

    /// The request that has been applied, and the ranks where jobs still run. `None` if the
    /// operator does not wait for them.
    pub fn status(&mut self) -> Option<Drained> {
        let asked = self.applied.clone().filter(|drain| !drain.since.is_empty())?;
        if self.idle.as_ref() == Some(&asked) {
            return Some(Drained { asked, busy: IdSet::new() });
        }
        let busy = query_drained(&self.command)?.busy.intersection(&asked.ranks);
        if busy.is_empty() {
            // No new job can be placed there.
            self.idle = Some(asked.clone());
        }
        Some(Drained { asked, busy })
    }

    fn apply_ranks(&mut self, ranks: &IdSet) -> bool {
        if ranks.is_empty() && self.drained.as_ref().is_some_and(|known| known.ours.is_empty()) {
            return true;
        }
        let Some(overlay) = self.command.query(&OverlayNode::COMMAND) else {
            return false;
        };
        let leaving = OverlayNode::online_ranks(&overlay).intersection(ranks);
        let settled =
            |known: &DrainedRanks| leaving.is_subset(&known.all) && known.ours.is_subset(ranks);
        if self.drained.as_ref().is_some_and(settled) {
            return true;
        }
        let Some(mut known) = query_drained(&self.command) else { return false };
        let (missing, back) = (leaving.difference(&known.all), known.ours.difference(ranks));
        if !missing.is_empty() {
            // A job may have started there since the ranks were found to be without jobs.
            self.idle = None;
        }
        let run = |words: &[&str]| self.command.run(words);
        let done = (missing.is_empty()
            || run(&["resource", "drain", &missing.to_string(), DRAIN_REASON]))
            && (back.is_empty() || run(&["resource", "undrain", &back.to_string()]));
        known.all = known.all.union(&missing).difference(&back);
        known.ours = known.ours.union(&missing).difference(&back);
        self.drained = done.then_some(known);
        done
    }
}

/// All ranks that are drained, or that are drained when their jobs have finished.
pub fn drained_ranks(command: &FluxCommand) -> Option<IdSet> {
    Some(query_drained(command)?.all)
}

fn query_drained(command: &FluxCommand) -> Option<DrainedRanks> {
    let words = ["resource", "drain", "-n", "-o", "{state} {ranks} {reason}"];
    parse_drained(&command.query(&words)?)
}

/// Parses lines such as `draining 2-3 the cluster shrinks`; the state has a star if the ranks
/// are not online.
fn parse_drained(text: &str) -> Option<DrainedRanks> {
    let mut known = DrainedRanks::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let mut words = line.splitn(3, ' ');
        let (state, ranks) = (words.next()?, words.next()?.parse::<IdSet>().ok()?);
        known.all = known.all.union(&ranks);
        if words.next().is_some_and(|reason| reason.trim() == DRAIN_REASON) {
            known.ours = known.ours.union(&ranks);
        }
        if state.trim_end_matches('*') == "draining" {
            known.busy = known.busy.union(&ranks);
        }
    }
    Some(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn set(text: &str) -> IdSet {
        text.parse().unwrap()
    }

    fn drain(ranks: &str, since: &str) -> Drain {
        Drain { ranks: set(ranks), since: since.into() }
    }

    /// A fake `flux` that prints the contents of files, and logs its arguments.
    fn fake_flux(directory: &Path) -> FluxCommand {
        let flux = directory.join("flux");
        let script = "#!/bin/sh\ncd \"${0%/*}\"\ncase \"$*\" in\n\
            overlay*) cat overlay;;\n*-o*) echo query >>log; cat drained;;\n\
            *) echo \"$@\" >>log;;\nesac\n";
        crate::files::tests::write_script(&flux, script);
        FluxCommand { flux, uri: "local:///x".into() }
    }

    struct FakeFluxFiles(PathBuf);

    impl FakeFluxFiles {
        fn set_output(&self, overlay: &str, drained: &str) {
            std::fs::write(self.0.join("overlay"), overlay).unwrap();
            std::fs::write(self.0.join("drained"), drained).unwrap();
        }

        fn take_log(&self) -> Vec<String> {
            let text = std::fs::read_to_string(self.0.join("log")).unwrap_or_default();
            std::fs::write(self.0.join("log"), "").unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn the_output_of_flux_is_parsed() {
        // What flux-core 0.88 printed.
        let text = "draining 3 the cluster shrinks\ndrained 1 mine\ndrained* 2 the cluster shrinks\ndrained 5 \n";
        let known = DrainedRanks { all: set("1-3,5"), ours: set("2-3"), busy: set("3") };
        assert_eq!(parse_drained(text), Some(known));
        assert_eq!(parse_drained(""), Some(DrainedRanks::default()));
        assert_eq!(parse_drained("nonsense"), None);
    }

    #[test]
    fn ranks_are_drained_until_idle_and_undrained_when_needed_again() {
        let directory = tempfile::tempdir().unwrap();
        let files = FakeFluxFiles(directory.path().to_owned());
        let mut drainer = Drainer::new(fake_flux(directory.path()), false);
        let all = "0 t-0: full\n1 t-1: full\n2 t-2: full\n";
        files.set_output(all, "");
        // Without a change no command is run.
        drainer.apply(&drain("", ""));
        drainer.apply(&drain("3-7", ""));
        assert_eq!(files.take_log(), [""; 0]);
        assert_eq!(drainer.status(), None);
        drainer.apply(&drain("1-7", "now"));
        drainer.apply(&drain("1-7", "now"));
        assert_eq!(files.take_log(), ["query", "resource drain 1-2 the cluster shrinks"]);
        files.set_output(all, "draining 2 the cluster shrinks\ndrained 1 the cluster shrinks\n");
        let expected = |busy| Some(Drained { asked: drain("1-7", "now"), busy: set(busy) });
        assert_eq!(drainer.status(), expected("2"));
        files.set_output(all, "drained 1-2 the cluster shrinks\n");
        assert_eq!(drainer.status(), expected(""));
        // Once idle, Flux is not asked again.
        files.take_log();
        assert_eq!(drainer.status(), expected(""));
        // A broker that was starting has connected, and a job has started there.
        let later = "0 t-0: full\n1 t-1: full\n2 t-2: full\n3 t-3: full\n";
        files.set_output(later, "drained 1-2 the cluster shrinks\n");
        drainer.apply(&drain("1-7", "now"));
        assert_eq!(files.take_log(), ["query", "resource drain 3 the cluster shrinks"]);
        let drained = "drained 1-2 the cluster shrinks\ndraining 3 the cluster shrinks\n";
        files.set_output(later, drained);
        assert_eq!(drainer.status(), expected("3"));
        files.take_log();
        // The ranks are offline, and rank 1 is needed again.
        files.set_output("0 t-0: full\n", "drained* 1-3 the cluster shrinks\n");
        drainer.apply(&drain("1-7", ""));
        assert_eq!(files.take_log(), [""; 0]);
        drainer.apply(&drain("2-7", ""));
        assert_eq!(files.take_log(), ["query", "resource undrain 1"]);
        assert_eq!(drainer.status(), None);
    }

    #[test]
    fn ranks_drained_by_others_stay_drained() {
        let directory = tempfile::tempdir().unwrap();
        let reported = FakeFluxFiles(directory.path().to_owned());
        let mut drains = Drainer::new(fake_flux(directory.path()), true);
        reported.set_output("0 t-0: full\n1 t-1: full\n", "drained 1 a fan is broken\n");
        drains.apply(&drain("1", "now"));
        assert!(drains.status().is_some_and(|drained| drained.busy.is_empty()));
        drains.apply(&drain("", ""));
        assert_eq!(reported.take_log(), ["query", "query"]);
    }

    #[test]
    fn a_failed_drain_is_not_reported() {
        let none = FluxCommand { flux: "/no/flux".into(), uri: "local:///x".into() };
        let mut drains = Drainer::new(none, false);
        drains.apply(&drain("1", "now"));
        assert_eq!(drains.status(), None);
    }
}
