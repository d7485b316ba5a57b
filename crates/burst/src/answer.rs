//! The answer for a pending job.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use flux_operator_api::burst::BurstTarget;
use flux_operator_flux::JobId;
use k8s_openapi::jiff::Timestamp;

use crate::constraint::ConstraintError;

/// Why nodes were or were not requested for a pending job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The job's id.
    pub job: u64,
    /// The answer, in one word.
    pub reason: AnswerReason,
    /// The answer, in a sentence: what is missing, how long to wait, or what to do.
    pub message: String,
    /// The policy whose answer it is.
    pub policy: Option<String>,
    /// The Burst that it waits for, or that runs it.
    pub burst: Option<String>,
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The answer for a job, in one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum AnswerReason {
            $($(#[doc = $doc])+ $name,)+
        }

        impl AnswerReason {
            /// All of them.
            pub const ALL: &[AnswerReason] = &[$(AnswerReason::$name),+];

            /// Whether the policy serves the job, now or later.
            pub fn is_selected(self) -> bool {
                self >= AnswerReason::TooYoung
            }

            /// The word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(AnswerReason::$name => stringify!($name),)+
                }
            }
        }
    };
}

// In the order of how near a job is to nodes: if policies or targets answer differently, the last
// of these answers is given.
reasons! {
    /// It is held.
    Held,
    /// It waits for a job ahead of it, and the scheduler starts none before that.
    BlockedByJob,
    /// Too many different jobs are ahead of it.
    NotConsidered,
    /// Its constraint cannot be evaluated.
    UnknownConstraint,
    /// It needs more nodes than the rank table has.
    TooLargeForTable,
    /// No policy serves the MiniCluster.
    NoPolicy,
    /// The policy is not accepted.
    PolicyRejected,
    /// It lacks the attribute that the policy selects by.
    NotSelected,
    /// The policy serves other users.
    OtherUser,
    /// The policy serves other queues.
    OtherQueue,
    /// It needs fewer nodes than jobs that the policy serves.
    TooSmall,
    /// It needs more nodes than jobs that the policy serves.
    TooLarge,
    /// It has not waited long enough.
    TooYoung,
    /// The policy is suspended.
    Suspended,
    /// The policy cannot request anything at present.
    CannotRequest,
    /// It would run in an instance of its own, for which the policy has no target.
    NoIsolatedTarget,
    /// It cannot run in another instance.
    NotPortable,
    /// Brokers of other Kubernetes clusters cannot reach the MiniCluster.
    NotExposed,
    /// The nodes of no target have the cores, GPUs or property that it needs.
    NoTargetFits,
    /// It needs more than there would be with the largest burst.
    TooLargeForTargets,
    /// The target has failed, and is not tried again yet.
    TargetFailed,
    /// The policy has used its node-hours of the day.
    LimitNodeHours,
    /// The policy has reached its cost of the day.
    LimitCost,
    /// The policy has its largest number of bursts.
    LimitBursts,
    /// The policy has too few nodes left.
    LimitNodes,
    /// The target has too few nodes left.
    TargetFull,
    /// Too few ranks can be leased.
    NoRanks,
    /// It is expected to start before nodes would be up.
    StartsSoon,
    /// Nodes have not been missing for long enough.
    Stabilizing,
    /// Nodes are requested for it.
    Requested,
    /// It starts when nodes of a burst are up.
    WaitsForBurst,
    /// It runs in an instance of its own.
    RunsIsolated,
    /// It can start on nodes that are free.
    StartsHere,
}

