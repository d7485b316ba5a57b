//! Checks of MiniClusters that join others, and of the ranks that a MiniCluster lends.

use std::collections::HashSet;

use flux_operator_flux::{HostList, IdSet, Topology};
use kube::ResourceExt;

use crate::MiniCluster;
use crate::minicluster::LenderName;
use crate::minicluster::parse_boot_server;
use crate::validate::Problem;
use crate::validate::beyond_schema::{exposure, remote};

/// Properties of hosts that have no pool, so no pool can have their names.
const RESERVED_PROPERTIES: [&str; 2] = ["home", "spare"];

/// The longest name of a host.
const MAX_HOST: usize = 63;

/// The largest number of ranks of an instance with hosts that may join: as many as a list of ranks
/// can have. The largest Flux instance that was published has some 10,000 nodes.
const MAX_RANKS: i32 = 1 << 17;

/// Everything that is wrong with how a MiniCluster joins another one, or with its ranks to lend.
pub(super) fn check(minicluster: &MiniCluster, problems: &mut Vec<Problem>) {
    if minicluster.spec.is_joiner() {
        check_joiner(minicluster, problems);
        remote::check(minicluster, problems);
    } else {
        check_lender(minicluster, problems);
        exposure::check(minicluster, problems);
    }
}

/// What a manifest sets although it has no effect there.
pub(super) fn warnings(minicluster: &MiniCluster) -> Vec<Problem> {
    let spec = &minicluster.spec;
    if !spec.is_joiner() {
        return lists_no_hosts(minicluster)
            .into_iter()
            .chain(exposure::warnings(minicluster))
            .collect();
    }
    let runner = spec.containers.iter().position(|container| container.run_flux).unwrap_or(0);
    let Some(container) = spec.containers.get(runner) else { return Vec::new() };
    let commands = container.commands.clone().unwrap_or_default();
    let unused = [
        ("command", !container.command.trim().is_empty() || !container.args.is_empty()),
        ("commands.script", !commands.script.is_empty()),
        ("commands.brokerPre", !commands.broker_pre.is_empty()),
    ];
    let message = "is not run: the brokers join another cluster, and its lead runs the command. \
        Submit jobs with `flux submit` from any pod of either cluster";
    unused
        .into_iter()
        .filter(|(_, is_set)| *is_set)
        .map(|(field, _)| Problem::new(format!("spec.containers[{runner}].{field}"), message))
        .collect()
}

/// A lender whose user has written the whole configuration, which has no hosts that may join.
fn lists_no_hosts(minicluster: &MiniCluster) -> Option<Problem> {
    let flux = minicluster.spec.flux.as_ref()?;
    let bursting = flux.bursting.clone().unwrap_or_default();
    let lends = minicluster.spec.spare_ranks() > 0
        || !bursting.clusters.is_empty()
        || !bursting.hostlist.is_empty();
    let message = "replaces the whole configuration, with the hosts that may join: no broker can join \
        unless it lists them in [bootstrap] and [[resource.config]]";
    (lends && !flux.broker_config.is_empty())
        .then(|| Problem::new("spec.flux.brokerConfig", message))
}

fn check_joiner(minicluster: &MiniCluster, problems: &mut Vec<Problem>) {
    let Some(flux) = &minicluster.spec.flux else { return };
    if !flux.boot_server.is_empty()
        && let Err(error) = parse_boot_server(&flux.boot_server)
    {
        problems.push(Problem::new("spec.flux.bootServer", error.to_string()));
    }
    let itself = LenderName {
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
    };
    if LenderName::of(minicluster) == Some(itself) {
        let field = match (&flux.join, flux.connection.is_empty()) {
            (Some(_), _) => "join.name",
            (None, false) => "connection",
            (None, true) => "bootServer",
        };
        let message = "names the MiniCluster itself: name another one, or remove it";
        problems.push(Problem::new(format!("spec.flux.{field}"), message));
    }
    let ranks = flux.join.as_ref().map(|join| join.ranks.as_str()).unwrap_or_default();
    if let Some(message) = wrong_ranks(ranks, minicluster.spec.size) {
        problems.push(Problem::new("spec.flux.join.ranks", message));
    }
    let bursting = flux.bursting.clone().unwrap_or_default();
    // A cluster elsewhere cannot be asked for its hosts.
    let is_remote = minicluster.spec.remote_lead().is_some();
    let lends = [
        ("clusters", !bursting.clusters.is_empty() && !is_remote),
        ("hostlist", !bursting.hostlist.is_empty() && !is_remote),
        ("spareRanks", bursting.spare_ranks.is_some_and(|count| count > 0)),
        ("expose", bursting.expose.is_some()),
        ("invitations", !bursting.invitations.is_empty()),
    ];
    for (field, _) in lends.into_iter().filter(|(_, is_set)| *is_set) {
        let message = "has no meaning in a MiniCluster that joins another one: its brokers use \
            ranks of that one. Set it there";
        problems.push(Problem::new(format!("spec.flux.bursting.{field}"), message));
    }
}

