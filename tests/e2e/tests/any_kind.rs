//! Tests the reconciler's shell with a kind that only this test has: when the operator crashes
//! after any of its writes, when an object changes concurrently, when a decision panics, when an
//! object cannot be deserialized, and when the leader changes.
//!
//! A `Greeting` requests ConfigMaps; its status counts them. It has a finalizer, so that one step
//! writes the object itself.

use std::borrow::Cow;
use std::future::pending;

use anyhow::{Context, Result, ensure};
use flux_operator_operator::reconciler::{ReconciledKind, WrittenObject, run_kind};
use flux_operator_operator::{Election, Identity, RunError};
use flux_operator_plan::kubernetes::CLUSTER_LABEL;
use flux_operator_plan::status::{NewEvent, Urgency};
use flux_operator_plan::{Conclude, Conclusion, Decision, Object, Outcome, Step};
use flux_operator_service::guarded::Guarded;
use flux_operator_testkit::cluster::{client, first_match, in_namespace, with_timeout};
use flux_operator_tests_e2e::proxy::{Fault, Proxy, RELEASED};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::error_boundary::InvalidObject;
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const GROUP: &str = "test.flux-framework.org";
const FINALIZER: &str = "test.flux-framework.org/kept";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Greeting {
    api_version: String,
    kind: String,
    metadata: ObjectMeta,
    spec: GreetingSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<GreetingStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GreetingSpec {
    /// The number of ConfigMaps to create; a decision about 13 panics.
    count: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct GreetingStatus {
    #[serde(default)]
    made: usize,
    #[serde(default)]
    conditions: Vec<Condition>,
}

impl Resource for Greeting {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        "Greeting".into()
    }

    fn group(_: &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version(_: &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural(_: &()) -> Cow<'_, str> {
        "greetings".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A schema that accepts objects that cannot be deserialized.
fn crd() -> Result<CustomResourceDefinition> {
    let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    Ok(serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("greetings.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "kind": "Greeting", "plural": "greetings", "singular": "greeting" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": { "type": "object",
                    "properties": { "spec": open, "status": open } } },
            }],
        },
    }))?)
}

/// The fourth kind: pure decisions, and a shell of a few lines.
struct GreetingKind;

struct GreetingFacts {
    generation: Option<i64>,
    before: Option<GreetingStatus>,
    made: usize,
}

impl Conclude for GreetingFacts {
    type Status = GreetingStatus;

    fn conclude(&self, _: &[Step], outcome: &Outcome) -> Conclusion<GreetingStatus> {
        let made = self.made + outcome.done;
        let accepted = Condition {
            type_: "Accepted".into(),
            status: "True".into(),
            reason: "Accepted".into(),
            message: String::new(),
            observed_generation: self.generation,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        };
        let status = GreetingStatus { made, conditions: vec![accepted] };
        let is_same = self.before.as_ref() == Some(&status);
        let greeted = NewEvent {
            is_normal: true,
            condition: "Accepted",
            reason: "Greeted".into(),
            note: format!("{made} ConfigMaps"),
        };
        Conclusion {
            urgency: if is_same { Urgency::None } else { Urgency::Now },
            events: if is_same { Vec::new() } else { vec![greeted] },
            status: Some(status),
            requeue_at: None,
            retry: outcome.failure.is_some(),
        }
    }
}

impl ReconciledKind for GreetingKind {
    type Stored = Guarded<Greeting>;
    type Object = Greeting;
    type Status = GreetingStatus;
    /// The names of the existing ConfigMaps, once they were queried.
    type Observed = Vec<String>;
    type Facts<'a> = GreetingFacts;

    const NAME: &'static str = "Greeting";
    const CONDITION: &'static str = "Accepted";

