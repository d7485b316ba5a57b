//! The program: observes the instance and decides, until the instance has exited or it is stopped.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flux_operator_agent::FluxCommand;
use flux_operator_api::{BurstPolicy, MiniCluster};
use flux_operator_flux::Certificate;
use flux_operator_plan::bursting::StandaloneInstance;
use flux_operator_plan::kubernetes::Settings;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use super::instance::{Observation, RunningInstance};
use super::records::{RecordError, Records, bursts_in};
use super::targets::{OwnTargets, StandaloneSource};
use super::turns::{INTERVAL, Turns};

/// What bursts of an instance outside Kubernetes need.
pub struct StandaloneOptions {
    /// The instance.
    pub instance: StandaloneInstance,
    /// Its certificate.
    pub certificate: Certificate,
    /// The program `flux`.
    pub flux: PathBuf,
    /// The URI of its lead.
    pub uri: String,
    /// The policies.
    pub policies: Vec<BurstPolicy>,
    /// A MiniCluster whose image, environment and hooks brokers have.
    pub template: Option<MiniCluster>,
    /// Kubeconfigs by the names that stand for Secrets in targets.
    pub kubeconfigs: BTreeMap<String, PathBuf>,
    /// The folder with a file for each Burst.
    pub records: PathBuf,
    /// How brokers are rendered.
    pub settings: Settings,
}

/// Why it has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The instance has exited, and everything was given back.
    InstanceExited,
    /// It was interrupted, and everything was given back.
    GivenBack,
    /// It was stopped, and so many Bursts are left.
    Stopped {
        /// How many.
        left: usize,
    },
}

/// Why it cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneRunError {
    /// A record cannot be read or written.
    #[error(transparent)]
    Records(RecordError),
    /// A kubeconfig cannot be used.
    #[error("the kubeconfig {name:?} cannot be used: {path:?}: {problem}")]
    Kubeconfig {
        /// Its name in targets.
        name: String,
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The instance does not respond at the start.
    #[error("the Flux instance at {uri:?} does not respond")]
    Silent {
        /// Its URI.
        uri: String,
    },
    /// The instance has other hosts than its configuration.
    #[error(
        "the Flux instance at {uri:?} has the hosts {found}, and its configuration {expected}: it was \
         started with another one"
    )]
    OtherInstance {
        /// Its URI.
        uri: String,
        /// Its hosts.
        found: String,
        /// Those of the configuration.
        expected: String,
    },
}

/// Gets nodes for jobs of the instance, and gives them back, until it has exited. SIGINT gives
/// everything back, and so does SIGHUP, which a terminal sends that is closed; a second SIGINT, or
/// SIGTERM, stops at once, and the next call continues.
pub async fn run_standalone(options: StandaloneOptions) -> Result<Finished, StandaloneRunError> {
    let StandaloneOptions { instance, flux, uri, policies, kubeconfigs, settings, .. } = options;
    let policies: Vec<BurstPolicy> =
        policies.into_iter().map(|policy| of_instance(policy, &instance)).collect();
    let source = StandaloneSource {
        instance: instance.clone(),
        certificate: Arc::new(options.certificate),
        template: options.template.map(Arc::new),
        settings,
    };
    let targets = OwnTargets::new(source, kubeconfigs).await?;
    let records = Records::open(&options.records).map_err(StandaloneRunError::Records)?;
    let command = FluxCommand { flux, uri: uri.clone() };
    let (lead, last_uri) = (instance.clone(), records.uri());
    let running = spawn_blocking(move || RunningInstance::new(lead, command, last_uri)).await;
    let running = running.unwrap_or_else(|error| resume_unwind(error.into_panic()));
    match running.hosts() {
        // Only an instance that was there before has exited.
        None if records.bursts().is_empty() || running.broker_uri().is_none() => {
            return Err(StandaloneRunError::Silent { uri });
        }
        Some(found) if found != *instance.hosts() => {
            let (found, expected) = (found.to_string(), instance.hosts().to_string());
            return Err(StandaloneRunError::OtherInstance { uri, found, expected });
        }
        Some(_) => {
            let broker_uri = running.broker_uri().unwrap_or_default();
            records.save_uri(broker_uri).map_err(StandaloneRunError::Records)?;
        }
        // It may have exited, and what is left is to be given back.
        None => {}
    }
    let mut signals = Signals::new();
    tracing::info!(
        instance = instance.name,
        uri,
        policies = policies.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(","),
        targets = target_names(&policies).join(","),
        spare_ranks = instance.spare_ranks(),
        left = records.bursts().len(),
        "nodes are requested for jobs of this instance"
    );
    if running.broker_uri().is_none() {
        tracing::warn!(
            "its broker is on another machine: whether it has exited is not known, so stop this program with \
             Ctrl-C to give everything back"
        );
    }
    let turns = Turns::new(instance, policies, targets, records);
    let (closing, is_closing) = watch::channel(false);
    // Signals count at once, whatever a target or a command of Flux takes.
    let mut work = tokio::spawn(run_turns(turns, running, is_closing));
    loop {
        tokio::select! {
            finished = &mut work => {
                let finished = finished.unwrap_or_else(|error| resume_unwind(error.into_panic()));
                return finished.map_err(StandaloneRunError::Records);
            }
            stop = signals.next() => match stop {
                Stop::Interrupted | Stop::HungUp if !*closing.borrow() => {
                    closing.send_replace(true);
                    tracing::info!("everything is given back; interrupt again to leave it");
                }
                // Both the shell and the system may report that the terminal is closed.
                Stop::HungUp => {}
                Stop::Interrupted | Stop::Terminated => {
                    let left = stopped(&mut work, &options.records).await;
                    let left = left.map_err(StandaloneRunError::Records)?;
                    return Ok(Finished::Stopped { left });
                }
            },
        }
    }
}

