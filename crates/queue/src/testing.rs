//! Setups and jobs for tests. Each test sets only the fields that matter to it.

use crate::{
    Admission, Kind, Millis, OverQuota, QueueName, Resource, Resources, Scheduler,
    ServedNamespaces, Setup, SetupName, Stop, Strategy, Uid, WaitReason, Workload,
};

/// A setup `namespace/name` with unlimited quota, whose jobs have unlimited patience.
pub(crate) fn setup(name: &str) -> Setup {
    Setup {
        name: name.parse().expect("a test names namespace/name"),
        created: 0,
        quota: Resources::default(),
        max_size: None,
        default_size: 1,
        serves: ServedNamespaces::None,
        strategy: Strategy::BestEffort,
        patience: i64::MAX,
        stop: Stop::No,
        over_quota: OverQuota::Drain,
        replaces: Vec::new(),
        terminating: false,
        problem: None,
    }
}

/// A setup with a quota of this many nodes.
pub(crate) fn setup_of(name: &str, nodes: i64) -> Setup {
    Setup { quota: nodes_of(nodes), ..setup(name) }
}

/// A job `namespace/name` of this many nodes, which names no queue. Its name is its uid.
pub(crate) fn job(name: &str, size: u32) -> Workload {
    let SetupName { namespace, name } = name.parse().expect("a test names namespace/name");
    Workload {
        uid: Uid(name.clone()),
        kind: Kind::FluxJob,
        namespace,
        name,
        queue: QueueName::Unspecified,
        priority: 0,
        waiting_since: 0,
        not_before: None,
        suspended: false,
        size: Some(size),
        min_size: None,
        per_node: nodes_of(1),
        per_job: Resources::default(),
        max_runtime: None,
        admission: None,
        pods_exist: false,
        finished: false,
    }
}

/// This many nodes.
pub(crate) fn nodes_of(amount: i64) -> Resources {
    Resources::of([(Resource::Nodes, amount)])
}

/// A scheduler with these setups and jobs; the operator's namespace is `operator`.
pub(crate) fn scheduler(
    setups: impl IntoIterator<Item = Setup>,
    jobs: impl IntoIterator<Item = Workload>,
) -> Scheduler {
    let mut scheduler = Scheduler::new("operator");
    setups.into_iter().for_each(|setup| scheduler.put_setup(setup));
    jobs.into_iter().for_each(|job| scheduler.put(job));
    scheduler
}

/// The jobs that the next cycle admits.
pub(crate) fn admitted(scheduler: &mut Scheduler, now: Millis) -> Vec<String> {
    scheduler.cycle(now).admit.iter().map(|admit| admit.name.to_string()).collect()
}

/// Why a job waits.
pub(crate) fn wait_reason(scheduler: &Scheduler, uid: &str, now: Millis) -> WaitReason {
    scheduler.explain(&uid.into(), now).expect("it should wait").reason
}

/// A job that a setup admitted at a time, as it was written.
pub(crate) fn with_quota(job: Workload, setup: &str, at: Millis) -> Workload {
    let size = job.size.expect("the job has a size");
    let resources = job.per_node.times(size);
    let queue = setup.parse().expect("a test names namespace/name");
    Workload { admission: Some(Admission { queue, size, resources, at }), ..job }
}
