//! How the process of a component is started, and how all processes are killed.

use std::process::Command;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use crate::command::SYSTEM_PATH;
use crate::component::{Component, ComponentNetwork, Settings};
use crate::network;

/// The command of a component. It does not inherit our environment: a proxy set there would
/// intercept the API server's requests to the node.
pub(crate) fn command_for(component: &Component, settings: &Settings, contained: bool) -> Command {
    let wrapper: Vec<String> = match (component.network, contained) {
        (ComponentNetwork::Node, _) => network::enter(settings.slot).to_vec(),
        (ComponentNetwork::Host, true) => Vec::new(),
        // Without a pid namespace, the kernel is asked to kill each child when its parent exits.
        (ComponentNetwork::Host, false) => {
            ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned).to_vec()
        }
    };
    let program = settings.bin.join(component.program).display().to_string();
    let words: Vec<String> =
        wrapper.into_iter().chain([program]).chain(component.arguments.iter().cloned()).collect();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .env_clear()
        .env("PATH", format!("{}:{SYSTEM_PATH}", settings.bin.display()))
        .env("HOME", settings.home.path());
    command
}

/// Reaps exited children and returns whether others remain.
pub(crate) fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Kills every process of this pid namespace except this one, which must be the first: also shims
/// and containers. They become children of this process as their parents exit.
pub(crate) fn kill_all_others() {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid.filter(|pid| *pid != 1).and_then(Pid::from_raw) {
            let _already_exited = kill_process(pid, Signal::KILL);
        }
    }
}

/// Describes how a process exited.
pub(crate) fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::tests::settings;
    use crate::control_plane;
    use crate::node::kubelet;
    use crate::state::Level;

    fn words(command: &Command) -> Vec<&str> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .filter_map(|word| word.to_str())
            .collect()
    }

    #[test]
    fn a_component_of_the_node_runs_in_the_nodes_network() {
        let settings = settings(Level::Node);
        let command = command_for(&kubelet::component(&settings), &settings, true);
        assert_eq!(
            words(&command)[..3],
            ["nsenter", "--net=/run/netns/fotb3", "/base/bin/kubelet"]
        );
    }

    #[test]
    fn without_a_namespace_each_child_is_killed_with_its_parent() {
        let settings = settings(Level::ControlPlane);
        let etcd = control_plane::etcd(&settings);
        assert_eq!(words(&command_for(&etcd, &settings, true))[0], "/base/bin/etcd");
        assert_eq!(
            words(&command_for(&etcd, &settings, false))[..4],
            ["setpriv", "--pdeathsig", "KILL", "/base/bin/etcd"]
        );
    }

    #[test]
    fn components_do_not_inherit_the_environment() {
        let settings = settings(Level::ControlPlane);
        let command = command_for(&control_plane::etcd(&settings), &settings, true);
        let names: Vec<_> = command.get_envs().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "PATH"]);
    }
}
