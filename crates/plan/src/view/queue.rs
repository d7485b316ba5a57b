//! Queues and the jobs in them.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::view;
use flux_operator_queue::{
    Admit, Kind, Millis, Resources, Setup, SetupName, Strategy, Uid, Usage, Waiting, Workload,
};

use crate::queueing::ledger::{self, Guard, Identity, Ledger, Unguarded};
use crate::queueing::workload::Mistake;
use crate::reason::{of_inactive, of_waiting};

/// All queues at one moment.
pub struct View<'a, G = Unguarded> {
    ledger: &'a Ledger<G>,
    about_to_start: &'a AboutToStart,
    now: Millis,
}

/// Admissions that a ledger has decided and that are not applied.
pub struct AboutToStart {
    /// Positions in the queues before the decision.
    positions: BTreeMap<Uid, usize>,
    /// Jobs that are about to be admitted.
    admitted: BTreeMap<Uid, Admit>,
}

impl AboutToStart {
    /// No admissions.
    pub const fn none() -> AboutToStart {
        AboutToStart { positions: BTreeMap::new(), admitted: BTreeMap::new() }
    }

    /// Runs one cycle of a ledger, and remembers the positions before it.
    pub fn decide<G: Guard>(ledger: &mut Ledger<G>, now: Millis) -> AboutToStart {
        ledger.read_setups();
        let mut positions = BTreeMap::new();
        for (setup, _) in ledger.setups() {
            let waiting = ledger.scheduler().pending(setup).into_iter().zip(0..);
            positions.extend(waiting.map(|(job, place)| (job.uid.clone(), place)));
        }
        let admitted = ledger.cycle(now).admit.into_iter().map(|admitted| admitted.admit);
        let admitted = admitted.map(|admit| (admit.uid.clone(), admit)).collect();
        AboutToStart { positions, admitted }
    }
}

/// The state of a job in its queue.
pub enum Standing<'a> {
    /// It has finished, and its quota is free.
    Ended,
    /// It has quota.
    Admitted(&'a flux_operator_queue::Admission),
    /// Quota is available, and it is about to be admitted.
    Next(&'a Admit),
    /// It waits.
    Waits(Waiting),
    /// It cannot be queued.
    Refused(&'a Mistake),
    /// It is not in a queue: another controller manages it.
    NotQueued,
}

impl<'a, G: Guard> View<'a, G> {
    /// A view of a ledger, with what it has just decided.
    pub fn new(ledger: &'a Ledger<G>, about_to_start: &'a AboutToStart, now: Millis) -> Self {
        View { ledger, about_to_start, now }
    }

    /// The view of a queue.
    pub fn queue(&self, name: &SetupName) -> Option<view::Queue> {
        let setup = self.setup(name)?;
        let usage = self.usage(name);
        let resources = setup.room.iter().map(|(resource, quota)| view::ResourceUse {
            name: resource.to_string(),
            used: resource.quantity(usage.used.amount(resource)),
            quota: resource.quantity(quota),
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
        let (reason, message) = match self.standing(&job.uid) {
            Standing::Waits(Waiting { reason, .. }) => {
                (of_waiting(&reason).to_string(), reason.to_string())
            }
            _ => ("Admissible".into(), "quota is available: it is about to be admitted".into()),
        };
        let asks = self.asks(job);
        let asks =
            asks.iter().map(|(resource, amount)| (resource.to_string(), resource.quantity(amount)));
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
            since: job.since / 1000,
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
    pub fn queues(&self, namespace: Option<&str>, name: Option<&str>) -> view::Queues {
        let near = self.near(namespace);
        let queues: Vec<&SetupName> = self
            .setups()
            .map(|setup| &setup.name)
            .filter(|queue| name.is_none_or(|name| *queue.name == *name))
            .filter(|queue| near.contains(queue))
            .collect();
        let listed: BTreeSet<&SetupName> = queues.iter().copied().collect();
        let is_listed = |job: &&Workload| match self.queue_of(&job.uid) {
            Some(queue) => listed.contains(queue),
            // A job without a queue is listed with its namespace.
            None => name.is_none() && is_in(&job.namespace, namespace),
        };
        let pending = self.waiting().into_iter().filter(is_listed);
        view::Queues {
            pending: pending.map(|job| self.waiting_job(job)).collect(),
            queues: queues.into_iter().filter_map(|queue| self.queue(queue)).collect(),
        }
    }

    /// The queues of a namespace, and those that its jobs wait in or have quota from.
    fn near(&self, namespace: Option<&str>) -> BTreeSet<&SetupName> {
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
        self.ledger.read(name)
    }

    /// The usage of a setup. Jobs that are about to be admitted count as waiting.
    pub fn usage(&self, name: &SetupName) -> Usage {
        let mut usage = self.ledger.scheduler().usage(name).unwrap_or_default();
        let now =
            self.about_to_start.admitted.values().filter(|admit| admit.admission.queue == *name);
        for admit in now {
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
            (queue.is_none(), queue.cloned(), self.position(&job.uid), job.since, job.uid.clone())
        });
        waiting
    }

    /// The jobs that have quota from a queue.
    pub(super) fn admitted<'b>(
        &'b self,
        queue: &'b SetupName,
    ) -> impl Iterator<Item = &'b Workload> {
        let with_room = self.unfinished().filter(|job| job.admission.is_some());
        with_room.filter(move |job| self.queue_of(&job.uid) == Some(queue))
    }

    /// The queue in which a job waits, or which admitted it.
    pub(super) fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        self.ledger.scheduler().queue_of(uid)
    }

    /// The number of jobs ahead of a job in its queue.
    pub fn position(&self, uid: &Uid) -> Option<usize> {
        let before = self.about_to_start.positions.get(uid).copied();
        before.or_else(|| self.ledger.scheduler().why(uid, self.now)?.position)
    }

    /// A job that has not finished, as its queue sees it.
    pub(super) fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.ledger.scheduler().workload(uid)
    }

    /// Kind and name of a job.
    pub(super) fn identity(&self, uid: &Uid) -> Option<Identity> {
        self.ledger.identity(uid)
    }

    /// The state of a job in its queue.
    pub fn standing(&self, uid: &Uid) -> Standing<'_> {
        let mistake = self.ledger.standing(uid).and_then(ledger::Standing::mistake);
        if let Some(mistake) = mistake {
            return Standing::Refused(mistake);
        }
        if self.ledger.is_finished(uid) {
            return Standing::Ended;
        }
        let Some(workload) = self.workload(uid) else { return Standing::NotQueued };
        if let Some(admission) = &workload.admission {
            return Standing::Admitted(admission);
        }
        match (self.about_to_start.admitted.get(uid), self.ledger.scheduler().why(uid, self.now)) {
            (Some(admit), _) => Standing::Next(admit),
            (None, Some(waiting)) => Standing::Waits(waiting),
            (None, None) => Standing::NotQueued,
        }
    }

    /// All that a job requests.
    pub(super) fn asks(&self, workload: &Workload) -> Resources {
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
    let amounts = resources.iter().map(|(resource, amount)| resource.amount(amount));
    amounts.collect::<Vec<_>>().join(", ")
}
