//! The scheduler: told what there is, it says who gets room.

use std::sync::Arc;

use crate::{
    Admission, Kind, Millis, NamespaceRoom, Resources, Setup, SetupName, Uid, Usage, Waiting,
    Workload,
};

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// Jobs that get room, in order. They count as admitted already.
    pub admit: Vec<Admit>,
    /// Jobs that lose theirs. They count until they are told to have none any more.
    pub evict: Vec<Evict>,
    /// When to ask again, if nothing happens before.
    pub wake: Option<Millis>,
}

/// A job that gets room. It is to be written down, or taken back by [`Scheduler::undo`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit {
    /// Who.
    pub uid: Uid,
    /// What it is.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// What it gets.
    pub admission: Admission,
}

/// A job that loses its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// Who.
    pub uid: Uid,
    /// Why.
    pub reason: EvictReason,
}

/// Why a job loses its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EvictReason {
    /// The queue is stopped and drained.
    QueueStopped,
    /// The quota was lowered, and the setup says so.
    OverQuota,
}

/// All queues. See the crate's page.
#[derive(Debug, Default)]
pub struct Scheduler {}

impl Scheduler {
    /// A scheduler that knows nothing yet. Setups in `home`, the operator's namespace,
    /// are found by their name from every namespace they serve.
    pub fn new(home: &str) -> Scheduler {
        let _ = home;
        todo!()
    }

    /// There is this setup, new or changed.
    pub fn put_setup(&mut self, setup: Setup) {
        let _ = setup;
        todo!()
    }

    /// This setup is gone. Its jobs look for another; room that they have they keep.
    pub fn remove_setup(&mut self, name: &SetupName) {
        let _ = name;
        todo!()
    }

    /// A namespace's own quota, new or changed; empty when there is none.
    pub fn put_namespace_room(&mut self, namespace: &str, room: NamespaceRoom) {
        let _ = (namespace, room);
        todo!()
    }

    /// There is this workload, new or changed. Telling the same again changes nothing.
    /// One without an admission that was admitted in a cycle stays so until
    /// [`Scheduler::undo`]: what is told may be older than the decision.
    pub fn put(&mut self, workload: Workload) {
        let _ = workload;
        todo!()
    }

    /// This workload is gone.
    pub fn remove(&mut self, uid: &Uid) {
        let _ = uid;
        todo!()
    }

    /// An admission could not be written down: the job waits again, at its old place.
    pub fn undo(&mut self, uid: &Uid) {
        let _ = uid;
        todo!()
    }

    /// Decides, for those queues to which something has happened.
    pub fn cycle(&mut self, now: Millis) -> Cycle {
        let _ = now;
        todo!()
    }

    /// Why a job waits; None if it has room, has ended, or is not known.
    pub fn why(&self, uid: &Uid, now: Millis) -> Option<Waiting> {
        let _ = (uid, now);
        todo!()
    }

    /// The jobs that wait at a setup, in order.
    pub fn pending(&self, queue: &SetupName) -> Vec<&Workload> {
        let _ = queue;
        todo!()
    }

    /// The setup whose queue a workload is in, waiting or admitted.
    pub fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        let _ = uid;
        todo!()
    }

    /// What is true of a setup.
    pub fn usage(&self, queue: &SetupName) -> Option<Usage> {
        let _ = queue;
        todo!()
    }

    /// The setups whose usage may have changed since this was last asked.
    pub fn take_changed(&mut self) -> Vec<SetupName> {
        todo!()
    }

    /// How much of a setup's room is free; a resource without a limit is missing.
    pub fn free(&self, queue: &SetupName) -> Option<Resources> {
        let _ = queue;
        todo!()
    }
}
