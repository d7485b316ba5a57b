//! Jobs: FluxJobs, and MiniClusters that name a queue themselves.

use std::collections::HashSet;

use flux_operator_api::condition::ConditionType;
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::{Kind, Millis, SetupName, Uid, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Eligibility, Guard, Ledger, LedgerEntry, uid_of};
use crate::queueing::minicluster::belongs_to;
use crate::queueing::workload::{self, JobContext, JobRefusal};
use crate::verdict::find;

/// What putting an object has changed, for metrics and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerChange {
    /// Nothing that is counted.
    None,
    /// The job has finished; it was admitted by this setup.
    Finished(Option<SetupName>),
    /// Reading the object panicked: the message for users.
    Panicked(String),
}

/// The result of reading an object for a queue.
enum JobReading {
    /// A job for a queue.
    Queued(Workload),
    /// Another controller manages it.
    ManagedElsewhere,
    Refused(JobRefusal),
    /// Reading it panicked; with the quota of its record, if it has one.
    Panicked(JobRefusal, Option<Workload>),
}

impl<G: Guard> Ledger<G> {
    /// Adds or updates a job, with the MiniCluster of its name, whatever its owner.
    pub fn put_job(
        &mut self,
        job: &FluxJob,
        minicluster: Option<&MiniCluster>,
        now: Millis,
    ) -> LedgerChange {
        let class_value = self.priority_classes.get(&job.spec.priority_class_name).copied();
        let context = JobContext { minicluster, class_value };
        let reading = match self.guard.read(&job.metadata, || workload::of_job(job, context)) {
            Ok(Ok(Some(workload))) => JobReading::Queued(workload),
            Ok(Ok(None)) => JobReading::ManagedElsewhere,
            Ok(Err(refusal)) => JobReading::Refused(refusal),
            Err(panic) => {
                self.reading_after_panic(&job.metadata, &panic, || workload::of_job_record(job))
            }
        };
        let change = self.put(Kind::FluxJob, &job.metadata, reading, now);
        self.note_running(&uid_of(job), minicluster.filter(|it| belongs_to(it, job)));
        change
    }

    /// Adds or updates a MiniCluster, which may name a queue itself.
    pub fn put_minicluster(&mut self, minicluster: &MiniCluster, now: Millis) -> LedgerChange {
        let metadata = &minicluster.metadata;
        let read = self.guard.read(metadata, || workload::of_minicluster(minicluster));
        let reading = match read {
            Ok(Some(workload)) => JobReading::Queued(workload),
            Ok(None) => {
                self.remove(&uid_of(minicluster), now);
                return LedgerChange::None;
            }
            Err(panic) => self.reading_after_panic(metadata, &panic, || {
                workload::of_minicluster_record(minicluster)
            }),
        };
        let change = self.put(Kind::MiniCluster, metadata, reading, now);
        self.note_running(&uid_of(minicluster), Some(minicluster));
        change
    }

    /// An object whose reading panicked. Its record is simpler to read than the object.
    fn reading_after_panic(
        &self,
        metadata: &ObjectMeta,
        panic: &str,
        record: impl FnOnce() -> Option<Workload>,
    ) -> JobReading {
        let admitted = self.guard.read(metadata, record).ok().flatten();
        JobReading::Panicked(workload::panic_refusal(panic), admitted)
    }

