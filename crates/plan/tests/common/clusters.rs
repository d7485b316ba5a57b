//! MiniClusters of tests about ranks that are lent, and the settings they are decided with.

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{DeliveryMethod, Settings};
use flux_operator_testkit::{merge, smallest_minicluster};
use flux_operator_wire::BrokerFacts;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const START: &str = "2026-01-01T00:00:00Z";

pub fn after(seconds: i64) -> Timestamp {
    START.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

pub fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://10.0.0.1:8080".into()),
        delivery: DeliveryMethod::ImageVolume,
    }
}

pub fn facts() -> BrokerFacts {
    BrokerFacts { version: "0.88.0".into(), uid: 1000, cores: 4 }
}

pub fn minicluster(name: &str, patch: &Value) -> MiniCluster {
    let mut manifest = smallest_minicluster(name);
    let metadata = json!({ "namespace": "hpc", "uid": format!("{name}-uid"), "generation": 1,
        "resourceVersion": "1", "creationTimestamp": START });
    merge(&mut manifest, &json!({ "metadata": metadata }));
    merge(&mut manifest, patch);
    serde_json::from_value(manifest).unwrap()
}
