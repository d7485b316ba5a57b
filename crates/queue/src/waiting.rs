//! Why a job waits.

use std::fmt;
use std::sync::Arc;

use crate::{Millis, Resource, SetupName};

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
    QueueInactive {
        /// In one word.
        reason: &'static str,
        /// What to do about it.
        message: String,
    },
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

impl Reason {
    /// In one word, for a condition.
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Pending => "Pending",
            Reason::Suspended => "Suspended",
            Reason::NoQueue => "NoQueue",
            Reason::UnknownQueue(_) => "UnknownQueue",
            Reason::NotServed(_) => "NotServed",
            Reason::AmbiguousQueue(_) => "AmbiguousQueue",
            Reason::QueueInactive { reason, .. } => reason,
            Reason::TooLarge { .. } => "TooLarge",
            Reason::ExceedsQuota { .. } => "ExceedsMaxQuota",
            Reason::WaitingForQuota { .. } => "WaitingForQuota",
            Reason::BehindOthers { .. } => "BehindOthers",
            Reason::NamespaceQuota { .. } => "NamespaceQuota",
            Reason::BackingOff { .. } => "BackingOff",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!("what is missing, and what to do")
    }
}
