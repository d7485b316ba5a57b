//! What a testbed is and how far it has come: `state.json`.
//!
//! Only the supervisor writes it, in one step each time. `up` follows it to show progress, and
//! `status` and the tests read it. It says nothing about whether the supervisor still lives; that
//! is what the slot's lock is for (see [`crate::claim`]).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::{self, FileError};
use crate::layout::Home;
use crate::slot::Slot;

/// How much of a Kubernetes a testbed is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// etcd and the API server alone: objects are real, and nothing happens to them.
    ApiServer,
    /// API server, controllers, scheduler. Objects are real, pods stay pending. Needs no root.
    ControlPlane,
    /// Also a node that runs pods.
    Node,
}

/// What `up` was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// How much of a Kubernetes.
    pub level: Level,
    /// Whether the API server writes an audit log.
    pub audit: bool,
}

impl Wanted {
    /// Whether a testbed like this serves one who wants `other`.
    pub(crate) fn serves(self, other: Wanted) -> bool {
        self.level >= other.level && self.audit >= other.audit
    }
}

/// How far a testbed has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Components are being started.
    Starting,
    /// Everything answers.
    Ready,
    /// Something failed; nothing runs any more.
    Failed {
        /// What happened.
        message: String,
        /// The log that may say why.
        log: Option<PathBuf>,
    },
    /// The supervisor was asked to stop.
    Stopped,
}

/// A step of the start that is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was done.
    pub name: String,
    /// How long after the start it was.
    pub milliseconds: u64,
}

/// A component, as its supervisor sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentState {
    /// The component's name, such as `kubelet`.
    pub name: String,
    /// Its process, numbered in the supervisor's own pid namespace; none when it does not run.
    pub pid: Option<i32>,
    /// How often it ended by itself and was started again.
    pub restarts: u32,
}

/// The content of `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The testbed's share of the machine.
    pub slot: Slot,
    /// What it was asked to be.
    pub wanted: Wanted,
    /// How far it has come.
    pub phase: Phase,
    /// The steps that are done, in order.
    pub steps: Vec<Step>,
    /// The components, in the order they were started.
    pub components: Vec<ComponentState>,
}

impl State {
    pub(crate) fn new(slot: Slot, wanted: Wanted) -> State {
        State { slot, wanted, phase: Phase::Starting, steps: Vec::new(), components: Vec::new() }
    }

    /// Reads the state of a testbed. There is none when nothing was ever started there, or when
    /// what is there cannot be read: a broken file must not stop anybody.
    pub(crate) fn read(home: &Home) -> Option<State> {
        serde_json::from_slice(&std::fs::read(home.state()).ok()?).ok()
    }

    pub(crate) fn write(&self, home: &Home) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(self).expect("the state has only string keys");
        files::replace(&home.state(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(level: Level, audit: bool) -> Wanted {
        Wanted { level, audit }
    }

    #[test]
    fn a_node_serves_who_wants_a_control_plane_but_not_the_other_way_round() {
        let node = wanted(Level::Node, false);
        let control_plane = wanted(Level::ControlPlane, false);
        assert!(node.serves(control_plane) && node.serves(node));
        assert!(!control_plane.serves(node));
        assert!(!node.serves(wanted(Level::ControlPlane, true)));
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let directory = std::env::temp_dir().join(format!("testbed-state-{}", std::process::id()));
        let home = Home::at(directory.clone());
        files::create_directory(&directory).unwrap();
        let mut state = State::new(Slot::new(3).unwrap(), wanted(Level::Node, true));
        state.steps.push(Step { name: "etcd".to_owned(), milliseconds: 120 });
        state.phase = Phase::Failed { message: "no".to_owned(), log: Some(home.log("etcd")) };
        state.write(&home).unwrap();
        assert_eq!(State::read(&home), Some(state));
        files::write(&home.state(), "{\"slot\": 3, \"wan").unwrap();
        assert_eq!(State::read(&home), None);
        files::remove_tree(&directory).unwrap();
    }
}
