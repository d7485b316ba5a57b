//! The state that the tasks of the queues share: caches, ledger, and the objects to reconcile.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::queueing::setup::needs_finalizer;
use flux_operator_queue::{Kind, Resources, SetupName, Uid, WaitStatus};
use flux_operator_service::guarded::Guarded;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};

use super::ledger::{Eligibility, OperatorLedger, setup_name, uid_of};
use super::packed::PackedJob;
use super::status_turns::StatusTurns;
use super::watches::{NamespaceMetadata, by_name, by_namespace};
use crate::cache_sync::SyncedStore;
use crate::index::Index;
use crate::lease::Term;
use crate::lock::lock;
use crate::metrics::{Metrics, QueueFigures};
use crate::reconciler::Memory;
use crate::stores::GuardedMiniCluster;
use crate::watches::ChangeSender;

/// A FluxJob, or the error if it cannot be deserialized.
pub(crate) type GuardedJob = Guarded<FluxJob>;

/// A FluxSetup, or the error if it cannot be deserialized.
pub(crate) type GuardedSetup = Guarded<FluxSetup>;

/// The channels for names of objects to reconcile. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReconcileRequests {
    pub(crate) jobs: UnboundedSender<ObjectRef<PackedJob>>,
    pub(crate) setups: UnboundedSender<ObjectRef<GuardedSetup>>,
    pub(crate) miniclusters: ChangeSender,
}

/// The queues. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Queues {
    pub(crate) jobs: SyncedStore<PackedJob>,
    pub(crate) setups: SyncedStore<GuardedSetup>,
    pub(crate) miniclusters: SyncedStore<GuardedMiniCluster>,
    pub(super) quotas: Index<ResourceQuota>,
    pub(super) namespaces: Index<NamespaceMetadata>,
    pub(super) classes: Index<PriorityClass>,
    ledger: Arc<Mutex<OperatorLedger>>,
    /// Wakes the scheduler.
    wake: Arc<Notify>,
    changed: ReconcileRequests,
    /// Setups and jobs to reconcile soon.
    pub(super) stale: StaleObjects,
    /// Waiting jobs whose status is still to be written.
    pub(super) status_turns: StatusTurns,
    /// The reconciler's memory of jobs.
    pub(super) job_memory: Arc<Memory>,
    /// The reconciler's memory of setups.
    pub(super) setup_memory: Arc<Memory>,
    /// Whether a setup takes its quota from nodes.
    pub(super) needs_nodes: watch::Sender<bool>,
}

impl Queues {
    /// Empty queues.
    pub(crate) fn new(
        operator_namespace: &str,
        jobs: SyncedStore<PackedJob>,
        setups: SyncedStore<GuardedSetup>,
        miniclusters: SyncedStore<GuardedMiniCluster>,
        changed: ReconcileRequests,
        metrics: &Metrics,
    ) -> Queues {
        Queues {
            jobs,
            setups,
            miniclusters,
            quotas: Index::keyed_by(by_namespace),
            namespaces: Index::keyed_by(by_name),
            classes: Index::keyed_by(by_name),
            ledger: Arc::new(Mutex::new(OperatorLedger::new(
                operator_namespace,
                metrics.queue().clone(),
            ))),
            wake: Arc::default(),
            changed,
            stale: StaleObjects::default(),
            status_turns: StatusTurns::default(),
            job_memory: Arc::default(),
            setup_memory: Arc::default(),
            needs_nodes: watch::channel(false).0,
        }
    }

    /// Waits until all objects have been listed in this term.
    pub(crate) async fn wait_until_synced(&self, term: Term) {
        self.jobs.wait_until_synced(term).await;
        self.setups.wait_until_synced(term).await;
        self.miniclusters.wait_until_synced(term).await;
        self.quotas.wait_until_synced(term).await;
        self.namespaces.wait_until_synced(term).await;
        self.classes.wait_until_synced(term).await;
    }

