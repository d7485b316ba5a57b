//! What was observed of a Burst: the input of its decisions.

use std::sync::Arc;

use flux_operator_api::minicluster::Lease;
use flux_operator_api::view::InstanceJobs;
use flux_operator_api::{Burst, MiniCluster, Reason};
use flux_operator_flux::{IdSet, RankList};
use flux_operator_wire::{Termination, TerminationReason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::isolated::HomeAnswer;
use super::names::object_name;
use crate::observed::has_finished;
use crate::status::{RunView, of_pod};

/// What was observed of a Burst, and when.
#[derive(Clone, Debug)]
pub struct BurstObserved<'a> {
    /// The MiniCluster that it names.
    pub cluster: ObservedMiniCluster<'a>,
    /// Other Bursts: of those for the same job, one runs it.
    pub others: &'a [Arc<Burst>],
    /// What exists at the target; `None` if it was not asked.
    pub target: Option<Result<TargetView, TargetFailure>>,
    /// The ranks of jobs that run in the instance, one entry for each job; `None` while they are not
    /// known.
    pub running: Option<Vec<IdSet>>,
    /// What has become at home of the job that runs in an instance of its own.
    pub home: HomeAnswer,
    /// The time.
    pub now: Timestamp,
}

/// The MiniCluster that a Burst names, as it was observed.
#[derive(Clone, Copy, Debug)]
pub enum ObservedMiniCluster<'a> {
    /// It exists.
    Readable(&'a MiniCluster),
    /// It exists, and cannot be read.
    Unreadable,
    /// There is none of this name.
    Missing,
}

impl<'a> ObservedMiniCluster<'a> {
    /// The MiniCluster, if it exists and can be read.
    pub fn readable(self) -> Option<&'a MiniCluster> {
        match self {
            ObservedMiniCluster::Readable(cluster) => Some(cluster),
            ObservedMiniCluster::Unreadable | ObservedMiniCluster::Missing => None,
        }
    }
}

/// The ranks of running jobs, one entry for each job that is listed, and one for all others. `None` if an agent
/// of an older release does not say where jobs run.
pub fn running_ranks(jobs: &InstanceJobs) -> Option<Vec<IdSet>> {
    let busy: IdSet = jobs.busy.as_ref()?.parse().unwrap_or_default();
    let mut running: Vec<IdSet> =
        jobs.running.iter().map(|job| job.ranks.parse().unwrap_or_default()).collect();
    let rest = busy.difference(&IdSet::union_all(&running));
    running.extend((!rest.is_empty()).then_some(rest));
    Some(running)
}

/// What exists at a target for a Burst.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetView {
    /// How much of it exists.
    pub presence: Presence,
    /// A hash of where that is, so that another server is noticed.
    pub place: String,
    /// How many pods its Job or joiner should have.
    pub nodes: i32,
    /// How many it has, running or not: as many nodes are used. `None`: as many as before.
    pub present: Option<i32>,
    /// Why pods do not start, if there is a reason.
    pub trouble: Option<(Reason, String)>,
    /// Why its Job will never start a pod again, if it has failed.
    pub job_failure: Option<String>,
    /// The run of its job, of a Burst with an instance of its own.
    pub run: Option<RunView>,
    /// Brokers that have joined, at a target that has no real ones.
    pub mock_joined: Option<i32>,
}

/// How much exists at a target for a Burst.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    #[default]
    Nothing,
    /// A Kubernetes cluster is being made for it; the text says how far that is.
    ClusterComing(String),
    /// Its cluster could not be made, for this reason, and will never come.
    ClusterFailed(String),
    /// A Kubernetes cluster was made for it, and has no brokers.
    ClusterReady,
    /// Its cluster could not be deleted: `delete` has to be called again.
    ClusterDeletionFailed,
    /// Its cluster was deleted, and `delete` has to be called again for what is recorded of that.
    ClusterDeleted,
    /// The Job of its brokers, which is created last, or its joiner.
    Complete,
    /// Something that is being deleted.
    Leaving,
}

impl TargetView {
    /// Whether something exists that has to be deleted some time.
    pub(super) fn has_any(&self) -> bool {
        self.presence != Presence::Nothing
    }

    /// Whether pods run, or will: its Job has not failed, and its run has not ended.
    pub(super) fn has_pods(&self) -> bool {
        let has_ended = self.run.as_ref().is_some_and(|run| run.end.is_some());
        self.presence == Presence::Complete && self.job_failure.is_none() && !has_ended
    }
}

/// Why a target has not done what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TargetFailure {
    /// The reason, by which its condition is chosen.
    pub reason: Reason,
    /// What happened. It never contains credentials.
    pub message: String,
}

impl TargetFailure {
    /// A failure with this reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> TargetFailure {
        TargetFailure { reason, message: message.into() }
    }

    /// Whether it is about credentials, rather than about the target.
    pub(super) fn is_about_credentials(&self) -> bool {
        matches!(
            self.reason,
            Reason::CredentialsMissing
                | Reason::CredentialsRefused
                | Reason::KubeconfigRefused
                | Reason::NamespaceNotListed
                | Reason::ClusterNotAllowed
                | Reason::TargetChanged
        )
    }

    /// Whether the target is not the problem: it has refused something, or was not asked because home is
    /// not ready.
    pub(super) fn is_response(&self) -> bool {
        matches!(
            self.reason,
            Reason::TargetRefused
                | Reason::ClusterRefused
                | Reason::LenderNotReady
                | Reason::NotExposed
        )
    }
}

