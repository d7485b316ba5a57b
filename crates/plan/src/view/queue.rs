//! Queues and the jobs in them.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::view;
use flux_operator_queue::{
    Kind, Millis, NewAdmission, Resources, Setup, SetupName, Strategy, Uid, Usage, WaitStatus,
    Workload,
};

use crate::queueing::ledger::{self, Guard, JobIdentity, Ledger, Unguarded};
use crate::queueing::workload::JobRefusal;
use crate::reason::{of_inactive, of_waiting};

/// All queues at one moment.
pub struct QueueView<'a, G = Unguarded> {
    ledger: &'a Ledger<G>,
    tentative: &'a TentativeAdmissions,
    now: Millis,
    /// The only namespace whose jobs are named, if not all are.
    namespace: Option<&'a str>,
}

/// Admissions that a ledger has decided and that are not written.
pub struct TentativeAdmissions {
    /// Positions in the queues before the decision.
    positions: BTreeMap<Uid, usize>,
    /// Jobs that are about to be admitted.
    admitted: BTreeMap<Uid, NewAdmission>,
}

impl TentativeAdmissions {
    /// No admissions.
    pub const fn none() -> TentativeAdmissions {
        TentativeAdmissions { positions: BTreeMap::new(), admitted: BTreeMap::new() }
    }

    /// Runs one cycle of a ledger, and remembers the positions before it.
    pub fn decide<G: Guard>(ledger: &mut Ledger<G>, now: Millis) -> TentativeAdmissions {
        ledger.read_setups();
        let mut positions = BTreeMap::new();
        for (setup, _) in ledger.setups() {
            let waiting = ledger.scheduler().pending(setup).into_iter().zip(0..);
            positions.extend(waiting.map(|(job, place)| (job.uid.clone(), place)));
        }
        let admitted = ledger.cycle(now).admit.into_iter().map(|admitted| admitted.admit);
        let admitted = admitted.map(|admit| (admit.uid.clone(), admit)).collect();
        TentativeAdmissions { positions, admitted }
    }
}

