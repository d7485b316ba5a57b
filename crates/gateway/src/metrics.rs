//! The gateway's Prometheus metrics, for `/metrics`.
//!
//! Series have the names of a lease. They are removed with its route, so their number is bounded by
//! the number of leases.

use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::refusal::{LeaseName, RefusalReason};

/// All metrics. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    refused: Family<RefusedLabels, Counter>,
    accepted: Family<LeaseLabels, Counter>,
    requests: Family<LeaseLabels, Counter>,
    connections: Family<LeaseLabels, Gauge>,
    bytes: Family<BytesLabels, Counter>,
    ports: Gauge,
    port_conflicts: Gauge,
    bind_failures: Counter,
    watch_failures: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaseLabels {
    namespace: String,
    cluster: String,
    invitation: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusedLabels {
    namespace: String,
    cluster: String,
    invitation: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BytesLabels {
    namespace: String,
    cluster: String,
    invitation: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// The metrics of one lease. They count nothing visible once they were removed.
#[derive(Clone)]
pub(crate) struct LeaseMetrics {
    /// In the order of [`RefusalReason::ALL`].
    refused: [Counter; RefusalReason::ALL.len()],
    accepted: Counter,
    requests: Counter,
    connections: Gauge,
    pub(crate) bytes_to_lead: Counter,
    pub(crate) bytes_from_lead: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("flux_operator_gateway");
        let refused = Family::default();
        let accepted = Family::default();
        let requests = Family::default();
        let connections = Family::default();
        let bytes = Family::default();
        let (ports, port_conflicts) = (Gauge::default(), Gauge::default());
        let (bind_failures, watch_failures) = (Counter::default(), Counter::default());
        registry.register(
            "refused",
            "Connections that were refused, by lease and reason",
            refused.clone(),
        );
        registry.register("accepted", "Brokers that the lead has accepted", accepted.clone());
        registry.register(
            "requests",
            "Requests of agents that were forwarded to the operator",
            requests.clone(),
        );
        registry.register("connections", "Brokers that are connected", connections.clone());
        registry.register("bytes", "Bytes that were forwarded, by direction", bytes.clone());
        registry.register("ports", "Ports that are served, one for each lease", ports.clone());
        registry.register(
            "port_conflicts",
            "Leases that are not served, because an older one has their port",
            port_conflicts.clone(),
        );
        registry.register(
            "bind_failures",
            "Failed attempts to listen on a port",
            bind_failures.clone(),
        );
        registry.register(
            "watch_failures",
            "Failures of the watch of MiniClusters",
            watch_failures.clone(),
        );
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        registry.register("build_info", "The version of the gateway", build);
        Metrics {
            registry: Arc::new(registry),
            refused,
            accepted,
            requests,
            connections,
            bytes,
            ports,
            port_conflicts,
            bind_failures,
            watch_failures,
        }
    }

    /// The metrics of a lease. All of its series exist from now on, until [`remove`](Self::remove).
    pub(crate) fn add(&self, lease: &LeaseName) -> LeaseMetrics {
        let labels = LeaseLabels::new(lease);
        let bytes = |direction| self.bytes.get_or_create_owned(&labels.with_direction(direction));
        LeaseMetrics {
            refused: RefusalReason::ALL
                .map(|reason| self.refused.get_or_create_owned(&labels.with_reason(reason))),
            accepted: self.accepted.get_or_create_owned(&labels),
            requests: self.requests.get_or_create_owned(&labels),
            connections: self.connections.get_or_create_owned(&labels),
            bytes_to_lead: bytes(TO_LEAD),
            bytes_from_lead: bytes(FROM_LEAD),
        }
    }

    /// Removes all series of a lease.
    pub(crate) fn remove(&self, lease: &LeaseName) {
        let labels = LeaseLabels::new(lease);
        for reason in RefusalReason::ALL {
            self.refused.remove(&labels.with_reason(reason));
        }
        for direction in [TO_LEAD, FROM_LEAD] {
            self.bytes.remove(&labels.with_direction(direction));
        }
        self.accepted.remove(&labels);
        self.requests.remove(&labels);
        self.connections.remove(&labels);
    }

    /// Sets the number of served ports, and of leases that are not served.
    pub(crate) fn set_ports(&self, served: usize, conflicts: usize) {
        self.ports.set(i64::try_from(served).unwrap_or(i64::MAX));
        self.port_conflicts.set(i64::try_from(conflicts).unwrap_or(i64::MAX));
    }

    /// Counts a failed attempt to listen on a port.
    pub(crate) fn count_bind_failure(&self) {
        self.bind_failures.inc();
    }

    /// Counts a failure of the watch.
    pub(crate) fn count_watch_failure(&self) {
        self.watch_failures.inc();
    }

    /// Renders all metrics as text.
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("text can always be written to a string");
        text
    }
}

const TO_LEAD: &str = "to-lead";
const FROM_LEAD: &str = "from-lead";

impl LeaseLabels {
    fn new(lease: &LeaseName) -> LeaseLabels {
        LeaseLabels {
            namespace: lease.lender.namespace.clone(),
            cluster: lease.lender.name.clone(),
            invitation: lease.invitation.clone(),
        }
    }

    fn with_reason(&self, reason: RefusalReason) -> RefusedLabels {
        let LeaseLabels { namespace, cluster, invitation } = self.clone();
        RefusedLabels { namespace, cluster, invitation, reason: reason.as_str() }
    }

    fn with_direction(&self, direction: &'static str) -> BytesLabels {
        let LeaseLabels { namespace, cluster, invitation } = self.clone();
        BytesLabels { namespace, cluster, invitation, direction }
    }
}

impl LeaseMetrics {
    /// Counts a refused connection.
    pub(crate) fn count_refused(&self, reason: RefusalReason) {
        self.refused[reason as usize].inc();
    }

    /// The number of refused connections.
    #[cfg(test)]
    pub(crate) fn refused(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].get()
    }

    /// Counts a request that was forwarded to the operator.
    pub(crate) fn count_request(&self) {
        self.requests.inc();
    }

    /// Counts a broker as connected until the guard is dropped.
    pub(crate) fn begin_connection(&self) -> OpenConnection {
        self.accepted.inc();
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }
}