/// What is wrong with ranks that a joiner asks for.
fn wrong_ranks(ranks: &str, size: i32) -> Option<String> {
    if !ranks.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == ',') {
        return None;
    }
    let size = u64::try_from(size).unwrap_or_default();
    match ranks.parse::<IdSet>() {
        Err(error) => Some(format!("{error}: use the form 4-7, or the property of hosts")),
        Ok(ranks) if ranks.contains(0) => Some("has rank 0, which is the lead".into()),
        Ok(ranks) if ranks.len() < size => Some(format!(
            "has {} ranks, and spec.size is {size}: each broker needs one",
            ranks.len()
        )),
        Ok(_) => None,
    }
}

fn check_lender(minicluster: &MiniCluster, problems: &mut Vec<Problem>) {
    let (spec, name) = (&minicluster.spec, minicluster.name_any());
    let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.clone()).unwrap_or_default();
    let spare = spec.spare_ranks();
    let longest = format!("{name}-spare-{}", spare.saturating_sub(1)).len();
    if spare > 0 && longest > MAX_HOST {
        let message = format!(
            "is too long: the spare hosts {name}-spare-0 and so on have up to {longest} characters, \
             and at most {MAX_HOST} are allowed. Set spec.flux.bursting.spareRanks to 0 to have none"
        );
        problems.push(Problem::new("metadata.name", message));
    }
    for (index, pool) in bursting.clusters.iter().enumerate() {
        let path = format!("spec.flux.bursting.clusters[{index}].name");
        if RESERVED_PROPERTIES.contains(&pool.name.as_str()) {
            let message = "is the property of hosts that belong to no pool: use another name";
            problems.push(Problem::new(path, message));
        } else if pool.name == name || (spare > 0 && pool.name == format!("{name}-spare")) {
            let message = "gives its hosts the names of the cluster's own: use another name";
            problems.push(Problem::new(path, message));
        }
    }
    let own = spec.max_size.unwrap_or_default().max(spec.size);
    let pools = bursting.clusters.iter().map(|pool| match pool.size {
        0 => spec.size,
        size => size,
    });
    let mut total = pools.fold(own.saturating_add(spare), i32::saturating_add);
    if let Ok(hosts) = bursting.hostlist.parse::<HostList>()
        && !hosts.is_empty()
    {
        total = i32::try_from(hosts.len()).unwrap_or(i32::MAX);
        let mut known = HashSet::new();
        if let Some(twice) = hosts.iter().find(|host| !known.insert(host.clone())) {
            let message =
                format!("has {twice} twice: Flux gives it one rank, and all that follow others");
            problems.push(Problem::new("spec.flux.bursting.hostlist", message));
        }
    }
    if total > MAX_RANKS {
        let message = format!(
            "makes an instance of {total} ranks, and at most {MAX_RANKS} are supported: declare \
             fewer hosts that may join"
        );
        problems.push(Problem::new("spec.flux.bursting", message));
        return;
    }
    check_topology(minicluster, own, total, problems);
}