    fn put(
        &mut self,
        kind: Kind,
        metadata: &ObjectMeta,
        reading: JobReading,
        now: Millis,
    ) -> LedgerChange {
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let uid = Uid(text(&metadata.uid));
        let version = version_of(metadata);
        let is_new = !self.entries.contains_key(&uid);
        let known = self.entries.entry(uid.clone()).or_insert_with(|| {
            Box::new(LedgerEntry {
                kind,
                namespace: text(&metadata.namespace),
                name: text(&metadata.name),
                version,
                eligibility: Eligibility::Queued,
                since: 0,
                admitted: false,
                finished: false,
                evicted: None,
                eviction_refused: false,
                pending_write: None,
            })
        });
        if version < known.version {
            return LedgerChange::None;
        }
        if version > known.version && std::mem::take(&mut known.eviction_refused) {
            known.evicted = None;
            self.scheduler.undo(&uid);
        }
        known.version = version;
        let (eligibility, workload) = match reading {
            JobReading::Queued(workload) => (Eligibility::Queued, Some(workload)),
            JobReading::ManagedElsewhere => {
                known.eligibility = Eligibility::ManagedElsewhere;
                self.scheduler.remove(&uid);
                return LedgerChange::None;
            }
            JobReading::Refused(mistake) => (Eligibility::Refused(Box::new(mistake)), None),
            JobReading::Panicked(mistake, workload) => {
                (Eligibility::Panicked(Box::new(mistake)), workload)
            }
        };
        let mut change = LedgerChange::None;
        if let Eligibility::Panicked(mistake) = &eligibility
            && known.eligibility != eligibility
        {
            change = LedgerChange::Panicked(mistake.message.clone());
        }
        known.eligibility = eligibility;
        let finished = workload.as_ref().is_some_and(|workload| workload.finished);
        let has_quota = workload.as_ref().is_some_and(|it| it.admission.is_some()) && !finished;
        if let Some(writing) = known.pending_write
            && (has_quota || finished || writing.refused && version > writing.version)
        {
            known.pending_write = None;
            if !has_quota {
                self.scheduler.undo(&uid);
            }
        }
        let Some(workload) = workload else {
            // A job that is admitted, or may be in a moment, counts until it has finished.
            if !known.admitted && known.pending_write.is_none() {
                self.scheduler.remove(&uid);
            }
            return change;
        };
        known.since = workload.waiting_since;
        if known.admitted && !has_quota {
            known.evicted = None;
            if let Some(queue) = self.scheduler.queue_of(&uid) {
                self.freed_at.entry(queue.clone()).or_insert(now);
            }
        }
        if finished && !known.finished && !is_new {
            change = LedgerChange::Finished(workload.admission.as_ref().map(|it| it.queue.clone()));
        }
        (known.admitted, known.finished) = (has_quota, finished);
        // Each name is stored once.
        let (namespace, name) = (known.namespace.clone(), known.name.clone());
        let uid = self.entries.get_key_value(&uid).map_or(uid, |(kept, _)| kept.clone());
        self.scheduler.put(Workload { uid, namespace, name, ..workload });
        change
    }

    fn note_running(&mut self, uid: &Uid, own: Option<&MiniCluster>) {
        let status = own.and_then(|minicluster| minicluster.status.as_ref());
        let runs = status
            .and_then(|status| find(&status.conditions, ConditionType::Running))
            .is_some_and(|running| running.status == "True");
        let changed =
            if runs { self.running.insert(uid.clone()) } else { self.running.remove(uid) };
        if changed && let Some(queue) = self.scheduler.queue_of(uid) {
            self.running_changed.insert(queue.clone());
        }
    }

    /// Removes a job or MiniCluster.
    pub fn remove(&mut self, uid: &Uid, now: Millis) {
        let Some(known) = self.entries.remove(uid) else { return };
        if known.admitted
            && let Some(queue) = self.scheduler.queue_of(uid)
        {
            self.freed_at.entry(queue.clone()).or_insert(now);
        }
        self.running.remove(uid);
        self.rewriting.remove(uid);
        self.scheduler.remove(uid);
    }

    /// Removes all objects of a kind except for these.
    pub fn retain(&mut self, kind: Kind, kept: &HashSet<Uid>, now: Millis) {
        let is_deleted = |uid: &Uid, known: &LedgerEntry| known.kind == kind && !kept.contains(uid);
        let deleted = self.entries.iter().filter(|(uid, known)| is_deleted(uid, known));
        let deleted: Vec<Uid> = deleted.map(|(uid, _)| uid.clone()).collect();
        deleted.iter().for_each(|uid| self.remove(uid, now));
    }

    /// Sets the value of a PriorityClass; None if it was deleted. Jobs that name it have to be
    /// put again.
    pub fn put_priority_class(&mut self, name: &str, value: Option<i32>) {
        match value {
            Some(value) => drop(self.priority_classes.insert(name.to_owned(), value)),
            None => drop(self.priority_classes.remove(name)),
        }
    }
}

/// Resource versions of one kind grow, and Kubernetes allows comparing them.
fn version_of(metadata: &ObjectMeta) -> u64 {
    let version = metadata.resource_version.as_ref();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}
