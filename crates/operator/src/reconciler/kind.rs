//! What the reconciler needs to know about a kind.

use std::borrow::Cow;
use std::time::Duration;

use flux_operator_plan::unreconcilable::unreadable;
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

/// A kind of object that is reconciled. What to do is decided in
/// [`decide`](ReconciledKind::decide), which is pure; the other methods give access to state.
pub trait ReconciledKind: Send + Sync + 'static {
    /// The stored form of an object: the object, or the error if it cannot be deserialized. Its
    /// metadata has at least the name and the uid.
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

    /// The state that a decision is made from, besides the object.
    type Observed: Send + Sync;

    /// The facts that a conclusion is drawn from.
    type Facts<'a>: Conclude<Status = Self::Status> + Send + Sync;

    /// The kind's name.
    const NAME: &'static str;

    /// The condition that reports whether an object can be reconciled at all.
    const CONDITION: &'static str;

    /// The finalizer that the operator adds, where an object that cannot be deserialized may have it.
    const FINALIZER: Option<&'static str> = None;

    /// The object in its stored form, or why it cannot be deserialized.
    fn open(stored: &Self::Stored) -> Result<Cow<'_, Self::Object>, &InvalidObject>;

    /// The current state, from memory; None if that is not enough for a decision.
    fn observe(&self, object: &Self::Object, now: Timestamp) -> Option<Self::Observed>;

    /// Queries the API server for what else the decision needs.
    fn query(
        &self,
        client: &Client,
        object: &Self::Object,
        observed: &mut Self::Observed,
    ) -> impl Future<Output = ()> + Send {
        let _ = (client, object, observed);
        std::future::ready(())
    }

    /// Decides what to do about an object. Pure.
    fn decide<'a>(
        &'a self,
        object: &'a Self::Object,
        observed: &'a Self::Observed,
    ) -> Decision<Self::Facts<'a>>;

    /// Assigns work to the lead's agent.
    fn assign(&self, object: &Self::Object, work: Option<&Drain>) {
        let _ = (object, work);
    }

    /// The resource version that the watches have delivered for an object we wrote.
    fn observed_version(&self, object: &Self::Object, written: &WrittenObject) -> Option<String>;

    /// When a status that is not urgent may be written.
    fn status_turn(&self, object: &Self::Object) -> WriteTime {
        let _ = object;
        WriteTime::Now
    }

    /// Called after a status was written.
    fn on_status_written(&self, object: &Self::Object, status: &Self::Status) {
        let _ = (object, status);
    }

    /// The conditions of an object; None if they are not all kept, and so cannot be written again.
    fn conditions(object: &Self::Object) -> Option<&[Condition]>;

    /// The status that reports why an object cannot be deserialized.
    fn unreadable_status(invalid: &InvalidObject, now: Timestamp) -> Value {
        unreadable(Self::CONDITION, &invalid.metadata, &invalid.error, now)
    }
}

/// When a status may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTime {
    /// Now.
    Now,
    /// After this delay.
    After(Duration),
    /// In the next reconciliation that the kind requests.
    WhenRequested,
}

/// An object that was written, with its new resource version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenObject {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its resource version after the write.
    pub version: Option<String>,
}

impl WrittenObject {
    /// Whether it is this object.
    pub(super) fn is_version_of<K: ResourceExt + Resource<DynamicType = ()>>(
        &self,
        object: &K,
    ) -> bool {
        self.kind == K::kind(&()) && self.name == object.name_any()
    }
}
