//! The metrics of the queues. Names are Kueue's with our prefix, so that Kueue dashboards can be
//! reused: a `cluster_queue` is a FluxSetup, as `namespace/name`.

use std::time::Duration;

use flux_operator_queue::{EvictionReason, Resource, Resources, SetupName};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

/// Buckets, in seconds, for a scheduler cycle: microseconds if little has changed, some
/// milliseconds with thousands of queues.
const CYCLE_SECONDS: [f64; 11] =
    [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 1.0];

/// Buckets, in seconds, from the time at which quota becomes free until the next admission is
/// written: one request.
const FREED_SECONDS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Buckets, in seconds, for the times that jobs wait, start and run: the same as Kueue's.
const WAIT_SECONDS: [f64; 15] = [
    1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0,
    20480.0,
];

/// The metrics of all queues. Cheap to clone.
#[derive(Clone)]
pub(crate) struct QueueMetrics {
    attempts: Family<ResultLabels, Counter>,
    cycle_seconds: Histogram,
    freed_seconds: Histogram,
    quota_reserved: Family<QueueLabels, Counter>,
    admitted: Family<QueueLabels, Counter>,
    finished: Family<QueueLabels, Counter>,
    evicted: Family<EvictedLabels, Counter>,
    waits: WaitTimes,
    gauges: QueueGauges,
}

/// A histogram for each queue.
type QueueHistogram = Family<QueueLabels, Histogram>;

#[derive(Clone)]
struct WaitTimes {
    quota_reserved: QueueHistogram,
    admission: QueueHistogram,
    ready: QueueHistogram,
    admitted_until_ready: QueueHistogram,
    execution: QueueHistogram,
}

/// Gauges that are set whenever the metrics are scraped.
#[derive(Clone, Default)]
struct QueueGauges {
    pending: Family<StatusLabels, Gauge>,
    reserving: Family<QueueLabels, Gauge>,
    admitted: Family<QueueLabels, Gauge>,
    status: Family<StatusLabels, Gauge>,
    quota: Family<ResourceLabels, Amount>,
    usage: Family<ResourceLabels, Amount>,
    reservation: Family<ResourceLabels, Amount>,
    pending_resources: Family<ResourceLabels, Amount>,
}

