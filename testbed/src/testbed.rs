//! A running testbed, for tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::claim::RunDirectory;
use crate::control::{self, ControlError, ControlRequest};
use crate::import::{self, ImportError};
use crate::layout::{Layout, TestbedDirectory, TestbedName};
use crate::link;
use crate::slot::Slot;
use crate::state::{Phase, TestbedState};

/// Longer than the supervisor's own limits for a component, so that its response arrives.
const CONTROL_LIMIT: Duration = Duration::from_secs(200);

/// A testbed that is ready.
#[derive(Clone, Debug)]
pub struct Testbed {
    bin: PathBuf,
    home: TestbedDirectory,
    sockets: PathBuf,
    slot: Slot,
    supervisor: i32,
    state: TestbedState,
}

impl Testbed {
    /// Finds the ready testbed with this name, usually `default`, in the project's target
    /// directory.
    pub fn find(name: &TestbedName) -> Option<Testbed> {
        Testbed::find_in(&Layout::discover(), name)
    }

    /// Finds the ready testbed with this name in a layout.
    pub fn find_in(layout: &Layout, name: &TestbedName) -> Option<Testbed> {
        let home = layout.home(name);
        let run = RunDirectory::of_this_user();
        let (slot, holder) = run.find(&home)?;
        let state = TestbedState::read(&home).filter(|state| state.phase == Phase::Ready)?;
        let sockets = run.of_slot(slot);
        Some(Testbed { bin: layout.bin(), home, sockets, slot, supervisor: holder.pid, state })
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.kubeconfig()
    }

    /// kubectl, with the same version, for this testbed.
    pub fn kubectl(&self) -> Command {
        let mut command = Command::new(self.bin.join("kubectl"));
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// The state of the testbed.
    pub fn state(&self) -> &TestbedState {
        &self.state
    }

    /// The slot of the testbed, with its node's name and address.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The log of a component. The API server's audit log is `audit`.
    pub fn log(&self, component: &str) -> PathBuf {
        self.home.log(component)
    }

    /// Imports an image archive, such as one written by [`crate::Image::write`].
    pub fn import(&self, archive: &Path) -> Result<(), ImportError> {
        import::import(&self.bin, &self.sockets.join("containerd.sock"), archive)
    }

    /// Stops a component, such as `kubelet`, until it is started again.
    pub fn stop(&self, component: &str) -> Result<(), ControlError> {
        self.send(&ControlRequest::Stop(component.to_owned()))
    }

    /// Starts a stopped component and waits until it is ready.
    pub fn start(&self, component: &str) -> Result<(), ControlError> {
        self.send(&ControlRequest::Start(component.to_owned()))
    }

    /// The pid of a component in the caller's namespace; the state has the pid in the supervisor's
    /// own namespace.
    pub fn pid_of(&self, component: &str) -> Option<i32> {
        let state = TestbedState::read(&self.home)?;
        let inner = state.components.iter().find(|each| each.name == component)?.pid?;
        let namespace = |process: i32, name: &str| {
            std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok()
        };
        let wanted = namespace(self.supervisor, "pid_for_children")?;
        std::fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
            .find(|process| {
                namespace(*process, "pid").as_ref() == Some(&wanted)
                    && innermost_pid(*process) == Some(inner)
            })
    }

    /// The slots of the testbeds that this one is linked to.
    pub fn links(&self) -> Vec<Slot> {
        self.process_on_node().map(link::linked_slots).unwrap_or_default()
    }

    /// A process in the node's network, if there is a node: one that runs as long as the testbed.
    pub(crate) fn process_on_node(&self) -> Option<i32> {
        self.pid_of("containerd")
    }

    fn send(&self, request: &ControlRequest) -> Result<(), ControlError> {
        control::send(&self.sockets.join("control.sock"), request, CONTROL_LIMIT)
    }
}

/// The pid of a process in its innermost namespace.
fn innermost_pid(process: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    last_of_nspid(&status)
}

fn last_of_nspid(status: &str) -> Option<i32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_pid_is_the_last() {
        assert_eq!(last_of_nspid("Name:\tkubelet\nNSpid:\t4711\t23\nThreads:\t9\n"), Some(23));
        assert_eq!(last_of_nspid("Name:\tkubelet\n"), None);
        assert!(innermost_pid(std::process::id() as i32).is_some());
    }

    #[test]
    fn no_testbed_is_found_where_none_is_running() {
        let layout = Layout::at(Path::new("/nonexistent"));
        assert!(Testbed::find_in(&layout, &"default".parse().unwrap()).is_none());
    }
}
