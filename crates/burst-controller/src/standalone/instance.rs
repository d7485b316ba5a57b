//! The Flux instance, as its own commands show it.

use std::path::Path;
use std::time::{Duration, Instant};

use flux_operator_agent::{Drainer, FluxCommand, PendingJobs, parse_online};
use flux_operator_api::view::InstanceJobs;
use flux_operator_flux::{HostList, IdSet};
use flux_operator_plan::bursting::{InstanceState, StandaloneInstance};
use flux_operator_plan::view::{instance_job, running_instance_job};
use flux_operator_wire::{Drain, PendingPage};
use k8s_openapi::jiff::Timestamp;

/// How long an instance may be silent before it counts as exited: as long as its socket exists, and
/// afterwards. It may be busy, or be reached over the network.
const SILENCE_PATIENCE: Duration = Duration::from_secs(30);
const EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// What was observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) state: InstanceState,
    /// The jobs; `None` while they are not known.
    pub(super) jobs: Option<InstanceJobs>,
}

/// A running instance.
pub(super) struct RunningInstance {
    instance: StandaloneInstance,
    command: FluxCommand,
    pending: PendingJobs,
    drainer: Drainer,
    /// The ranks that were to be drained last, and since when.
    drain: Drain,
    jobs: Option<InstanceJobs>,
    silent_since: Option<Instant>,
}

impl RunningInstance {
    pub(super) fn new(instance: StandaloneInstance, command: FluxCommand) -> RunningInstance {
        RunningInstance {
            instance,
            pending: PendingJobs::new(command.clone()),
            // A former process may have drained ranks.
            drainer: Drainer::new(command.clone(), true),
            drain: Drain::default(),
            command,
            jobs: None,
            silent_since: None,
        }
    }

    /// Its hosts, in the order of their ranks; `None` if it does not respond.
    pub(super) fn hosts(&self) -> Option<HostList> {
        let overlay = self.command.query(&["overlay", "status", "--no-pretty"])?;
        let mut ranked: Vec<(u32, &str)> = (overlay.lines())
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                Some((words.next()?.parse().ok()?, words.next()?.trim_end_matches(':')))
            })
            .collect();
        ranked.sort_unstable();
        let mut hosts = HostList::new();
        ranked.iter().try_for_each(|(_, host)| hosts.push(host)).ok()?;
        Some(hosts)
    }

    /// Has these ranks drained, and others not, and looks at brokers and jobs. Takes as long as Flux's
    /// commands.
    pub(super) fn observe(&mut self, leaving: &IdSet) -> Seen {
        let Some(overlay) = self.command.query(&["overlay", "status", "--no-pretty"]) else {
            return self.silent();
        };
        self.silent_since = None;
        let online = parse_online(&overlay);
        let drained = self.drain(leaving);
        let pages = self.pending.changed_pages(None);
        if !pages.is_empty() {
            self.jobs = Some(assembled(pages));
        }
        let jobs = self.jobs.clone().map(|jobs| InstanceJobs {
            online: Some(online.to_string()),
            slots: self.instance.slots(&online),
            lead_cores: self.instance.lead_cores(),
            ..jobs
        });
        Seen { state: InstanceState { online, drained, has_exited: false }, jobs }
    }

    fn silent(&mut self) -> Seen {
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        self.jobs = None;
        self.pending.report_again();
        let socket = self.command.uri.strip_prefix("local://");
        let patience = match socket.is_some_and(|path| !Path::new(path).exists()) {
            true => EXIT_PATIENCE,
            false => SILENCE_PATIENCE,
        };
        let has_exited = since.elapsed() >= patience;
        Seen { state: InstanceState { has_exited, ..InstanceState::default() }, jobs: None }
    }

    /// Has ranks drained; returns those of them on which no job runs.
    fn drain(&mut self, leaving: &IdSet) -> IdSet {
        if self.drain.ranks != *leaving {
            let since =
                if leaving.is_empty() { String::new() } else { Timestamp::now().to_string() };
            self.drain = Drain { ranks: leaving.clone(), since };
        }
        self.drainer.apply(&self.drain);
        match self.drainer.status() {
            Some(status) if status.asked == self.drain => leaving.difference(&status.busy),
            _ => IdSet::new(),
        }
    }
}

/// The jobs of the pages of a list.
fn assembled(pages: Vec<PendingPage>) -> InstanceJobs {
    let mut jobs = InstanceJobs { listed: true, ..InstanceJobs::default() };
    for page in pages {
        if let Some(ranks) = page.ranks {
            jobs.busy = Some(ranks.busy.to_string());
            jobs.drained = ranks.drained.map(|ranks| ranks.to_string());
            jobs.stops_at_blocked = ranks.in_order;
        }
        jobs.running.extend(page.running.iter().map(running_instance_job));
        jobs.items.extend(page.jobs.into_iter().map(instance_job));
    }
    jobs
}
