//! Requests to the API server of a target, with answers in bounded memory.
//!
//! That server is not ours, and may answer with anything. In Kubernetes' own types an empty object of a
//! list takes a thousand times the memory of its text. So only the fields that are needed are read, and
//! of lists only the first elements. kube's own parsing also logs an answer that it cannot parse, whole.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, Pod, PodCondition, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Error, Resource};
use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::errors::is_not_found;

/// Of how many pods the state is read: enough to see that some exist, and what keeps them from starting.
const MAX_PODS: usize = 50;

/// How many conditions of an object are read, and how many containers of each kind. Kubernetes writes
/// up to 8 conditions, and pods of Bursts have one container and what is injected there.
const MAX_PARTS: usize = 16;

/// One namespace of an API server that is not ours.
pub(super) struct BoundedApi<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl BoundedApi<'_> {
    /// Major and minor version of the server; `None` if it does not say.
    pub(super) async fn version(&self) -> Result<Option<(u32, u32)>, Error> {
        let request = http::Request::get("/version").body(Vec::new());
        let text = self.client.request_text(request.map_err(Error::HttpError)?).await?;
        // Some clouds write "33+".
        let number = |text: String| text.trim_end_matches('+').parse().ok();
        let version = serde_json::from_str::<VersionAnswer>(&text).ok();
        Ok(version.and_then(|it| Some((number(it.major)?, number(it.minor)?))))
    }

    /// A Job, with the fields that this crate and `plan::bursting` use; `None` if it does not exist.
    pub(super) async fn job(&self, name: &str) -> Result<Option<Job>, Error> {
        let request = self.requests::<Job>().get(name, &GetParams::default());
        match self.read::<JobAnswer>("Job", request).await {
            Ok(job) => Ok(Some(job.into())),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The first pods with labels, with the fields that `plan::bursting` uses.
    pub(super) async fn pods(&self, labels: &str) -> Result<Vec<Pod>, Error> {
        let limit = u32::try_from(MAX_PODS).unwrap_or(u32::MAX);
        let which = ListParams::default().labels(labels).limit(limit);
        let list = self.read::<PodsAnswer>("PodList", self.requests::<Pod>().list(&which)).await?;
        Ok(list.items.0.into_iter().map(Pod::from).collect())
    }

    /// Creates an object.
    pub(super) async fn create<K>(&self, object: &K) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize,
    {
        let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
        self.send(self.requests::<K>().create(&PostParams::default(), body)).await.map(drop)
    }

    /// Merges a patch into an object.
    pub(super) async fn patch<K>(&self, name: &str, patch: &serde_json::Value) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let patch = Patch::Merge(patch);
        let request = self.requests::<K>().patch(name, &PatchParams::default(), &patch);
        self.send(request).await.map(drop)
    }

    /// Deletes an object.
    pub(super) async fn delete<K>(&self, name: &str) -> Result<(), Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        let request = self.requests::<K>().delete(name, &DeleteParams::background());
        self.send(request).await.map(drop)
    }

    fn requests<K>(&self) -> Request
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Request::new(K::url_path(&(), Some(self.namespace)))
    }

    async fn send(&self, request: RequestResult) -> Result<String, Error> {
        self.client.request_text(request.map_err(Error::BuildRequest)?).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        kind: &str,
        request: RequestResult,
    ) -> Result<T, Error> {
        let text = self.send(request).await?;
        let typed: Typed = serde_json::from_str(&text).map_err(Error::SerdeError)?;
        if typed.kind != kind {
            return Err(Error::SerdeError(serde::de::Error::custom("another kind")));
        }
        serde_json::from_str(&text).map_err(Error::SerdeError)
    }
}

type RequestResult = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// The first `MAX` elements of a list; the others are skipped.
#[derive(Debug)]
struct First<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for First<T, MAX> {
    fn default() -> Self {
        First(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for First<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FirstVisitor(PhantomData))
    }
}

