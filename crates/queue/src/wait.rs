//! Why a job waits.

use std::fmt;
use std::sync::Arc;

use crate::{Inactive, Millis, Resource, SetupName};

/// A job that waits: its queue, its position, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitStatus {
    /// Its queue, if it has one.
    pub queue: Option<SetupName>,
    /// The number of jobs in that queue that are ahead of it.
    pub position: Option<usize>,
    /// The reason.
    pub reason: WaitReason,
}

/// Why a job waits. The `Display` implementation is for users: what is missing, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It has not been considered yet: the next cycle considers it.
    Pending,
    /// Its user has suspended it.
    Suspended,
    /// No setup serves its namespace.
    NoQueue,
    /// The setup it names does not exist.
    UnknownQueue(Arc<str>),
    /// The setup it names does not serve its namespace.
    NotServed(SetupName),
    /// Several setups serve its namespace, and it names none.
    AmbiguousQueue(Vec<SetupName>),
    /// The setup is stopped, being deleted, or cannot be used.
    QueueInactive(Inactive),
    /// It is larger than the setup allows.
    TooLarge {
        /// The size it requests.
        size: u32,
        /// The largest size of one job.
        max_size: u32,
    },
    /// It requests more than the whole quota.
    ExceedsQuota {
        /// The first resource whose quota is too small.
        resource: Resource,
        /// The amount it requests.
        requested: i64,
        /// The whole quota.
        quota: i64,
    },
    /// It does not fit now.
    WaitingForQuota {
        /// The first resource that is missing.
        resource: Resource,
        /// How much more it needs than is free.
        missing: i64,
    },
    /// It would fit, but the quota is reserved for a job that is ahead of it.
    BehindOthers {
        /// The name of that job.
        job: Arc<str>,
    },
    /// A ResourceQuota of its namespace leaves too little.
    NamespaceQuota {
        /// Its name.
        quota: Arc<str>,
        /// The first resource that is missing.
        resource: Resource,
        /// How much more it needs than is left.
        missing: i64,
    },
    /// It was evicted, and stays out of the queue for a while.
    BackingOff {
        /// The end of the back-off.
        until: Millis,
    },
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::Pending => f.write_str("it is considered in the next cycle"),
            WaitReason::Suspended => {
                f.write_str("it is suspended: set suspend to false to queue it")
            }
            WaitReason::NoQueue => f.write_str(
                "no FluxSetup serves its namespace: create one there, or let one in the \
                 operator's namespace select it",
            ),
            WaitReason::UnknownQueue(name) => write!(
                f,
                "FluxSetup {name:?} does not exist: name an existing one in queue, or create it"
            ),
            WaitReason::NotServed(setup) => write!(
                f,
                "FluxSetup \"{setup}\" does not serve its namespace: name another in queue, or \
                 let its namespaceSelector select the namespace"
            ),
            WaitReason::AmbiguousQueue(setups) => {
                let names: Vec<String> =
                    setups.iter().map(|setup| format!("\"{setup}\"")).collect();
                let names = names.join(", ");
                write!(f, "several FluxSetups serve its namespace, {names}: name one in queue")
            }
            WaitReason::QueueInactive(Inactive { message, .. }) => f.write_str(message),
            WaitReason::TooLarge { size, max_size } => write!(
                f,
                "it requests {}, but its queue allows at most {max_size} per job: lower the size",
                Resource::Nodes.describe(i64::from(*size))
            ),
            WaitReason::ExceedsQuota { resource, requested, quota } => write!(
                f,
                "it requests {}, but the whole quota is {}: lower the request, or raise the quota",
                resource.describe(*requested),
                resource.to_quantity(*quota)
            ),
            WaitReason::WaitingForQuota { resource, missing } => {
                write!(f, "missing {}", resource.describe(*missing))
            }
            WaitReason::BehindOthers { job } => {
                write!(f, "quota is reserved for {job:?}, which is ahead of it")
            }
            WaitReason::NamespaceQuota { quota, resource, missing } => write!(
                f,
                "missing {} in ResourceQuota {quota:?} of its namespace",
                resource.describe(*missing)
            ),
            WaitReason::BackingOff { .. } => {
                f.write_str("it lost its quota, and backs off before it queues again")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_what_is_missing_or_what_to_do() {
        let cases = [
            (
                WaitReason::WaitingForQuota { resource: Resource::Nodes, missing: 2 },
                "missing 2 nodes",
            ),
            (
                WaitReason::WaitingForQuota { resource: Resource::Cpu, missing: 500 },
                "missing 500m cpu",
            ),
            (
                WaitReason::ExceedsQuota {
                    resource: Resource::Memory,
                    requested: 4 << 30,
                    quota: 3 << 30,
                },
                "it requests 4Gi memory, but the whole quota is 3Gi: \
                 lower the request, or raise the quota",
            ),
            (
                WaitReason::NamespaceQuota {
                    quota: "compute".into(),
                    resource: Resource::Pods,
                    missing: 1,
                },
                "missing 1 pod in ResourceQuota \"compute\" of its namespace",
            ),
            (
                WaitReason::AmbiguousQueue(vec![
                    SetupName::new("a", "x"),
                    SetupName::new("a", "y"),
                ]),
                "several FluxSetups serve its namespace, \"a/x\", \"a/y\": name one in queue",
            ),
        ];
        for (reason, text) in cases {
            assert_eq!(reason.to_string(), text);
        }
    }
}
