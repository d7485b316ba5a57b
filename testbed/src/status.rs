//! `status`: describes all testbeds as text.

use std::fmt::Write;

use crate::claim::RunDirectory;
use crate::layout::{Layout, TestbedName};
use crate::state::{Level, Phase, TestbedState};
use crate::testbed::Testbed;

/// Describes every testbed of a base directory, and the other slots of the machine that are in use.
pub fn status(layout: &Layout) -> String {
    let run = RunDirectory::of_this_user();
    let mut text = String::new();
    let names = layout.names();
    for name in &names {
        let home = layout.home(name);
        let alive = run.find(&home).is_some();
        let processes = |component: &str| {
            Testbed::find_in(layout, name).and_then(|testbed| testbed.pid_of(component))
        };
        describe(&mut text, name, TestbedState::read(&home).as_ref(), alive, processes);
        describe_links(&mut text, &linked_names(layout, name));
    }
    if names.is_empty() {
        text.push_str("no testbed in ");
        text.push_str(&layout.base().display().to_string());
        text.push('\n');
    }
    for (slot, holder) in run.holders() {
        if !names.iter().any(|name| layout.home(name) == holder.home) {
            let home = holder.home.path().display();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "slot {slot} is in use by {home}");
        }
    }
    text
}

fn describe(
    text: &mut String,
    name: &TestbedName,
    state: Option<&TestbedState>,
    alive: bool,
    process_of: impl Fn(&str) -> Option<i32>,
) {
    let _ = match state {
        None => writeln!(text, "{name}: unknown state; `testbed down --name {name}` removes it"),
        Some(state) => writeln!(
            text,
            "{name}: {}, slot {}, {}",
            describe_phase(state, alive),
            state.slot,
            match state.wanted.level {
                Level::ApiServer => "API server",
                Level::ControlPlane => "control plane",
                Level::Node => "control plane and node",
            },
        ),
    };
    let components = state.into_iter().filter(|_| alive).flat_map(|state| &state.components);
    for component in components {
        let process = match component.pid {
            None => "stopped".to_owned(),
            Some(inner) => {
                format!("process {}", process_of(&component.name).unwrap_or(inner))
            }
        };
        let restarts = match component.restarts {
            0 => String::new(),
            count => format!(", restarted {count} times"),
        };
        let _ = writeln!(text, "    {:<24} {process}{restarts}", component.name);
    }
}

/// The running testbeds that a testbed is linked to.
fn linked_names(layout: &Layout, name: &TestbedName) -> Vec<TestbedName> {
    let links = Testbed::find_in(layout, name).map(|testbed| testbed.links()).unwrap_or_default();
    let is_linked = |other: &TestbedName| {
        Testbed::find_in(layout, other).is_some_and(|other| links.contains(&other.slot()))
    };
    layout.names().into_iter().filter(is_linked).collect()
}

fn describe_links(text: &mut String, links: &[TestbedName]) {
    for name in links {
        let _ = writeln!(text, "    {:<24} {name}", "linked to");
    }
}

fn describe_phase(state: &TestbedState, alive: bool) -> String {
    match (&state.phase, alive) {
        (Phase::Ready, true) => "ready".to_owned(),
        (Phase::Starting, true) => match state.steps.last() {
            Some(step) => format!("starting, done: {}", step.name),
            None => "starting".to_owned(),
        },
        (Phase::Failed { message, .. }, _) => format!("failed: {message}"),
        (_, true) => "stopping".to_owned(),
        (_, false) => "not running".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::Slot;
    use crate::state::{ComponentState, Requirements};

    #[test]
    fn a_running_testbed_shows_its_components() {
        let wanted = Requirements { level: Level::Node, audit: false };
        let mut state = TestbedState::new(Slot::new(1).unwrap(), wanted);
        state.phase = Phase::Ready;
        let component =
            |name: &str, pid, restarts| ComponentState { name: name.into(), pid, restarts };
        state.components = vec![component("etcd", Some(3), 0), component("kubelet", None, 2)];
        let mut text = String::new();
        let name = "default".parse().unwrap();
        describe(&mut text, &name, Some(&state), true, |_| Some(4711));
        assert_eq!(
            text,
            "default: ready, slot 1, control plane and node\n\
             \x20   etcd                     process 4711\n\
             \x20   kubelet                  stopped, restarted 2 times\n"
        );
        describe_links(&mut text, &["other".parse().unwrap()]);
        assert!(text.ends_with("\n    linked to                other\n"), "{text}");
        text.clear();
        describe(&mut text, &name, Some(&state), false, |_| None);
        assert_eq!(text, "default: not running, slot 1, control plane and node\n");
    }
}
