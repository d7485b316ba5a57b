//! The operator's Prometheus metrics, for `/metrics`.
//!
//! One method per event; names and labels are defined only here. Label values are bounded: they are
//! never names of users' objects, only of queues, which administrators create.

mod bring_up;
mod joins;
mod queue;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(crate) use bring_up::first_ready;
pub(crate) use joins::JoinMetrics;
pub(crate) use queue::{JobDurations, QueueFigures, QueueMetrics};
pub(crate) use requests::verb;

/// Buckets, in seconds, for a reconciliation: one without changes takes microseconds, one that
/// creates a cluster some tens of milliseconds, one with a slow API server seconds.
const RECONCILE_SECONDS: [f64; 9] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// Buckets, in seconds, from creation to Ready: 3 s if images and nodes are there, minutes if
/// images are pulled or nodes are created. Kubernetes' creation times are in whole seconds.
const BRING_UP_SECONDS: [f64; 11] = [1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 30.0, 60.0, 300.0, 900.0];

/// All metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<ReconcileLabels, Counter>,
    reconcile_seconds: Histogram,
    failures: Family<FailureLabels, Counter>,
    reconciles_running: Gauge,
    miniclusters: Family<PhaseLabels, Gauge>,
    bring_up_seconds: Histogram,
    leader: Gauge,
    reports: Family<OutcomeLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    closed_connections: Family<ReasonLabels, Counter>,
    queue: QueueMetrics,
    joins: JoinMetrics,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReconcileLabels {
    kind: String,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FailureLabels {
    kind: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    resource: String,
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let reconciles = Family::default();
        let reconcile_seconds = Histogram::new(RECONCILE_SECONDS);
        let failures = Family::default();
        let reconciles_running = Gauge::default();
        let miniclusters = Family::default();
        let bring_up_seconds = Histogram::new(BRING_UP_SECONDS);
        let leader = Gauge::default();
        let reports = Family::default();
        let requests = Family::default();
        let closed_connections = Family::default();
        let mut registry = Registry::with_prefix("flux_operator");
        registry.register("reconciles", "Reconciliations, by kind and result", reconciles.clone());
        registry.register(
            "reconcile_seconds",
            "Time of a reconciliation",
            reconcile_seconds.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Reconciliations that failed, by kind and reason",
            failures.clone(),
        );
        registry.register(
            "reconciles_running",
            "Reconciliations that are running",
            reconciles_running.clone(),
        );
        registry.register("miniclusters", "MiniClusters by phase", miniclusters.clone());
        registry.register(
            "bring_up_seconds",
            "Time from a MiniCluster's creation until it was Ready for the first time",
            bring_up_seconds.clone(),
        );
        registry.register("leader", "Whether this replica is the leader: 1 or 0", leader.clone());
        registry.register("reports", "Reports from agents, by outcome", reports.clone());
        registry.register(
            "api_requests",
            "Requests to the API server, by resource and verb",
            requests.clone(),
        );
        registry.register(
            "http_closed_connections",
            "Connections to the operator that were closed because of a limit, by reason",
            closed_connections.clone(),
        );
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "The version of the operator", build);
        let queue = QueueMetrics::register(&mut registry);
        let joins = JoinMetrics::register(&mut registry);
        Metrics {
            registry: Arc::new(registry),
            reconciles,
            reconcile_seconds,
            failures,
            reconciles_running,
            miniclusters,
            bring_up_seconds,
            leader,
            reports,
            requests,
            closed_connections,
            queue,
            joins,
        }
    }

    /// The metrics of the queues.
    pub(crate) fn queue(&self) -> &QueueMetrics {
        &self.queue
    }

    /// Counts a reconciliation as running until the guard is dropped, also when it is cut off.
    pub(crate) fn start_reconcile(&self) -> RunningReconcile {
        self.reconciles_running.inc();
        RunningReconcile(self.reconciles_running.clone())
    }

    /// Records that a reconciliation of an object of this kind has finished.
    pub(crate) fn record_reconcile(&self, kind: &str, duration: Duration, succeeded: bool) {
        let result = if succeeded { "success" } else { "error" };
        self.reconciles.get_or_create(&ReconcileLabels { kind: kind.into(), result }).inc();
        self.reconcile_seconds.observe(duration.as_secs_f64());
    }

    /// Records that a reconciliation of an object of this kind failed for this reason.
    pub(crate) fn record_failure(&self, kind: &str, reason: &'static str) {
        self.failures.get_or_create(&FailureLabels { kind: kind.into(), reason }).inc();
    }

    /// Records that a MiniCluster became Ready for the first time, this long after its creation.
    pub(crate) fn record_bring_up(&self, duration: Duration) {
        self.bring_up_seconds.observe(duration.as_secs_f64());
    }

    /// Sets whether this replica is the leader.
    pub(crate) fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Counts a report from an agent, by its outcome.
    pub(crate) fn count_report(&self, outcome: &'static str) {
        self.reports.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// The metrics of connected MiniClusters.
    pub(crate) fn joins(&self) -> &JoinMetrics {
        &self.joins
    }

    /// Counts a client's connection that was closed before its response was complete.
    pub(crate) fn count_closed_connection(&self, reason: &'static str) {
        self.closed_connections.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a request to the API server.
    fn count_request(&self, resource: String, verb: &'static str) {
        self.requests.get_or_create(&RequestLabels { resource, verb }).inc();
    }

    /// Renders all metrics as text; `phases` has the phase of every existing MiniCluster.
    pub(crate) fn render(
        &self,
        phases: impl Iterator<Item = String>,
        queues: impl Iterator<Item = QueueFigures>,
    ) -> String {
        self.queue.set_gauges(queues);
        self.miniclusters.clear();
        for phase in phases {
            self.miniclusters.get_or_create(&PhaseLabels { phase }).inc();
        }
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("text can always be written to a string");
        text
    }
}

/// A running reconciliation.
pub(crate) struct RunningReconcile(Gauge);

impl Drop for RunningReconcile {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(metrics: &Metrics) -> String {
        metrics.render(
            ["Running", "Running", "Failed"].into_iter().map(str::to_owned),
            std::iter::empty(),
        )
    }

    #[test]
    fn recorded_events_are_in_the_text() {
        let metrics = Metrics::new();
        metrics.record_reconcile("MiniCluster", Duration::from_millis(7), true);
        metrics.record_reconcile("MiniCluster", Duration::from_millis(7), false);
        metrics.record_failure("MiniCluster", "Apply");
        metrics.record_bring_up(Duration::from_secs(4));
        metrics.set_leader(true);
        metrics.count_report("heard");
        metrics.count_request("jobs".into(), "create");
        metrics.count_closed_connection("too-slow");
        let running = metrics.start_reconcile();
        let shown = text(&metrics);
        for line in [
            r#"flux_operator_reconciles_total{kind="MiniCluster",result="success"} 1"#,
            r#"flux_operator_reconciles_total{kind="MiniCluster",result="error"} 1"#,
            r#"flux_operator_reconcile_seconds_bucket{le="0.01"} 2"#,
            r#"flux_operator_reconcile_errors_total{kind="MiniCluster",reason="Apply"} 1"#,
            r#"flux_operator_bring_up_seconds_bucket{le="4.0"} 1"#,
            r#"flux_operator_bring_up_seconds_bucket{le="3.0"} 0"#,
            r#"flux_operator_leader 1"#,
            r#"flux_operator_reports_total{outcome="heard"} 1"#,
            r#"flux_operator_api_requests_total{resource="jobs",verb="create"} 1"#,
            r#"flux_operator_http_closed_connections_total{reason="too-slow"} 1"#,
            r#"flux_operator_miniclusters{phase="Running"} 2"#,
            r#"flux_operator_reconciles_running 1"#,
        ] {
            assert!(shown.lines().any(|each| each == line), "{line} is not in\n{shown}");
        }
        drop(running);
        assert!(text(&metrics).contains("flux_operator_reconciles_running 0\n"));
    }

    #[test]
    fn phases_are_counted_afresh_each_time() {
        let metrics = Metrics::new();
        text(&metrics);
        let shown = metrics.render(std::iter::once("Failed".to_owned()), std::iter::empty());
        assert!(shown.contains(r#"flux_operator_miniclusters{phase="Failed"} 1"#), "{shown}");
        assert!(!shown.contains("Running"), "{shown}");
    }
}
