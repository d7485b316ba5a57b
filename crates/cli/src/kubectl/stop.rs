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
use super::target::{FoundObject, ObjectKind, Target, find};
use crate::print;

/// Stop queues, jobs or MiniClusters.
///
/// A stopped queue admits no more jobs; its admitted jobs keep running, unless --drain is given. A
/// stopped job or MiniCluster releases its nodes. When it is resumed, its command starts again from
/// the beginning.
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
enum StopAction {
    Stop,
    Drain,
    Resume,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let action = if arguments.drain { StopAction::Drain } else { StopAction::Stop };
    apply_to_all(session, &arguments.name, action).await
}

pub(super) async fn resume(session: &Session, arguments: &ResumeArguments) -> Result<ExitCode> {
    apply_to_all(session, &arguments.name, StopAction::Resume).await
}

async fn apply_to_all(session: &Session, names: &[Target], wish: StopAction) -> Result<ExitCode> {
    for name in names {
        match find(session, name, &[ObjectKind::Setup, ObjectKind::Job, ObjectKind::MiniCluster])
            .await?
        {
            FoundObject::Setup(setup) => {
                apply(session, &*setup, change_setup(&setup, wish)).await?
            }
            FoundObject::Job(job) => apply(session, &*job, change_job(&job, wish)?).await?,
            FoundObject::MiniCluster(minicluster) => {
                apply(session, &*minicluster, change_minicluster(&minicluster, wish)?).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The change to make, if any, and the message to print.
#[derive(Debug, PartialEq)]
struct StopChange {
    patch: Option<Value>,
    message: String,
}

async fn apply<K>(session: &Session, object: &K, change: StopChange) -> Result<()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let name = object.name_any();
    if let Some(patch) = change.patch {
        let (api, parameters) = (session.api::<K>(), PatchParams::default());
        if let Err(error) = api.patch(&name, &parameters, &Patch::Merge(patch)).await {
            return Err(session.explain(error, &format!("failed to change {name:?}")).await);
        }
    }
    let kind = format!("{}.{}", K::kind(&()).to_lowercase(), K::group(&()));
    print::output(format!("{kind}/{name} {}\n", change.message))
}

fn change_setup(setup: &FluxSetup, wish: StopAction) -> StopChange {
    let status = setup.status.clone().unwrap_or_default();
    let (pending, admitted) = (status.pending_workloads, status.admitted_workloads);
    let (policy, message) = match wish {
        StopAction::Stop => (
            StopPolicy::Hold,
            format!("stopped: it admits no more jobs; jobs that keep running: {admitted}"),
        ),
        StopAction::Drain => (
            StopPolicy::HoldAndDrain,
            format!("stopped: it admits no more jobs; jobs that are evicted: {admitted}"),
        ),
        StopAction::Resume => (StopPolicy::None, format!("resumed; waiting jobs: {pending}")),
    };
    if setup.spec.stop_policy == policy {
        return unchanged(wish);
    }
    StopChange { patch: Some(json!({ "spec": { "stopPolicy": policy } })), message }
}

fn change_job(job: &FluxJob, wish: StopAction) -> Result<StopChange> {
    let status = job.status.clone().unwrap_or_default();
    if status.finish_time.is_some() {
        bail!("the job {:?} has finished: there is nothing to stop or resume", job.name_any());
    }
    let said = match status.admission {
        Some(admission) => format!("stopped: {} released", nodes(admission.size)),
        None => "stopped: it is not admitted until it is resumed".into(),
    };
    set_suspend(job.spec.suspend, wish, said, "resumed: it waits for quota")
}

fn change_minicluster(minicluster: &MiniCluster, wish: StopAction) -> Result<StopChange> {
    let said = format!("stopped: {} released", nodes(minicluster.spec.size));
    set_suspend(minicluster.spec.suspend, wish, said, "resumed: it starts again")
}

fn set_suspend(
    suspended: bool,
    wish: StopAction,
    stopped: String,
    resumed: &str,
) -> Result<StopChange> {
    let (wanted, said) = match wish {
        StopAction::Drain => bail!("--drain is for queues\nhint: omit it"),
        StopAction::Stop => (true, stopped),
        StopAction::Resume => (false, resumed.to_owned()),
    };
    if suspended == wanted {
        return Ok(unchanged(wish));
    }
    Ok(StopChange { patch: Some(json!({ "spec": { "suspend": wanted } })), message: said })
}

fn nodes(count: i32) -> String {
    Resource::Nodes.describe(count.into())
}

fn unchanged(wish: StopAction) -> StopChange {
    let said = match wish {
        StopAction::Stop | StopAction::Drain => "unchanged: it is already stopped",
        StopAction::Resume => "unchanged: it is not stopped",
    };
    StopChange { patch: None, message: said.into() }
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

    fn policy(change: &StopChange) -> Option<&str> {
        change.patch.as_ref()?["spec"]["stopPolicy"].as_str()
    }

    #[test]
    fn a_queue_is_stopped_drained_and_resumed() {
        let stopped = change_setup(&setup("None"), StopAction::Stop);
        assert_eq!(policy(&stopped), Some("Hold"));
        assert_eq!(stopped.message, "stopped: it admits no more jobs; jobs that keep running: 1");
        assert_eq!(policy(&change_setup(&setup("Hold"), StopAction::Drain)), Some("HoldAndDrain"));
        let resumed = change_setup(&setup("HoldAndDrain"), StopAction::Resume);
        assert_eq!(policy(&resumed), Some("None"));
        assert_eq!(resumed.message, "resumed; waiting jobs: 3");
    }

    #[test]
    fn an_object_in_the_requested_state_is_not_changed() {
        for (policy, wish) in [
            ("Hold", StopAction::Stop),
            ("HoldAndDrain", StopAction::Drain),
            ("None", StopAction::Resume),
        ] {
            let change = change_setup(&setup(policy), wish);
            assert_eq!(change.patch, None);
            assert!(change.message.starts_with("unchanged: "), "{}", change.message);
        }
        assert_eq!(set_suspend(true, StopAction::Stop, String::new(), "").unwrap().patch, None);
    }

    #[test]
    fn a_job_is_suspended_unless_it_has_finished() {
        let mut job = FluxJob::new("a", serde_json::from_value(json!({})).unwrap());
        let change = change_job(&job, StopAction::Stop).unwrap();
        assert_eq!(change.patch, Some(json!({ "spec": { "suspend": true } })));
        assert!(
            change_job(&job, StopAction::Drain)
                .unwrap_err()
                .to_string()
                .contains("--drain is for queues")
        );
        let status = json!({ "finishTime": "2026-01-01T00:00:00Z" });
        job.status = Some(serde_json::from_value(status).unwrap());
        assert!(
            change_job(&job, StopAction::Stop).unwrap_err().to_string().contains("has finished")
        );
    }
}
