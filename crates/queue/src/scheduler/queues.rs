//! All queues, and in which of them something has changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::queue::Queue;
use super::succession::Succession;
use crate::{Setup, SetupName};

/// All queues.
#[derive(Debug)]
pub(super) struct Queues {
    /// The operator's namespace: only setups there serve other namespaces.
    pub(super) operator_namespace: Arc<str>,
    pub(super) succession: Succession,
    all: HashMap<SetupName, Queue>,
    /// The same names in order, to find those of a namespace.
    names: BTreeSet<SetupName>,
    /// Queues in which something has changed. A flag in the queue ensures that each is listed once.
    dirty: Vec<SetupName>,
    /// Queues whose usage may have changed, likewise.
    changed: Vec<SetupName>,
}

impl Queues {
    pub(super) fn new(operator_namespace: &str) -> Queues {
        Queues {
            operator_namespace: operator_namespace.into(),
            succession: Succession::default(),
            all: HashMap::new(),
            names: BTreeSet::new(),
            dirty: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub(super) fn get(&self, name: &SetupName) -> Option<&Queue> {
        self.all.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &SetupName) -> Option<&mut Queue> {
        self.all.get_mut(name)
    }

    pub(super) fn insert(&mut self, queue: Queue) {
        let name = queue.quota_account.setup.name.clone();
        self.names.insert(name.clone());
        self.all.insert(name, queue);
    }

    pub(super) fn remove(&mut self, name: &SetupName) -> Option<Queue> {
        self.names.remove(name);
        self.all.remove(name)
    }

    /// All setups, in no order.
    pub(super) fn setups(&self) -> impl Iterator<Item = &Setup> {
        self.all.values().map(|queue| &queue.quota_account.setup)
    }

    /// The setups of a namespace, in order.
    pub(super) fn of_namespace(&self, namespace: &Arc<str>) -> impl Iterator<Item = &Setup> {
        let first = SetupName { namespace: namespace.clone(), name: "".into() };
        self.names
            .range(first..)
            .take_while(move |name| name.namespace == *namespace)
            .map(|name| &self.all[name].quota_account.setup)
    }

    /// Marks a queue for the next cycle, and its usage as changed.
    pub(super) fn touch(&mut self, name: &SetupName) {
        self.mark_dirty(name);
        self.mark_changed(name);
    }

    /// Marks all queues for the next cycle, and their usage as changed.
    pub(super) fn touch_all(&mut self) {
        for name in self.names.clone() {
            self.touch(&name);
        }
    }

    /// Marks a queue for the next cycle.
    pub(super) fn mark_dirty(&mut self, name: &SetupName) {
        if let Some(queue) = self.all.get_mut(name)
            && !std::mem::replace(&mut queue.dirty, true)
        {
            self.dirty.push(name.clone());
        }
    }

    /// Marks the usage of a queue as changed.
    pub(super) fn mark_changed(&mut self, name: &SetupName) {
        if let Some(queue) = self.all.get_mut(name)
            && !std::mem::replace(&mut queue.changed, true)
        {
            self.changed.push(name.clone());
        }
    }

    /// The queues in which something has changed since the last call, in order.
    pub(super) fn take_dirty(&mut self) -> Vec<SetupName> {
        let names = std::mem::take(&mut self.dirty);
        self.unmark(names, |queue| &mut queue.dirty)
    }

    /// The queues whose usage may have changed since the last call, in order.
    pub(super) fn take_changed(&mut self) -> Vec<SetupName> {
        let names = std::mem::take(&mut self.changed);
        self.unmark(names, |queue| &mut queue.changed)
    }

    /// Clears a mark, and returns the names of the existing queues that had it.
    fn unmark(
        &mut self,
        names: Vec<SetupName>,
        mark: fn(&mut Queue) -> &mut bool,
    ) -> Vec<SetupName> {
        let mut marked = names;
        marked
            .retain(|name| self.all.get_mut(name).is_some_and(|queue| std::mem::take(mark(queue))));
        marked.sort();
        marked
    }
}