/// The state of a job in its queue.
pub enum AdmissionStatus<'a> {
    /// It has finished, and its quota is released.
    Finished,
    /// It has quota.
    Admitted(&'a flux_operator_queue::Admission),
    /// Quota is available, and it is about to be admitted.
    Admissible(&'a NewAdmission),
    /// It waits.
    Waiting(WaitStatus),
    /// It cannot be queued.
    Refused(&'a JobRefusal),
    /// It is not in a queue: another controller manages it.
    NotQueued,
}

impl<'a, G: Guard> QueueView<'a, G> {
    /// A view of a ledger, with what it has just decided.
    pub fn new(ledger: &'a Ledger<G>, tentative: &'a TentativeAdmissions, now: Millis) -> Self {
        QueueView { ledger, tentative, now, namespace: None }
    }

    /// The same for a user of one namespace: jobs of others are counted, and not named.
    pub fn for_namespace(self, namespace: &'a str) -> Self {
        QueueView { namespace: Some(namespace), ..self }
    }

    /// Whether the user may learn the name of a job of this namespace.
    pub(super) fn may_name(&self, namespace: &str) -> bool {
        self.namespace.is_none_or(|own| own == namespace)
    }

    /// The view of a queue.
    pub fn queue(&self, name: &SetupName) -> Option<view::Queue> {
        let setup = self.setup(name)?;
        let usage = self.usage(name);
        let resources = setup.quota.iter().map(|(resource, quota)| view::ResourceUse {
            name: resource.to_string(),
            used: resource.to_quantity(usage.used.amount(resource)),
            quota: resource.to_quantity(quota),
        });
        let (reason, message) = match &usage.inactive {
            Some(inactive) => (of_inactive(inactive.reason).as_str(), inactive.message.clone()),
            None => ("Active", String::new()),
        };
        Some(view::Queue {
            namespace: name.namespace.to_string(),
            name: name.name.to_string(),
            strategy: strategy(setup.strategy).into(),
            resources: resources.collect(),
            pending: usage.pending,
            admitted: usage.admitted,
            active: usage.inactive.is_none(),
            reason: reason.into(),
            message,
        })
    }

    /// The view of a waiting job.
    pub fn waiting_job(&self, job: &Workload) -> view::WaitingJob {
        let (reason, message) = match self.admission_status(&job.uid) {
            AdmissionStatus::Waiting(WaitStatus { reason, .. }) => {
                (of_waiting(&reason).to_string(), reason.to_string())
            }
            _ => ("Admissible".into(), "quota is available: it is about to be admitted".into()),
        };
        let asks = self.requests(job);
        let asks = asks
            .iter()
            .map(|(resource, amount)| (resource.to_string(), resource.to_quantity(amount)));
        view::WaitingJob {
            kind: kind(job.kind).into(),
            namespace: job.namespace.to_string(),
            name: job.name.to_string(),
            queue: self.queue_of(&job.uid).map(ToString::to_string),
            position: self.position(&job.uid),
            priority: job.priority,
            size: job.size_at(self.setup_of(job)),
            asks: asks.collect(),
            reason,
            message,
            since: job.waiting_since / 1000,
        }
    }

    /// A page of the jobs that wait in a queue.
    pub fn waiting_jobs(
        &self,
        queue: &SetupName,
        offset: usize,
        limit: usize,
    ) -> view::WaitingJobs {
        let waiting = self.ledger.scheduler().pending(queue);
        let items = waiting.iter().enumerate().skip(offset).take(limit);
        let items = items.map(|(place, job)| view::WaitingJob {
            position: Some(place),
            ..self.waiting_job(job)
        });
        view::WaitingJobs { total: waiting.len(), items: items.collect() }
    }

    /// Queues and the jobs that wait in them: the queues of a namespace and those that its jobs
    /// wait in or have quota from; or one of them by its name.
    pub fn queues(&self, namespace: Option<&str>, name: Option<&str>) -> view::QueueOverview {
        let relevant = self.relevant_queues(namespace);
        let queues: Vec<&SetupName> = self
            .setups()
            .map(|setup| &setup.name)
            .filter(|queue| name.is_none_or(|name| *queue.name == *name))
            .filter(|queue| relevant.contains(queue))
            .collect();
        let listed: BTreeSet<&SetupName> = queues.iter().copied().collect();
        let is_listed = |job: &&Workload| match self.queue_of(&job.uid) {
            Some(queue) => listed.contains(queue),
            // A job without a queue is listed with its namespace.
            None => name.is_none() && is_in(&job.namespace, namespace),
        };
        let pending = self.waiting().into_iter().filter(is_listed);
        view::QueueOverview {
            pending: pending.map(|job| self.waiting_job(job)).collect(),
            queues: queues.into_iter().filter_map(|queue| self.queue(queue)).collect(),
        }
    }

    /// The queues of a namespace, and those that its jobs wait in or have quota from.
    fn relevant_queues(&self, namespace: Option<&str>) -> BTreeSet<&SetupName> {
        let own = self.setups().map(|setup| &setup.name);
        let own = own.filter(|name| is_in(&name.namespace, namespace));
        let jobs = self.unfinished().filter(|job| is_in(&job.namespace, namespace));
        own.chain(jobs.filter_map(|job| self.queue_of(&job.uid))).collect()
    }

    /// The setups, in the order of their names.
    pub(super) fn setups(&self) -> impl Iterator<Item = &Setup> {
        self.ledger.setups().filter_map(|(name, _)| self.setup(name))
    }

    /// A setup by name.
    pub(super) fn setup(&self, name: &SetupName) -> Option<&Setup> {
        self.ledger.setup_rules(name)
    }

    /// The usage of a setup. Jobs that are about to be admitted count as waiting.
    pub fn usage(&self, name: &SetupName) -> Usage {
        let mut usage = self.ledger.scheduler().usage(name).unwrap_or_default();
        let tentative =
            self.tentative.admitted.values().filter(|admit| admit.admission.queue == *name);
        for admit in tentative {
            usage.admitted = usage.admitted.saturating_sub(1);
            usage.pending = usage.pending.saturating_add(1);
            usage.used.subtract(&admit.admission.resources);
        }
        usage
    }

    /// The jobs that have not finished.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &Workload> {
        self.ledger.scheduler().workloads()
    }

    /// The jobs that wait, by queue and position; those without a queue last.
    pub(super) fn waiting(&self) -> Vec<&Workload> {
        let mut waiting: Vec<&Workload> =
            self.unfinished().filter(|job| job.admission.is_none()).collect();
        waiting.sort_by_cached_key(|job| {
            let queue = self.queue_of(&job.uid);
            (
                queue.is_none(),
                queue.cloned(),
                self.position(&job.uid),
                job.waiting_since,
                job.uid.clone(),
            )
        });
        waiting
    }

    /// The jobs that have quota from a queue.
    pub(super) fn admitted<'b>(
        &'b self,
        queue: &'b SetupName,
    ) -> impl Iterator<Item = &'b Workload> {
        let with_quota = self.unfinished().filter(|job| job.admission.is_some());
        with_quota.filter(move |job| self.queue_of(&job.uid) == Some(queue))
    }

    /// The queue in which a job waits, or which admitted it.
    pub(super) fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        self.ledger.scheduler().queue_of(uid)
    }

    /// The number of jobs ahead of a job in its queue.
    pub fn position(&self, uid: &Uid) -> Option<usize> {
        let before = self.tentative.positions.get(uid).copied();
        before.or_else(|| self.ledger.scheduler().explain(uid, self.now)?.position)
    }

    /// A job that has not finished, as its queue sees it.
    pub(super) fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.ledger.scheduler().workload(uid)
    }

    /// Kind and name of a job.
    pub(super) fn identity(&self, uid: &Uid) -> Option<JobIdentity> {
        self.ledger.identity(uid)
    }

    /// The state of a job in its queue.
    pub fn admission_status(&self, uid: &Uid) -> AdmissionStatus<'_> {
        let refusal = self.ledger.eligibility(uid).and_then(ledger::Eligibility::refusal);
        if let Some(mistake) = refusal {
            return AdmissionStatus::Refused(mistake);
        }
        if self.ledger.is_finished(uid) {
            return AdmissionStatus::Finished;
        }
        let Some(workload) = self.workload(uid) else { return AdmissionStatus::NotQueued };
        if let Some(admission) = &workload.admission {
            return AdmissionStatus::Admitted(admission);
        }
        match (self.tentative.admitted.get(uid), self.ledger.scheduler().explain(uid, self.now)) {
            (Some(admit), _) => AdmissionStatus::Admissible(admit),
            (None, Some(waiting)) => AdmissionStatus::Waiting(waiting),
            (None, None) => AdmissionStatus::NotQueued,
        }
    }

    /// All that a job requests.
    pub(super) fn requests(&self, workload: &Workload) -> Resources {
        workload.request_at(self.setup_of(workload))
    }

    /// The setup in whose queue a job is.
    pub(super) fn setup_of(&self, workload: &Workload) -> Option<&Setup> {
        self.queue_of(&workload.uid).and_then(|queue| self.setup(queue))
    }
}

fn is_in(there: &str, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|namespace| namespace == there)
}

/// The API's name of a kind of job.
pub(super) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::FluxJob => "FluxJob",
        Kind::MiniCluster => "MiniCluster",
    }
}

/// The API's name of a strategy.
pub(super) fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::BestEffort => "BestEffortFIFO",
        Strategy::Strict => "StrictFIFO",
        Strategy::Backfill => "Backfill",
    }
}

/// Amounts as text: `2 nodes, 500m cpu`.
pub(super) fn amounts_text(resources: &Resources) -> String {
    let amounts = resources.iter().map(|(resource, amount)| resource.describe(amount));
    amounts.collect::<Vec<_>>().join(", ")
}
