//! What to run: queues, and the jobs and MiniClusters that wait in them.

use std::collections::BTreeMap;

use flux_operator_api::fluxjob::DEFAULT_IMAGE;
use flux_operator_api::{FluxJob, FluxSetup, FluxSetupSpec, MiniCluster};
use flux_operator_plan::queueing::ledger::{Eligibility, Ledger, uid_of};
use flux_operator_plan::queueing::minicluster_at;
use flux_operator_queue::{Millis, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Queues and jobs, checked.
#[derive(Debug)]
pub struct JobBatch {
    pub(super) ledger: Ledger,
    pub(super) entries: BTreeMap<Uid, QueuedObject>,
    pub(super) notes: Vec<String>,
}

/// A job or MiniCluster that waits in a queue.
#[derive(Clone, Debug)]
pub(super) enum QueuedObject {
    Job(Box<FluxJob>),
    MiniCluster(Box<MiniCluster>),
}

/// Why jobs cannot be run here.
#[derive(Debug, thiserror::Error)]
pub enum JobBatchError {
    /// A job is not valid, so it cannot be run.
    #[error("{kind} {name:?} cannot be run: {message}")]
    Invalid {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why, and what to do.
        message: String,
    },
    /// Two have the same name.
    #[error("there are two jobs named {name:?}: rename one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A MiniCluster without a queue.
    #[error("MiniCluster {name:?} names no queue: set `queue` in its spec, or run it alone")]
    NotQueued {
        /// Its name.
        name: String,
    },
    /// Signals cannot be handled.
    #[error("failed to handle signals")]
    Signals(#[source] std::io::Error),
}

/// The namespace of objects that do not name one.
const NAMESPACE: &str = "default";

impl JobBatch {
    /// Checks queues, jobs and MiniClusters. Jobs and MiniClusters are queued in this order.
    pub fn new(
        setups: Vec<FluxSetup>,
        jobs: Vec<FluxJob>,
        miniclusters: Vec<MiniCluster>,
        now: Timestamp,
    ) -> Result<JobBatch, JobBatchError> {
        let mut notes = Vec::new();
        let setups = prepare_setups(setups, now, &mut notes);
        let mut ledger = Ledger::new(&operator_namespace(&setups));
        for setup in &setups {
            ledger.put_setup(setup);
        }
        let mut batch = JobBatch { ledger, entries: BTreeMap::new(), notes };
        let count = jobs.len();
        for (index, mut job) in jobs.into_iter().enumerate() {
            fill_metadata(&mut job.metadata, index, now);
            batch.put_job(job, now.as_millisecond())?;
        }
        for (index, mut minicluster) in miniclusters.into_iter().enumerate() {
            fill_metadata(&mut minicluster.metadata, count + index, now);
            batch.put_minicluster(minicluster, now.as_millisecond())?;
        }
        Ok(batch)
    }

    fn put_job(&mut self, job: FluxJob, now: Millis) -> Result<(), JobBatchError> {
        let (uid, name, class) = (uid_of(&job), job.name_any(), &job.spec.priority_class_name);
        if !class.is_empty() {
            self.notes.push(format!(
                "job {name}: PriorityClass {class:?} is not used: its priority is 0"
            ));
            self.ledger.put_priority_class(class, Some(0));
        }
        self.ledger.put_namespace(&job.namespace().unwrap_or_default(), Some(BTreeMap::new()));
        self.ledger.put_job(&job, None, now);
        match self.ledger.eligibility(&uid) {
            Some(Eligibility::Refused(mistake) | Eligibility::Panicked(mistake)) => {
                let (kind, message) = ("FluxJob", mistake.message.clone());
                Err(JobBatchError::Invalid { kind, name, message })
            }
            Some(Eligibility::Queued) => self.insert(uid, QueuedObject::Job(Box::new(job))),
            Some(Eligibility::ManagedElsewhere) | None => {
                let manager = &job.spec.managed_by;
                self.notes.push(format!("job {name} is not run: {manager:?} manages it"));
                Ok(())
            }
        }
    }

    fn put_minicluster(
        &mut self,
        minicluster: MiniCluster,
        now: Millis,
    ) -> Result<(), JobBatchError> {
        let (uid, name) = (uid_of(&minicluster), minicluster.name_any());
        let namespace = minicluster.namespace().unwrap_or_default();
        self.ledger.put_namespace(&namespace, Some(BTreeMap::new()));
        self.ledger.put_minicluster(&minicluster, now);
        match self.ledger.eligibility(&uid) {
            Some(_) => self.insert(uid, QueuedObject::MiniCluster(Box::new(minicluster))),
            None => Err(JobBatchError::NotQueued { name }),
        }
    }

    fn insert(&mut self, uid: Uid, entry: QueuedObject) -> Result<(), JobBatchError> {
        let name = entry.name();
        if self.entries.values().any(|other| other.name() == name) {
            return Err(JobBatchError::DuplicateName { name });
        }
        self.entries.insert(uid, entry);
        Ok(())
    }
}

impl QueuedObject {
    pub(super) fn name(&self) -> String {
        match self {
            QueuedObject::Job(job) => job.name_any(),
            QueuedObject::MiniCluster(minicluster) => minicluster.name_any(),
        }
    }

    /// The MiniCluster to run with the nodes that it was admitted with.
    pub(super) fn minicluster(self, size: u32, setup: Option<&FluxSetupSpec>) -> MiniCluster {
        match self {
            QueuedObject::Job(job) => {
                let mut made = minicluster_at(&job, setup, size.try_into().unwrap_or(i32::MAX));
                // The user did not set this image, so a note about it would only confuse.
                let containers = made.spec.containers.iter_mut();
                containers.filter(|c| c.image == DEFAULT_IMAGE).for_each(|c| c.image.clear());
                made
            }
            QueuedObject::MiniCluster(minicluster) => *minicluster,
        }
    }
}

/// The setups, without the fields that have no meaning on one machine. If there is no setup, one
/// without limits.
fn prepare_setups(
    setups: Vec<FluxSetup>,
    now: Timestamp,
    notes: &mut Vec<String>,
) -> Vec<FluxSetup> {
    let mut setups = setups;
    if setups.is_empty() {
        notes.push("there is no FluxSetup: all jobs run at the same time".into());
        setups.push(FluxSetup::new("default", FluxSetupSpec::default()));
    }
    let mut prepared = Vec::new();
    for (index, mut setup) in setups.into_iter().enumerate() {
        fill_metadata(&mut setup.metadata, index, now);
        if setup.spec.quota_from_nodes.take().is_some() {
            let name = setup.name_any();
            notes.push(format!("quotaFromNodes of {name} is not used: only its quota applies"));
        }
        prepared.push(setup);
    }
    prepared
}

/// Fills in what an API server would. Objects created in the same second are ordered by UID,
/// so UIDs follow the order of the file.
fn fill_metadata(metadata: &mut ObjectMeta, index: usize, now: Timestamp) {
    if let Some(prefix) = metadata.generate_name.take() {
        metadata.name = Some(format!("{prefix}{index}"));
    }
    metadata.namespace.get_or_insert_with(|| NAMESPACE.into());
    metadata.uid = Some(format!("{index:08}"));
    metadata.creation_timestamp = Some(Time(now));
}

/// The operator's namespace: that of a setup with a `namespaceSelector`.
fn operator_namespace(setups: &[FluxSetup]) -> String {
    let selecting = setups.iter().find(|setup| setup.spec.namespace_selector.is_some());
    selecting.and_then(|setup| setup.namespace()).unwrap_or_else(|| NAMESPACE.into())
}
