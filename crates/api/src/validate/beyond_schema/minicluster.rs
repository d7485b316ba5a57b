//! Checks that the CRD of MiniCluster cannot express.

use std::collections::HashMap;

use flux_operator_flux::{BrokerConfig, Certificate, HostList};

use super::joining;
use super::labels::{check_labels, is_label};
use crate::minicluster::{Container, Flux, QueuePolicy, Volume};
use crate::shell::one_line;
use crate::validate::Problem;
use crate::{MiniCluster, MiniClusterSpec};

/// Where an empty directory without a path is mounted, as with the Go operator.
const SHARED_MEMORY: &str = "/dev/shm";

/// Everything wrong with a MiniCluster that its CRD accepts.
pub fn check(minicluster: &MiniCluster) -> Vec<Problem> {
    let spec = &minicluster.spec;
    let mut problems = Vec::new();
    for (field, containers) in [("containers", &spec.containers), ("services", &spec.services)] {
        for (index, container) in containers.iter().enumerate() {
            check_container(container, &format!("spec.{field}[{index}]"), &mut problems);
        }
    }
    check_one_line(spec, &mut problems);
    for name in spec.volumes.keys() {
        check_volume_name(name, "spec.volumes", &mut problems);
    }
    check_labels(&spec.job_labels, "spec.jobLabels", &mut problems);
    if let Some(pod) = &spec.pod {
        check_labels(&pod.labels, "spec.pod.labels", &mut problems);
        check_labels(&pod.node_selector, "spec.pod.nodeSelector", &mut problems);
    }
    if let Some(flux) = &spec.flux {
        check_flux(flux, spec, &mut problems);
    }
    joining::check(minicluster, &mut problems);
    problems
}

/// Checks texts that become part of the line that runs the command. The lines of a batch are
/// separate jobs, and the command of a sidecar is a script.
fn check_one_line(spec: &MiniClusterSpec, problems: &mut Vec<Problem>) {
    let mut check = |path: String, text: &str| {
        problems.extend(one_line(text).err().map(|error| Problem::new(path, error.to_string())));
    };
    for (index, container) in spec.containers.iter().enumerate() {
        let is_runner = container.run_flux || spec.containers.len() == 1;
        let path = format!("spec.containers[{index}]");
        if is_runner && !spec.interactive && (container.launcher || !container.batch) {
            check(format!("{path}.command"), &container.command);
        }
        if let Some(commands) = container.commands.as_ref().filter(|_| is_runner) {
            check(format!("{path}.commands.prefix"), &commands.prefix);
        }
    }
    if let Some(flux) = &spec.flux {
        check("spec.flux.submitCommand".into(), &flux.submit_command);
        check("spec.flux.optionFlags".into(), &flux.option_flags);
    }
}

/// Valid settings that are probably a mistake.
pub fn warnings(minicluster: &MiniCluster) -> Vec<Problem> {
    let spec = &minicluster.spec;
    let scheduler = spec.flux.as_ref().and_then(|flux| flux.scheduler.as_ref());
    let fcfs = scheduler.is_some_and(|it| it.queue_policy == QueuePolicy::Fcfs && !it.simple);
    let fails = fcfs && spec.has_spare_ranks();
    let message = "is \"fcfs\": Fluxion then fails a job that needs more hosts than are up, \
        although the cluster may grow (maxSize, bursting). With \"easy\" the job waits";
    let path = "spec.flux.scheduler.queuePolicy";
    let fails = fails.then(|| Problem::new(path, message));
    fails.into_iter().chain(joining::warnings(minicluster)).collect()
}

fn check_container(container: &Container, path: &str, problems: &mut Vec<Problem>) {
    for (field, names) in [
        ("environment", container.environment.keys().collect::<Vec<_>>()),
        ("secrets", container.secrets.keys().collect()),
    ] {
        for name in names.into_iter().filter(|name| !is_variable_name(name)) {
            problems.push(Problem::new(
                format!("{path}.{field}"),
                format!(
                    "{name:?} cannot name an environment variable: it is empty or contains '='"
                ),
            ));
        }
    }
    let mut mounted: HashMap<&str, &str> = HashMap::new();
    for (field, volumes) in
        [("volumes", &container.volumes), ("existingVolumes", &container.existing_volumes)]
    {
        let path = format!("{path}.{field}");
        for (name, volume) in volumes {
            check_volume_name(name, &path, problems);
            if let Some(other) = mounted.insert(mount_path(volume), name) {
                problems.push(Problem::new(
                    format!("{path}.{name}.path"),
                    format!("{} is already the mount path of {other:?}", mount_path(volume)),
                ));
            }
        }
    }
}

