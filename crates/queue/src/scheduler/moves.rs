//! Jobs that move to another queue because setups have changed.

use std::sync::Arc;

use super::Scheduler;
use super::group::Group;
use super::succession::Succession;
use crate::{QueueName, Reason, SetupName, Uid};

/// Identifies a group of jobs.
#[derive(Clone, Debug)]
enum Which {
    Waiting(Arc<str>, QueueName),
    Admitted(SetupName),
}

impl Scheduler {
    /// Assigns jobs to queues again after a setup was added, removed, or changed in a way that
    /// affects which jobs it serves.
    pub(super) fn find_again(&mut self, name: &SetupName) {
        let succession = self.succession();
        let inherits = succession != self.queues.succession;
        self.queues.succession = succession;
        if inherits {
            // The succession also determines which setups are active.
            self.queues.touch_all();
        }
        // A setup outside of the operator's namespace affects only its own namespace, unless
        // it is part of a succession.
        let concerns_all =
            inherits || name.namespace == self.queues.home || !self.queues.succession.is_empty();
        let concerned: Vec<Which> = match concerns_all {
            true => self.roll.namespaces.keys().flat_map(|each| self.waiting(each)).collect(),
            false => self.waiting(&name.namespace).collect(),
        };
        let given = self.roll.admitted.keys().filter(|given| concerns_all || *given == name);
        let given: Vec<Which> = given.cloned().map(Which::Admitted).collect();
        for which in concerned.into_iter().chain(given) {
            self.follow(&which);
        }
    }

    /// Which setup replaces which now.
    fn succession(&self) -> Succession {
        let setups = self.queues.setups();
        let replacing = setups.filter(|setup| !setup.replaces.is_empty()).collect();
        Succession::of(replacing, |name| self.queues.get(name).is_some())
    }

    fn waiting(&self, namespace: &Arc<str>) -> impl Iterator<Item = Which> {
        let known = self.roll.namespaces.get(namespace);
        let asked = known.into_iter().flat_map(|known| known.waiting.keys());
        asked.map(|asked| Which::Waiting(namespace.clone(), asked.clone()))
    }

    /// Moves the jobs of a group to their current queue.
    fn follow(&mut self, which: &Which) {
        let queue: Result<SetupName, Reason> = match which {
            Which::Waiting(namespace, asked) => self.queues.find(namespace, asked),
            Which::Admitted(given) => self.queues.current(given),
        };
        let Some(group) = self.group_mut(which).filter(|group| group.queue != queue) else {
            return;
        };
        let jobs: Vec<Uid> = group.jobs.iter().cloned().collect();
        jobs.iter().for_each(|uid| self.leave(uid));
        if let Some(group) = self.group_mut(which) {
            group.queue = queue;
        }
        jobs.iter().for_each(|uid| self.enter(uid));
    }

    fn group_mut(&mut self, which: &Which) -> Option<&mut Group> {
        match which {
            Which::Waiting(namespace, asked) => {
                self.roll.namespaces.get_mut(namespace)?.waiting.get_mut(asked)
            }
            Which::Admitted(given) => self.roll.admitted.get_mut(given),
        }
    }
}