/// A connected broker.
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lender::LenderId;

    fn lease() -> LeaseName {
        let lender = LenderId { namespace: "ns".into(), name: "fs".into(), uid: "uid".into() };
        LeaseName { lender, invitation: "cloud".into() }
    }

    #[test]
    fn recorded_events_are_in_the_text() {
        let metrics = Metrics::new();
        let of_lease = metrics.add(&lease());
        of_lease.count_refused(RefusalReason::TooMany);
        of_lease.count_request();
        of_lease.bytes_to_lead.inc_by(7);
        metrics.set_ports(2, 1);
        metrics.count_bind_failure();
        metrics.count_watch_failure();
        let _open = of_lease.begin_connection();
        drop(of_lease.begin_connection());
        let shown = metrics.render();
        let labels = r#"namespace="ns",cluster="fs",invitation="cloud""#;
        for line in [
            format!(r#"refused_total{{{labels},reason="TooMany"}} 1"#),
            format!(r#"refused_total{{{labels},reason="Garbage"}} 0"#),
            format!("accepted_total{{{labels}}} 2"),
            format!("requests_total{{{labels}}} 1"),
            format!("connections{{{labels}}} 1"),
            format!(r#"bytes_total{{{labels},direction="to-lead"}} 7"#),
            "ports 2".into(),
            "port_conflicts 1".into(),
            "bind_failures_total 1".into(),
            "watch_failures_total 1".into(),
        ] {
            let line = format!("flux_operator_gateway_{line}");
            assert!(shown.lines().any(|each| each == line), "{line} is not in\n{shown}");
        }
    }

    #[test]
    fn the_series_of_a_lease_are_removed_with_it() {
        let metrics = Metrics::new();
        let of_lease = metrics.add(&lease());
        let open = of_lease.begin_connection();
        metrics.remove(&lease());
        // A connection that ends later does not bring them back.
        drop(open);
        of_lease.count_refused(RefusalReason::Garbage);
        assert!(!metrics.render().contains("cloud"), "{}", metrics.render());
    }
}