/// An amount of a resource in its base unit, such as 0.5 cores.
type Amount = Gauge<f64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabels {
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    cluster_queue: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EvictedLabels {
    cluster_queue: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StatusLabels {
    cluster_queue: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResourceLabels {
    cluster_queue: String,
    resource: String,
}

/// The state of a queue at the time of a scrape.
pub(crate) struct QueueFigures {
    pub(crate) name: SetupName,
    pub(crate) active: bool,
    pub(crate) pending: usize,
    pub(crate) admitted: usize,
    pub(crate) quota: Resources,
    pub(crate) used: Resources,
    /// The sum of the requests of all waiting jobs.
    pub(crate) requested: Resources,
}

/// The time between milestones of a job, as far as it has reached them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobDurations {
    pub(crate) created_to_ready: Option<Duration>,
    pub(crate) admitted_to_ready: Option<Duration>,
    pub(crate) started_to_finished: Option<Duration>,
}

impl QueueMetrics {
    pub(super) fn register(registry: &mut Registry) -> QueueMetrics {
        let times = || QueueHistogram::new_with_constructor(|| Histogram::new(WAIT_SECONDS));
        let metrics = QueueMetrics {
            attempts: Family::default(),
            cycle_seconds: Histogram::new(CYCLE_SECONDS),
            freed_seconds: Histogram::new(FREED_SECONDS),
            quota_reserved: Family::default(),
            admitted: Family::default(),
            finished: Family::default(),
            evicted: Family::default(),
            waits: WaitTimes {
                quota_reserved: times(),
                admission: times(),
                ready: times(),
                admitted_until_ready: times(),
                execution: times(),
            },
            gauges: QueueGauges::default(),
        };
        metrics.register_counters(registry);
        metrics.waits.register(registry);
        metrics.gauges.register(registry);
        metrics
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register(
            "admission_attempts",
            "Scheduler cycles, by whether they admitted a job",
            self.attempts.clone(),
        );
        registry.register(
            "admission_attempt_duration_seconds",
            "Duration of a scheduler cycle",
            self.cycle_seconds.clone(),
        );
        registry.register(
            "freed_to_admission_seconds",
            "Time from the release of quota until the next admission is written",
            self.freed_seconds.clone(),
        );
        registry.register(
            "quota_reserved_workloads",
            "Jobs that got quota",
            self.quota_reserved.clone(),
        );
        registry.register("admitted_workloads", "Jobs that were admitted", self.admitted.clone());
        registry.register("finished_workloads", "Jobs that finished", self.finished.clone());
        registry.register("evicted_workloads", "Jobs that lost their quota", self.evicted.clone());
    }

    /// Records a finished scheduler cycle.
    pub(crate) fn record_cycle(&self, duration: Duration, admitted: usize) {
        let result = if admitted > 0 { "success" } else { "inadmissible" };
        self.attempts.get_or_create(&ResultLabels { result }).inc();
        self.cycle_seconds.observe(duration.as_secs_f64());
    }

    /// Records the admission of a job: how long it waited, and how long after quota became free.
    pub(crate) fn record_admission(
        &self,
        queue: &SetupName,
        waited: Duration,
        freed: Option<Duration>,
    ) {
        let labels = queue_labels(queue);
        self.quota_reserved.get_or_create(&labels).inc();
        self.admitted.get_or_create(&labels).inc();
        self.waits.quota_reserved.get_or_create(&labels).observe(waited.as_secs_f64());
        self.waits.admission.get_or_create(&labels).observe(waited.as_secs_f64());
        if let Some(freed) = freed {
            self.freed_seconds.observe(freed.as_secs_f64());
        }
    }

    /// Counts a finished job.
    pub(crate) fn count_finished(&self, queue: Option<&SetupName>) {
        self.finished.get_or_create(&optional_queue_labels(queue)).inc();
    }

    /// Counts a job that lost its quota.
    pub(crate) fn count_evicted(&self, queue: Option<&SetupName>, reason: EvictionReason) {
        let reason = match reason {
            EvictionReason::QueueStopped => "ClusterQueueStopped",
            EvictionReason::OverQuota => "OverQuota",
        };
        let cluster_queue = optional_queue_labels(queue).cluster_queue;
        self.evicted.get_or_create(&EvictedLabels { cluster_queue, reason }).inc();
    }

    /// Records the durations of a job that has reached another milestone.
    pub(crate) fn record_durations(&self, queue: &SetupName, durations: JobDurations) {
        let JobDurations { created_to_ready, admitted_to_ready, started_to_finished } = durations;
        let labels = queue_labels(queue);
        for (times, duration) in [
            (&self.waits.ready, created_to_ready),
            (&self.waits.admitted_until_ready, admitted_to_ready),
            (&self.waits.execution, started_to_finished),
        ] {
            if let Some(duration) = duration {
                times.get_or_create(&labels).observe(duration.as_secs_f64());
            }
        }
    }

    /// Sets the gauges to the current state of the queues.
    pub(super) fn set_gauges(&self, queues: impl Iterator<Item = QueueFigures>) {
        self.gauges.clear();
        queues.for_each(|queue| self.gauges.set(&queue));
    }
}

impl WaitTimes {
    fn register(&self, registry: &mut Registry) {
        let reserved = "Time a job waited until it got quota";
        registry.register(
            "quota_reserved_wait_time_seconds",
            reserved,
            self.quota_reserved.clone(),
        );
        let admission = "Time a job waited until it was admitted";
        registry.register("admission_wait_time_seconds", admission, self.admission.clone());
        let ready = "Time from a job's creation until its brokers were ready";
        registry.register("ready_wait_time_seconds", ready, self.ready.clone());
        let until = "Time from a job's admission until its brokers were ready";
        let times = self.admitted_until_ready.clone();
        registry.register("admitted_until_ready_wait_time_seconds", until, times);
        let execution = "Time for which a job's command ran";
        registry.register("execution_time_seconds", execution, self.execution.clone());
    }
}

impl QueueGauges {
    fn register(&self, registry: &mut Registry) {
        let pending = "Waiting jobs; inadmissible while their queue admits nothing";
        registry.register("pending_workloads", pending, self.pending.clone());
        let reserving = "Jobs that have quota";
        registry.register("reserving_active_workloads", reserving, self.reserving.clone());
        let admitted = "Jobs that are admitted and have not finished";
        registry.register("admitted_active_workloads", admitted, self.admitted.clone());
        let status = "Whether a queue is active: 1 or 0";
        registry.register("cluster_queue_status", status, self.status.clone());
        let quota = "Quota of a queue, by resource";
        registry.register("cluster_queue_nominal_quota", quota, self.quota.clone());
        let usage = "Quota in use, by resource";
        registry.register("cluster_queue_resource_usage", usage, self.usage.clone());
        let reservation = "Reserved quota, by resource";
        registry.register(
            "cluster_queue_resource_reservation",
            reservation,
            self.reservation.clone(),
        );
        let pending = "Requests of waiting jobs, by resource";
        registry.register(
            "cluster_queue_resource_pending",
            pending,
            self.pending_resources.clone(),
        );
    }

    fn clear(&self) {
        self.pending.clear();
        self.reserving.clear();
        self.admitted.clear();
        self.status.clear();
        self.quota.clear();
        self.usage.clear();
        self.reservation.clear();
        self.pending_resources.clear();
    }

    fn set(&self, queue: &QueueFigures) {
        let labels = queue_labels(&queue.name);
        let status = |status| StatusLabels { cluster_queue: labels.cluster_queue.clone(), status };
        for (word, counts) in [("active", queue.active), ("inadmissible", !queue.active)] {
            let pending = if counts { count(queue.pending) } else { 0 };
            self.pending.get_or_create(&status(word)).set(pending);
        }
        for (word, is) in [("active", queue.active), ("pending", !queue.active)] {
            self.status.get_or_create(&status(word)).set(i64::from(is));
        }
        self.reserving.get_or_create(&labels).set(count(queue.admitted));
        self.admitted.get_or_create(&labels).set(count(queue.admitted));
        for (family, amounts) in [
            (&self.quota, &queue.quota),
            (&self.usage, &queue.used),
            (&self.reservation, &queue.used),
            (&self.pending_resources, &queue.requested),
        ] {
            for (resource, amount) in amounts.iter() {
                let labels = ResourceLabels {
                    cluster_queue: labels.cluster_queue.clone(),
                    resource: resource.to_string(),
                };
                family.get_or_create(&labels).set(to_base_unit(resource, amount));
            }
        }
    }
}

/// Converts an amount to base units: CPU and [`Resource::Other`] are counted in thousandths.
fn to_base_unit(resource: &Resource, amount: i64) -> f64 {
    let thousandths = matches!(resource, Resource::Cpu | Resource::Other(_));
    if thousandths { amount as f64 / 1000.0 } else { amount as f64 }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn queue_labels(queue: &SetupName) -> QueueLabels {
    QueueLabels { cluster_queue: queue.to_string() }
}

fn optional_queue_labels(queue: Option<&SetupName>) -> QueueLabels {
    QueueLabels { cluster_queue: queue.map(ToString::to_string).unwrap_or_default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kueue's queue metrics, without the prefix.
    const KUEUE_METRICS: [&str; 19] = [
        "admission_attempts_total",
        "admission_attempt_duration_seconds",
        "pending_workloads",
        "reserving_active_workloads",
        "admitted_active_workloads",
        "quota_reserved_workloads_total",
        "admitted_workloads_total",
        "finished_workloads_total",
        "evicted_workloads_total",
        "quota_reserved_wait_time_seconds",
        "admission_wait_time_seconds",
        "ready_wait_time_seconds",
        "admitted_until_ready_wait_time_seconds",
        "execution_time_seconds",
        "cluster_queue_status",
        "cluster_queue_nominal_quota",
        "cluster_queue_resource_usage",
        "cluster_queue_resource_reservation",
        "cluster_queue_resource_pending",
    ];

    #[test]
    fn q32_metrics_have_kueues_names() {
        let mut registry = Registry::with_prefix("flux_operator");
        let metrics = QueueMetrics::register(&mut registry);
        let (name, moment) = (SetupName::new("a", "b"), Duration::from_millis(5));
        metrics.record_cycle(moment, 1);
        metrics.record_admission(&name, moment, Some(moment));
        metrics.count_finished(Some(&name));
        metrics.count_evicted(Some(&name), EvictionReason::OverQuota);
        let all = Some(moment);
        metrics.record_durations(
            &name,
            JobDurations {
                created_to_ready: all,
                admitted_to_ready: all,
                started_to_finished: all,
            },
        );
        let nodes = || Resources::of([(flux_operator_queue::Resource::Nodes, 1)]);
        let (quota, used, requested) = (nodes(), nodes(), nodes());
        let figures =
            QueueFigures { name, active: true, pending: 1, admitted: 1, quota, used, requested };
        metrics.set_gauges(std::iter::once(figures));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for name in KUEUE_METRICS {
            let reported = format!("flux_operator_{name}");
            assert!(
                text.lines().any(|line| line.starts_with(&reported)),
                "{name} is not in {text}"
            );
        }
    }
}
