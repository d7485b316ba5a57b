//! Only the scheduler: time is simulated, and decisions take effect at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use flux_operator_queue::{
    Kind, Millis, OverQuota, QueueName, Resource, Resources, Scheduler, ServedNamespaces, Setup,
    SetupName, Stop, Strategy, Uid, Workload,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::load::{Class, Load};
use crate::summary::{Measures, Samples, table};

/// A configuration of the queues of a load.
#[derive(Clone, Copy)]
pub(super) struct QueueConfig {
    name: &'static str,
    strategy: Strategy,
    /// The patience of jobs.
    patience: Duration,
    /// Whether jobs specify their runtime.
    runtimes: bool,
}

/// The defaults of a FluxSetup.
pub(super) const DEFAULT: QueueConfig =
    queue_config("best effort", Strategy::BestEffort, Duration::from_secs(300), false);

/// Jobs specify their runtime only for backfill.
const CONFIGS: [QueueConfig; 4] = [
    DEFAULT,
    queue_config("patience 1 s", Strategy::BestEffort, Duration::from_secs(1), false),
    queue_config("strict", Strategy::Strict, Duration::ZERO, false),
    queue_config("backfill", Strategy::Backfill, Duration::ZERO, true),
];

const fn queue_config(
    name: &'static str,
    strategy: Strategy,
    patience: Duration,
    runtimes: bool,
) -> QueueConfig {
    QueueConfig { name, strategy, patience, runtimes }
}

/// The measurements of one load.
#[derive(Serialize)]
pub(super) struct Figures {
    load: &'static str,
    jobs: usize,
    queues: usize,
    ideal_seconds: f64,
    runs: Vec<LoadRun>,
}

/// The measurements of a load with one configuration.
#[derive(Serialize)]
struct LoadRun {
    rules: &'static str,
    /// Simulated, until the last job has finished.
    wall_seconds: f64,
    /// The core-seconds of all jobs, relative to the available ones.
    true_use: f64,
    /// Simulated, by class.
    admission_seconds: BTreeMap<&'static str, Samples>,
    /// The CPU time of the scheduler, for input and decisions.
    cpu_seconds: f64,
    /// The CPU time of single cycles, so that a busy machine does not matter.
    cycle_milliseconds: Samples,
    looked: usize,
}

/// Simulates all jobs of a load with all configurations.
pub(super) fn measure(load: &Load) -> Figures {
    Figures {
        load: load.name,
        jobs: load.jobs(),
        queues: load.queues,
        ideal_seconds: load.ideal_seconds(),
        runs: CONFIGS.iter().map(|rules| run(load, rules)).collect(),
    }
}

fn run(load: &Load, config: &QueueConfig) -> LoadRun {
    eprintln!("queue, in memory: {}, {}", load.name, config.name);
    let arrivals = load.arrivals();
    let mut scheduler = with_setups(load, config);
    let mut admission_seconds: BTreeMap<&'static str, Samples> = BTreeMap::new();
    let mut cycle_milliseconds = Samples::default();
    let (mut cpu, mut considered, mut now) = (Duration::ZERO, 0, 0);
    let (mut arrived, mut jobs) = (0, Vec::with_capacity(arrivals.len()));
    let mut ends: BinaryHeap<Reverse<(Millis, usize)>> = BinaryHeap::new();
    loop {
        let next_end = ends.peek().map(|Reverse((end, _))| *end);
        let next_arrival = arrivals.get(arrived).map(|arrival| milliseconds(arrival.at));
        let Some(next) = next_end.into_iter().chain(next_arrival).min() else { break };
        now = next;
        let mut reported: Vec<Workload> = Vec::new();
        while let Some(arrival) = arrivals.get(arrived)
            && milliseconds(arrival.at) == now
        {
            let mut job = job(load, arrival.queue, arrival.class, jobs.len(), now);
            let runtime = milliseconds(load.classes[arrival.class].runtime);
            job.max_runtime = config.runtimes.then_some(runtime);
            reported.push(job.clone());
            jobs.push((arrival.class, job));
            arrived += 1;
        }
        while let Some(Reverse((end, number))) = ends.peek().copied()
            && end == now
        {
            ends.pop();
            reported.push(Workload { finished: true, ..jobs[number].1.clone() });
        }
        cpu += put_jobs(&mut scheduler, reported);
        let begin = thread_cpu_time();
        let cycle = scheduler.cycle(now);
        let took = thread_cpu_time() - begin;
        cycle_milliseconds.add(1000.0 * took.as_secs_f64());
        cpu += took;
        considered += cycle.considered;
        let mut confirmed = Vec::with_capacity(cycle.admit.len());
        for admit in cycle.admit {
            let number = number_of(&admit.uid);
            let (class, job) = &mut jobs[number];
            let class = &load.classes[*class];
            job.admission = Some(admit.admission);
            job.pods_exist = true;
            confirmed.push(job.clone());
            ends.push(Reverse((now + milliseconds(class.runtime), number)));
            let waited = (now - job.waiting_since) as f64 / 1000.0;
            admission_seconds.entry(class.name).or_default().add(waited);
        }
        cpu += put_jobs(&mut scheduler, confirmed);
    }
    let wall_seconds = now as f64 / 1000.0;
    let cores = load.queues as f64 * load.quota as f64;
    LoadRun {
        rules: config.name,
        wall_seconds,
        true_use: load.cpu_seconds() / (cores * wall_seconds),
        admission_seconds,
        cpu_seconds: cpu.as_secs_f64(),
        cycle_milliseconds,
        looked: considered,
    }
}