/// The longest message of a target that is shown. It is not ours, and may have any length.
pub(super) const MAX_MESSAGE: usize = 512;

/// Why pods at a target do not start, if there is a reason.
pub fn pods_trouble(pods: &[Pod]) -> Option<(Reason, String)> {
    pods.iter().filter(|pod| !has_finished(pod)).find_map(of_pod).map(|trouble| {
        let message = trouble.message.chars().take(MAX_MESSAGE).collect();
        match trouble.reason {
            Reason::Unschedulable => (Reason::OutOfCapacity, message),
            reason => (reason, message),
        }
    })
}

/// Why a Job has failed, if it has: Kubernetes starts none of its pods again. What an agent has said of
/// it, in one of `pods`, is more than Kubernetes knows.
pub fn job_failure(job: &Job, pods: &[Pod]) -> Option<String> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let failed = conditions.iter().find(|it| it.type_ == "Failed" && it.status == "True")?;
    let why = failed.message.as_deref().or(failed.reason.as_deref()).unwrap_or_default();
    let said = pods.iter().find_map(last_words).unwrap_or_else(|| why.to_owned());
    Some(said.chars().take(MAX_MESSAGE).collect())
}

/// Why the agent of a pod has failed, in its own words.
fn last_words(pod: &Pod) -> Option<String> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.iter().find_map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        let termination = Termination::parse(terminated.message.as_deref()?)?;
        let is_failure = termination.exit_code != 0
            && termination.reason != TerminationReason::Stopped
            && !termination.message.is_empty();
        is_failure.then_some(termination.message)
    })
}

/// The lease that a Burst has in the instance of its MiniCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BurstLease {
    /// The ranks, in the order of its pods.
    pub(super) ranks: RankList,
    /// Those of them whose brokers are online. Empty if that is not known.
    pub(super) online: IdSet,
    /// Whether the lead has said lately which are.
    pub(super) is_online_known: bool,
    /// Those that are drained, and on which no job runs.
    pub(super) drained: IdSet,
    /// Why its brokers are refused, if they are.
    pub(super) refusal: Option<(String, String)>,
}

impl BurstLease {
    /// The lease of a Burst; `None` while it has none.
    pub(super) fn of(burst: &Burst, cluster: &MiniCluster) -> Option<BurstLease> {
        let status = cluster.status.as_ref()?;
        let name = object_name(burst);
        let leases: Vec<&Lease> = status.leases.iter().filter(|it| it.name == name).collect();
        let ranks = leases
            .iter()
            .fold(RankList::default(), |all, lease| all.followed_by(&lease.rank_list()));
        let invitation = leases.first()?.invitation.as_ref();
        let online: IdSet = status.online.parse().unwrap_or_default();
        let drained = invitation.and_then(|it| it.drained.parse().ok()).unwrap_or_default();
        let refusal = invitation.and_then(|it| it.refusal.clone());
        Some(BurstLease {
            online: ranks.to_set().intersection(&online),
            // The lead itself is always among them.
            is_online_known: !online.is_empty(),
            ranks,
            drained,
            refusal: refusal.map(|it| (it.reason, it.message)),
        })
    }

    /// Whether no job runs on the ranks of its pods from `first` on, and none is started there.
    pub(super) fn is_drained_from(&self, first: usize) -> bool {
        let ranks = self.ranks.split_at(first).1.to_set();
        self.is_online_known && ranks.intersection(&self.online).is_subset(&self.drained)
    }
}

#[cfg(test)]
mod tests {
    use flux_operator_api::view::RunningInstanceJob;

    use super::*;

    fn running_job(ranks: &str) -> RunningInstanceJob {
        RunningInstanceJob { ranks: ranks.to_owned(), ..RunningInstanceJob::default() }
    }

    #[test]
    fn ranks_of_running_jobs_are_those_that_are_listed_and_all_others_that_are_busy() {
        let jobs = |running: &[&str], busy: Option<&str>| InstanceJobs {
            running: running.iter().map(|ranks| running_job(ranks)).collect(),
            busy: busy.map(str::to_owned),
            ..InstanceJobs::default()
        };
        let ranks = |running: &[&str], busy| {
            running_ranks(&jobs(running, busy))
                .map(|all| all.iter().map(IdSet::to_string).collect::<Vec<_>>())
        };
        assert_eq!(ranks(&["0"], Some("0-3")), Some(vec!["0".into(), "1-3".into()]));
        assert_eq!(ranks(&["0-1", "1"], Some("0-1")), Some(vec!["0-1".into(), "1".into()]));
        assert_eq!(ranks(&[], Some("")), Some(vec![]));
        assert_eq!(ranks(&["0"], None), None);
    }
}
