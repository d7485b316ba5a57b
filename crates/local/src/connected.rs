//! Connected MiniClusters on one machine: the brokers of joiners are in the instance of a lender.

mod error;

use std::collections::BTreeMap;
use std::thread;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::LenderName;
use flux_operator_plan::{Mode, OfflineJoinError, Valid, lender_of};
use kube::ResourceExt;
use signal_hook::consts::SIGTERM;

use crate::flux::Programs;
use crate::home::Home;
use crate::instance::Instance;
use crate::joiner::run_joiner;
use crate::lender::Lender;
use crate::plural::{count, ranks_of};
use crate::progress::Progress;
use crate::request::{RunRequest, RunRequestError};
use crate::start::Output;
use crate::supervisor::{Event, EventChannel, Milestone, free_instance, run_instance};

pub use error::ConnectedError;

/// The namespace of a MiniCluster that does not name one.
const NAMESPACE: &str = "default";

/// The MiniClusters of one manifest, of which at least one joins another.
#[derive(Clone, Debug)]
pub struct ConnectedRequest {
    /// The only one that joins no other.
    lender: Option<RunRequest>,
    /// By name, so that their order in the manifest does not matter.
    joiners: Vec<Valid>,
    /// Print nothing but the output of the command.
    is_silent: bool,
}

/// The name of the lender of a joiner.
pub(crate) fn lender_name(joiner: &MiniCluster) -> String {
    lender_of(joiner).map(|it| it.name).unwrap_or_default()
}

/// Checks a MiniCluster, in the namespace that Kubernetes would use.
pub(crate) fn valid(mut minicluster: MiniCluster) -> Result<Valid, ConnectedError> {
    minicluster.metadata.namespace.get_or_insert_with(|| NAMESPACE.into());
    let name = minicluster.name_any();
    let invalid =
        |refusal| ConnectedError::Invalid { name, source: RunRequestError::Invalid(refusal) };
    Valid::check(minicluster).map_err(invalid)
}

impl ConnectedRequest {
    /// Checks how MiniClusters are connected with each other, or with those that are running.
    pub fn new(
        home: &Home,
        miniclusters: Vec<MiniCluster>,
    ) -> Result<ConnectedRequest, ConnectedError> {
        let mut by_name = BTreeMap::new();
        for minicluster in miniclusters {
            let name = minicluster.name_any();
            if by_name.insert(name.clone(), valid(minicluster)?).is_some() {
                return Err(ConnectedError::DuplicateName { name });
            }
        }
        // First, because a misspelt lender also leaves the right one without a joiner.
        by_name.values().try_for_each(|it| check_lender(home, it, &by_name))?;
        let (joiners, others): (Vec<Valid>, Vec<Valid>) =
            by_name.into_values().partition(|minicluster| minicluster.spec.is_joiner());
        let is_joined = |lender: &Valid| joiners.iter().any(|it| joins(it, lender));
        if let Some(other) = others.iter().find(|other| !is_joined(other)) {
            return Err(ConnectedError::NotConnected { name: other.name_any() });
        }
        let mut lenders = others.into_iter();
        let lender = lenders.next();
        if let (Some(first), Some(second)) = (&lender, lenders.next()) {
            let (first, second) = (first.name_any(), second.name_any());
            return Err(ConnectedError::TwoLenders { first, second });
        }
        let lender = lender.map(|lender| {
            let name = lender.name_any();
            RunRequest::new((*lender).clone())
                .map_err(|source| ConnectedError::Invalid { name, source })
        });
        Ok(ConnectedRequest { lender: lender.transpose()?, joiners, is_silent: false })
    }

    /// Suppresses everything but the output of the lender's command.
    pub fn silence(&mut self) {
        self.is_silent = true;
        self.lender.iter_mut().for_each(RunRequest::silence);
    }

    /// The MiniClusters in the order in which they must be started.
    pub fn miniclusters(&self) -> Vec<&MiniCluster> {
        let lender = self.lender.iter().map(|lender| &*lender.minicluster);
        lender.chain(self.joiners.iter().map(|joiner| &**joiner)).collect()
    }

    /// Checks that all can stay up, and that every joiner would get its ranks, of the lender in the
    /// manifest or of one that is running. Returns what would run.
    pub fn check(&self, home: &Home) -> Result<Vec<RunRequest>, ConnectedError> {
        let (mut lenders, mut requests) = (BTreeMap::new(), Vec::new());
        if let Some(request) = &self.lender {
            let name = request.name().to_owned();
            if request.cluster.mode != Mode::Interactive {
                return Err(ConnectedError::HasCommand { name });
            }
            let lender = Lender::new(home.instance(&name), request.minicluster.clone());
            lenders.insert(name, lender);
            requests.push(request.clone());
        }
        for joiner in &self.joiners {
            let name = lender_name(joiner);
            if !lenders.contains_key(&name) {
                let instance = home.instance(&name);
                let found = Lender::running(home, instance).map_err(ConnectedError::Home)?;
                lenders.extend(found.map(|lender| (name.clone(), lender)));
            }
            let lender = lenders.get_mut(&name).ok_or_else(|| ConnectedError::not_ready(joiner))?;
            if !joins(joiner, lender.minicluster()) {
                return Err(ConnectedError::other_namespace(joiner, lender.minicluster()));
            }
            requests.push(lender.lease(joiner.clone()).map_err(ConnectedError::Join)?);
        }
        for request in &requests {
            let instance = home.instance(request.name());
            request.check(&instance).map_err(ConnectedError::Instance)?;
        }
        Ok(requests)
    }