/// Passes jobs to a scheduler; returns the CPU time.
pub(super) fn put_jobs(scheduler: &mut Scheduler, jobs: Vec<Workload>) -> Duration {
    let begin = thread_cpu_time();
    jobs.into_iter().for_each(|job| scheduler.put(job));
    thread_cpu_time() - begin
}

/// A scheduler with the queues of a load, each in its own namespace.
pub(super) fn with_setups(load: &Load, rules: &QueueConfig) -> Scheduler {
    let mut scheduler = Scheduler::new("operator");
    for queue in 0..load.queues {
        scheduler.put_setup(Setup {
            name: SetupName::new(&namespace(queue), "queue"),
            created: 0,
            quota: Resources::of([(Resource::Cpu, 1000 * load.quota)]),
            max_size: None,
            default_size: 1,
            serves: ServedNamespaces::None,
            strategy: rules.strategy,
            patience: milliseconds(rules.patience),
            stop: Stop::No,
            over_quota: OverQuota::Drain,
            replaces: Vec::new(),
            terminating: false,
            problem: None,
        });
    }
    scheduler
}

/// A job of a load, identified by its number.
pub(super) fn job(load: &Load, queue: usize, class: usize, number: usize, now: Millis) -> Workload {
    let Class { cpu, priority, .. } = load.classes[class];
    // As long as the uids of Kubernetes.
    let uid = format!("00000000-0000-4000-8000-{number:012}");
    Workload {
        uid: Uid(uid.as_str().into()),
        kind: Kind::FluxJob,
        namespace: namespace(queue).into(),
        name: uid.into(),
        queue: QueueName::Named("queue".into()),
        priority,
        waiting_since: now,
        not_before: None,
        suspended: false,
        size: Some(1),
        min_size: None,
        per_node: Resources::of([(Resource::Nodes, 1), (Resource::Cpu, 1000 * cpu)]),
        per_job: Resources::default(),
        max_runtime: None,
        admission: None,
        pods_exist: false,
        finished: false,
    }
}

/// The number of a job that was created by [`job`].
pub(super) fn number_of(uid: &Uid) -> usize {
    let digits = uid.0.rsplit('-').next().and_then(|digits| digits.parse().ok());
    digits.expect("a uid ends with its number")
}

/// The CPU time of this thread.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn namespace(queue: usize) -> String {
    format!("queue-{queue}")
}

fn milliseconds(time: Duration) -> Millis {
    Millis::try_from(time.as_millis()).unwrap_or(Millis::MAX)
}

impl Figures {
    pub(super) fn measures(&self) -> Measures {
        let mut measures = Measures::new();
        for run in &self.runs {
            let rules = run.rules.replace(' ', "_");
            let name = |what: &str| format!("queue.memory.{}.{rules}.{what}", self.load);
            measures.insert(name("wall_over_ideal"), run.wall_seconds / self.ideal_seconds);
            let p99 = run.cycle_milliseconds.quantile(0.99);
            measures.extend(p99.map(|p99| (name("cycle_milliseconds_p99"), p99)));
        }
        measures
    }

    pub(super) fn table(&self) -> String {
        let Figures { load, jobs, queues, ideal_seconds, runs } = self;
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = |what: &str, text: &dyn Fn(&LoadRun) -> String| {
            rows.push(std::iter::once(what.to_owned()).chain(runs.iter().map(text)).collect());
        };
        row("", &|run| run.rules.to_owned());
        row("wall, simulated s", &|run| format!("{:.1}", run.wall_seconds));
        row("actual usage, %", &|run| format!("{:.1}", 100.0 * run.true_use));
        for class in ["large", "medium", "small"] {
            row(&format!("{class}: s to admission, mean / p50 / p99"), &|run| {
                let waited = run.admission_seconds.get(class);
                waited.map_or_else(String::new, |waited| waited.mean_and_quantiles(&[0.5, 0.99], 2))
            });
        }
        row("scheduler CPU time, s", &|run| format!("{:.3}", run.cpu_seconds));
        row("admissions per CPU second", &|run| format!("{:.0}", *jobs as f64 / run.cpu_seconds));
        row("cycle, CPU ms: mean / p50 / p99 / max", &|run| {
            run.cycle_milliseconds.mean_and_quantiles(&[0.5, 0.99, 1.0], 3)
        });
        row("classes examined per job", &|run| format!("{:.2}", run.looked as f64 / *jobs as f64));
        let title = format!(
            "The {load} load of Kueue's scalability test, in memory: {jobs} jobs in {queues} \
             queues\n\nOne resource (cpu), without borrowing between queues. With no core ever \
             idle it would take {ideal_seconds:.1} s."
        );
        table(&title, &rows)
    }
}
