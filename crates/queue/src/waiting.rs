//! Why a job waits.

use std::fmt;
use std::sync::Arc;

use crate::{Inactive, Millis, Resource, SetupName};

/// A job that waits: where, at which place, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// At which setup, if one was found.
    pub queue: Option<SetupName>,
    /// How many of that queue come before it.
    pub position: Option<usize>,
    /// Why.
    pub reason: Reason,
}

/// Why a job waits. Its `Display` is for users: what is missing, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its turn has not come: it is looked at in the next cycle.
    Pending,
    /// Its user holds it back.
    Suspended,
    /// No setup serves its namespace.
    NoQueue,
    /// The setup it names is not there.
    UnknownQueue(Arc<str>),
    /// The setup it names does not serve its namespace.
    NotServed(SetupName),
    /// Several setups serve its namespace, and it names none.
    AmbiguousQueue(Vec<SetupName>),
    /// The setup is stopped, going, or cannot be used.
    QueueInactive(Inactive),
    /// It is larger than the setup allows one job to be.
    TooLarge {
        /// What it asks for.
        size: u32,
        /// What is allowed.
        max_size: u32,
    },
    /// It asks for more than there is, even if nothing else ran.
    ExceedsQuota {
        /// The first resource that is too little.
        resource: Resource,
        /// How much it asks for.
        asked: i64,
        /// How much there is in all.
        room: i64,
    },
    /// It does not fit now.
    WaitingForQuota {
        /// The first resource that is missing.
        resource: Resource,
        /// How much more is needed than is free.
        missing: i64,
    },
    /// It would fit, but the room is kept for one that waits longer or matters more.
    BehindOthers {
        /// The name of the job that holds it up.
        job: Arc<str>,
    },
    /// A ResourceQuota of its namespace leaves too little.
    NamespaceQuota {
        /// Its name.
        quota: Arc<str>,
        /// The first resource that is missing.
        resource: Resource,
        /// How much more is needed than is left.
        missing: i64,
    },
    /// It lost its room and stays out of the queue until then.
    BackingOff {
        /// Until when.
        until: Millis,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Pending => f.write_str("it is looked at next"),
            Reason::Suspended => {
                f.write_str("it is suspended: set suspend to false to let it wait for room")
            }
            Reason::NoQueue => f.write_str(
                "no FluxSetup serves its namespace: make one there, or have one of the \
                 operator's namespace serve it",
            ),
            Reason::UnknownQueue(name) => write!(
                f,
                "there is no FluxSetup {name:?}: name one that is there in queue, or make it"
            ),
            Reason::NotServed(setup) => write!(
                f,
                "FluxSetup \"{setup}\" does not serve its namespace: name another in queue, or \
                 have its namespaceSelector select it"
            ),
            Reason::AmbiguousQueue(setups) => {
                let names: Vec<String> =
                    setups.iter().map(|setup| format!("\"{setup}\"")).collect();
                let names = names.join(", ");
                write!(f, "several FluxSetups serve its namespace, {names}: name one in queue")
            }
            Reason::QueueInactive(Inactive { message, .. }) => f.write_str(message),
            Reason::TooLarge { size, max_size } => write!(
                f,
                "it asks for {}, and its queue gives one job at most {max_size}: make it smaller",
                Resource::Nodes.amount(i64::from(*size))
            ),
            Reason::ExceedsQuota { resource, asked, room } => write!(
                f,
                "it asks for {}, and its queue has {} in all: make it smaller, or raise the quota",
                resource.amount(*asked),
                resource.quantity(*room)
            ),
            Reason::WaitingForQuota { resource, missing } => {
                write!(f, "missing {}", resource.amount(*missing))
            }
            Reason::BehindOthers { job } => write!(f, "room is kept for {job:?}, which is first"),
            Reason::NamespaceQuota { quota, resource, missing } => write!(
                f,
                "missing {} in ResourceQuota {quota:?} of its namespace",
                resource.amount(*missing)
            ),
            Reason::BackingOff { .. } => {
                f.write_str("it lost its room, and waits a while before it queues again")
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
            (Reason::WaitingForQuota { resource: Resource::Nodes, missing: 2 }, "missing 2 nodes"),
            (Reason::WaitingForQuota { resource: Resource::Cpu, missing: 500 }, "missing 500m cpu"),
            (
                Reason::ExceedsQuota { resource: Resource::Memory, asked: 4 << 30, room: 3 << 30 },
                "it asks for 4Gi memory, and its queue has 3Gi in all: \
                 make it smaller, or raise the quota",
            ),
            (
                Reason::NamespaceQuota {
                    quota: "compute".into(),
                    resource: Resource::Pods,
                    missing: 1,
                },
                "missing 1 pod in ResourceQuota \"compute\" of its namespace",
            ),
            (
                Reason::AmbiguousQueue(vec![SetupName::new("a", "x"), SetupName::new("a", "y")]),
                "several FluxSetups serve its namespace, \"a/x\", \"a/y\": name one in queue",
            ),
        ];
        for (reason, text) in cases {
            assert_eq!(reason.to_string(), text);
        }
    }
}
