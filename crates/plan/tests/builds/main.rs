//! What earlier builds wrote still works: their clusters keep running, and their agents can
//! communicate with this operator.
//!
//! Each file has what one build wrote: a MiniCluster, the annotations of the Job and the boot
//! plan that it created from it, and the messages between its agents and operators.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_plan::{Decision, MiniClusterFacts, Object, Observed, Step, TargetKind, decide};
use flux_operator_testkit::merge;
use flux_operator_wire::{BootPlan, LeadAnswer, Reply, Report, Termination};
use k8s_openapi::api::core::v1::ConfigMap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Recordings of builds, by their version.
const BUILDS: [(&str, &str); 1] = [("0.1.0+plan2", include_str!("0.1.0+plan2.json"))];

/// The recording of one build.
struct Build {
    stamp: &'static str,
    recorded: Value,
}

fn builds() -> impl Iterator<Item = Build> {
    BUILDS.into_iter().map(|(stamp, text)| {
        let recorded: Value = serde_json::from_str(text).unwrap();
        assert_eq!(recorded["annotations"]["flux-framework.org/version"], stamp);
        Build { stamp, recorded }
    })
}

impl Build {
    fn minicluster(&self, patch: &Value) -> MiniCluster {
        let mut manifest = self.recorded["minicluster"].clone();
        merge(&mut manifest, patch);
        serde_json::from_value(manifest).unwrap()
    }

    /// Its running cluster, with the ConfigMap and the Job that the build created.
    fn observed(&self, minicluster: &MiniCluster) -> Observed {
        let mut observed = Observed::empty("2026-01-01T00:00:00Z".parse().unwrap());
        for step in decide(minicluster, &observed.clone(), &settings()).steps {
            match step {
                Step::Create(Object::Job(mut job)) => {
                    let annotations = &self.recorded["annotations"];
                    job.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
                    job.metadata.uid = Some("job".into());
                    let status = json!({ "startTime": "2026-01-01T00:00:00Z", "failed": 1 });
                    job.status = Some(serde_json::from_value(status).unwrap());
                    observed.job = Some(job.into());
                }
                Step::CreateOrApply(Object::Service(it))
                | Step::Apply { object: Object::Service(it), .. } => {
                    observed.services.push(it.into())
                }
                Step::CreateOrApply(Object::ConfigMap(map)) => {
                    let mut map: ConfigMap = *map;
                    let plan = self.recorded["bootPlan"].to_string();
                    map.data.get_or_insert_default().insert("boot.json".into(), plan);
                    observed.config_map = Some(Arc::new(map));
                }
                _ => {}
            }
        }
        observed
    }
}

fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:2".into(),
        cluster_domain: "cluster.local".into(),
        report_url: None,
        delivery: DeliveryMethod::Init,
    }
}

fn decide_with_settings<'a>(
    minicluster: &'a MiniCluster,
    observed: &'a Observed,
) -> Decision<MiniClusterFacts<'a>> {
    decide(minicluster, observed, &settings())
}

#[test]
fn a_cluster_of_an_earlier_build_is_left_alone_and_still_follows_its_spec() {
    for build in builds() {
        let minicluster = build.minicluster(&json!({}));
        let observed = build.observed(&minicluster);
        let decision = decide_with_settings(&minicluster, &observed);
        assert_eq!(decision.steps, [], "{}: its boot plan is its agents' own", build.stamp);
        assert_eq!(decision.blocker(), None, "{}: nothing of its spec has changed", build.stamp);
        let larger = build.minicluster(&json!({ "spec": { "size": 6 } }));
        let decision = decide_with_settings(&larger, &observed);
        let is_resize = matches!(&decision.steps[..],
            [Step::Patch { target, patch }]
                if target.kind == TargetKind::Job && patch["spec"]["completions"] == 6);
        assert!(is_resize, "{}: {:?}", build.stamp, decision.steps);
        let changed = build.minicluster(&json!({ "spec": { "tasks": 9 } }));
        let decision = decide_with_settings(&changed, &observed);
        assert!(decision.blocker().unwrap().to_string().starts_with("spec.tasks cannot change"));
    }
}

#[test]
fn messages_of_an_earlier_build_can_be_decoded() {
    for build in builds() {
        build.assert_round_trip::<BootPlan>("bootPlan");
        let report = &build.recorded["report"];
        // With it, the report is a request for work.
        let mut state = report.clone();
        state.as_object_mut().unwrap().remove("wantsWork");
        let wanted = Report::parse(report.to_string().as_bytes()).unwrap();
        assert!(matches!(wanted, Report::WorkWanted { known } if known.len() == 1));
        let Report::Instance(state) = Report::parse(state.to_string().as_bytes()).unwrap() else {
            panic!("{state}");
        };
        assert_eq!(state.online.unwrap().len(), report["brokers"]["online"]);
        let reply: Reply = serde_json::from_value(build.recorded["reply"].clone()).unwrap();
        let kinds = build.recorded["reply"]["work"].as_array().unwrap().len();
        assert_eq!((reply.work.len(), kinds), (2, 3), "work of an unknown kind is skipped");
        assert_eq!(reply.nonce, build.recorded["reply"]["nonce"]);
        build.assert_round_trip::<Termination>("ending");
        build.assert_round_trip::<LeadAnswer>("lead");
    }
}

impl Build {
    /// It can be decoded, and encoding it again gives the same.
    fn assert_round_trip<T: DeserializeOwned + Serialize>(&self, name: &str) {
        let recorded = &self.recorded[name];
        let read: T = serde_json::from_value(recorded.clone())
            .unwrap_or_else(|error| panic!("{name} of {}: {error}", self.stamp));
        assert_eq!(serde_json::to_value(read).unwrap(), *recorded, "{name} of {}", self.stamp);
    }
}
