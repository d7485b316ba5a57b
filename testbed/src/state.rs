//! The state of a testbed: `state.json`.
//!
//! Only the supervisor writes it, atomically. `up` reads it to show progress; `status` and the
//! tests read it too. It does not show whether the supervisor is alive; the slot's lock does (see
//! [`crate::claim`]).

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::{self, FileError};
use crate::layout::TestbedDirectory;
use crate::slot::Slot;

/// Which parts of Kubernetes a testbed runs.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Only etcd and the API server: objects are stored, but nothing acts on them.
    ApiServer,
    /// API server, controllers, scheduler: pods stay pending. Needs no root.
    ControlPlane,
    /// Also a node that runs pods.
    Node,
}

/// The requirements that were given to `up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// Which parts of Kubernetes to run.
    pub level: Level,
    /// Whether the API server writes an audit log.
    pub audit: bool,
}

impl Requirements {
    /// Whether a testbed with these requirements also satisfies `other`.
    pub(crate) fn satisfies(self, other: Requirements) -> bool {
        self.level >= other.level && self.audit >= other.audit
    }
}

/// The phase of a testbed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Components are being started.
    Starting,
    /// All components are ready.
    Ready,
    /// Something failed, and nothing is running any more.
    Failed {
        /// What happened.
        message: String,
        /// The log that may show why.
        log: Option<PathBuf>,
    },
    /// The supervisor was asked to stop.
    Stopped,
}

/// A completed step of the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStep {
    /// Its name.
    pub name: String,
    /// The time since the start.
    pub milliseconds: u64,
}

/// The state of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentState {
    /// The component's name, such as `kubelet`.
    pub name: String,
    /// Its pid in the supervisor's pid namespace; None if it is not running.
    pub pid: Option<i32>,
    /// How often it exited by itself and was restarted.
    pub restarts: u32,
}

/// The content of `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestbedState {
    /// The slot of the testbed.
    pub slot: Slot,
    /// Its requirements.
    pub wanted: Requirements,
    /// Its phase.
    pub phase: Phase,
    /// The completed steps, in order.
    pub steps: Vec<StartStep>,
    /// The components, in the order of their start.
    pub components: Vec<ComponentState>,
}

impl TestbedState {
    pub(crate) fn new(slot: Slot, wanted: Requirements) -> TestbedState {
        TestbedState {
            slot,
            wanted,
            phase: Phase::Starting,
            steps: Vec::new(),
            components: Vec::new(),
        }
    }

    /// Reads the state of a testbed. None if there is no state, or if it is not valid: an invalid
    /// file must not stop any command.
    pub(crate) fn read(home: &TestbedDirectory) -> Option<TestbedState> {
        serde_json::from_slice(&std::fs::read(home.state()).ok()?).ok()
    }

    pub(crate) fn write(&self, home: &TestbedDirectory) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(self).expect("the state can be serialized");
        files::replace(&home.state(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(level: Level, audit: bool) -> Requirements {
        Requirements { level, audit }
    }

    #[test]
    fn a_node_satisfies_control_plane_but_not_the_other_way_round() {
        let node = wanted(Level::Node, false);
        let control_plane = wanted(Level::ControlPlane, false);
        assert!(node.satisfies(control_plane) && node.satisfies(node));
        assert!(!control_plane.satisfies(node));
        assert!(!node.satisfies(wanted(Level::ControlPlane, true)));
    }

    #[test]
    fn a_state_is_read_back_unchanged() {
        let directory = std::env::temp_dir().join(format!("testbed-state-{}", std::process::id()));
        let home = TestbedDirectory::at(directory.clone());
        files::create_directory(&directory).unwrap();
        let mut state = TestbedState::new(Slot::new(3).unwrap(), wanted(Level::Node, true));
        state.steps.push(StartStep { name: "etcd".to_owned(), milliseconds: 120 });
        state.phase = Phase::Failed { message: "no".to_owned(), log: Some(home.log("etcd")) };
        state.write(&home).unwrap();
        assert_eq!(TestbedState::read(&home), Some(state));
        files::write(&home.state(), "{\"slot\": 3, \"wan").unwrap();
        assert_eq!(TestbedState::read(&home), None);
        files::remove_tree(&directory).unwrap();
    }
}
