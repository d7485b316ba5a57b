//! All jobs, in groups that share a queue.

use std::collections::HashMap;
use std::sync::Arc;

use super::group::Group;
use super::job::Job;
use super::namespace::Namespace;
use super::queues::Queues;
use crate::job_class::Shape;
use crate::{Admission, SetupName, Uid, Workload};

/// All jobs that are known, and the group of each: by the queue that it names while it
/// waits, by the setup that admitted it afterwards.
#[derive(Debug, Default)]
pub(super) struct JobIndex {
    // Boxed, because a hash map allocates about twice as many entries as it has.
    pub(super) jobs: HashMap<Uid, Box<Job>>,
    pub(super) namespaces: HashMap<Arc<str>, Namespace>,
    pub(super) admitted: HashMap<SetupName, Group>,
}

impl JobIndex {
    /// The group of a job.
    pub(super) fn group(&self, job: &Job) -> Option<&Group> {
        match job.admission() {
            Some(admission) => self.admitted.get(&admission.queue),
            None => {
                let Workload { namespace, queue, .. } = &job.workload;
                self.namespaces.get(namespace)?.waiting.get(queue)
            }
        }
    }

    /// A job and its queue, if it has one.
    pub(super) fn locate(&self, uid: &Uid) -> Option<(&Job, &SetupName)> {
        let job = self.jobs.get(uid)?;
        Some((job, self.group(job)?.queue.as_ref().ok()?))
    }

    /// The shape of a job in a queue.
    pub(super) fn shape(&self, job: &Job, by_runtime: bool) -> Shape {
        let known = self.namespaces.get(&job.workload.namespace);
        Shape::of(&job.workload, by_runtime, known.is_some_and(Namespace::is_limited))
    }

    /// Adds a job.
    pub(super) fn add(&mut self, job: Job, queues: &Queues) {
        let Workload { uid, namespace, queue, pods_exist, .. } = &job.workload;
        let known = self.namespaces.entry(namespace.clone()).or_default();
        let group = match job.admission() {
            Some(admission) => {
                if !pods_exist {
                    known.starting.add(&admission.resources);
                }
                let group = self.admitted.entry(admission.queue.clone());
                group.or_insert_with(|| Group::new(queues.current(&admission.queue)))
            }
            None => {
                let group = known.waiting.entry(queue.clone());
                group.or_insert_with(|| Group::new(queues.resolve(namespace, queue)))
            }
        };
        group.jobs.insert(uid.clone());
        self.jobs.insert(uid.clone(), Box::new(job));
    }

    /// Updates a job that has the same quota as before. Returns whether it now counts
    /// differently in the ResourceQuotas of its namespace.
    pub(super) fn update(&mut self, mut job: Job) -> bool {
        let Some(before) = self.jobs.get_mut(&job.workload.uid) else { return false };
        job.evicted = before.evicted;
        let (known, started) = (&job.workload.namespace, job.workload.pods_exist);
        let counts_differently = before.workload.pods_exist != started;
        if let Some(known) = self.namespaces.get_mut(known).filter(|_| counts_differently)
            && let Some(admission) = job.admission()
        {
            match started {
                true => known.starting.subtract(&admission.resources),
                false => known.starting.add(&admission.resources),
            }
        }
        **before = job;
        counts_differently
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<Job> {
        let job = self.jobs.remove(uid)?;
        match job.admission() {
            None => remove_waiting(&mut self.namespaces, &job.workload),
            Some(admission) => {
                if let Some(group) = self.admitted.get_mut(&admission.queue) {
                    group.jobs.remove(uid);
                    if group.jobs.is_empty() {
                        self.admitted.remove(&admission.queue);
                    }
                }
                let known = self.namespaces.get_mut(&job.workload.namespace);
                if let Some(known) = known.filter(|_| !job.workload.pods_exist) {
                    known.starting.subtract(&admission.resources);
                }
            }
        }
        self.forget_if_empty(&job.workload.namespace);
        Some(*job)
    }

    /// Records the admission of a waiting job, which its namespace has already counted.
    pub(super) fn admit(&mut self, uid: &Uid, admission: &Admission) -> Option<&Workload> {
        let job = self.jobs.get_mut(uid)?;
        job.decided = Some(admission.clone());
        remove_waiting(&mut self.namespaces, &job.workload);
        let queue = &admission.queue;
        let group = self.admitted.entry(queue.clone());
        group.or_insert_with(|| Group::new(Ok(queue.clone()))).jobs.insert(uid.clone());
        Some(&job.workload)
    }

    /// Removes a namespace without any state.
    pub(super) fn forget_if_empty(&mut self, namespace: &str) {
        if self.namespaces.get(namespace).is_some_and(Namespace::is_empty) {
            self.namespaces.remove(namespace);
        }
    }
}

/// Removes a job from the waiting jobs of its namespace.
fn remove_waiting(namespaces: &mut HashMap<Arc<str>, Namespace>, workload: &Workload) {
    let Workload { uid, namespace, queue, .. } = workload;
    if let Some(known) = namespaces.get_mut(namespace)
        && let Some(group) = known.waiting.get_mut(queue)
    {
        group.jobs.remove(uid);
        if group.jobs.is_empty() {
            known.waiting.remove(queue);
        }
    }
}