/// Brokers of other clusters reach only the lead, so they must be its children.
fn check_topology(minicluster: &MiniCluster, own: i32, total: i32, problems: &mut Vec<Problem>) {
    let Some(flux) = &minicluster.spec.flux else { return };
    let Ok(topology) = flux.topology.parse::<Topology>() else { return };
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    let (own, total) = (count(own), count(total));
    let other = (own..total).find(|rank| topology.parent(*rank, total).is_some_and(|it| it != 0));
    if let Some(rank) = other {
        let message = format!(
            "gives rank {rank}, which another cluster may lease, another parent than rank 0, and only \
             rank 0 can be reached from there: remove it, or use kary:0"
        );
        problems.push(Problem::new("spec.flux.topology", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(name: &str, spec: Value) -> MiniCluster {
        let mut spec = spec;
        if spec.get("containers").is_none() {
            spec["containers"] = json!([{}]);
        }
        let mut minicluster = MiniCluster::new(name, serde_json::from_value(spec).unwrap());
        minicluster.metadata.namespace = Some("hpc".into());
        minicluster
    }

    fn problems(spec: Value) -> Vec<String> {
        let mut problems = Vec::new();
        check(&read("fs", spec), &mut problems);
        problems.into_iter().map(|problem| problem.to_string()).collect()
    }

    fn assert_refused(flux: Value, path: &str, says: &str) {
        let found = problems(json!({ "size": 2, "flux": flux }));
        assert_eq!(found.len(), 1, "{flux} {found:?}");
        assert!(found[0].starts_with(&format!("{path}: ")), "{found:?}");
        assert!(found[0].contains(says), "{found:?}");
    }

    #[test]
    fn a_joiner_of_itself_is_refused() {
        let names = [
            (json!({ "join": { "name": "fs" } }), "spec.flux.join.name"),
            (json!({ "join": { "name": "fs", "namespace": "hpc" } }), "spec.flux.join.name"),
            (json!({ "connection": "fs", "connectionSize": 2 }), "spec.flux.connection"),
            (json!({ "bootServer": "fs-0", "bootServerSize": 2 }), "spec.flux.bootServer"),
        ];
        for (flux, path) in names {
            assert_refused(flux, path, "itself");
        }
        assert_eq!(
            problems(json!({ "flux": { "join": { "name": "fs", "namespace": "x" } } })),
            [""; 0]
        );
    }

    #[test]
    fn a_joiner_lends_nothing() {
        for (field, value) in [
            ("clusters", json!([{ "name": "a" }])),
            ("hostlist", json!("fs-[0-3]")),
            ("spareRanks", json!(2)),
        ] {
            let flux = json!({ "join": { "name": "a" }, "bursting": { field: value } });
            assert_refused(flux, &format!("spec.flux.bursting.{field}"), "Set it there");
        }
    }

    #[test]
    fn ranks_to_lease_are_checked() {
        let join = |ranks: &str| json!({ "join": { "name": "a", "ranks": ranks } });
        let refused =
            [("7-4", "form 4-7"), ("--", "form"), ("0-3", "the lead"), ("4", "spec.size is 2")];
        for (ranks, says) in refused {
            assert_refused(join(ranks), "spec.flux.join.ranks", says);
        }
        for ranks in ["", "4-5", "4-9", "cloud", "spare"] {
            assert_eq!(problems(json!({ "size": 2, "flux": join(ranks) })), [""; 0], "{ranks}");
        }
    }

    #[test]
    fn a_boot_server_is_the_host_of_a_lead() {
        let flux = json!({ "bootServer": "10.0.0.1", "bootServerSize": 2 });
        assert_refused(flux, "spec.flux.bootServer", "is not the host of a lead");
    }

    #[test]
    fn a_configuration_without_the_hosts_that_may_join_gives_a_warning() {
        let warned = |flux: Value| !warnings(&read("fs", json!({ "flux": flux }))).is_empty();
        let config = "[access]\nallow-guest-user = true\n";
        assert!(warned(json!({ "brokerConfig": config, "bursting": { "spareRanks": 2 } })));
        assert!(warned(json!({ "brokerConfig": config, "bursting": { "clusters": [{}] } })));
        assert!(!warned(json!({ "brokerConfig": config })));
        assert!(!warned(json!({ "bursting": { "spareRanks": 2 } })));
    }

    #[test]
    fn an_instance_has_a_largest_size() {
        let pools = |count: usize| {
            let size = |index| json!({ "name": format!("p{index}"), "size": 65_000 });
            json!({ "bursting": { "clusters": (0..count).map(size).collect::<Vec<_>>() } })
        };
        assert_refused(pools(3), "spec.flux.bursting", "195002 ranks, and at most 131072");
        assert_eq!(problems(json!({ "size": 2, "flux": pools(2) })), [""; 0]);
    }

    #[test]
    fn a_topology_must_put_leased_ranks_below_the_lead() {
        let pool = |topology: &str| json!({ "topology": topology, "bursting": { "clusters": [{ "name": "a", "size": 2 }] } });
        for topology in ["kary:2", "binomial", "mincrit:1"] {
            assert_refused(pool(topology), "spec.flux.topology", "rank 0");
        }
        for topology in ["kary:0", "kary:256", "kary:3", "custom", "mincrit"] {
            let flux = pool(topology);
            assert_eq!(problems(json!({ "size": 2, "flux": flux })), [""; 0], "{topology}");
        }
        // Hosts up to maxSize are the cluster's own.
        let flux = json!({ "topology": "kary:2" });
        assert_eq!(problems(json!({ "size": 2, "maxSize": 9, "flux": flux })), [""; 0]);
    }

    #[test]
    fn hosts_have_different_names() {
        for name in ["fs", "fs-spare", "home", "spare"] {
            let bursting = json!({ "clusters": [{ "name": name }], "spareRanks": 1 });
            let path = "spec.flux.bursting.clusters[0].name";
            assert_refused(json!({ "bursting": bursting }), path, "use another name");
        }
        let bursting = json!({ "hostlist": "fs-[0-3],a-0,fs-2" });
        assert_refused(
            json!({ "bursting": bursting }),
            "spec.flux.bursting.hostlist",
            "fs-2 twice",
        );
    }

    #[test]
    fn spare_hosts_need_a_short_name() {
        let check = |spec: Value| {
            let mut problems = Vec::new();
            super::check(&read(&"a".repeat(60), spec), &mut problems);
            problems.into_iter().map(|it| it.path).collect::<Vec<_>>()
        };
        assert_eq!(check(json!({ "jobSelector": "a" })), ["metadata.name"]);
        let none = json!({ "bursting": { "spareRanks": 0 } });
        assert_eq!(check(json!({ "jobSelector": "a", "flux": none })), [""; 0]);
    }

    #[test]
    fn what_a_joiner_does_not_run_gives_a_warning() {
        let commands = json!({ "brokerPre": "a", "workerPre": "b", "init": "c" });
        let containers = json!([{ "command": "hostname", "commands": commands }]);
        let spec = json!({ "containers": containers, "flux": { "join": { "name": "a" } } });
        let warned: Vec<_> =
            super::warnings(&read("fs", spec)).into_iter().map(|it| it.path).collect();
        let path = "spec.containers[0]";
        assert_eq!(warned, [format!("{path}.command"), format!("{path}.commands.brokerPre")]);
    }
}