fn check_flux(flux: &Flux, spec: &MiniClusterSpec, problems: &mut Vec<Problem>) {
    for name in flux.environment.keys().filter(|name| !is_variable_name(name)) {
        problems.push(Problem::new(
            "spec.flux.environment",
            format!("{name:?} cannot name an environment variable: it is empty or contains '='"),
        ));
    }
    if !flux.broker_config.is_empty()
        && let Err(error) = BrokerConfig::parse(&flux.broker_config)
    {
        problems.push(Problem::new("spec.flux.brokerConfig", chain(&error)));
    }
    if !flux.curve_cert.is_empty()
        && let Err(error) = Certificate::parse(&flux.curve_cert)
    {
        problems.push(Problem::new("spec.flux.curveCert", chain(&error)));
    }
    let Some(bursting) = &flux.bursting else { return };
    let path = "spec.flux.bursting.hostlist";
    let own = spec.max_size.unwrap_or_default().max(spec.size);
    match bursting.hostlist.parse::<HostList>() {
        Err(error) => problems.push(Problem::new(path, chain(&error))),
        Ok(hosts) => {
            let count = i32::try_from(hosts.len()).unwrap_or(i32::MAX);
            // The hosts of a joiner are those of another cluster, and need not all be its own.
            if !bursting.hostlist.is_empty() && !spec.is_joiner() && count < own {
                let message = format!(
                    "has {count} hosts, and the cluster itself needs {own}: list its own hosts first"
                );
                problems.push(Problem::new(path, message));
            }
        }
    }
    for (index, cluster) in bursting.clusters.iter().enumerate() {
        let hosts = if cluster.size > 0 { cluster.size } else { spec.size };
        let longest = cluster.name.len() + 1 + hosts.saturating_sub(1).to_string().len();
        if longest > 63 {
            problems.push(Problem::new(
                format!("spec.flux.bursting.clusters[{index}].name"),
                format!("is too long: with '-' and the highest index its host names have {longest} characters, and at most 63 are allowed"),
            ));
        }
    }
}

/// Names of volumes become names in the pod, and names with our prefix are reserved.
fn check_volume_name(name: &str, path: &str, problems: &mut Vec<Problem>) {
    if !is_label(name) {
        problems.push(Problem::new(
            path,
            format!(
                "{name:?} cannot name a volume: use at most 63 lowercase letters, digits and '-'"
            ),
        ));
    } else if name.starts_with("flux-operator-") {
        problems.push(Problem::new(
            path,
            format!("{name:?} cannot name a volume: names that start with flux-operator- are reserved for the operator"),
        ));
    }
}

fn mount_path(volume: &Volume) -> &str {
    match volume.path.trim_end_matches('/') {
        "" if volume.path.is_empty() => SHARED_MEMORY,
        "" => "/",
        path => path,
    }
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| (b.is_ascii_graphic() || b == b' ') && b != b'=')
}

/// An error with its causes, on one line and without a TOML parser's excerpts.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let lines: Vec<String> = causes
        .flat_map(|error| error.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| !line.contains(" | ") && !line.trim_start().starts_with('|'))
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn warned(spec: Value) -> Vec<String> {
        let mut spec = spec;
        spec["containers"] = json!([{}]);
        let minicluster = MiniCluster::new("fs", serde_json::from_value(spec).unwrap());
        warnings(&minicluster).into_iter().map(|warning| warning.path).collect()
    }

    #[test]
    fn fcfs_in_a_cluster_that_may_grow_gives_a_warning() {
        let flux =
            |simple: bool| json!({ "scheduler": { "queuePolicy": "fcfs", "simple": simple } });
        let path = "spec.flux.scheduler.queuePolicy";
        assert_eq!(warned(json!({ "maxSize": 4, "flux": flux(false) })), [path]);
        assert_eq!(warned(json!({ "maxSize": 4, "flux": flux(true) })), [""; 0]);
        assert_eq!(warned(json!({ "size": 4, "flux": flux(false) })), [""; 0]);
        assert_eq!(warned(json!({ "maxSize": 4 })), [""; 0]);
    }

    #[test]
    fn a_host_list_has_at_least_the_hosts_of_the_cluster_itself() {
        let problems = |spec: Value| {
            let mut spec = spec;
            spec["containers"] = json!([{}]);
            let minicluster = MiniCluster::new("fs", serde_json::from_value(spec).unwrap());
            check(&minicluster).into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>()
        };
        let hosts = |hosts: &str| json!({ "bursting": { "hostlist": hosts } });
        assert_eq!(problems(json!({ "size": 2, "flux": hosts("fs-[0-1],a") })), [""; 0]);
        assert_eq!(problems(json!({ "size": 2, "flux": hosts("") })), [""; 0]);
        let lead = json!({ "address": "10.0.0.1", "name": "a", "size": 1 });
        let joiner = json!({ "bursting": { "hostlist": "a-0,fs-0", "leadBroker": lead } });
        assert_eq!(problems(json!({ "size": 4, "flux": joiner })), [""; 0], "in `plan`");
        for spec in [
            json!({ "size": 4, "flux": hosts("fs-[0-1]") }),
            json!({ "size": 1, "maxSize": 3, "flux": hosts("fs-[0-1]") }),
            json!({ "size": 1, "flux": hosts(",") }),
        ] {
            let found = problems(spec.clone());
            assert!(found[0].contains("list its own hosts first"), "{spec} {found:?}");
        }
    }
}