    fn open(stored: &Self::Stored) -> Result<Cow<'_, Greeting>, &InvalidObject> {
        stored.0.as_ref().map(Cow::Borrowed)
    }

    fn observe(&self, _: &Greeting, _: Timestamp) -> Option<Vec<String>> {
        Some(Vec::new())
    }

    async fn query(&self, client: &Client, greeting: &Greeting, found: &mut Vec<String>) {
        let maps: Api<ConfigMap> = api(client, greeting);
        let made_for = ListParams::default().labels(&format!("greeting={}", greeting.name_any()));
        if let Ok(list) = maps.list(&made_for).await {
            found.extend(list.iter().map(ResourceExt::name_any));
        }
    }

    fn decide<'a>(
        &'a self,
        greeting: &'a Greeting,
        found: &'a Vec<String>,
    ) -> Decision<GreetingFacts> {
        assert_ne!(greeting.spec.count, 13, "thirteen is too many");
        let facts = GreetingFacts {
            generation: greeting.metadata.generation,
            before: greeting.status.clone(),
            made: found.len(),
        };
        if !greeting.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            let version = greeting.resource_version();
            let kept = json!({ "resourceVersion": version, "finalizers": [FINALIZER] });
            return Decision::new(vec![Step::PatchSelf(json!({ "metadata": kept }))], facts);
        }
        let steps = (0..greeting.spec.count)
            .map(|number| format!("{}-{number}", greeting.name_any()))
            .filter(|name| !found.contains(name))
            .map(|name| Step::Create(Object::ConfigMap(Box::new(config_map(greeting, name)))));
        Decision::new(steps.collect(), facts)
    }

    /// The API server is queried each time, so every write is observed.
    fn observed_version(&self, _: &Greeting, written: &WrittenObject) -> Option<String> {
        written.version.clone()
    }

    fn conditions(greeting: &Greeting) -> Option<&[Condition]> {
        Some(greeting.status.as_ref().map_or(&[], |status| &status.conditions))
    }
}

fn api<K>(client: &Client, greeting: &Greeting) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), &greeting.namespace().unwrap_or_default())
}

fn config_map(greeting: &Greeting, name: String) -> ConfigMap {
    let labels = [("greeting", greeting.name_any()), (CLUSTER_LABEL, String::new())];
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: greeting.namespace(),
            labels: Some(labels.map(|(name, value)| (name.to_owned(), value)).into()),
            owner_references: greeting.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

/// A namespace with the CRD, and helpers for tests.
struct GreetingNamespace {
    client: Client,
    namespace: String,
}

async fn with_greetings(test: impl AsyncFnOnce(&GreetingNamespace) -> Result<()>) -> Result<()> {
    let client = client().await?;
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = crd()?;
    let forced = PatchParams::apply("flux-operator-tests").force();
    crds.patch(&crd.name_any(), &forced, &Patch::Apply(&crd)).await?;
    let is_established = conditions::is_crd_established();
    with_timeout(await_condition(crds, &crd.name_any(), is_established)).await??;
    in_namespace(&client, async |namespace| {
        let greetings =
            GreetingNamespace { client: client.clone(), namespace: namespace.to_owned() };
        test(&greetings).await?;
        greetings.remove_finalizers().await
    })
    .await
}

impl GreetingNamespace {
    fn greetings(&self) -> Api<Greeting> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn create(&self, name: &str, count: &Value) -> Result<()> {
        let greetings: Api<kube::core::DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &kube::discovery::ApiResource::erase::<Greeting>(&()),
        );
        let greeting = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Greeting",
            "metadata": { "name": name }, "spec": { "count": count },
        });
        greetings.create(&PostParams::default(), &serde_json::from_value(greeting)?).await?;
        Ok(())
    }

    /// Waits until the status of a greeting satisfies `wanted`.
    async fn wait_for_status(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let greetings: Api<kube::core::DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &kube::discovery::ApiResource::erase::<Greeting>(&()),
        );
        let is_found = |found: Option<&kube::core::DynamicObject>| {
            found.is_some_and(|found| wanted(&found.data["status"]))
        };
        let found = with_timeout(await_condition(greetings, name, is_found)).await;
        let found = found.with_context(|| format!("{name} never had the status"))??;
        Ok(found.context("it was deleted")?.data["status"].clone())
    }

    async fn maps(&self, name: &str) -> Result<usize> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let made_for = ListParams::default().labels(&format!("greeting={name}"));
        Ok(maps.list(&made_for).await?.items.len())
    }

    /// Removes all finalizers, so that the namespace can be deleted.
    async fn remove_finalizers(&self) -> Result<()> {
        let patch = json!({ "metadata": { "finalizers": null } });
        let greetings: Api<kube::core::DynamicObject> = Api::namespaced_with(
            self.client.clone(),
            &self.namespace,
            &kube::discovery::ApiResource::erase::<Greeting>(&()),
        );
        for greeting in greetings.list(&ListParams::default()).await? {
            let name = greeting.name_any();
            greetings.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Ok(())
    }

    fn run(&self, client: Client) -> JoinSet<Result<(), RunError>> {
        let mut running = JoinSet::new();
        let namespace = Some(self.namespace.clone());
        running.spawn(run_kind(client, namespace, GreetingKind, None, pending()));
        running
    }
}

