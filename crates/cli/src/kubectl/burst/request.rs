//! `kubectl minicluster burst request`: request nodes ahead of jobs.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use flux_operator_api::burst::BurstTarget;
use flux_operator_api::{Burst, BurstPolicy, BurstSpec, MiniCluster, Reason};
use flux_operator_flux::JobId;
use flux_operator_install::BURST_CONTROLLER;
use kube::ResourceExt;
use kube::api::{ListParams, PostParams};

use super::state::{accepted, unprocessed};
use super::wait::{Goal, wait};
use crate::kubectl::duration::{parse_idle_time, parse_lifetime};
use crate::kubectl::session::Session;
use crate::number::number;
use crate::print;

/// The largest number of nodes of a Burst, as in its schema.
const MAX_NODES: i32 = 1024;

/// The longest name of a Burst: labels have at most 63 characters.
const MAX_NAME: usize = 63;

/// Request nodes for a MiniCluster ahead of jobs: create a Burst with a target of a policy.
///
/// No job has to wait for the nodes. They are given back when their time is over (--for), when no
/// job has run on them for a while (--idle), or by `burst give-back`. The limits of the policy are
/// not applied, except for maxNodes of the target.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster whose Flux instance the nodes join.
    cluster: String,

    /// The BurstPolicy that has the target.
    #[arg(long, value_name = "NAME")]
    policy: String,

    /// The target of the policy. Default: its first.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,

    /// Number of nodes.
    #[arg(long, value_name = "N", value_parser = number(1..=MAX_NODES), allow_hyphen_values = true)]
    nodes: i32,

    /// How long the Burst may exist, such as 30m, 1h30m or 2d. Then it is given back: jobs on its nodes
    /// have graceSeconds to finish, and fail after that. Default: as long as a Burst of the policy.
    #[arg(
        long = "for", value_name = "DURATION", value_parser = parse_lifetime,
        allow_hyphen_values = true
    )]
    lifetime: Option<Duration>,

    /// Give the nodes back when no job has run on them for this long. Default: never.
    #[arg(long, value_name = "DURATION", value_parser = parse_idle_time, allow_hyphen_values = true)]
    idle: Option<Duration>,

    /// Run this job of the MiniCluster, given by its id, in an instance of its own at the target. It is
    /// held here, and canceled with the exit code when it has finished there.
    #[arg(
        long, value_name = "ID", value_parser = super::why::parse_job, requires = "isolated",
        conflicts_with = "idle"
    )]
    job: Option<JobId>,

    /// The nodes are an instance of their own, for the job given by --job.
    #[arg(long, requires = "job")]
    isolated: bool,

    /// Name of the Burst. Default: the MiniCluster, the target, and five random characters.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,

    /// Wait until all nodes have joined, or the job of --isolated has finished. Fails if that needs
    /// an action of yours.
    #[arg(long)]
    wait: bool,
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.len() <= MAX_NAME
        && text.chars().all(is_allowed);
    is_name.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "is not a name\nhint: use at most {MAX_NAME} lowercase letters, digits and '-', starting \
             with a letter"
        )
    })
}

/// Why a Burst is not created.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum RequestRefusal {
    #[error("{}", unprocessed(policy))]
    NoController { policy: String },
    #[error("BurstPolicy {policy:?} is not accepted: {message}")]
    NotAccepted { policy: String, message: String, remedy: &'static str },
    #[error("BurstPolicy {policy:?} has no target {target:?}")]
    NoTarget { policy: String, target: String, targets: Vec<String> },
    #[error("target {target:?} has at most {max} nodes, and {nodes} are requested")]
    TooMany { target: String, nodes: i32, max: i32 },
    #[error("a Burst at target {target:?} has {min} to {max} nodes, and {nodes} are requested")]
    OutOfScale { target: String, nodes: i32, min: i32, max: i32 },
    #[error("{cluster:?} joins another MiniCluster, so it has no Flux instance of its own")]
    Joiner { cluster: String },
    #[error("{cluster:?} is being deleted")]
    Terminating { cluster: String },
    #[error(
        "{cluster:?} is not exposed, so nodes of target {target:?}, which is another Kubernetes \
         cluster, cannot reach it"
    )]
    NotExposed { cluster: String, target: String },
    #[error("target {target:?} is not another Kubernetes cluster")]
    NotElsewhere { target: String },
}

