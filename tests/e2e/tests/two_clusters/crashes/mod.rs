//! Operators crash while an invitation is made, used, revoked or expires: once after each of their
//! writes, and each of them after its first. The next operator takes over: the end is the same, and
//! nothing is left behind.
//!
//! ```text
//! round: invite ──► join ──► revoke (or the invitation expires) ──► the joiner is deleted
//!        each with the next crash that was not tried yet
//! ```
//!
//! The lender and both Kubernetes clusters stay for all rounds of a stage, and the invitation has the
//! same name in all of them.

mod crash;
mod end_state;
mod stage;

use anyhow::{Result, ensure};
use flux_operator_tests_e2e::second_cluster::with_two_clusters;
use futures::future::try_join_all;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use self::crash::{Cluster, Crash, Crashes};
use self::stage::Stage;
use super::joiner::LATE;

/// What happens while operators crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Invite,
    Join,
    Revoke,
    Expire,
}

/// How many rounds run at the same time, each in namespaces of its own. They mostly wait.
const STAGES: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_made_used_and_revoked() -> Result<()> {
    let crashes = Crashes::of([
        // The note on the Job, the lease, the Service and its endpoints.
        (Change::Invite, Cluster::Home, 4),
        // The cluster that uses the lease, and the broker that is online.
        (Change::Join, Cluster::Home, 2),
        // The keys, the ConfigMap, the Service, the Job and the status.
        (Change::Join, Cluster::Away, 5),
        // The note, the lease twice, the Service and its endpoints.
        (Change::Revoke, Cluster::Home, 5),
        // The status.
        (Change::Revoke, Cluster::Away, 1),
    ]);
    try_join_all((0..STAGES).map(async |number| {
        in_stage(async |stage| {
            let mut is_first = number == 0;
            while is_first || !crashes.is_empty() {
                for change in [Change::Invite, Change::Join, Change::Revoke] {
                    stage.make(change, next(&crashes, change, is_first), &crashes, LATE).await?;
                }
                stage.clean_up().await?;
                is_first = false;
            }
            Ok(())
        })
        .await
    }))
    .await?;
    crashes.assert_complete()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_expires() -> Result<()> {
    let crashes = Crashes::of([
        // The note, the lease twice, the Service and its endpoints.
        (Change::Expire, Cluster::Home, 5),
        // The Job and the status.
        (Change::Expire, Cluster::Away, 2),
    ]);
    try_join_all((0..STAGES).map(async |number| {
        in_stage(async |stage| {
            let mut is_first = number == 0;
            let mut validity = SignedDuration::from_secs(12);
            while is_first || !crashes.is_empty() {
                // Kubernetes stores whole seconds.
                let expires = Timestamp::now() + validity;
                let expires = expires.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                if stage.is_joined_before(&expires).await? {
                    let crash = next(&crashes, Change::Expire, is_first);
                    stage.make(Change::Expire, crash, &crashes, &expires).await?;
                    is_first = false;
                } else {
                    validity *= 2;
                }
                stage.clean_up().await?;
            }
            Ok(())
        })
        .await
    }))
    .await?;
    crashes.assert_complete()
}

fn next(crashes: &Crashes, change: Change, is_first: bool) -> Crash {
    if is_first { Crash::AfterEveryWrite } else { crashes.next(change) }
}

/// Runs rounds with a lender of their own, which is the same after them.
async fn in_stage(rounds: impl AsyncFnOnce(&mut Stage<'_>) -> Result<()>) -> Result<()> {
    with_two_clusters(async |home, away| {
        let mut stage = Stage::start(home, away).await?;
        // Unoptimized, the future of a round is too large for a test's stack.
        Box::pin(rounds(&mut stage)).await?;
        let leases = stage.leases().await?;
        ensure!(leases.is_empty(), "leases are left: {leases:?}");
        Ok(())
    })
    .await
}