fn is_accepted(status: &Value) -> bool {
    status["conditions"][0]["status"] == "True"
}

/// The writes for a greeting of two: the finalizer, two ConfigMaps, the status and its Event.
const WRITES: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_any_write_is_recovered_from() -> Result<()> {
    with_greetings(async |place| {
        let greeted = |status: &Value| status["made"] == 2 && is_accepted(status);
        for last in 1..=WRITES {
            let name = format!("crash-{last}");
            place.create(&name, &json!(2)).await?;
            let proxy = Proxy::start(place.client.clone()).await?;
            proxy.inject(Fault::CutAfter(last));
            let crashes = place.run(proxy.client()?);
            with_timeout(proxy.wait_until_cut())
                .await
                .with_context(|| format!("only {}", proxy.writes()))?;
            drop(crashes);
            let next = Proxy::start(place.client.clone()).await?;
            let heals = place.run(next.client()?);
            place.wait_for_status(&name, greeted).await?;
            ensure!(place.maps(&name).await? == 2, "after {last}");
            next.wait_until_idle().await?;
            // Everything before the crash exists, and nothing is written again.
            ensure!(next.writes() <= WRITES - last, "after {last}: {:?}", next.requests());
            drop(heals);
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_concurrent_change_is_kept_and_the_status_is_written_again() -> Result<()> {
    with_greetings(async |place| {
        let proxy = Proxy::start(place.client.clone()).await?;
        let running = place.run(proxy.client()?);
        place.create("busy", &json!(1)).await?;
        place.wait_for_status("busy", |status| status["made"] == 1).await?;
        // The next status is computed from a version that is already outdated.
        proxy.inject(Fault::ConcurrentChange(
            format!("/apis/{GROUP}/v1/namespaces/{}/greetings/busy", place.namespace),
            json!({ "metadata": { "annotations": { "by": "another" } } }),
        ));
        let more = json!({ "spec": { "count": 3 } });
        let parameters = PatchParams::default();
        place.greetings().patch("busy", &parameters, &Patch::Merge(&more)).await?;
        let status = place.wait_for_status("busy", |status| status["made"] == 3).await?;
        ensure!(is_accepted(&status), "{status}");
        let busy = place.greetings().get("busy").await?;
        ensure!(busy.annotations()["by"] == "another", "it was overwritten");
        proxy.wait_until_idle().await?;
        let statuses = proxy.requests().into_iter().filter(|it| it.ends_with("busy/status"));
        ensure!(statuses.count() == 3, "one write each, one retry: {:?}", proxy.requests());
        drop(running);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_affects_only_its_object_and_is_reported_in_its_status() -> Result<()> {
    with_greetings(async |place| {
        place.create("unlucky", &json!(13)).await?;
        let mut running = place.run(place.client.clone());
        let status =
            place.wait_for_status("unlucky", |status| status["conditions"][0].is_object()).await?;
        let condition = &status["conditions"][0];
        ensure!(
            condition["status"] == "False" && condition["reason"] == "OperatorError",
            "{condition}"
        );
        ensure!(condition["message"].to_string().contains("thirteen is too many"), "{condition}");
        place.create("lucky", &json!(1)).await?;
        place.wait_for_status("lucky", is_accepted).await?;
        ensure!(running.try_join_next().is_none(), "the process exited");
        let fewer = json!({ "spec": { "count": 2 } });
        let parameters = PatchParams::default();
        place.greetings().patch("unlucky", &parameters, &Patch::Merge(&fewer)).await?;
        place
            .wait_for_status("unlucky", |status| status["made"] == 2 && is_accepted(status))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_object_is_reported_and_does_not_block_others() -> Result<()> {
    with_greetings(async |place| {
        place.create("odd", &json!("many")).await?;
        place.create("sound", &json!(1)).await?;
        let proxy = Proxy::start(place.client.clone()).await?;
        let _running = place.run(proxy.client()?);
        let status =
            place.wait_for_status("odd", |status| status["conditions"][0].is_object()).await?;
        let reported = &status["conditions"][0];
        ensure!(reported["reason"] == "Unreadable", "{reported}");
        ensure!(reported["message"].to_string().contains("many"), "{reported}");
        place.wait_for_status("sound", is_accepted).await?;
        proxy.wait_until_idle().await?;
        let written = proxy.requests().into_iter().filter(|it| it.contains("odd/status")).count();
        ensure!(written == 1, "it is reported once, not {written} times");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_takes_over() -> Result<()> {
    with_greetings(async |place| {
        let election = |name: &str| Election {
            namespace: place.namespace.clone(),
            lease: "greetings".into(),
            identity: Identity { name: name.into(), address: None },
        };
        let (first, second) =
            (Proxy::start(place.client.clone()).await?, Proxy::start(place.client.clone()).await?);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut running = JoinSet::new();
        let namespace = || Some(place.namespace.clone());
        let until_stopped = async { drop(stopped.await) };
        let leads = run_kind(
            first.client()?,
            namespace(),
            GreetingKind,
            Some(election("first")),
            until_stopped,
        );
        running.spawn(leads);
        place.create("before", &json!(2)).await?;
        place.wait_for_status("before", |status| status["made"] == 2).await?;
        let mut next = JoinSet::new();
        let waits = run_kind(
            second.client()?,
            namespace(),
            GreetingKind,
            Some(election("second")),
            pending(),
        );
        next.spawn(waits);
        ensure!(stop.send(()).is_ok());
        let exited = with_timeout(running.join_next()).await?;
        exited.context("the first replica was not running")???;
        ensure!(
            first.executed_writes().last().is_some_and(|last| last == RELEASED),
            "{:?}",
            first.executed_writes()
        );
        place.create("after", &json!(2)).await?;
        place.wait_for_status("after", |status| status["made"] == 2).await?;
        let status = |name: &str| format!("greetings/{name}/status");
        let wrote = |landed: &[String], name: &str| {
            landed.iter().any(|landed| landed.contains(&status(name)))
        };
        // The watch may deliver the write before the response arrives.
        second.wait_for_traffic(|_, landed| wrote(landed, "after")).await?;
        ensure!(!wrote(&second.executed_writes(), "before"), "{:?}", second.executed_writes());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_written_for_a_status_change() -> Result<()> {
    with_greetings(async |place| {
        let _running = place.run(place.client.clone());
        place.create("told", &json!(1)).await?;
        place.wait_for_status("told", is_accepted).await?;
        let events: Api<Event> = Api::namespaced(place.client.clone(), &place.namespace);
        let about = watcher::Config::default().fields("involvedObject.name=told");
        let shown = watcher(events, about).applied_objects();
        let event = with_timeout(first_match(shown, Some)).await??;
        ensure!(event.reason.as_deref() == Some("Greeted"), "{event:?}");
        Ok(())
    })
    .await
}