/// Stops the work. Returns how many Bursts are left: nothing is created after they are counted.
async fn stopped<T>(work: &mut JoinHandle<T>, records: &Path) -> Result<usize, RecordError> {
    work.abort();
    // It was stopped, or has just finished.
    let _ = work.await;
    Ok(bursts_in(records)?.len())
}

/// Observes and decides, until the instance has exited, or everything was given back on request.
async fn run_turns(
    mut turns: Turns<OwnTargets>,
    running: RunningInstance,
    mut is_closing: watch::Receiver<bool>,
) -> Result<Finished, RecordError> {
    let mut running = Some(running);
    loop {
        turns.is_closing = *is_closing.borrow_and_update();
        let (observation, again) = observe(running.take(), turns.ranks_to_drain()).await;
        running = again;
        let next = turns.turn(&observation, Timestamp::now()).await?;
        if turns.records.bursts().is_empty() && (turns.is_closing || observation.state.has_exited) {
            // Ranks are not drained any more.
            observe(running, turns.ranks_to_drain()).await;
            return Ok(match observation.state.has_exited {
                true => Finished::InstanceExited,
                false => Finished::GivenBack,
            });
        }
        let wait = next.duration_since(Timestamp::now()).min(INTERVAL);
        tokio::select! {
            // The sender lives as long as the program.
            _ = is_closing.changed() => {}
            () = tokio::time::sleep(wait.try_into().unwrap_or_default()) => {}
        }
    }
}

/// Observes the instance, on a thread that may wait for Flux's commands.
async fn observe(
    running: Option<RunningInstance>,
    leaving: flux_operator_flux::IdSet,
) -> (Observation, Option<RunningInstance>) {
    let Some(mut running) = running else { return (Observation::default(), None) };
    let observed = spawn_blocking(move || (running.observe(&leaving), Some(running)));
    observed.await.unwrap_or_else(|error| resume_unwind(error.into_panic()))
}

/// A policy as the API server would store it: with a namespace and a uid, which names follow from. Jobs
/// do not run in instances of their own.
fn of_instance(mut policy: BurstPolicy, instance: &StandaloneInstance) -> BurstPolicy {
    let text = format!("{}\n{}", instance.uid, policy.name_any());
    let digest = Sha256::digest(text.as_bytes());
    policy.metadata.uid = Some(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect());
    policy.metadata.namespace = Some(instance.name.clone());
    policy.spec.isolated = Some(false);
    policy
}

/// The names of all targets, in their order.
fn target_names(policies: &[BurstPolicy]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for target in policies.iter().flat_map(|policy| &policy.spec.targets) {
        if !names.contains(&target.name.as_str()) {
            names.push(&target.name);
        }
    }
    names
}

/// Which signal was received.
enum Stop {
    Interrupted,
    HungUp,
    Terminated,
}

/// SIGINT, SIGHUP and SIGTERM. If they cannot be handled, they have their default effect.
struct Signals {
    interrupt: Option<Signal>,
    hang_up: Option<Signal>,
    terminate: Option<Signal>,
}

impl Signals {
    fn new() -> Signals {
        let handled = |kind: SignalKind| signal(kind).ok();
        Signals {
            interrupt: handled(SignalKind::interrupt()),
            // Asked first: a signal that is handled is not ignored any more.
            hang_up: if ignores_hang_up() { None } else { handled(SignalKind::hangup()) },
            terminate: handled(SignalKind::terminate()),
        }
    }

    async fn next(&mut self) -> Stop {
        async fn received(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => _ = signal.recv().await,
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = received(&mut self.interrupt) => Stop::Interrupted,
            () = received(&mut self.hang_up) => Stop::HungUp,
            () = received(&mut self.terminate) => Stop::Terminated,
        }
    }
}

/// Whether this process was started to ignore SIGHUP, as by `nohup`: it is to outlive its terminal.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored(&status, SignalKind::hangup())
}

/// Whether a signal is ignored by the process with this status, a file of proc(5).
fn is_ignored(status: &str, signal: SignalKind) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| (mask >> (signal.as_raw_value() - 1)) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn work_has_stopped_when_what_is_left_is_counted() {
        let records = tempfile::tempdir().unwrap();
        let mut work = tokio::spawn(std::future::pending::<()>());
        assert_eq!(stopped(&mut work, records.path()).await.unwrap(), 0);
        assert!(work.is_finished());
    }

    #[test]
    fn a_signal_is_ignored_if_the_status_of_the_process_says_so() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::interrupt()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