    /// The ledger. Do not hold the guard across an `await`.
    pub(crate) fn ledger(&self) -> MutexGuard<'_, OperatorLedger> {
        lock(&self.ledger)
    }

    /// Wakes the scheduler.
    pub(crate) fn wake_scheduler(&self) {
        self.wake.notify_one();
    }

    /// Waits until the scheduler is woken.
    pub(crate) async fn wait_for_wake(&self) {
        self.wake.notified().await;
    }

    /// Requests the reconciliation of a job.
    pub(crate) fn request_job(&self, namespace: &str, name: &str) {
        // The receiver is dropped only while the operator stops; then the request does not matter.
        let _ = self.changed.jobs.send(ObjectRef::new(name).within(namespace));
    }

    /// Requests the reconciliation of every unfinished job, and of every MiniCluster that waits in
    /// a queue.
    pub(crate) fn request_all_jobs(&self) {
        for job in self.jobs.state().iter().filter(|job| !job.is_finished()) {
            let _ = self.changed.jobs.send(ObjectRef::from_obj(&**job));
        }
        let waits = |minicluster: &GuardedMiniCluster| {
            let minicluster = minicluster.0.as_ref();
            minicluster.is_ok_and(|it| {
                let status = it.status.as_ref();
                !it.spec.queue.is_empty() && status.is_none_or(|status| status.admission.is_none())
            })
        };
        for minicluster in self.miniclusters.state().iter().filter(|it| waits(it)) {
            let _ = self.changed.miniclusters.send(ObjectRef::from_obj(&**minicluster));
        }
    }

    /// Requests the reconciliation of a setup.
    pub(super) fn request_setup(&self, setup: ObjectRef<GuardedSetup>) {
        // The receiver is dropped only while the operator stops.
        let _ = self.changed.setups.send(setup);
    }

    /// The MiniCluster with the job's name, whatever its owner.
    pub(crate) fn minicluster_named_like(&self, job: &FluxJob) -> Option<Arc<GuardedMiniCluster>> {
        let namespace = job.namespace().unwrap_or_default();
        self.miniclusters.get(&ObjectRef::new(&job.name_any()).within(&namespace))
    }

    /// Why the scheduler cannot read a MiniCluster, if it cannot.
    pub(crate) fn unreadable_reason(&self, minicluster: &MiniCluster) -> Option<String> {
        match self.ledger().eligibility(&uid_of(minicluster))? {
            Eligibility::Panicked(mistake) => Some(mistake.message.clone()),
            Eligibility::Queued | Eligibility::Refused(_) | Eligibility::ManagedElsewhere => None,
        }
    }

    /// Why a MiniCluster that names a queue itself is waiting, if it is.
    pub(crate) fn waiting_reason(
        &self,
        minicluster: &MiniCluster,
        now: Timestamp,
    ) -> Option<WaitStatus> {
        self.ledger().job(&uid_of(minicluster), None, now.as_millisecond())?.waiting
    }

    /// Applies an event from the watch of FluxJobs.
    pub(super) fn apply_job_event(&self, event: &Event<GuardedJob>) {
        match event {
            // An incomplete list is ignored.
            Event::Init | Event::InitApply(_) => return,
            Event::InitDone => self.put_all_jobs(),
            Event::Apply(job) => {
                let namespace = job.namespace().unwrap_or_default();
                self.put_job(&ObjectRef::new(&job.name_any()).within(&namespace));
                self.request_job(&job.namespace().unwrap_or_default(), &job.name_any());
            }
            Event::Delete(job) => {
                self.ledger().remove(&uid_of(job));
                self.status_turns.forget(&uid_of(job));
                self.job_memory.forget(job.meta().uid.as_deref().unwrap_or_default());
            }
        }
        self.wake_scheduler();
    }

    /// Applies an event from the watch of MiniClusters, both those of jobs and those that name a
    /// queue themselves.
    pub(crate) fn apply_minicluster_event(&self, event: &Event<GuardedMiniCluster>) {
        match event {
            Event::Init | Event::InitApply(_) => return,
            Event::InitDone => self.put_all(),
            Event::Apply(minicluster) => {
                if let Ok(minicluster) = &minicluster.0 {
                    self.ledger().put_minicluster(minicluster);
                }
                self.update_job_of(minicluster);
            }
            Event::Delete(minicluster) => {
                self.ledger().remove(&uid_of(minicluster));
                self.update_job_of(minicluster);
            }
        }
        self.wake_scheduler();
    }

    /// Applies an event from the watch of FluxSetups.
    pub(super) fn apply_setup_event(&self, event: &Event<GuardedSetup>) {
        match event {
            Event::Init | Event::InitApply(_) => return,
            Event::InitDone => {
                let mut ledger = self.ledger();
                let all = self.setups.state();
                let existing: HashSet<SetupName> = all.iter().map(|it| setup_name(&**it)).collect();
                for setup in all.iter().filter_map(|setup| setup.0.as_ref().ok()) {
                    ledger.put_setup(setup);
                }
                ledger.retain_setups(&existing);
                drop(ledger);
                let uids: HashSet<&str> =
                    all.iter().filter_map(|setup| setup.meta().uid.as_deref()).collect();
                self.setup_memory.retain(|uid| uids.contains(uid));
                self.stale.mark_all_jobs();
                existing.into_iter().for_each(|name| self.stale.mark_setup(name));
            }
            Event::Apply(setup) => {
                // Immediately, before the setup admits a job.
                if setup.0.as_ref().is_ok_and(needs_finalizer) {
                    self.request_setup(ObjectRef::from_obj(setup));
                }
                let affects_jobs =
                    setup.0.as_ref().map_or(true, |setup| self.ledger().put_setup(setup));
                if affects_jobs {
                    self.stale.mark_all_jobs();
                }
                self.stale.mark_setup(setup_name(setup));
            }
            Event::Delete(setup) => {
                self.ledger().remove_setup(&setup_name(setup));
                self.setup_memory.forget(setup.meta().uid.as_deref().unwrap_or_default());
                self.stale.mark_all_jobs();
            }
        }
        let needs_nodes = self.ledger().setups().any(|(_, it)| it.spec.quota_from_nodes.is_some());
        self.needs_nodes
            .send_if_modified(|before| std::mem::replace(before, needs_nodes) != needs_nodes);
        self.wake_scheduler();
    }

    /// Puts all MiniClusters and jobs into the ledger again.
    pub(super) fn put_all(&self) {
        self.put_all_miniclusters();
        self.put_all_jobs();
    }

    /// Puts all jobs with a PriorityClass into the ledger again.
    pub(super) fn put_jobs_of_class(&self, class: &str) {
        for job in self.jobs.state() {
            if job.unpack().is_ok_and(|job| job.spec.priority_class_name == class) {
                let reference = ObjectRef::from_obj(&*job);
                self.put_job(&reference);
                let _ = self.changed.jobs.send(reference);
            }
        }
    }

    /// Puts all jobs of the store into the ledger, removes all others from it, and requests the
    /// reconciliation of every job.
    fn put_all_jobs(&self) {
        for job in self.jobs.state() {
            self.put_job(&ObjectRef::from_obj(&*job));
        }
        let mut ledger = self.ledger();
        let left: HashSet<Uid> = self.jobs.state().iter().map(|job| uid_of(&**job)).collect();
        ledger.retain(Kind::FluxJob, &left);
        drop(ledger);
        self.job_memory.retain(|uid| left.contains(&Uid::from(uid)));
        // Also the finished ones: this list may be the first to show how they finished.
        for job in self.jobs.state() {
            let _ = self.changed.jobs.send(ObjectRef::from_obj(&*job));
        }
    }

    fn put_all_miniclusters(&self) {
        let mut ledger = self.ledger();
        let all = self.miniclusters.state();
        for minicluster in all.iter().filter_map(|minicluster| minicluster.0.as_ref().ok()) {
            ledger.put_minicluster(minicluster);
        }
        let left = all.iter().map(|minicluster| uid_of(&**minicluster)).collect();
        ledger.retain(Kind::MiniCluster, &left);
    }

    /// Puts a job into the ledger as it is in the store. A job that cannot be deserialized stays as
    /// it was.
    ///
    /// The ledger is locked first: watches update the store before the ledger, so the stored job is
    /// not older than what the ledger knows, and a job that is deleted meanwhile is removed from
    /// the ledger after this.
    fn put_job(&self, reference: &ObjectRef<PackedJob>) {
        let mut ledger = self.ledger();
        let Some(job) = self.jobs.get(reference) else { return };
        let Ok(job) = job.unpack() else { return };
        let minicluster = self.minicluster_named_like(&job);
        let minicluster = minicluster.as_deref().and_then(|it| it.0.as_ref().ok());
        ledger.put_job(&job, minicluster);
    }

    fn update_job_of(&self, minicluster: &GuardedMiniCluster) {
        let namespace = minicluster.namespace().unwrap_or_default();
        let reference = ObjectRef::new(&minicluster.name_any()).within(&namespace);
        if self.jobs.get(&reference).is_some() {
            self.put_job(&reference);
            let _ = self.changed.jobs.send(reference);
        }
    }

    /// The setup whose quota a MiniCluster uses, for itself or for its job.
    pub(super) fn queue_of_cluster(&self, namespace: &str, name: &str) -> Option<SetupName> {
        let minicluster = self.miniclusters.get(&ObjectRef::new(name).within(namespace))?;
        self.ledger().queue_of_cluster(minicluster.meta()).cloned()
    }

    /// The current state of every queue, for `/metrics`.
    pub(crate) fn figures(&self) -> Vec<QueueFigures> {
        let ledger = self.ledger();
        let figures = |(name, _): (&SetupName, _)| {
            let (setup, usage) = (ledger.setup_rules(name)?, ledger.scheduler().usage(name)?);
            let mut requested = Resources::default();
            for workload in ledger.scheduler().pending(name) {
                requested.add(&workload.request_at(Some(setup)));
            }
            Some(QueueFigures {
                name: name.clone(),
                active: usage.inactive.is_none(),
                pending: usage.pending,
                admitted: usage.admitted,
                quota: setup.quota.clone(),
                used: usage.used,
                requested,
            })
        };
        ledger.setups().filter_map(figures).collect()
    }
}

/// The setups to reconcile soon, and whether to reconcile all jobs.
#[derive(Clone, Default)]
pub(super) struct StaleObjects {
    pending: Arc<Mutex<StaleSet>>,
    notify: Arc<Notify>,
}

/// What [`StaleObjects`] has collected.
#[derive(Default)]
pub(super) struct StaleSet {
    pub(super) setups: BTreeSet<SetupName>,
    pub(super) all_jobs: bool,
}

impl StaleObjects {
    /// Marks a setup whose status has changed.
    pub(super) fn mark_setup(&self, name: SetupName) {
        self.lock().setups.insert(name);
        self.notify.notify_one();
    }

    /// Marks all jobs, because something has changed that may affect any job.
    pub(super) fn mark_all_jobs(&self) {
        self.lock().all_jobs = true;
        self.notify.notify_one();
    }

    /// Waits until something is marked, and takes it.
    pub(super) async fn take(&self) -> StaleSet {
        loop {
            let what = std::mem::take(&mut *self.lock());
            if what.all_jobs || !what.setups.is_empty() {
                return what;
            }
            self.notify.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, StaleSet> {
        lock(&self.pending)
    }
}
