//! Reflector stores whose initial list any number of tasks can wait for. kube's own
//! `Store::wait_until_ready` wakes only the task that called it last.

use std::hash::Hash;
use std::ops::Deref;

use kube::Resource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use crate::lease::Term;

/// Whether a watch has listed all objects, and in which [`Term`] that list started. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SyncState(watch::Sender<ListProgress>);

#[derive(Debug, Default)]
struct ListProgress {
    /// The term in which the last list started.
    listing: Term,
    /// The term of the last complete list.
    listed: Option<Term>,
}

impl SyncState {
    /// The state of a watch that has listed nothing yet.
    pub(crate) fn new() -> SyncState {
        SyncState(watch::Sender::default())
    }

    /// Records that a list starts in this term.
    pub(crate) fn begin_list(&self, term: Term) {
        self.0.send_modify(|progress| progress.listing = term);
    }

    /// Records that the list is complete.
    pub(crate) fn finish_list(&self) {
        self.0.send_modify(|progress| {
            progress.listed = progress.listed.max(Some(progress.listing));
        });
    }

    /// Records that there will be no list, so that waiting tasks continue.
    pub(crate) fn skip(&self) {
        self.0.send_modify(|progress| progress.listed = Some(Term::LAST));
    }

    /// Whether any list was completed, in any term.
    pub(crate) fn has_synced(&self) -> bool {
        self.0.borrow().listed.is_some()
    }

    /// Waits for the completion of a list that started in this term or later.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        // We own the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|progress| progress.listed >= Some(term)).await;
    }
}

/// A store and its [`SyncState`]. Cheap to clone.
pub(crate) struct SyncedStore<K: Resource<DynamicType = ()> + 'static> {
    store: Store<K>,
    sync: SyncState,
}

impl<K: Resource<DynamicType = ()> + 'static> Clone for SyncedStore<K>
where
    Store<K>: Clone,
{
    fn clone(&self) -> Self {
        SyncedStore { store: self.store.clone(), sync: self.sync.clone() }
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Deref for SyncedStore<K> {
    type Target = Store<K>;

    fn deref(&self) -> &Store<K> {
        &self.store
    }
}

impl<K> SyncedStore<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    /// An empty store, and the writer that fills it.
    pub(crate) fn new() -> (SyncedStore<K>, Writer<K>) {
        let (store, writer) = reflector::store();
        (SyncedStore { store, sync: SyncState::new() }, writer)
    }

    /// Records an event that was already applied to the store.
    pub(crate) fn record(&self, event: &Event<K>) {
        if matches!(event, Event::InitDone) {
            self.sync.finish_list();
        }
    }

    /// Whether all objects have been listed once.
    pub(crate) fn has_synced(&self) -> bool {
        self.sync.has_synced()
    }

    /// Waits until all objects have been listed in this term.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        self.sync.wait_until_synced(term).await;
    }

    /// The [`SyncState`], for the watch that fills the store.
    pub(crate) fn sync_state(&self) -> SyncState {
        self.sync.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::Pod;

    #[tokio::test]
    async fn all_waiting_tasks_are_woken() {
        let (store, _writer) = SyncedStore::<Pod>::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let watched = store.clone();
                tokio::spawn(async move { watched.wait_until_synced(Term::default()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        store.record(&Event::Init);
        store.record(&Event::InitDone);
        for task in waiting {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_list_from_an_earlier_term_does_not_count() {
        let sync = SyncState::new();
        let (before, term) = (Term::default(), Term::LAST);
        sync.begin_list(before);
        sync.finish_list();
        sync.wait_until_synced(before).await;
        assert!(sync.has_synced());
        sync.begin_list(term);
        assert!(sync.has_synced(), "earlier lists remain readable meanwhile");
        assert!(sync.wait_until_synced(term).now_or_never().is_none());
        sync.finish_list();
        sync.wait_until_synced(term).await;
    }
}
