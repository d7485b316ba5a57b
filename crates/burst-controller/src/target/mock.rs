//! A target without brokers, for tests of a policy: nothing is created anywhere.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use flux_operator_api::Reason;
use flux_operator_api::burst::{MockFailure, MockTarget};
use flux_operator_plan::bursting::{Presence, TargetFailure, TargetView, object_name};
use flux_operator_service::lock::lock;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Duration, Instant};

use super::{Pool, Target};

/// What mocks pretend to have: when it was created, and the number of nodes.
static POOLS: LazyLock<Mutex<HashMap<String, (Instant, i32)>>> = LazyLock::new(Mutex::default);

/// A target that only pretends.
pub(crate) struct Mock(MockTarget);

impl Mock {
    pub(crate) fn new(mock: MockTarget) -> Mock {
        Mock(mock)
    }

    fn check(&self) -> Result<(), TargetFailure> {
        let (reason, message) = match self.0.failure {
            None | Some(MockFailure::OutOfCapacity) => return Ok(()),
            Some(MockFailure::Unreachable) => {
                (Reason::TargetUnreachable, "the mock target does not respond")
            }
            Some(MockFailure::CredentialsRefused) => {
                (Reason::CredentialsRefused, "the mock target does not accept the credentials")
            }
        };
        Err(TargetFailure::new(reason, message))
    }

    fn view(&self, name: &str) -> TargetView {
        let Some((created, nodes)) = lock(&POOLS).get(name).copied() else {
            return TargetView::default();
        };
        let is_full = self.0.failure == Some(MockFailure::OutOfCapacity);
        let after = Duration::from_secs(self.0.joined_after_seconds.unsigned_abs().into());
        let has_joined = !is_full && created.elapsed() >= after;
        let full = (Reason::OutOfCapacity, "the mock target has no nodes".to_owned());
        TargetView {
            presence: Presence::Complete,
            nodes,
            present: Some(nodes),
            trouble: is_full.then_some(full),
            mock_joined: Some(if has_joined { nodes } else { 0 }),
            ..TargetView::default()
        }
    }
}

impl Target for Mock {
    fn observe<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<TargetView, TargetFailure>> {
        async move { self.check().map(|()| self.view(&object_name(pool.burst))) }.boxed()
    }

    fn create<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        self.scale(pool, pool.burst.spec.nodes)
    }

    fn scale<'a>(&'a self, pool: Pool<'a>, nodes: i32) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            self.check()?;
            let mut pools = lock(&POOLS);
            pools.entry(object_name(pool.burst)).or_insert((Instant::now(), nodes)).1 = nodes;
            Ok(())
        }
        .boxed()
    }

    fn delete<'a>(&'a self, pool: Pool<'a>) -> BoxFuture<'a, Result<(), TargetFailure>> {
        async move {
            self.check()?;
            lock(&POOLS).remove(&object_name(pool.burst));
            Ok(())
        }
        .boxed()
    }
}
