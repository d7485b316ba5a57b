//! The instance as the lead's broker knows it: nodes, jobs, queue, and waiting clients.
//!
//! It is a state machine: it handles an [`Input`] and returns [`Action`]s. It has no clock, no
//! sockets and no processes; the lead's broker provides the inputs and performs the actions. So a
//! unit test can cover the whole lifecycle of an instance.

pub mod allocate;
mod completion;
mod exec;
pub mod job;
mod launch;
mod lifecycle;
pub mod node;
mod requests;
mod resources;
#[cfg(test)]
mod tests;

pub use lifecycle::exit_code;
pub use resources::resolve;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use flux_operator_flux::{JobId, JobState};

use crate::message::{
    Hello, Refusal, RefusalKind, Reply, Report, Request, SchedulingStopped, TaskRequest,
};
use job::Job;
use node::{BrokerPresence, Node};

/// Where a request came from: a client of the broker of this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub rank: u32,
    pub channel: u64,
}

/// An input of the state machine.
#[derive(Debug)]
pub enum Input {
    NodeUp(Hello),
    /// `orderly` if the broker announced that it leaves.
    NodeDown {
        rank: u32,
        orderly: bool,
    },
    Request {
        origin: Origin,
        tag: u64,
        request: Request,
    },
    ClientDisconnected(Origin),
    Report {
        rank: u32,
        report: Report,
    },
    /// A deadline may have passed.
    Tick,
}

/// An action for the broker to perform.
#[derive(Debug)]
pub enum Action {
    Reply { origin: Origin, tag: u64, reply: Reply },
    Order { rank: u32, order: TaskRequest },
    Log(String),
}

/// The settings of an instance.
#[derive(Clone, Debug, Default)]
pub struct InstanceSettings {
    pub owner: u32,
    /// The nesting depth of this instance.
    pub level: u32,
    /// `/`, or the IDs of the enclosing jobs.
    pub path: String,
    /// Whether the nodes' resources are configured; otherwise their brokers detect them.
    pub configured: bool,
}

/// The state of an instance.
#[derive(Debug)]
pub struct Instance {
    settings: InstanceSettings,
    nodes: Vec<Node>,
    jobs: BTreeMap<JobId, Job>,
    /// Jobs that may start, highest priority first.
    queue: BTreeSet<(Reverse<u64>, JobId)>,
    /// Jobs that have resources.
    running: BTreeSet<JobId>,
    disabled: Option<String>,
    stopped: Option<SchedulingStopped>,
    waiters: Vec<(Option<JobId>, Origin, u64)>,
    /// Clients that wait until no job is running (or, if true, pending either).
    idle_waiters: Vec<(bool, Origin, u64)>,
    execs: BTreeMap<u64, exec::RunningExec>,
    exec_count: u64,
    start: f64,
    last_id: u64,
    now: f64,
    actions: Vec<Action>,
}

impl Instance {
    pub fn new(settings: InstanceSettings, nodes: Vec<Node>, now: f64) -> Self {
        Self {
            settings,
            nodes,
            jobs: BTreeMap::new(),
            queue: BTreeSet::new(),
            running: BTreeSet::new(),
            disabled: None,
            stopped: None,
            waiters: Vec::new(),
            idle_waiters: Vec::new(),
            execs: BTreeMap::new(),
            exec_count: 0,
            start: now,
            last_id: 0,
            now,
            actions: Vec::new(),
        }
    }

