//! Stores whose filling any number of tasks can wait for. kube's own wait wakes only the
//! task that asked last.

use std::hash::Hash;
use std::ops::Deref;

use kube::Resource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use tokio::sync::watch;

/// Whether everything that was there at the start has been seen. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Filled(watch::Sender<bool>);

impl Filled {
    /// Not yet.
    pub(crate) fn not_yet() -> Filled {
        Filled(watch::channel(false).0)
    }

    /// From now on.
    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }

    /// Whether it is.
    pub(crate) fn is(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is.
    pub(crate) async fn wait(&self) {
        // The sender is ours, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|filled| *filled).await;
    }
}

/// A store, and whether it is filled. Cheap to clone.
pub(crate) struct Watched<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    filled: Filled,
}

impl<K: Resource<DynamicType = ()> + 'static> Clone for Watched<K>
where
    Store<K>: Clone,
{
    fn clone(&self) -> Self {
        Watched { store: self.store.clone(), filled: self.filled.clone() }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Deref for Watched<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K> Watched<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// An empty store, and who fills it.
    pub(crate) fn new() -> (Watched<K>, Writer<K>) {
        let (store, writer) = reflector::store();
        (Watched { store, filled: Filled::not_yet() }, writer)
    }

    /// Takes note of an event that the store has.
    pub(crate) fn note(&self, event: &Event<K>) {
        if matches!(event, Event::InitDone) {
            self.filled.now();
        }
    }

    /// Whether everything that was there at the start has been seen.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.is()
    }

    /// Waits until everything that was there at the start has been seen.
    pub(crate) async fn filled(&self) {
        self.filled.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[tokio::test]
    async fn all_who_wait_are_woken() {
        let (watched, _writer) = Watched::<Pod>::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let watched = watched.clone();
                tokio::spawn(async move { watched.filled().await })
            })
            .collect();
        tokio::task::yield_now().await;
        watched.note(&Event::Init);
        watched.note(&Event::InitDone);
        for task in waiting {
            task.await.unwrap();
        }
    }
}
