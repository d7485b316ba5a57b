//! `kubectl minicluster stop` and `resume`: stop and resume queues, jobs and MiniClusters.

use std::fmt::Debug;
use std::process::ExitCode;

use anyhow::{Result, bail};
use flux_operator_api::fluxsetup::StopPolicy;
use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_queue::Resource;
use k8s_openapi::NamespaceResourceScope;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::session::Session;
use super::target::{Found, Kind, Target, find};
use crate::print;

/// Stop queues, jobs or MiniClusters.
///
/// A stopped queue admits no more jobs; its admitted jobs keep running, unless --drain is given. A
/// stopped job or MiniCluster releases its nodes; when it is resumed, its command starts from the
/// beginning.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Names of queues (fs/NAME), jobs (fj/NAME) or MiniClusters (mc/NAME). The kind may be omitted
    /// if the name is unambiguous.
    #[arg(required = true)]
    name: Vec<Target>,

    /// Also evict the admitted jobs of the queue. They wait again.
    #[arg(long)]
    drain: bool,
}

/// Resume stopped queues, jobs or MiniClusters.
#[derive(clap::Args)]
pub(super) struct ResumeArguments {
    /// Names of queues (fs/NAME), jobs (fj/NAME) or MiniClusters (mc/NAME). The kind may be omitted
    /// if the name is unambiguous.
    #[arg(required = true)]
    name: Vec<Target>,
}

/// What to do with the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Stop,
    Drain,
    Resume,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let wish = if arguments.drain { Wish::Drain } else { Wish::Stop };
    each(session, &arguments.name, wish).await
}

pub(super) async fn resume(session: &Session, arguments: &ResumeArguments) -> Result<ExitCode> {
    each(session, &arguments.name, Wish::Resume).await
}

