//! Our own writes that the watches have not shown yet. A pass that planned without
//! them would write them a second time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long a write is waited for. One that does not show by then was undone by
/// somebody, or the watch is away; then what is seen counts.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was written: a kind, a name, and the resource version it has since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) version: Option<String>,
}

/// Writes that are waited for, by the MiniCluster's uid.
#[derive(Default)]
pub(crate) struct Expected(Mutex<HashMap<String, Vec<(Written, Instant)>>>);

impl Expected {
    /// Remembers a write.
    pub(crate) fn add(&self, uid: &str, written: Written) {
        let mut all = self.lock();
        let writes = all.entry(uid.to_owned()).or_default();
        writes.retain(|(before, _)| (&before.kind, &before.name) != (&written.kind, &written.name));
        writes.push((written, Instant::now()));
    }

    /// How long to wait for what is not shown yet, if something is not. `shown` gives
    /// the resource version of an object as it is seen.
    pub(crate) fn wait(
        &self,
        uid: &str,
        shown: impl Fn(&Written) -> Option<String>,
    ) -> Option<Duration> {
        let mut all = self.lock();
        let writes = all.get_mut(uid)?;
        writes.retain(|(written, at)| {
            at.elapsed() < PATIENCE && !is_shown(shown(written).as_deref(), written)
        });
        let left = writes.iter().map(|(_, at)| PATIENCE.saturating_sub(at.elapsed())).max();
        if left.is_none() {
            all.remove(uid);
        }
        left
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(Written, Instant)>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Versions of one kind grow, and Kubernetes says that they may be compared.
fn is_shown(shown: Option<&str>, written: &Written) -> bool {
    let number = |version: &str| version.parse::<u64>().ok();
    match (shown, written.version.as_deref()) {
        (None, _) => false,
        (Some(shown), Some(wanted)) => match (number(shown), number(wanted)) {
            (Some(shown), Some(wanted)) => shown >= wanted,
            _ => true,
        },
        (Some(_), None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: &str) -> Written {
        Written { kind: "Job".into(), name: "a".into(), version: Some(version.into()) }
    }

    #[test]
    fn a_write_is_waited_for_until_it_is_shown() {
        let expected = Expected::default();
        let shown = |version: Option<&str>| {
            let version = version.map(str::to_owned);
            expected.wait("u", |_| version.clone()).is_none()
        };
        assert!(shown(None), "nothing was written");
        expected.add("u", written("9"));
        expected.add("u", written("10"));
        assert!(!shown(None));
        assert!(!shown(Some("9")), "versions are numbers, not text");
        assert!(shown(Some("11")));
        assert!(shown(None), "it is remembered no more");
    }
}