impl fmt::Display for AnswerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An answer with its facts. The `Display` implementation is the message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Why<'a> {
    Held,
    BlockedByJob { job: u64 },
    NotConsidered,
    UnknownConstraint { error: &'a ConstraintError },
    TooLargeForTable { nodes: u32, table_size: u32 },
    NoPolicy,
    PolicyRejected { policy: &'a str, message: &'a str },
    NotSelected { attribute: &'a str },
    OtherUser { policy: &'a str, user: i64 },
    OtherQueue { policy: &'a str, queue: &'a str },
    TooSmall { policy: &'a str, nodes: u32, min: i32 },
    TooLarge { policy: &'a str, nodes: u32, max: i32 },
    TooYoung { until: Timestamp },
    Suspended { policy: &'a str },
    CannotRequest { policy: &'a str, message: &'a str },
    NoIsolatedTarget { policy: &'a str },
    NotPortable { burst: &'a str, message: &'a str },
    NotExposed,
    NoTargetFits { policy: &'a str },
    TooLargeForTargets { amount: (u32, &'static str), most: u32 },
    TargetFailed { target: &'a str, until: Timestamp, trouble: Option<&'a str> },
    LimitNodeHours { policy: &'a str, limit: i32 },
    LimitCost { policy: &'a str, limit: &'a str },
    LimitBursts { policy: &'a str, limit: usize },
    LimitNodes { policy: &'a str, missing: i32, left: i32 },
    TargetFull { target: &'a str, missing: i32, left: i32 },
    BurstTooSmall { target: &'a str, missing: i32, most: i32 },
    NoRanks { target: &'a str, missing: u32, left: u32, most: u32 },
    UnknownRanks { target: &'a BurstTarget, leasable: &'a BTreeMap<String, u32> },
    StartsSoon { target: &'a str, at: Timestamp },
    Stabilizing { until: Timestamp },
    Requested { target: &'a str },
    WaitsForBurst { burst: &'a str, trouble: Option<&'a str> },
    RunsIsolated { burst: &'a str, target: &'a str, phase: &'a str },
    StartsHere,
}

/// Why a policy or one of its targets does not serve a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal<'a> {
    pub(crate) why: Why<'a>,
    /// When that changes, if waiting is enough.
    pub(crate) until: Option<Timestamp>,
}

impl<'a> From<Why<'a>> for Refusal<'a> {
    fn from(why: Why<'a>) -> Self {
        Refusal { why, until: None }
    }
}

impl Refusal<'_> {
    /// Whether it came nearer to nodes than another one.
    pub(crate) fn is_nearer_than(&self, other: &Refusal<'_>) -> bool {
        self.why.reason() > other.why.reason()
    }
}

impl Why<'_> {
    /// The answer in one word.
    pub(crate) fn reason(&self) -> AnswerReason {
        match self {
            Why::Held => AnswerReason::Held,
            Why::BlockedByJob { .. } => AnswerReason::BlockedByJob,
            Why::NotConsidered => AnswerReason::NotConsidered,
            Why::UnknownConstraint { .. } => AnswerReason::UnknownConstraint,
            Why::TooLargeForTable { .. } => AnswerReason::TooLargeForTable,
            Why::NoPolicy => AnswerReason::NoPolicy,
            Why::PolicyRejected { .. } => AnswerReason::PolicyRejected,
            Why::NotSelected { .. } => AnswerReason::NotSelected,
            Why::OtherUser { .. } => AnswerReason::OtherUser,
            Why::OtherQueue { .. } => AnswerReason::OtherQueue,
            Why::TooSmall { .. } => AnswerReason::TooSmall,
            Why::TooLarge { .. } => AnswerReason::TooLarge,
            Why::TooYoung { .. } => AnswerReason::TooYoung,
            Why::Suspended { .. } => AnswerReason::Suspended,
            Why::CannotRequest { .. } => AnswerReason::CannotRequest,
            Why::NoIsolatedTarget { .. } => AnswerReason::NoIsolatedTarget,
            Why::NotPortable { .. } => AnswerReason::NotPortable,
            Why::NotExposed => AnswerReason::NotExposed,
            Why::NoTargetFits { .. } => AnswerReason::NoTargetFits,
            Why::TooLargeForTargets { .. } => AnswerReason::TooLargeForTargets,
            Why::TargetFailed { .. } => AnswerReason::TargetFailed,
            Why::LimitNodeHours { .. } => AnswerReason::LimitNodeHours,
            Why::LimitCost { .. } => AnswerReason::LimitCost,
            Why::LimitBursts { .. } => AnswerReason::LimitBursts,
            Why::LimitNodes { .. } => AnswerReason::LimitNodes,
            Why::TargetFull { .. } | Why::BurstTooSmall { .. } => AnswerReason::TargetFull,
            Why::NoRanks { .. } | Why::UnknownRanks { .. } => AnswerReason::NoRanks,
            Why::StartsSoon { .. } => AnswerReason::StartsSoon,
            Why::Stabilizing { .. } => AnswerReason::Stabilizing,
            Why::Requested { .. } => AnswerReason::Requested,
            Why::WaitsForBurst { .. } => AnswerReason::WaitsForBurst,
            Why::RunsIsolated { .. } => AnswerReason::RunsIsolated,
            Why::StartsHere => AnswerReason::StartsHere,
        }
    }
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Held => f.write_str(
                "it is held, or waits for another job: release it with flux job urgency JOBID default, \
                 or see its dependencies with flux jobs",
            ),
            Why::BlockedByJob { job } => write!(
                f,
                "{} ahead of it cannot start, and the scheduler starts jobs in order: more nodes \
                 would not help",
                JobId::from(*job)
            ),
            Why::NotConsidered => f.write_str(
                "too many jobs with long constraints, or too many targets, are ahead of it: it is considered \
                 when fewer jobs wait",
            ),
            Why::UnknownConstraint { error } => {
                write!(f, "its constraint cannot be evaluated: {error}: submit it with another")
            }
            Why::TooLargeForTable { nodes, table_size } => write!(
                f,
                "needs {nodes} nodes, but the rank table has {table_size} ranks: request fewer, or \
                 create the MiniCluster with more"
            ),
            Why::NoPolicy => f.write_str(
                "no BurstPolicy selects the MiniCluster: give it the labels of one, or create one",
            ),
            Why::PolicyRejected { policy, message } => {
                write!(f, "BurstPolicy {policy:?} is not accepted: {message}")
            }
            Why::NotSelected { attribute } => {
                write!(f, "has no attribute {attribute}: submit it with --setattr={attribute}")
            }
            Why::OtherUser { policy, user } => {
                write!(f, "BurstPolicy {policy:?} does not serve user {user}: add it to jobs.users")
            }
            Why::OtherQueue { policy, queue } => {
                write!(
                    f,
                    "BurstPolicy {policy:?} does not serve queue {queue:?}: add it to jobs.queues"
                )
            }
            Why::TooSmall { policy, nodes, min } => write!(
                f,
                "needs {}, but BurstPolicy {policy:?} serves jobs of at least {min}",
                count(*nodes)
            ),
            Why::TooLarge { policy, nodes, max } => write!(
                f,
                "needs {}, but BurstPolicy {policy:?} serves jobs of at most {max}",
                count(*nodes)
            ),
            Why::TooYoung { until } => {
                write!(f, "has not waited long enough: nodes may be requested at {}", Clock(*until))
            }
            Why::Suspended { policy } => {
                write!(f, "BurstPolicy {policy:?} is suspended: set suspend to false")
            }
            Why::CannotRequest { policy, message } => {
                write!(f, "BurstPolicy {policy:?} cannot request nodes: {message}")
            }
            Why::NoIsolatedTarget { policy } => write!(
                f,
                "it would run in an instance of its own, but BurstPolicy {policy:?} has no target in \
                 another Kubernetes cluster: add one with kubeconfig, clusterAPI, command or gke"
            ),
            Why::NotPortable { burst, message } => write!(
                f,
                "{message}. Delete Burst {burst:?} to have it tried again"
            ),
            Why::NotExposed => f.write_str(
                "brokers of other Kubernetes clusters cannot reach the MiniCluster: set its \
                 flux.bursting.expose, such as {type: NodePort}",
            ),
            Why::NoTargetFits { policy } => write!(
                f,
                "no target of BurstPolicy {policy:?} has nodes with the cores, GPUs and property \
                 that it needs: request fewer cores or GPUs on a node, or add a target with cores and gpus"
            ),
            Why::TooLargeForTargets { amount: (amount, unit), most } => write!(
                f,
                "needs {amount} {unit}, but there are at most {most} with the largest burst: request \
                 fewer, or raise the limits of the BurstPolicy"
            ),
            Why::TargetFailed { target, until, trouble: Some(trouble) } => write!(
                f,
                "target {target:?} has failed, and is tried again at {}: {trouble}",
                Clock(*until)
            ),
            Why::TargetFailed { target, until, trouble: None } => write!(
                f,
                "the last burst to target {target:?} was of no use: its brokers did not join, or the \
                 jobs that it was for still wait. It is tried again at {}",
                Clock(*until)
            ),
            Why::LimitNodeHours { policy, limit } => write!(
                f,
                "BurstPolicy {policy:?} has used its {limit} node-hours of this day: nothing is \
                 requested until 00:00 UTC"
            ),
            Why::LimitCost { policy, limit } => write!(
                f,
                "BurstPolicy {policy:?} has reached its cost of {limit} of this day: nothing is \
                 requested until 00:00 UTC"
            ),
            Why::LimitBursts { policy, limit } => write!(
                f,
                "BurstPolicy {policy:?} has all of its {limit} bursts: nothing is requested until \
                 one is given back"
            ),
            Why::LimitNodes { policy, missing, left } => {
                write!(
                    f,
                    "a burst would get {}, but BurstPolicy {policy:?} has {left} left: it waits \
                     until others are given back, or raise limits.nodes",
                    count(missing.unsigned_abs())
                )
            }
            Why::TargetFull { target, missing, left } => {
                write!(
                    f,
                    "missing {}, but target {target:?} has {left} left: it waits until \
                     others are given back, or raise its maxNodes",
                    count(missing.unsigned_abs())
                )
            }
            Why::BurstTooSmall { target, missing, most } => write!(
                f,
                "missing {}, but a burst to target {target:?} has at most {most}: \
                 raise its scaling.maxNodes",
                count(missing.unsigned_abs())
            ),
            Why::NoRanks { target, missing, most, .. } if missing > most => write!(
                f,
                "a burst to target {target:?} needs {}, but the instance has {most} to lease: create the \
                 MiniCluster again after the BurstPolicy, or with more flux.bursting.spareRanks; outside \
                 Kubernetes, start the instance with a configuration of flux-operator burst init --ranks",
                ranks(*missing)
            ),
            Why::NoRanks { target, missing, left, .. } => write!(
                f,
                "a burst to target {target:?} needs {}, but {left} can be leased: it waits until ranks \
                 are given back",
                ranks(*missing)
            ),
            Why::UnknownRanks { target, leasable } => {
                let known = leasable.iter().filter(|(_, count)| **count > 0);
                let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
                write!(
                    f,
                    "target {:?} leases ranks {:?}, of which the MiniCluster has none: set its ranks to a \
                     name that it has ({})",
                    target.name,
                    target.ranks,
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )
            }
            Why::StartsSoon { target, at } => write!(
                f,
                "expected to start at {}, before nodes of target {target:?} would be up",
                Clock(*at)
            ),
            Why::Stabilizing { until } => write!(
                f,
                "nodes are missing: they are requested at {} if they still are",
                Clock(*until)
            ),
            Why::Requested { target } => write!(f, "nodes of target {target:?} are requested"),
            Why::WaitsForBurst { burst, trouble } => {
                write!(f, "starts when the nodes of Burst {burst:?} are up")?;
                trouble.map_or(Ok(()), |trouble| write!(f, "; now {trouble}"))
            }
            Why::RunsIsolated { burst, target, phase } => {
                write!(
                    f,
                    "it runs in an instance of its own at target {target:?}, as Burst {burst:?}"
                )?;
                if phase.is_empty() { Ok(()) } else { write!(f, "; now {phase}") }
            }
            Why::StartsHere => f.write_str("enough nodes are free: the scheduler can start it"),
        }
    }
}

/// A time as it is shown. Answers have times and not remaining seconds, so that an answer in a status
/// stays the same while the job waits.
struct Clock(Timestamp);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%d %H:%M:%S UTC"))
    }
}

fn ranks(count: u32) -> String {
    if count == 1 { "1 rank".to_owned() } else { format!("{count} ranks") }
}

fn count(nodes: u32) -> String {
    if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") }
}

/// The last messages, so that equal ones are not written again.
#[derive(Default)]
pub(crate) struct Messages<'a>(VecDeque<(Why<'a>, String)>);

impl<'a> Messages<'a> {
    /// How many are kept: jobs that follow each other are of few kinds.
    const KEPT: usize = 8;

    /// What is said of a job, in words.
    pub(crate) fn text(&mut self, why: Why<'a>) -> String {
        if let Some((_, text)) = self.0.iter().find(|(known, _)| *known == why) {
            return text.clone();
        }
        let text = why.to_string();
        self.0.truncate(Messages::KEPT - 1);
        self.0.push_front((why, text.clone()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    #[test]
    fn a_message_says_what_to_do_or_how_long_to_wait() {
        let error = ConstraintError::Operator("near".into());
        let cases = [
            (
                Why::NotSelected { attribute: "burstable" },
                "has no attribute burstable: submit it with --setattr=burstable",
            ),
            (
                Why::TooYoung { until: at(30) },
                "has not waited long enough: nodes may be requested at 2026-05-04 10:00:30 UTC",
            ),
            (
                Why::TooSmall { policy: "p", nodes: 1, min: 2 },
                "needs 1 node, but BurstPolicy \"p\" serves jobs of at least 2",
            ),
            (
                Why::UnknownConstraint { error: &error },
                "its constraint cannot be evaluated: operator \"near\" is not known: submit it with another",
            ),
            (
                Why::TargetFailed {
                    target: "gke",
                    until: at(60),
                    trouble: Some("OutOfCapacity: none"),
                },
                "target \"gke\" has failed, and is tried again at 2026-05-04 10:01:00 UTC: OutOfCapacity: none",
            ),
            (
                Why::NoRanks { target: "gke", missing: 4, left: 0, most: 4 },
                "a burst to target \"gke\" needs 4 ranks, but 0 can be leased: it waits until ranks are given back",
            ),
            (
                Why::NoRanks { target: "gke", missing: 4, left: 0, most: 2 },
                "a burst to target \"gke\" needs 4 ranks, but the instance has 2 to lease: create the MiniCluster \
                 again after the BurstPolicy, or with more flux.bursting.spareRanks; outside Kubernetes, start the \
                 instance with a configuration of flux-operator burst init --ranks",
            ),
        ];
        for (why, message) in cases {
            assert_eq!(why.to_string(), message);
        }
    }
}
