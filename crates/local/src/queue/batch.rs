//! What is to be run: queues, and the jobs and MiniClusters that wait at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use flux_operator_api::fluxjob::DEFAULT_IMAGE;
use flux_operator_api::{FluxJob, FluxSetup, FluxSetupSpec, MiniCluster};
use flux_operator_plan::queueing::workload::{Beside, of_job, of_minicluster};
use flux_operator_plan::queueing::{minicluster_of, setup};
use flux_operator_queue::{Admission, Millis, Scheduler, Uid, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

/// Queues and jobs, checked.
#[derive(Debug)]
pub struct Batch {
    setups: Vec<Arc<FluxSetup>>,
    entries: Vec<(Workload, Entry)>,
    pub(super) notes: Vec<String>,
}

/// Something that waits for room.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    what: What,
    /// The setups, for their defaults.
    setups: Vec<Arc<FluxSetup>>,
    max_runtime: Option<Millis>,
}

#[derive(Clone, Debug)]
enum What {
    Job(Box<FluxJob>),
    MiniCluster(Box<MiniCluster>),
}

/// Why jobs cannot be run here.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A job cannot be carried out anywhere.
    #[error("{kind} {name:?} cannot be carried out: {message}")]
    Refused {
        /// What it is.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Why, and what to do.
        message: String,
    },
    /// Two of one name.
    #[error("there are two jobs called {name:?}: choose another name for one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// A MiniCluster that waits for nothing.
    #[error("MiniCluster {name:?} names no queue: write `queue` in its spec, or run it alone")]
    NotQueued {
        /// Its name.
        name: String,
    },
    /// Signals cannot be handled.
    #[error("failed to handle signals")]
    Signals(#[source] std::io::Error),
}

/// Where objects are that do not say.
const NAMESPACE: &str = "default";

impl Batch {
    /// Checks queues, jobs and MiniClusters, which are admitted in this order.
    pub fn of(
        setups: Vec<FluxSetup>,
        jobs: Vec<FluxJob>,
        miniclusters: Vec<MiniCluster>,
        now: Timestamp,
    ) -> Result<Batch, BatchError> {
        let mut notes = Vec::new();
        let setups = prepared(setups, now, &mut notes);
        let mut batch = Batch { setups, entries: Vec::new(), notes };
        for mut job in jobs {
            complete(&mut job.metadata, batch.entries.len(), now);
            if !job.spec.priority_class_name.is_empty() {
                batch.notes.push(format!(
                    "job {}: PriorityClass {:?} is not known here: its priority is 0",
                    job.name_any(),
                    job.spec.priority_class_name
                ));
            }
            let class_value = (!job.spec.priority_class_name.is_empty()).then_some(0);
            let read = of_job(&job, Beside { minicluster: None, class_value });
            let workload = read.map_err(|mistake| BatchError::Refused {
                kind: "FluxJob",
                name: job.name_any(),
                message: mistake.message,
            })?;
            match workload {
                Some(workload) => batch.push(workload, What::Job(Box::new(job)))?,
                None => batch.notes.push(format!(
                    "job {} is not run: {:?} manages it",
                    job.name_any(),
                    job.spec.managed_by
                )),
            }
        }
        for mut minicluster in miniclusters {
            complete(&mut minicluster.metadata, batch.entries.len(), now);
            let name = minicluster.name_any();
            let workload = of_minicluster(&minicluster).ok_or(BatchError::NotQueued { name })?;
            batch.push(workload, What::MiniCluster(Box::new(minicluster)))?;
        }
        Ok(batch)
    }

    fn push(&mut self, workload: Workload, what: What) -> Result<(), BatchError> {
        if self.entries.iter().any(|(other, _)| other.name == workload.name) {
            return Err(BatchError::Twice { name: workload.name.to_string() });
        }
        let entry = Entry { what, setups: self.setups.clone(), max_runtime: workload.max_runtime };
        self.entries.push((workload, entry));
        Ok(())
    }

    /// A scheduler that was told everything, and what waits.
    pub(super) fn schedule(self) -> (Scheduler, BTreeMap<Uid, Entry>) {
        let namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>> = self
            .entries
            .iter()
            .map(|(workload, _)| (workload.namespace.clone(), BTreeMap::new()))
            .collect();
        let home = home(&self.setups);
        let mut scheduler = Scheduler::new(&home);
        for setup in &self.setups {
            let around = setup::Around { home: &home, namespaces: &namespaces, nodes: None };
            scheduler.put_setup(setup::read(setup, around));
        }
        let mut waiting = BTreeMap::new();
        for (workload, entry) in self.entries {
            waiting.insert(workload.uid.clone(), entry);
            scheduler.put(workload);
        }
        (scheduler, waiting)
    }
}

impl Entry {
    pub(super) fn name(&self) -> String {
        match &self.what {
            What::Job(job) => job.name_any(),
            What::MiniCluster(minicluster) => minicluster.name_any(),
        }
    }

    pub(super) fn max_runtime(&self) -> Option<Millis> {
        self.max_runtime
    }

    /// The MiniCluster to run with the room that was given.
    pub(super) fn minicluster(&self, admission: &Admission) -> MiniCluster {
        match &self.what {
            What::Job(job) => {
                let setup = self.setups.iter().find(|setup| {
                    setup.name_any() == *admission.queue.name
                        && setup.namespace().as_deref() == Some(&*admission.queue.namespace)
                });
                let defaults = setup.map(|setup| setup.spec.defaults()).unwrap_or_default();
                let size = i32::try_from(admission.size).unwrap_or(i32::MAX);
                let mut made = minicluster_of(job, &defaults, size);
                // Nobody asked for it, so that it is not used need not be said.
                let containers = made.spec.containers.iter_mut();
                containers.filter(|c| c.image == DEFAULT_IMAGE).for_each(|c| c.image.clear());
                made
            }
            What::MiniCluster(minicluster) => MiniCluster::clone(minicluster),
        }
    }
}

/// The setups as this machine can have them; one without limits if there is none.
fn prepared(
    setups: Vec<FluxSetup>,
    now: Timestamp,
    notes: &mut Vec<String>,
) -> Vec<Arc<FluxSetup>> {
    let mut setups = setups;
    if setups.is_empty() {
        notes.push("there is no FluxSetup: every job runs at once".into());
        setups.push(FluxSetup::new("default", FluxSetupSpec::default()));
    }
    let mut prepared = Vec::new();
    for (index, mut setup) in setups.into_iter().enumerate() {
        complete(&mut setup.metadata, index, now);
        if setup.spec.quota_from_nodes.take().is_some() {
            let name = setup.name_any();
            notes.push(format!("quotaFromNodes of {name} is not used: its quota alone counts"));
        }
        prepared.push(Arc::new(setup));
    }
    prepared
}

/// What an API server would fill in. Objects of one second are taken by their uid, so
/// that is in the order of the file.
fn complete(metadata: &mut ObjectMeta, index: usize, now: Timestamp) {
    if let Some(prefix) = metadata.generate_name.take() {
        metadata.name = Some(format!("{prefix}{index}"));
    }
    metadata.namespace.get_or_insert_with(|| NAMESPACE.into());
    metadata.uid = Some(format!("{index:08}"));
    metadata.creation_timestamp = Some(Time(now));
}

/// The operator's namespace: where a setup speaks for others.
fn home(setups: &[Arc<FluxSetup>]) -> String {
    let speaking = setups.iter().find(|setup| setup.spec.namespace_selector.is_some());
    speaking.and_then(|setup| setup.namespace()).unwrap_or_else(|| NAMESPACE.into())
}
