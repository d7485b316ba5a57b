//! Which crashes were tried, and which are next.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Result, ensure};

use super::Change;

/// A Kubernetes cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cluster {
    Home,
    Away,
}

impl Cluster {
    pub(super) const ALL: [Cluster; 2] = [Cluster::Home, Cluster::Away];
}

/// A value for each cluster, in the order of [`Cluster::ALL`].
pub(super) type PerCluster<T> = [T; 2];

/// When operators crash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Crash {
    /// The operator of each cluster after this write, if any, and its successor does not. They do not
    /// know of each other, so both may crash during the same change.
    Once(PerCluster<Option<usize>>),
    /// The operators of both, and each of their successors, after the first write that changes
    /// something.
    AfterEveryWrite,
}

impl Crash {
    /// Whether the operator of a cluster crashes.
    pub(super) fn is_in(self, cluster: Cluster) -> bool {
        match self {
            Crash::Once(writes) => writes[cluster as usize].is_some(),
            Crash::AfterEveryWrite => true,
        }
    }
}

/// The single crashes that are to be tried: after the first write, the second and so on, until an
/// operator makes fewer.
pub(super) struct Crashes(Mutex<BTreeMap<(Change, Cluster), Tried>>);

struct Tried {
    /// An operator makes at least this many writes.
    least: usize,
    /// The write that was tried last.
    last: usize,
    /// The last one after which an operator crashed.
    crashed: usize,
    /// An operator made fewer writes than were tried.
    is_complete: bool,
}

impl Crashes {
    /// After every write of the operator of a cluster during a change, each with the number of writes
    /// that it makes at least.
    pub(super) fn of(all: impl IntoIterator<Item = (Change, Cluster, usize)>) -> Crashes {
        let tried = |least| Tried { least, last: 0, crashed: 0, is_complete: false };
        let all = all.into_iter().map(|(change, it, least)| ((change, it), tried(least)));
        Crashes(Mutex::new(all.collect()))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Change, Cluster), Tried>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all were tried.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().values().all(|tried| tried.is_complete)
    }

    /// The next one for a change.
    pub(super) fn next(&self, change: Change) -> Crash {
        let mut all = self.lock();
        Crash::Once(Cluster::ALL.map(|cluster| {
            let tried = all.get_mut(&(change, cluster)).filter(|tried| !tried.is_complete)?;
            tried.last += 1;
            Some(tried.last)
        }))
    }

    /// Records how many operators of each cluster have crashed.
    pub(super) fn record(&self, change: Change, crash: Crash, crashed: PerCluster<usize>) {
        let Crash::Once(writes) = crash else { return };
        let mut all = self.lock();
        for ((cluster, write), crashed) in Cluster::ALL.into_iter().zip(writes).zip(crashed) {
            if let (Some(write), Some(tried)) = (write, all.get_mut(&(change, cluster))) {
                match crashed {
                    0 => tried.is_complete = true,
                    _ => tried.crashed = tried.crashed.max(write),
                }
            }
        }
    }

    /// Fails if operators crashed after fewer writes than they make: then some were not noticed.
    pub(super) fn assert_complete(&self) -> Result<()> {
        for (what, Tried { least, crashed, .. }) in &*self.lock() {
            ensure!(crashed >= least, "{what:?}: crashes only after {crashed} writes");
        }
        Ok(())
    }
}
