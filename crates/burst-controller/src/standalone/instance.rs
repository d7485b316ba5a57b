//! The Flux instance, as its own commands show it.
//!
//! It has exited when no process listens on the socket of its broker. The URI that is given may be that of
//! a `flux proxy`, whose socket is deleted with it: the broker is asked for its own.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use flux_operator_agent::{Drainer, FluxCommand, PendingJobs};
use flux_operator_api::view::InstanceJobs;
use flux_operator_flux::{HostList, IdSet, OverlayNode};
use flux_operator_plan::bursting::{InstanceState, StandaloneInstance};
use flux_operator_plan::view::{instance_job, running_instance_job};
use flux_operator_wire::{Drain, PendingPage};
use k8s_openapi::jiff::Timestamp;
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How long no process must listen on the socket of an instance until it counts as exited.
const EXIT_PATIENCE: Duration = Duration::from_secs(3);

/// How long a connection to that socket may take: it is on this machine.
const CONNECT_TIME: Duration = Duration::from_secs(1);

/// How long a list of jobs is used. An unchanged one is listed again every 30 seconds.
const MAX_LIST_AGE: Duration = Duration::from_secs(75);

/// What was observed.
#[derive(Clone, Debug, Default)]
pub(super) struct Observation {
    pub(super) state: InstanceState,
    /// The jobs; `None` while they are not known.
    pub(super) jobs: Option<InstanceJobs>,
}

/// A running instance.
pub(super) struct RunningInstance {
    instance: StandaloneInstance,
    command: FluxCommand,
    /// The URI of the broker's own socket, if that is on this machine.
    broker_uri: Option<String>,
    pending: PendingJobs,
    drainer: Drainer,
    /// The ranks that were to be drained last, and since when.
    drain: Drain,
    jobs: Option<InstanceJobs>,
    /// When jobs were listed last, or were to be listed first.
    listed: Instant,
    silent_since: Option<Instant>,
}

impl RunningInstance {
    /// That which `command` reaches. `last_uri`: the broker's, when it was reached last.
    pub(super) fn new(
        instance: StandaloneInstance,
        command: FluxCommand,
        last_uri: Option<String>,
    ) -> RunningInstance {
        let broker_uri = match command.query(&["getattr", "local-uri"]) {
            Some(uri) => Some(uri.trim().to_owned()).filter(|uri| listens(uri)),
            None => last_uri.filter(|uri| *uri == command.uri),
        };
        // That of a proxy may be deleted before.
        let uri = broker_uri.clone().unwrap_or(command.uri);
        let command = FluxCommand { uri, ..command };
        RunningInstance {
            instance,
            broker_uri,
            pending: PendingJobs::new(command.clone()),
            // A former process may have drained ranks.
            drainer: Drainer::new(command.clone(), true),
            drain: Drain::default(),
            command,
            jobs: None,
            listed: Instant::now(),
            silent_since: None,
        }
    }

    /// The URI of the broker's own socket, if that is on this machine.
    pub(super) fn broker_uri(&self) -> Option<&str> {
        self.broker_uri.as_deref()
    }

    /// Its hosts, in the order of their ranks; `None` if it does not respond.
    pub(super) fn hosts(&self) -> Option<HostList> {
        let overlay = self.command.query(&OverlayNode::COMMAND)?;
        let mut nodes: Vec<_> = overlay.lines().filter_map(OverlayNode::parse).collect();
        nodes.sort_unstable_by_key(|node| node.rank);
        let mut hosts = HostList::new();
        nodes.iter().try_for_each(|node| hosts.push(node.host)).ok()?;
        Some(hosts)
    }

    /// Has these ranks drained, and others not, and observes brokers and jobs. Takes as long as Flux's
    /// commands.
    pub(super) fn observe(&mut self, leaving: &IdSet) -> Observation {
        let Some(overlay) = self.command.query(&OverlayNode::COMMAND) else {
            return self.silent();
        };
        self.silent_since = None;
        let online = OverlayNode::online_ranks(&overlay);
        let drained = self.drain(leaving);
        let pages = self.pending.changed_pages(None);
        if !pages.is_empty() {
            self.listed = Instant::now();
            self.jobs = Some(assembled(pages));
        } else if self.listed.elapsed() > MAX_LIST_AGE {
            self.listed = Instant::now();
            self.jobs = None;
            self.pending.report_again();
            tracing::warn!(
                "jobs cannot be listed: no nodes are requested, and none counts as idle"
            );
        }
        let jobs = self.jobs.clone().map(|jobs| InstanceJobs {
            online: Some(online.to_string()),
            slots: self.instance.slots(&online),
            lead_cores: self.instance.lead_cores(),
            ..jobs
        });
        Observation { state: InstanceState { online, drained, has_exited: false }, jobs }
    }