impl RequestRefusal {
    /// What to do about it, in the form of a remedy.
    fn hint(&self, namespace: &str) -> String {
        match self {
            RequestRefusal::NoController { .. } => format!(
                "see whether `kubectl get pods --all-namespaces -l \
                 control-plane={BURST_CONTROLLER}` shows one that is ready. If there is none, an \
                 administrator installs it with `flux-operator manifests --burst-namespace {namespace}`"
            ),
            RequestRefusal::NotAccepted { remedy, .. } => (*remedy).to_owned(),
            RequestRefusal::NoTarget { targets, .. } => format!("it has {}", quoted(targets)),
            RequestRefusal::TooMany { max, .. } => {
                format!("request at most {max}, or raise maxNodes of the target in the policy")
            }
            RequestRefusal::OutOfScale { min, max, .. } => {
                format!("request {min} to {max}, or change scaling of the target in the policy")
            }
            RequestRefusal::Joiner { .. } => "request nodes for the one that it joins".to_owned(),
            RequestRefusal::Terminating { .. } => "choose another MiniCluster".to_owned(),
            RequestRefusal::NotElsewhere { .. } => {
                "jobs run in an instance of their own only at targets \
                 with kubeconfig, clusterAPI, command or gke: choose one with --target"
                    .to_owned()
            }
            RequestRefusal::NotExposed { cluster, .. } => format!(
                "set spec.flux.bursting.expose of {cluster}, such as {{type: NodePort}}, or choose \
                 another target with --target"
            ),
        }
    }
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let cluster = session.minicluster(&arguments.cluster).await?;
    let policy = policy(session, &arguments.policy).await?;
    let burst = new_burst(&cluster, &policy, arguments, random_suffix).map_err(|refusal| {
        let hint = session.remedy(&refusal.hint(&session.namespace), &arguments.cluster);
        anyhow!("{refusal}\nhint: {hint}")
    })?;
    let name = burst.name_any();
    let created = match session.api::<Burst>().create(&PostParams::default(), &burst).await {
        Ok(created) => created,
        Err(error) => {
            return Err(session.explain(error, &format!("failed to create {name:?}")).await);
        }
    };
    print::output(format!("burst.flux-framework.org/{name} created\n"))?;
    if arguments.wait {
        wait(session, &created, Goal::Ready).await?;
        match arguments.isolated {
            true => print::message(format_args!(
                "{name}: the job has finished; `{}` shows its exit code",
                session.command(&format!("jobs {}", arguments.cluster))
            )),
            false => {
                print::message(format_args!(
                    "{name}: all its nodes have joined {}",
                    arguments.cluster
                ));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Gets a policy. If there is none of this name, the error suggests others.
async fn policy(session: &Session, name: &str) -> Result<BurstPolicy> {
    let policies = session.api::<BurstPolicy>();
    match policies.get_opt(name).await {
        Ok(Some(policy)) => return Ok(policy),
        Ok(None) => {}
        Err(error) => return Err(session.explain(error, &format!("failed to get {name:?}")).await),
    }
    let listed = match policies.list_metadata(&ListParams::default()).await {
        Ok(listed) => listed.items,
        Err(error) => return Err(session.explain(error, "failed to list BurstPolicies").await),
    };
    let names: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    Err(session.not_found("BurstPolicy", name, &names))
}

/// The Burst that is requested. `suffix` makes a name unique.
fn new_burst(
    cluster: &MiniCluster,
    policy: &BurstPolicy,
    wish: &Arguments,
    suffix: impl FnOnce() -> String,
) -> Result<Burst, RequestRefusal> {
    check_policy(policy)?;
    let target = target_of(policy, wish)?;
    check_cluster(cluster, target, wish.isolated)?;
    let name = wish.name.clone().unwrap_or_else(|| {
        let cluster: String = cluster.name_any().chars().take(32).collect();
        format!("{cluster}-{}-{}", target.name, suffix())
    });
    let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
    let lifetime = wish.lifetime.map_or(policy.spec.limits.lifetime_seconds(), seconds);
    let mut burst = Burst::new(
        &name,
        BurstSpec {
            cluster: cluster.name_any(),
            // It is the user's: the policy neither resizes nor deletes it.
            policy: String::new(),
            target: BurstTarget {
                // An instance of its own keeps its size.
                scaling: target.scaling.clone().filter(|_| !wish.isolated),
                ..target.clone()
            },
            isolated_job: wish.job.map(|job| job.to_f58_plain()).unwrap_or_default(),
            nodes: wish.nodes,
            lifetime_seconds: Some(lifetime),
            idle_seconds: wish.idle.map(seconds),
            grace_seconds: Some(policy.spec.give_back.grace_seconds()),
            drain: false,
            jobs: wish.job.iter().map(JobId::to_string).collect(),
        },
    );
    burst.metadata.namespace = cluster.namespace();
    Ok(burst)
}

fn check_policy(policy: &BurstPolicy) -> Result<(), RequestRefusal> {
    let name = policy.name_any();
    match accepted(policy) {
        None => Err(RequestRefusal::NoController { policy: name }),
        Some(accepted) if accepted.status != "True" => {
            let remedy = accepted.reason.parse::<Reason>().ok().map(Reason::remedy);
            Err(RequestRefusal::NotAccepted {
                policy: name,
                message: accepted.message.clone(),
                remedy: remedy.unwrap_or("`kubectl describe burstpolicy` shows its conditions"),
            })
        }
        Some(_) => Ok(()),
    }
}

/// The target of the policy, if it has as many nodes.
fn target_of<'a>(
    policy: &'a BurstPolicy,
    wish: &Arguments,
) -> Result<&'a BurstTarget, RequestRefusal> {
    let mut targets = policy.spec.targets.iter();
    let found = targets.find(|it| wish.target.as_ref().is_none_or(|name| *name == it.name));
    let Some(target) = found else {
        return Err(RequestRefusal::NoTarget {
            policy: policy.name_any(),
            target: wish.target.clone().unwrap_or_default(),
            targets: policy.spec.targets.iter().map(|it| it.name.clone()).collect(),
        });
    };
    let (name, nodes, max) = (target.name.clone(), wish.nodes, target.max_nodes);
    match &target.scaling {
        _ if nodes > max => Err(RequestRefusal::TooMany { target: name, nodes, max }),
        Some(scaling)
            if !wish.isolated && !(scaling.min_nodes..=scaling.max_nodes).contains(&nodes) =>
        {
            let (min, max) = (scaling.min_nodes, scaling.max_nodes);
            Err(RequestRefusal::OutOfScale { target: name, nodes, min, max })
        }
        _ => Ok(target),
    }
}

fn check_cluster(
    cluster: &MiniCluster,
    target: &BurstTarget,
    is_isolated: bool,
) -> Result<(), RequestRefusal> {
    let name = cluster.name_any();
    if cluster.spec.is_joiner() {
        return Err(RequestRefusal::Joiner { cluster: name });
    }
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(RequestRefusal::Terminating { cluster: name });
    }
    if is_isolated {
        // Nothing there connects to the MiniCluster.
        return match target.is_elsewhere() {
            true => Ok(()),
            false => Err(RequestRefusal::NotElsewhere { target: target.name.clone() }),
        };
    }
    let bursting = cluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    // Only the gateway forwards the questions of brokers without an operator.
    let expose = bursting.and_then(|bursting| bursting.expose.as_ref());
    let is_exposed = expose.is_some_and(|expose| !expose.direct);
    if target.is_elsewhere() && !is_exposed {
        return Err(RequestRefusal::NotExposed { cluster: name, target: target.name.clone() });
    }
    Ok(())
}

/// Five random characters. They are not a secret.
fn random_suffix() -> String {
    const CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    (0..5).map(|_| char::from(CHARACTERS[fastrand::usize(..CHARACTERS.len())])).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cluster, condition, policy};
    use super::*;
    use clap::Parser;
    use serde_json::{Value, json};

