//! Jobs that move to another queue because setups have changed.

use std::sync::Arc;

use super::Scheduler;
use super::group::Group;
use super::succession::Succession;
use crate::{QueueName, SetupName, Uid, WaitReason};

/// Identifies a group of jobs.
#[derive(Clone, Debug)]
enum GroupKey {
    Waiting(Arc<str>, QueueName),
    Admitted(SetupName),
}

impl Scheduler {
    /// Assigns jobs to queues again after a setup was added, removed, or changed in a way that
    /// affects which jobs it serves.
    pub(super) fn reassign(&mut self, name: &SetupName) {
        let succession = self.succession();
        let succession_changed = succession != self.queues.succession;
        self.queues.succession = succession;
        if succession_changed {
            // The succession also determines which setups are active.
            self.queues.touch_all();
        }
        // A setup outside of the operator's namespace affects only its own namespace, unless
        // it is part of a succession.
        let concerns_all = succession_changed
            || name.namespace == self.queues.operator_namespace
            || !self.queues.succession.is_empty();
        let concerned: Vec<GroupKey> = match concerns_all {
            true => {
                self.index.namespaces.keys().flat_map(|each| self.waiting_groups(each)).collect()
            }
            false => self.waiting_groups(&name.namespace).collect(),
        };
        let given = self.index.admitted.keys().filter(|given| concerns_all || *given == name);
        let given: Vec<GroupKey> = given.cloned().map(GroupKey::Admitted).collect();
        for which in concerned.into_iter().chain(given) {
            self.move_group(&which);
        }
    }

    /// Which setup replaces which now.
    fn succession(&self) -> Succession {
        let setups = self.queues.setups();
        let replacing = setups.filter(|setup| !setup.replaces.is_empty()).collect();
        Succession::of(replacing, |name| self.queues.get(name).is_some())
    }

    fn waiting_groups(&self, namespace: &Arc<str>) -> impl Iterator<Item = GroupKey> {
        let known = self.index.namespaces.get(namespace);
        let asked = known.into_iter().flat_map(|known| known.waiting.keys());
        asked.map(|asked| GroupKey::Waiting(namespace.clone(), asked.clone()))
    }

    /// Moves the jobs of a group to their current queue.
    fn move_group(&mut self, key: &GroupKey) {
        let queue: Result<SetupName, WaitReason> = match key {
            GroupKey::Waiting(namespace, name) => self.queues.resolve(namespace, name),
            GroupKey::Admitted(setup) => self.queues.current(setup),
        };
        let Some(group) = self.group_mut(key).filter(|group| group.queue != queue) else {
            return;
        };
        let jobs: Vec<Uid> = group.jobs.iter().cloned().collect();
        jobs.iter().for_each(|uid| self.remove_from_queue(uid));
        if let Some(group) = self.group_mut(key) {
            group.queue = queue;
        }
        jobs.iter().for_each(|uid| self.add_to_queue(uid));
    }

    fn group_mut(&mut self, which: &GroupKey) -> Option<&mut Group> {
        match which {
            GroupKey::Waiting(namespace, asked) => {
                self.index.namespaces.get_mut(namespace)?.waiting.get_mut(asked)
            }
            GroupKey::Admitted(given) => self.index.admitted.get_mut(given),
        }
    }
}
