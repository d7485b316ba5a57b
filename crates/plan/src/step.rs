//! One change of an object. A step leaves no choice to the code that applies it.

use flux_operator_api::MiniCluster;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use crate::kubernetes::{CLUSTER_LABEL, CertificateCopy, NewKeys};
use crate::queueing::JOB_LABEL;

/// The field manager of the objects that we create.
pub const FIELD_MANAGER: &str = "flux-operator";

/// One change of an object, in the namespace of the object that is reconciled.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create the Secret with fresh keys, unless it exists. It is never rewritten.
    CreateKeys(Box<NewKeys>),
    /// Create the Secret with a copy of the lender's certificate, unless it exists.
    CopyCertificate(Box<CertificateCopy>),
    /// Create an object. One that exists and is ours stays as it is: a Job's template is
    /// immutable, and a MiniCluster is reconciled by itself.
    Create(Object),
    /// Create an object, which costs the API server less than applying it. One that exists
    /// but was not observed yet is corrected.
    CreateOrApply(Object),
    /// Create or correct an object.
    Apply {
        /// The object.
        object: Object,
        /// The field manager: if several share an object, each owns only its part.
        manager: String,
    },
    /// Change an object by a merge patch.
    Patch {
        /// The object.
        target: Target,
        /// The patch. If it has a resource version, it is for exactly that version.
        patch: Value,
    },
    /// Delete an object with everything it owns.
    Delete(Target),
    /// Change the metadata of the reconciled object itself by a merge patch. It ends the
    /// reconciliation, because what was computed from the object is outdated.
    PatchSelf(Value),
    /// Delete the reconciled object itself, with everything it owns. It ends the
    /// reconciliation too.
    DeleteSelf,
}

impl Step {
    /// Whether the step changes the reconciled object itself.
    pub fn changes_self(&self) -> bool {
        matches!(self, Step::PatchSelf(_) | Step::DeleteSelf)
    }

    /// Whether the step creates the Job of a MiniCluster.
    pub(crate) fn creates_job(&self) -> bool {
        matches!(self, Step::Create(Object::Job(_)))
    }
}

/// An object that a step writes.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A ConfigMap.
    ConfigMap(Box<ConfigMap>),
    /// A Service.
    Service(Box<Service>),
    /// An EndpointSlice.
    EndpointSlice(Box<EndpointSlice>),
    /// A Pod.
    Pod(Box<Pod>),
    /// A Job.
    Job(Box<Job>),
    /// A MiniCluster.
    MiniCluster(Box<MiniCluster>),
}

impl Object {
    /// The label by which the operator finds the objects it created. An object without it was
    /// created by another program, such as the Go operator, even if it has the same owner.
    pub fn label(&self) -> &'static str {
        match self {
            Object::MiniCluster(_) => JOB_LABEL,
            Object::ConfigMap(_)
            | Object::Service(_)
            | Object::EndpointSlice(_)
            | Object::Pod(_)
            | Object::Job(_) => CLUSTER_LABEL,
        }
    }
}

/// An existing object, as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its name.
    pub name: String,
    /// Its uid, so that a newer object with the same name is left alone.
    pub uid: Option<String>,
}

/// The kind of an existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A Job.
    Job,
    /// A Pod.
    Pod,
    /// A Service.
    Service,
    /// An EndpointSlice.
    EndpointSlice,
    /// A MiniCluster.
    MiniCluster,
}

impl Target {
    /// The object as it was observed.
    pub(crate) fn of<K: kube::ResourceExt>(kind: TargetKind, object: &K) -> Target {
        Target { kind, name: object.name_any(), uid: object.uid() }
    }
}