struct FirstVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FirstVisitor<T, MAX> {
    type Value = First<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(First::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut first = Vec::new();
        while first.len() < MAX {
            match list.next_element()? {
                Some(element) => first.push(element),
                None => return Ok(First(first)),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(First(first))
    }
}

#[derive(Deserialize)]
struct Typed {
    kind: String,
}

#[derive(Deserialize)]
struct JobAnswer {
    metadata: MetadataAnswer,
    spec: Option<JobSpecAnswer>,
    status: Option<JobStatusAnswer>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataAnswer {
    name: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<LabelsAnswer>,
    annotations: Option<AnnotationsAnswer>,
}

#[derive(Deserialize)]
struct VersionAnswer {
    major: String,
    minor: String,
}

#[derive(Deserialize)]
struct LabelsAnswer {
    #[serde(rename = "job-name")]
    job_name: Option<String>,
}

#[derive(Deserialize)]
struct AnnotationsAnswer {
    #[serde(rename = "batch.kubernetes.io/job-completion-index")]
    index: Option<String>,
    #[serde(rename = "batch.kubernetes.io/job-index-failure-count")]
    failures: Option<String>,
    #[serde(rename = "batch.kubernetes.io/job-index-ignored-failure-count")]
    ignored_failures: Option<String>,
}

#[derive(Deserialize)]
struct JobSpecAnswer {
    completions: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobStatusAnswer {
    active: Option<i32>,
    start_time: Option<Time>,
    #[serde(default)]
    conditions: First<ConditionAnswer, MAX_PARTS>,
}

#[derive(Deserialize)]
struct ConditionAnswer {
    r#type: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct PodsAnswer {
    items: First<PodAnswer, MAX_PODS>,
}

#[derive(Deserialize)]
struct PodAnswer {
    #[serde(default)]
    metadata: MetadataAnswer,
    spec: Option<PodSpecAnswer>,
    status: Option<PodStatusAnswer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpecAnswer {
    node_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatusAnswer {
    phase: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    #[serde(default)]
    conditions: First<ConditionAnswer, MAX_PARTS>,
    #[serde(default)]
    init_container_statuses: First<ContainerAnswer, MAX_PARTS>,
    #[serde(default)]
    container_statuses: First<ContainerAnswer, MAX_PARTS>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerAnswer {
    name: Option<String>,
    image: Option<String>,
    restart_count: Option<i32>,
    state: Option<StateAnswer>,
    last_state: Option<StateAnswer>,
}

#[derive(Deserialize)]
struct StateAnswer {
    waiting: Option<WaitingAnswer>,
    running: Option<RunningAnswer>,
    terminated: Option<TerminatedAnswer>,
}

#[derive(Deserialize)]
struct WaitingAnswer {
    reason: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunningAnswer {
    started_at: Option<Time>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatedAnswer {
    exit_code: Option<i32>,
    started_at: Option<Time>,
    reason: Option<String>,
    message: Option<String>,
}

impl From<MetadataAnswer> for ObjectMeta {
    fn from(answer: MetadataAnswer) -> ObjectMeta {
        let MetadataAnswer { name, creation_timestamp, deletion_timestamp, labels, annotations } =
            answer;
        let one = |key: &str, value: String| BTreeMap::from([(key.to_owned(), value)]);
        ObjectMeta {
            name,
            creation_timestamp,
            deletion_timestamp,
            labels: labels.and_then(|it| it.job_name).map(|name| one("job-name", name)),
            annotations: annotations.map(AnnotationsAnswer::into_map),
            ..ObjectMeta::default()
        }
    }
}

impl AnnotationsAnswer {
    fn into_map(self) -> BTreeMap<String, String> {
        let AnnotationsAnswer { index, failures, ignored_failures } = self;
        let all = [
            ("completion-index", index),
            ("index-failure-count", failures),
            ("index-ignored-failure-count", ignored_failures),
        ];
        let named = |(name, value): (&str, Option<String>)| {
            Some((format!("batch.kubernetes.io/job-{name}"), value?))
        };
        all.into_iter().filter_map(named).collect()
    }
}

impl From<JobAnswer> for Job {
    fn from(answer: JobAnswer) -> Job {
        let JobAnswer { metadata, spec, status } = answer;
        Job {
            metadata: metadata.into(),
            spec: spec
                .map(|JobSpecAnswer { completions }| JobSpec { completions, ..JobSpec::default() }),
            status: status.map(|JobStatusAnswer { active, start_time, conditions }| JobStatus {
                active,
                start_time,
                conditions: Some(conditions.0.into_iter().map(JobCondition::from).collect()),
                ..JobStatus::default()
            }),
        }
    }
}

impl From<ConditionAnswer> for JobCondition {
    fn from(answer: ConditionAnswer) -> JobCondition {
        let ConditionAnswer { r#type, status, reason, message } = answer;
        JobCondition {
            type_: r#type.unwrap_or_default(),
            status: status.unwrap_or_default(),
            reason,
            message,
            ..JobCondition::default()
        }
    }
}

impl From<ConditionAnswer> for PodCondition {
    fn from(answer: ConditionAnswer) -> PodCondition {
        let ConditionAnswer { r#type, status, reason, message } = answer;
        PodCondition {
            type_: r#type.unwrap_or_default(),
            status: status.unwrap_or_default(),
            reason,
            message,
            ..PodCondition::default()
        }
    }
}

impl From<PodAnswer> for Pod {
    fn from(answer: PodAnswer) -> Pod {
        let PodAnswer { metadata, spec, status } = answer;
        Pod {
            metadata: metadata.into(),
            spec: spec
                .map(|PodSpecAnswer { node_name }| PodSpec { node_name, ..PodSpec::default() }),
            status: status.map(PodStatus::from),
        }
    }
}

impl From<PodStatusAnswer> for PodStatus {
    fn from(answer: PodStatusAnswer) -> PodStatus {
        let PodStatusAnswer {
            phase,
            reason,
            message,
            conditions,
            init_container_statuses,
            container_statuses,
        } = answer;
        let containers = |list: First<ContainerAnswer, MAX_PARTS>| {
            Some(list.0.into_iter().map(ContainerStatus::from).collect())
        };
        PodStatus {
            phase,
            reason,
            message,
            conditions: Some(conditions.0.into_iter().map(PodCondition::from).collect()),
            init_container_statuses: containers(init_container_statuses),
            container_statuses: containers(container_statuses),
            ..PodStatus::default()
        }
    }
}

impl From<ContainerAnswer> for ContainerStatus {
    fn from(answer: ContainerAnswer) -> ContainerStatus {
        let ContainerAnswer { name, image, restart_count, state, last_state } = answer;
        ContainerStatus {
            name: name.unwrap_or_default(),
            image: image.unwrap_or_default(),
            restart_count: restart_count.unwrap_or_default(),
            state: state.map(ContainerState::from),
            last_state: last_state.map(ContainerState::from),
            ..ContainerStatus::default()
        }
    }
}

impl From<StateAnswer> for ContainerState {
    fn from(answer: StateAnswer) -> ContainerState {
        let StateAnswer { waiting, running, terminated } = answer;
        ContainerState {
            waiting: waiting
                .map(|WaitingAnswer { reason, message }| ContainerStateWaiting { reason, message }),
            running: running
                .map(|RunningAnswer { started_at }| ContainerStateRunning { started_at }),
            terminated: terminated.map(|it| ContainerStateTerminated {
                exit_code: it.exit_code.unwrap_or_default(),
                started_at: it.started_at,
                reason: it.reason,
                message: it.message,
                ..ContainerStateTerminated::default()
            }),
        }
    }
}

#[cfg(test)]
mod tests;