    /// Leases ranks of `instance`, in which the lender will run, to all joiners.
    fn lease(
        &self,
        instance: &Instance,
        request: &RunRequest,
    ) -> Result<Vec<RunRequest>, ConnectedError> {
        let mut lender = Lender::new(instance.clone(), request.minicluster.clone());
        let mut requests = Vec::new();
        for joiner in &self.joiners {
            if !joins(joiner, lender.minicluster()) {
                return Err(ConnectedError::not_in_file(joiner));
            }
            let mut request = lender.lease(joiner.clone()).map_err(ConnectedError::Join)?;
            if self.is_silent {
                request.silence();
            }
            requests.push(request);
        }
        Ok(requests)
    }
}

/// Checks that the MiniCluster that a joiner names is in the manifest or running, and lends.
fn check_lender(
    home: &Home,
    joiner: &Valid,
    by_name: &BTreeMap<String, Valid>,
) -> Result<(), ConnectedError> {
    if !joiner.spec.is_joiner() {
        return Ok(());
    }
    let (name, lender) = (joiner.name_any(), lender_name(joiner));
    if joiner.spec.remote_lead().is_some() {
        return Err(ConnectedError::Elsewhere { joiner: name });
    }
    match by_name.get(&lender).filter(|_| lender != name) {
        Some(other) if !joins(joiner, other) => Err(ConnectedError::other_namespace(joiner, other)),
        Some(other) => match OfflineJoinError::lender_is_joiner(joiner, other) {
            Some(error) => Err(ConnectedError::Join(error)),
            None => Ok(()),
        },
        None if home.instance(&lender).record().is_ok() => Ok(()),
        None => {
            let running = home.instances().map_err(ConnectedError::Home)?;
            let running = running.iter().map(|instance| instance.name().to_owned());
            let known = by_name.keys().cloned().chain(running).filter(|it| *it != name);
            Err(ConnectedError::missing(joiner, &known.collect::<Vec<_>>()))
        }
    }
}

/// Whether a MiniCluster names `lender` as the one it joins.
fn joins(joiner: &MiniCluster, lender: &MiniCluster) -> bool {
    let namespace = lender.namespace().unwrap_or_default();
    lender_of(joiner) == Some(LenderName { namespace, name: lender.name_any() })
}

/// Runs a lender with its joiners until its command has finished, and returns the command's exit
/// code. The command starts when the brokers of all of them are online.
pub fn run_connected(
    home: &Home,
    request: &ConnectedRequest,
    programs: &Programs,
    progress: &Progress,
) -> Result<u8, ConnectedError> {
    let Some(lender) = &request.lender else {
        let first = request.joiners.first().expect("a connected request has a joiner");
        return Err(ConnectedError::not_in_file(first));
    };
    let instance = free_instance(home, lender.name());
    let joiners = request.lease(&instance, lender)?;
    let instances: Vec<Instance> =
        joiners.iter().map(|joiner| free_instance(home, joiner.name())).collect();
    let mut lender = lender.clone();
    let requests = || std::iter::once(&lender).chain(&joiners);
    for request in requests() {
        let named = |it: &String| format!("{}: {it}", request.name());
        request.warnings.iter().for_each(|it| progress.warning(&named(it)));
    }
    for (request, instance) in requests().zip(std::iter::once(&instance).chain(&instances)) {
        request.check(instance).map_err(ConnectedError::Instance)?;
        progress.note_other_name(request.name(), instance.name());
        let named = |it: &String| format!("{}: {it}", request.name());
        request.notes.iter().for_each(|it| progress.note(&named(it)));
    }
    let joined: u32 = joiners.iter().map(|joiner| joiner.cluster.ranks.size).sum();
    lender.cluster.ranks.quorum += joined;
    let channel = EventChannel::with_signals().map_err(ConnectedError::Supervisor)?;
    let stop_lender = channel.sender();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut start_joiners = || {
            for (joiner, instance) in joiners.iter().zip(&instances) {
                let (size, ranks) = (joiner.cluster.ranks.size, ranks_of(&joiner.ranks()));
                let (brokers, join) =
                    (count(size, "broker"), if size == 1 { "joins" } else { "join" });
                progress.done(&format!("{brokers} of {} {join} as {ranks}", joiner.name()));
                let channel = EventChannel::new();
                let (stop, stop_lender) = (channel.sender(), stop_lender.clone());
                let thread = scope.spawn(move || {
                    let exited = run_joiner(instance, joiner, programs, channel, |_| {});
                    // Without its brokers the command might never start.
                    exited.inspect_err(|_| drop(stop_lender.send(Event::Signal(SIGTERM))))
                });
                threads.push((stop, thread));
            }
        };
        let on_milestone = |milestone: Milestone<'_>| match milestone {
            Milestone::Started => start_joiners(),
            Milestone::Ready(_) => {}
        };
        let output = Output::Inherited;
        let code =
            run_instance(&instance, &lender, programs, progress, output, channel, on_milestone);
        for (stop, _) in &threads {
            // It may have exited by itself.
            let _ = stop.send(Event::Signal(SIGTERM));
        }
        let mut failed = Ok(());
        for (_, thread) in threads {
            let exited = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            failed = failed.and(exited);
        }
        failed?;
        code.map_err(ConnectedError::Supervisor)
    })
}
