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
pub(crate) struct Filled(watch::Sender<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// The term in which the last list started.
    listing: Term,
    /// The term of the last complete list.
    listed: Option<Term>,
}

impl Filled {
    /// Nothing is listed yet.
    pub(crate) fn not_yet() -> Filled {
        Filled(watch::Sender::default())
    }

    /// A list starts.
    pub(crate) fn begins(&self, term: Term) {
        self.0.send_modify(|progress| progress.listing = term);
    }

    /// The list is complete.
    pub(crate) fn now(&self) {
        self.0.send_modify(|progress| {
            progress.listed = progress.listed.max(Some(progress.listing));
        });
    }

    /// There will be no list, so waiting tasks continue.
    pub(crate) fn never(&self) {
        self.0.send_modify(|progress| progress.listed = Some(Term::LAST));
    }

    /// Whether any list was completed, in any term.
    pub(crate) fn is(&self) -> bool {
        self.0.borrow().listed.is_some()
    }

    /// Waits for the completion of a list that started in this term or later.
    pub(crate) async fn wait(&self, term: Term) {
        // We own the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|progress| progress.listed >= Some(term)).await;
    }
}

/// A store and its [`Filled`]. Cheap to clone.
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
    /// An empty store, and the writer that fills it.
    pub(crate) fn new() -> (Watched<K>, Writer<K>) {
        let (store, writer) = reflector::store();
        (Watched { store, filled: Filled::not_yet() }, writer)
    }

    /// Records an event that was already applied to the store.
    pub(crate) fn note(&self, event: &Event<K>) {
        if matches!(event, Event::InitDone) {
            self.filled.now();
        }
    }

    /// Whether all objects have been listed once.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.is()
    }

    /// Waits until all objects have been listed in this term.
    pub(crate) async fn filled(&self, term: Term) {
        self.filled.wait(term).await;
    }

    /// The [`Filled`], for the watch that fills the store.
    pub(crate) fn progress(&self) -> Filled {
        self.filled.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::Pod;

    #[tokio::test]
    async fn all_who_wait_are_woken() {
        let (watched, _writer) = Watched::<Pod>::new();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let watched = watched.clone();
                tokio::spawn(async move { watched.filled(Term::default()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        watched.note(&Event::Init);
        watched.note(&Event::InitDone);
        for task in waiting {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_list_of_an_earlier_term_does_not_count() {
        let filled = Filled::not_yet();
        let (before, term) = (Term::default(), Term::LAST);
        filled.begins(before);
        filled.now();
        filled.wait(before).await;
        assert!(filled.is());
        filled.begins(term);
        assert!(filled.is(), "earlier lists remain readable meanwhile");
        assert!(filled.wait(term).now_or_never().is_none());
        filled.now();
        filled.wait(term).await;
    }
}
