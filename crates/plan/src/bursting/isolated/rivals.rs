//! Other Bursts for the same job: at most one of them runs it.
//!
//! Each Burst decides this for itself, from what the controller has of the others, which may be old. So
//! one that comes first waits until all others have recorded that they do not run the job, and only then
//! takes it. Of two Bursts, the one that was created later always knows of the other.

use std::sync::Arc;

use flux_operator_api::Burst;
use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_flux::JobId;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use crate::bursting::life::has_finalizer;

/// What a Burst may do about its job, as far as others for the same job are concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// There is no other one.
    Alone,
    /// It comes first. The others have not recorded yet that they do not run the job.
    First,
    /// The one of this name comes before it.
    Behind(String),
}

/// What a Burst may do about its job.
pub(super) fn standing(burst: &Burst, others: &[Arc<Burst>]) -> Standing {
    let mut standing = Standing::Alone;
    for other in others.iter().filter(|other| is_rival(burst, other)) {
        if is_before(other, burst) {
            return Standing::Behind(other.name_any());
        }
        standing = Standing::First;
    }
    standing
}

/// Whether another Burst may run, or has run, the same job.
fn is_rival(burst: &Burst, other: &Burst) -> bool {
    let cluster = |it: &Burst| it.status.as_ref().map(|it| it.cluster_uid.clone());
    let uids = [burst, other].map(|it| cluster(it).filter(|uid| !uid.is_empty()));
    // Without a record it is for the MiniCluster that exists, which may be the same.
    let is_same_instance = match &uids {
        [Some(one), Some(other)] => one == other,
        _ => true,
    };
    let job = |it: &Burst| it.spec.isolated_job.parse::<JobId>().ok().map(JobId::number);
    other.uid() != burst.uid()
        && other.namespace() == burst.namespace()
        && other.spec.cluster == burst.spec.cluster
        && other.is_isolated()
        && job(other) == job(burst)
        && is_same_instance
        && !has_yielded(other)
}

/// Whether it is recorded that a Burst does not run the job, and never will.
fn has_yielded(burst: &Burst) -> bool {
    let default = BurstRun::default();
    let run = burst.run().unwrap_or(&default);
    match run.state {
        RunState::Refused | RunState::Yielded => true,
        RunState::Finishing => run.home_settled && !run.may_have_run,
        RunState::Holding => burst.metadata.deletion_timestamp.is_some() && !has_finalizer(burst),
        RunState::Starting | RunState::Running => false,
        RunState::Completed | RunState::Failed => false,
    }
}

/// Whether one comes before another: it has taken the job, or gives it back, or has a finalizer, or is
/// older. One without a finalizer may be gone at any time, and would not release a job that was held.
fn is_before(one: &Burst, other: &Burst) -> bool {
    let progress = |burst: &Burst| {
        let default = BurstRun::default();
        let run = burst.run().unwrap_or(&default);
        match run.state {
            RunState::Holding if !has_finalizer(burst) => 0,
            RunState::Holding => 1,
            RunState::Finishing if !run.may_have_run => 2,
            _ => 3,
        }
    };
    let age = |burst: &Burst| -> (Timestamp, Option<String>) { (burst.created(), burst.uid()) };
    match progress(one).cmp(&progress(other)) {
        std::cmp::Ordering::Equal => age(one) < age(other),
        order => order.is_gt(),
    }
}