    fn silent(&mut self) -> Observation {
        if self.silent_since.is_none() {
            tracing::warn!(uri = self.command.uri, "the instance does not respond");
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        self.jobs = None;
        self.pending.report_again();
        let has_exited =
            self.broker_uri.as_deref().is_some_and(is_deleted) && since.elapsed() >= EXIT_PATIENCE;
        Observation { state: InstanceState { has_exited, ..InstanceState::default() }, jobs: None }
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

/// Whether a process listens at the URI of a broker.
fn listens(uri: &str) -> bool {
    uri.starts_with("local://") && !is_deleted(uri)
}

/// Whether no process listens at the URI of a broker any more. One that is busy listens. Waits for at most
/// [`CONNECT_TIME`]: the socket of a broker that is stopped accepts no more connections at some time.
fn is_deleted(uri: &str) -> bool {
    let Some(socket) = uri.strip_prefix("local://") else { return false };
    let connected = async { timeout(CONNECT_TIME, UnixStream::connect(socket)).await };
    let none = [ErrorKind::NotFound, ErrorKind::ConnectionRefused];
    matches!(Handle::current().block_on(connected), Ok(Err(error)) if none.contains(&error.kind()))
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::super::turns_tests::instance;
    use super::*;

    fn uri(socket: &Path) -> String {
        format!("local://{}", socket.display())
    }

    /// [`is_deleted`], on a thread that may wait.
    async fn deleted(socket: &Path) -> bool {
        let uri = uri(socket);
        tokio::task::spawn_blocking(move || is_deleted(&uri)).await.unwrap()
    }

    /// The broker is reached by a socket that is deleted before the broker exits.
    #[tokio::test]
    async fn an_instance_has_not_exited_when_a_proxy_has() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let listener = UnixListener::bind(path("local-0")).unwrap();
        let script = format!(
            "#!/bin/sh\ntest -e {} && echo {}\n",
            path("up").display(),
            uri(&path("local-0"))
        );
        std::fs::write(path("up"), "").unwrap();
        std::fs::write(path("flux"), script).unwrap();
        std::fs::set_permissions(path("flux"), PermissionsExt::from_mode(0o755)).unwrap();
        let new = |command: FluxCommand, last: Option<String>| {
            let new = move || RunningInstance::new(instance(), command, last);
            tokio::task::spawn_blocking(new)
        };
        let command = FluxCommand { flux: path("flux"), uri: uri(&path("proxy")) };
        let mut running = new(command.clone(), None).await.unwrap();
        assert_eq!(running.broker_uri(), Some(uri(&path("local-0")).as_str()));
        // It does not respond any more.
        std::fs::remove_file(path("up")).unwrap();
        running.silent_since = Instant::now().checked_sub(EXIT_PATIENCE);
        let observed = |mut running: RunningInstance| {
            tokio::task::spawn_blocking(move || (running.silent().state.has_exited, running))
        };
        let (has_exited, running) = observed(running).await.unwrap();
        assert!(!has_exited, "its broker still listens");
        drop(listener);
        assert!(observed(running).await.unwrap().0);
        // After a restart of this program, only the broker's own socket says that it has exited.
        for (last, knows) in [(uri(&path("proxy")), true), (uri(&path("local-0")), false)] {
            let running = new(command.clone(), Some(last)).await.unwrap();
            assert_eq!(running.broker_uri().is_some(), knows);
        }
    }

    #[tokio::test]
    async fn an_instance_has_exited_if_no_process_listens_on_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("local-0");
        assert!(deleted(&socket).await, "there is no socket");
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(!deleted(&socket).await);
        // Nothing is accepted: more connections than fit wait.
        let connect = || timeout(Duration::from_millis(100), UnixStream::connect(&socket));
        while let Ok(Ok(_)) = connect().await {}
        let asked = timeout(Duration::from_secs(30), deleted(&socket));
        assert_eq!(asked.await, Ok(false), "it waits for a broker that accepts nothing");
        drop(listener);
        assert!(deleted(&socket).await, "no process listens");
    }
}
