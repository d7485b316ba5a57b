//! Metrics of the controller.

use std::sync::{Arc, Mutex};

use flux_operator_api::burst::BurstConditionType;
use flux_operator_api::{Burst, BurstStatus};
use flux_operator_service::lock::lock;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The metrics. Clones share them.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// From the decision's input to its end.
    pub(crate) decide_seconds: Histogram,
    /// From the creation of a Burst to the existence of everything at the target.
    provision_seconds: Histogram,
    /// From then to the first broker that joined.
    join_seconds: Histogram,
    /// How long Bursts were up when they were given back.
    run_seconds: Histogram,
    /// How long they had been idle then.
    idle_seconds: Histogram,
    /// Nodes of all Bursts.
    nodes: Gauge,
    failures: Family<StepLabel, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: String,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        // From a quarter of a second to over an hour.
        let durations = || Histogram::new(exponential_buckets(0.25, 2.0, 15));
        let metrics = Metrics {
            registry: Arc::default(),
            decide_seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 8)),
            provision_seconds: durations(),
            join_seconds: durations(),
            run_seconds: durations(),
            idle_seconds: durations(),
            nodes: Gauge::default(),
            failures: Family::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = lock(&self.registry);
        let registry = registry.sub_registry_with_prefix("flux_operator_burst");
        let histograms = [
            (
                "decide_seconds",
                "Duration of a decision about one MiniCluster",
                &self.decide_seconds,
            ),
            (
                "provision_seconds",
                "From the creation of a Burst until everything exists at its target",
                &self.provision_seconds,
            ),
            ("join_seconds", "From then until its first broker has joined", &self.join_seconds),
            ("run_seconds", "From then until a Burst is given back", &self.run_seconds),
            (
                "idle_seconds",
                "How long a Burst that is given back was without a job",
                &self.idle_seconds,
            ),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
        registry.register("nodes", "Nodes that all Bursts should have", self.nodes.clone());
        let help = "Steps of Bursts that have failed, and times a target could not be observed";
        registry.register("step_failures", help, self.failures.clone());
    }

    /// All metrics, as text, of a controller with these Bursts.
    pub(crate) fn render(&self, bursts: &[Arc<Burst>]) -> String {
        let live = bursts.iter().filter(|burst| !burst.is_record());
        self.nodes.set(live.map(|burst| i64::from(burst.spec.nodes)).sum());
        let mut text = String::new();
        // Writing to a String cannot fail.
        encode(&mut text, &lock(&self.registry)).unwrap_or_default();
        text
    }

    /// Counts a failed step.
    pub(crate) fn count_failure(&self, step: &str) {
        self.failures.get_or_create(&StepLabel { step: step.to_owned() }).inc();
    }

    /// Observes how long a Burst has taken for what its next status shows for the first time.
    pub(crate) fn observe_change(&self, burst: &Burst, next: &BurstStatus) {
        let before = burst.status.clone().unwrap_or_default();
        let becomes = |kind| next.is_true(kind) && !before.is_true(kind);
        let now = Timestamp::now();
        let since = |time: Option<Timestamp>| {
            time.map(|time| now.duration_since(time).as_secs_f64().max(0.0))
        };
        if becomes(BurstConditionType::Prepared) && before.giving_back_since.is_empty() {
            let created = burst.metadata.creation_timestamp.as_ref().map(|time| time.0);
            since(created).into_iter().for_each(|it| self.provision_seconds.observe(it));
        }
        if before.joined_at.is_empty() && !next.joined_at.is_empty() {
            let prepared = true_since(&before, BurstConditionType::Prepared);
            since(prepared).into_iter().for_each(|it| self.join_seconds.observe(it));
        }
        let joined_at: Option<Timestamp> = before.joined_at.parse().ok();
        if becomes(BurstConditionType::GivingBack) && joined_at.is_some() {
            since(joined_at).into_iter().for_each(|it| self.run_seconds.observe(it));
            let idle = before.idle_since.parse().ok();
            self.idle_seconds.observe(since(idle).unwrap_or_default());
        }
    }
}

/// Since when a condition is true.
fn true_since(status: &BurstStatus, kind: BurstConditionType) -> Option<Timestamp> {
    let condition = status.condition(kind).filter(|it| it.status == "True")?;
    Some(condition.last_transition_time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_api::BurstSpec;
    use serde_json::json;

    #[test]
    fn a_burst_that_has_lost_its_brokers_has_run_since_the_first_of_them_joined() {
        let metrics = Metrics::new();
        let status = |kind: &str| -> BurstStatus {
            let condition = json!({ "type": kind, "status": "True", "reason": "r", "message": "",
                "lastTransitionTime": "2026-05-04T10:00:00Z" });
            let joined_at = "2026-05-04T10:00:00Z";
            let status = json!({ "joinedAt": joined_at, "conditions": [condition] });
            serde_json::from_value(status).unwrap()
        };
        let mut burst = Burst::new("b", BurstSpec::default());
        for (before, count) in [(BurstStatus::default(), 0), (status("Prepared"), 1)] {
            burst.status = Some(before);
            metrics.observe_change(&burst, &status("GivingBack"));
            let text = metrics.render(&[]);
            let expected = format!("flux_operator_burst_run_seconds_count {count}");
            assert!(text.contains(&expected), "{expected}: {text}");
        }
    }
}