async fn each(session: &Session, names: &[Target], wish: Wish) -> Result<ExitCode> {
    for name in names {
        match find(session, name, &[Kind::Setup, Kind::Job, Kind::MiniCluster]).await? {
            Found::Setup(setup) => carry_out(session, &*setup, of_setup(&setup, wish)).await?,
            Found::Job(job) => carry_out(session, &*job, of_job(&job, wish)?).await?,
            Found::MiniCluster(minicluster) => {
                carry_out(session, &*minicluster, of_minicluster(&minicluster, wish)?).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The change to make, if any, and the message to print.
#[derive(Debug, PartialEq)]
struct Change {
    patch: Option<Value>,
    said: String,
}

async fn carry_out<K>(session: &Session, object: &K, change: Change) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let name = object.name_any();
    if let Some(patch) = change.patch {
        let (api, how) = (session.api::<K>(), PatchParams::default());
        if let Err(error) = api.patch(&name, &how, &Patch::Merge(patch)).await {
            return Err(session.explain(error, &format!("failed to change {name:?}")).await);
        }
    }
    let kind = format!("{}.{}", K::kind(&()).to_lowercase(), K::group(&()));
    print::output(format!("{kind}/{name} {}\n", change.said))
}

fn of_setup(setup: &FluxSetup, wish: Wish) -> Change {
    let status = setup.status.clone().unwrap_or_default();
    let (pending, admitted) = (status.pending_workloads, status.admitted_workloads);
    let (policy, said) = match wish {
        Wish::Stop => (
            StopPolicy::Hold,
            format!("stopped: it admits no more jobs; jobs that keep running: {admitted}"),
        ),
        Wish::Drain => (
            StopPolicy::HoldAndDrain,
            format!("stopped: it admits no more jobs; jobs that are evicted: {admitted}"),
        ),
        Wish::Resume => (StopPolicy::None, format!("resumed; waiting jobs: {pending}")),
    };
    if setup.spec.stop_policy == policy {
        return unchanged(wish);
    }
    Change { patch: Some(json!({ "spec": { "stopPolicy": policy } })), said }
}

fn of_job(job: &FluxJob, wish: Wish) -> Result<Change> {
    let status = job.status.clone().unwrap_or_default();
    if status.finish_time.is_some() {
        bail!("the job {:?} has finished: there is nothing to stop or resume", job.name_any());
    }
    let said = match status.admission {
        Some(admission) => format!("stopped: {} released", nodes(admission.size)),
        None => "stopped: it is not admitted until it is resumed".into(),
    };
    suspend(job.spec.suspend, wish, said, "resumed: it waits for quota")
}

fn of_minicluster(minicluster: &MiniCluster, wish: Wish) -> Result<Change> {
    let said = format!("stopped: {} released", nodes(minicluster.spec.size));
    suspend(minicluster.spec.suspend, wish, said, "resumed: it starts again")
}

fn suspend(suspended: bool, wish: Wish, stopped: String, resumed: &str) -> Result<Change> {
    let (wanted, said) = match wish {
        Wish::Drain => bail!("--drain is for queues\nhint: omit it"),
        Wish::Stop => (true, stopped),
        Wish::Resume => (false, resumed.to_owned()),
    };
    if suspended == wanted {
        return Ok(unchanged(wish));
    }
    Ok(Change { patch: Some(json!({ "spec": { "suspend": wanted } })), said })
}

fn nodes(count: i32) -> String {
    Resource::Nodes.amount(count.into())
}

fn unchanged(wish: Wish) -> Change {
    let said = match wish {
        Wish::Stop | Wish::Drain => "unchanged: it is already stopped",
        Wish::Resume => "unchanged: it is not stopped",
    };
    Change { patch: None, said: said.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(policy: &str) -> FluxSetup {
        let mut setup = FluxSetup::new(
            "team",
            serde_json::from_value(json!({ "stopPolicy": policy })).unwrap(),
        );
        let status = json!({ "pendingWorkloads": 3, "admittedWorkloads": 1 });
        setup.status = Some(serde_json::from_value(status).unwrap());
        setup
    }

    fn policy(change: &Change) -> Option<&str> {
        change.patch.as_ref()?["spec"]["stopPolicy"].as_str()
    }

    #[test]
    fn a_queue_is_held_drained_and_let_go_on() {
        let stopped = of_setup(&setup("None"), Wish::Stop);
        assert_eq!(policy(&stopped), Some("Hold"));
        assert_eq!(stopped.said, "stopped: it admits no more jobs; jobs that keep running: 1");
        assert_eq!(policy(&of_setup(&setup("Hold"), Wish::Drain)), Some("HoldAndDrain"));
        let resumed = of_setup(&setup("HoldAndDrain"), Wish::Resume);
        assert_eq!(policy(&resumed), Some("None"));
        assert_eq!(resumed.said, "resumed; waiting jobs: 3");
    }

    #[test]
    fn what_is_so_already_is_not_written_again() {
        for (policy, wish) in
            [("Hold", Wish::Stop), ("HoldAndDrain", Wish::Drain), ("None", Wish::Resume)]
        {
            let change = of_setup(&setup(policy), wish);
            assert_eq!(change.patch, None);
            assert!(change.said.starts_with("unchanged: "), "{}", change.said);
        }
        assert_eq!(suspend(true, Wish::Stop, String::new(), "").unwrap().patch, None);
    }

    #[test]
    fn a_job_is_suspended_unless_it_has_ended() {
        let mut job = FluxJob::new("a", serde_json::from_value(json!({})).unwrap());
        let change = of_job(&job, Wish::Stop).unwrap();
        assert_eq!(change.patch, Some(json!({ "spec": { "suspend": true } })));
        assert!(
            of_job(&job, Wish::Drain).unwrap_err().to_string().contains("--drain is for queues")
        );
        let status = json!({ "finishTime": "2026-01-01T00:00:00Z" });
        job.status = Some(serde_json::from_value(status).unwrap());
        assert!(of_job(&job, Wish::Stop).unwrap_err().to_string().contains("has finished"));
    }
}
