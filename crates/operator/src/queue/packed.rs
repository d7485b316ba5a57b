//! FluxJobs as they are kept in memory. Of thousands of jobs nearly all are waiting or finished,
//! and seldom read: a small job takes less than half the memory if it is kept serialized.

use std::borrow::Cow;

use flux_operator_api::{FluxJob, FluxJobSpec, FluxJobStatus};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use kube::runtime::watcher::Event;
use serde::{Deserialize, Serialize};

use super::queues::GuardedJob;

/// A FluxJob, or the error if it cannot be deserialized.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "GuardedJob")]
pub(crate) struct PackedJob {
    /// Its name, namespace and uid; the rest is in `packed`.
    key: ObjectMeta,
    packed: Packed,
}

#[derive(Clone, Debug)]
enum Packed {
    /// The rest of the metadata, the spec and the status.
    Job {
        json: Box<[u8]>,
        is_finished: bool,
    },
    Invalid(Box<InvalidObject>),
}

/// The packed part of a job.
#[derive(Serialize)]
struct PackedFields<'a> {
    metadata: &'a ObjectMeta,
    spec: &'a FluxJobSpec,
    status: &'a Option<FluxJobStatus>,
}

impl PackedJob {
    /// Packs a job.
    pub(crate) fn from_job(job: &GuardedJob) -> PackedJob {
        let mut metadata = job.meta().clone();
        let key = ObjectMeta {
            name: metadata.name.take(),
            namespace: metadata.namespace.take(),
            uid: metadata.uid.take(),
            ..ObjectMeta::default()
        };
        let packed = match &job.0 {
            Ok(FluxJob { metadata: _, spec, status }) => Packed::Job {
                json: serde_json::to_vec(&PackedFields { metadata: &metadata, spec, status })
                    .expect("the keys of its maps are strings")
                    .into(),
                is_finished: status.as_ref().is_some_and(|status| status.finish_time.is_some()),
            },
            Err(invalid) => Packed::Invalid(Box::new(invalid.clone())),
        };
        PackedJob { key, packed }
    }

    /// Deserializes the job.
    ///
    /// # Errors
    /// If it could not be deserialized when it was packed.
    pub(crate) fn unpack(&self) -> Result<FluxJob, &InvalidObject> {
        match &self.packed {
            Packed::Job { json, .. } => {
                // Deserialized through the same type as in a watch, so that this large code exists
                // only once.
                let job: GuardedJob =
                    serde_json::from_slice(json).expect("it was packed from a job");
                let mut job = job.0.expect("it was packed from a job");
                job.metadata.name.clone_from(&self.key.name);
                job.metadata.namespace.clone_from(&self.key.namespace);
                job.metadata.uid.clone_from(&self.key.uid);
                Ok(job)
            }
            Packed::Invalid(invalid) => Err(invalid),
        }
    }

    /// Whether the job has finished.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.packed, Packed::Job { is_finished: true, .. })
    }
}

/// kube's `Controller` requires that objects can be deserialized.
impl From<GuardedJob> for PackedJob {
    fn from(job: GuardedJob) -> PackedJob {
        PackedJob::from_job(&job)
    }
}

/// The event of a watch with its job packed.
pub(super) fn pack_event(event: &Event<GuardedJob>) -> Event<PackedJob> {
    match event {
        Event::Apply(job) => Event::Apply(PackedJob::from_job(job)),
        Event::Delete(job) => Event::Delete(PackedJob::from_job(job)),
        Event::Init => Event::Init,
        Event::InitApply(job) => Event::InitApply(PackedJob::from_job(job)),
        Event::InitDone => Event::InitDone,
    }
}

impl Resource for PackedJob {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        FluxJob::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        FluxJob::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        FluxJob::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        FluxJob::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.key
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_packed_job_unpacks_to_the_same_job() {
        let job = json!({
            "apiVersion": "flux-framework.org/v1alpha2", "kind": "FluxJob",
            "metadata": { "name": "lammps", "namespace": "team", "uid": "u", "generation": 2,
                "resourceVersion": "7", "labels": { "a": "b" },
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "image": "lammps", "command": "lmp -in x", "size": 4, "queue": "q",
                "resources": { "requests": { "cpu": "500m" } },
                "template": { "spec": { "size": 4, "containers": [{ "image": "a" }] } } },
            "status": { "phase": "Finished", "finishTime": "2026-01-01T00:00:10Z",
                "admission": { "queue": "team/q", "size": 4, "resources": { "nodes": "4" } } },
        });
        let job: GuardedJob = serde_json::from_value(job).unwrap();
        let packed = PackedJob::from_job(&job);
        assert_eq!(packed.meta().name.as_deref(), Some("lammps"));
        assert!(packed.is_finished());
        let unpacked = serde_json::to_value(packed.unpack().unwrap()).unwrap();
        assert_eq!(unpacked, serde_json::to_value(job.0.unwrap()).unwrap());
    }

    #[test]
    fn unpacking_an_invalid_job_returns_its_error() {
        let odd = json!({ "metadata": { "name": "a", "uid": "u" }, "spec": { "size": "many" } });
        let packed = PackedJob::from_job(&serde_json::from_value(odd).unwrap());
        assert!(packed.unpack().unwrap_err().error.contains("many"));
        assert!(!packed.is_finished());
    }
}
