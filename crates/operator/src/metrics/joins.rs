//! Metrics of connected MiniClusters.

use std::time::Duration;

use flux_operator_api::MiniClusterStatus;
use flux_operator_api::minicluster::LeaseState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// From a broker that starts at once to an image that has to be pulled.
const JOIN_SECONDS: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 300.0];

/// Metrics of connected MiniClusters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct JoinMetrics {
    requests: Family<ResultLabels, Counter>,
    seconds: Histogram,
    leased: Family<StateLabels, Gauge>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

impl JoinMetrics {
    pub(super) fn register(registry: &mut Registry) -> JoinMetrics {
        let requests = Family::default();
        let seconds = Histogram::new(JOIN_SECONDS);
        let leased = Family::default();
        let text = "Requests of brokers to join another MiniCluster, by result";
        registry.register("join_requests", text, requests.clone());
        let text = "Time from the lease of ranks until all their brokers were online";
        registry.register("join_seconds", text, seconds.clone());
        registry.register("leased_ranks", "Ranks leased to joiners, by state", leased.clone());
        JoinMetrics { requests, seconds, leased }
    }

    /// Counts the answer to a broker that asks whether it may join.
    pub(crate) fn count(&self, result: &'static str) {
        self.requests.get_or_create(&ResultLabels { result }).inc();
    }

    /// Records how long a joiner took.
    pub(crate) fn record(&self, duration: Duration) {
        self.seconds.observe(duration.as_secs_f64());
    }

    /// Sets the number of leased ranks from the statuses of all MiniClusters.
    pub(crate) fn set_leased<'a>(&self, statuses: impl Iterator<Item = &'a MiniClusterStatus>) {
        let mut counts = [("Active", 0), ("Leaving", 0)];
        for lease in statuses.flat_map(|status| &status.leases) {
            let ranks = lease.rank_list().len();
            let place = usize::from(lease.state == LeaseState::Leaving);
            counts[place].1 += ranks;
        }
        for (state, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.leased.get_or_create(&StateLabels { state }).set(count);
        }
    }
}
