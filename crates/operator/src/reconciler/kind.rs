//! What the reconciler must know of a kind.

use std::borrow::Cow;
use std::time::Duration;

use flux_operator_plan::broken::unreadable;
use flux_operator_plan::{Conclude, Decision};
use flux_operator_wire::Drain;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A kind of object that is reconciled. Its meaning is in [`decide`](Kind::decide), which is
/// pure; the rest says where things are found.
pub trait Kind: Send + Sync + 'static {
    /// What is kept of an object: itself, or why it cannot be read. Its metadata has the name and
    /// the uid.
    type Stored: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + Sync;

    /// The object.
    type Object: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync;

    /// Its status.
    type Status: Serialize + Send + Sync;

    /// What a decision is made from, besides the object.
    type Observed: Send + Sync;

    /// What a conclusion is drawn from.
    type Facts<'a>: Conclude<Status = Self::Status> + Send + Sync;

    /// Its name.
    const NAME: &'static str;

    /// The condition that says whether an object can be reconciled at all.
    const CONDITION: &'static str;

    /// The object that is kept, or why it cannot be read.
    fn open(stored: &Self::Stored) -> Result<Cow<'_, Self::Object>, &InvalidObject>;

    /// What is known now, from memory; None if that is too little to decide anything.
    fn observe(&self, object: &Self::Object, now: Timestamp) -> Option<Self::Observed>;

    /// Asks the API server what has to be known besides.
    fn ask(
        &self,
        client: &Client,
        object: &Self::Object,
        observed: &mut Self::Observed,
    ) -> impl Future<Output = ()> + Send {
        let _ = (client, object, observed);
        std::future::ready(())
    }

    /// What to do about an object. Pure.
    fn decide<'a>(
        &'a self,
        object: &'a Self::Object,
        observed: &'a Self::Observed,
    ) -> Decision<Self::Facts<'a>>;

    /// Gives the lead's agent its work.
    fn assign(&self, object: &Self::Object, work: Option<&Drain>) {
        let _ = (object, work);
    }

    /// The resource version that the watches show of something that was written for an object.
    fn shown(&self, object: &Self::Object, written: &Written) -> Option<String>;

    /// Whether a status that nothing waits for may be written now.
    fn turn(&self, object: &Self::Object) -> Turn {
        let _ = object;
        Turn::Now
    }

    /// A status was written.
    fn status_written(&self, object: &Self::Object, status: &Self::Status) {
        let _ = (object, status);
    }

    /// The conditions that an object has; None if they are not all kept, and so cannot be written
    /// again.
    fn conditions(object: &Self::Object) -> Option<&[Condition]>;

    /// The status of an object that cannot be read: why not.
    fn unreadable(invalid: &InvalidObject, now: Timestamp) -> Value {
        unreadable(Self::CONDITION, &invalid.metadata, &invalid.error, now)
    }
}

/// When a status may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// After a while.
    In(Duration),
    /// When the kind asks for the next reconciliation.
    WhenAsked,
}

/// Something that was written: a kind, a name, and the resource version it has since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
}

impl Written {
    /// Whether it is this object.
    pub(super) fn is_of<K: ResourceExt + Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        self.kind == K::kind(&()) && self.name == object.name_any()
    }
}