    #[derive(Parser)]
    struct TestCommandLine {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn arguments(line: &str) -> Arguments {
        let words = ["request", "fs", "--policy", "cloud"].into_iter();
        TestCommandLine::parse_from(words.chain(line.split_whitespace())).arguments
    }

    fn requested(line: &str) -> Result<Burst, RequestRefusal> {
        let exposed = cluster(json!({ "expose": { "type": "NodePort" } }));
        new_burst(&exposed, &policy(), &arguments(line), || "abcde".to_owned())
    }

    #[test]
    fn a_burst_has_a_copy_of_the_target_and_no_policy() {
        let burst = requested("--nodes 4").unwrap();
        assert_eq!(burst.namespace().as_deref(), Some("team"));
        assert_eq!(burst.name_any(), "fs-gke-abcde");
        let expected = json!({ "cluster": "fs", "nodes": 4, "lifetimeSeconds": 7200,
            "graceSeconds": 30, "target": policy().spec.targets[0] });
        assert_eq!(serde_json::to_value(&burst.spec).unwrap(), expected);
        let line = "--nodes 3 --target pool --for 1h --idle 10m --name mine";
        let burst = requested(line).unwrap();
        let BurstSpec { target, lifetime_seconds, idle_seconds, .. } = &burst.spec;
        assert_eq!((burst.name_any().as_str(), target.name.as_str()), ("mine", "pool"));
        assert_eq!((*lifetime_seconds, *idle_seconds), (Some(3600), Some(600)));
    }