    /// Handles an input and returns the actions to perform, in order. `now` is in seconds since the
    /// Unix epoch.
    pub fn handle(&mut self, now: f64, input: Input) -> Vec<Action> {
        self.now = now;
        match input {
            Input::NodeUp(hello) => self.node_up(hello),
            Input::NodeDown { rank, orderly } => self.node_down(rank, orderly),
            Input::Request { origin, tag, request } => self.request(origin, tag, request),
            Input::ClientDisconnected(origin) => self.forget_clients(|other| other == origin),
            Input::Report { rank, report } => self.handle_report(rank, report),
            Input::Tick => {}
        }
        self.check_deadlines();
        self.schedule();
        self.reply_to_idle_waiters();
        std::mem::take(&mut self.actions)
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<f64> {
        let jobs = self.running.iter().filter_map(|id| self.jobs.get(id));
        let times = jobs.flat_map(|job| {
            let last_tasks = job.exit_deadline.map(|(time, _)| time);
            [job.expiration.filter(|_| job.fatal.is_none()), job.kill_at, last_tasks]
        });
        times.flatten().min_by(f64::total_cmp)
    }

    /// The number of brokers that are online.
    pub fn online_count(&self) -> usize {
        self.nodes.iter().filter(|node| node.is_online()).count()
    }

    /// Whether the broker of `rank` is online.
    pub fn is_online(&self, rank: u32) -> bool {
        self.node(rank).is_some_and(Node::is_online)
    }

    /// Whether any job or `flux exec` command is running.
    pub fn is_running(&self) -> bool {
        !self.running.is_empty() || !self.execs.is_empty()
    }

    /// Cancels all jobs, because the instance shuts down.
    pub fn cancel_all(&mut self, now: f64) -> Vec<Action> {
        self.now = now;
        self.disabled = Some("instance is shutting down".to_owned());
        let active: Vec<JobId> = self.active().map(|job| job.id).collect();
        for id in active {
            self.raise(id, "cancel", 0, "instance is shutting down");
        }
        self.kill_execs();
        std::mem::take(&mut self.actions)
    }

    fn node(&self, rank: u32) -> Option<&Node> {
        self.nodes.get(rank as usize)
    }

    fn active(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter(|job| job.state != JobState::Inactive)
    }

    fn node_up(&mut self, hello: Hello) {
        let Some(node) = self.nodes.get_mut(hello.rank as usize) else { return };
        node.presence = BrokerPresence::Online;
        node.note = "";
        node.since = self.now;
        if !self.settings.configured {
            node.cores = flux_operator_flux::IdSet::first_n(hello.cores.max(1));
        }
        if let (Some(reason), None) = (hello.unfit, &node.drained) {
            node.drained =
                Some(crate::message::Drain { timestamp: self.now, reason: Some(reason) });
        }
    }

    fn node_down(&mut self, rank: u32, orderly: bool) {
        let Some(node) = self.nodes.get_mut(rank as usize) else { return };
        (node.presence, node.note) = match orderly {
            true => (BrokerPresence::Offline, "administrative shutdown"),
            false => (BrokerPresence::Lost, "lost connection"),
        };
        node.since = self.now;
        let host = node.host.clone();
        self.forget_clients(|origin| origin.rank == rank);
        self.fail_lost_execs(rank);
        self.fail_lost_tasks(rank, &host);
    }

    /// Removes the requests of clients that have disconnected.
    fn forget_clients(&mut self, deleted: impl Fn(Origin) -> bool) {
        for job in self.jobs.values_mut() {
            job.watchers.retain(|watcher| !deleted(watcher.origin));
            job.published_waiters.retain(|(_, origin, _)| !deleted(*origin));
        }
        self.waiters.retain(|(_, origin, _)| !deleted(*origin));
        self.idle_waiters.retain(|(_, origin, _)| !deleted(*origin));
        self.abandon_execs(deleted);
    }

    fn reply_to_idle_waiters(&mut self) {
        if self.idle_waiters.is_empty() {
            return;
        }
        let running = !self.running.is_empty();
        let active = self.active().next().is_some();
        for (pending, origin, tag) in std::mem::take(&mut self.idle_waiters) {
            if if pending { active } else { running } {
                self.idle_waiters.push((pending, origin, tag));
                continue;
            }
            if !pending {
                let count = self.active().count();
                self.reply(origin, tag, Reply::Text(format!("{count} jobs")));
            }
            self.reply(origin, tag, Reply::Done);
        }
    }

    fn reply(&mut self, origin: Origin, tag: u64, reply: Reply) {
        self.actions.push(Action::Reply { origin, tag, reply });
    }

    fn refuse(&mut self, origin: Origin, tag: u64, kind: RefusalKind, text: impl Into<String>) {
        self.reply(origin, tag, Reply::Error(Refusal { kind, text: text.into() }));
    }

    fn order(&mut self, rank: u32, order: TaskRequest) {
        self.actions.push(Action::Order { rank, order });
    }
}