    #[test]
    fn refusals_say_what_to_do() {
        for (line, message, hint) in [
            (
                "--nodes 5",
                "target \"gke\" has at most 4 nodes, and 5 are requested",
                "request at most 4, or raise maxNodes of the target in the policy",
            ),
            (
                "--nodes 1 --target pool",
                "a Burst at target \"pool\" has 2 to 3 nodes, and 1 are requested",
                "request 2 to 3, or change scaling of the target in the policy",
            ),
            (
                "--nodes 1 --target aks",
                "BurstPolicy \"cloud\" has no target \"aks\"",
                "it has \"gke\", \"pool\"",
            ),
        ] {
            let refusal = requested(line).unwrap_err();
            assert_eq!(
                (refusal.to_string().as_str(), refusal.hint("team").as_str()),
                (message, hint)
            );
        }
    }

    #[test]
    fn only_other_kubernetes_clusters_need_an_exposed_minicluster() {
        let request = |bursting: Value, line: &str| {
            new_burst(&cluster(bursting), &policy(), &arguments(line), String::new)
        };
        let refusal = request(json!({ "spareRanks": 4 }), "--nodes 2").unwrap_err();
        let expected = "\"fs\" is not exposed, so nodes of target \"gke\", which is another \
                        Kubernetes cluster, cannot reach it";
        assert_eq!(refusal.to_string(), expected);
        assert!(refusal.hint("team").starts_with("set spec.flux.bursting.expose of fs"));
        assert!(request(json!({}), "--nodes 2 --target pool").is_ok());
    }

    #[test]
    fn a_policy_must_be_accepted_by_a_burst_controller() {
        let with = |conditions: Vec<_>| {
            let mut policy = policy();
            policy.status.as_mut().unwrap().conditions = conditions;
            check_policy(&policy).unwrap_err()
        };
        let refusal = with(Vec::new());
        assert!(refusal.to_string().ends_with("no burst controller seems to be running"));
        let hint = refusal.hint("team");
        assert!(hint.contains("`flux-operator manifests --burst-namespace team`"), "{hint}");
        let refusal =
            with(vec![condition("Accepted", "False", "NamespaceNotListed", "not served")]);
        assert_eq!(refusal.to_string(), "BurstPolicy \"cloud\" is not accepted: not served");
        assert_eq!(refusal.hint("team"), Reason::NamespaceNotListed.remedy());
    }

    #[test]
    fn a_cluster_without_an_instance_of_its_own_is_refused() {
        let target = BurstTarget::default();
        let mut joiner = cluster(json!({}));
        joiner.spec.flux = serde_json::from_value(json!({ "join": { "name": "first" } })).unwrap();
        let refusal = check_cluster(&joiner, &target, false).unwrap_err();
        assert_eq!(refusal, RequestRefusal::Joiner { cluster: "fs".into() });
        let mut leaving = cluster(json!({}));
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        let refusal = check_cluster(&leaving, &target, false).unwrap_err();
        assert_eq!(refusal, RequestRefusal::Terminating { cluster: "fs".into() });
    }
}
