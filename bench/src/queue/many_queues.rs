//! 50,000 jobs wait in 1,000 queues: how long a cycle takes, and how many jobs are admitted per
//! second.

use std::collections::VecDeque;
use std::time::Duration;

use flux_operator_queue::{Millis, Scheduler, Workload};
use serde::Serialize;

use super::load::{LARGE_SCALE, Load};
use super::memory::{DEFAULT, job, number_of, put_jobs, thread_cpu_time, with_setups};
use crate::summary::{Measures, Samples, table};

/// The number of cycles after a change in every queue.
const BURSTS: usize = 200;
/// The number of cycles after a change in one queue.
const SINGLES: usize = 5_000;

/// Measurements.
#[derive(Serialize)]
pub(super) struct Figures {
    queues: usize,
    waiting: usize,
    admitted: usize,
    /// The CPU time of the scheduler, for input and decisions.
    cpu_seconds: f64,
    /// The first cycle, in which everything is new.
    first_cycle_milliseconds: f64,
    burst_milliseconds: Samples,
    single_milliseconds: Samples,
}

/// The scheduler, the jobs, and the measurements.
struct Simulation {
    load: Load,
    scheduler: Scheduler,
    jobs: Vec<(usize, usize, Workload)>,
    running: VecDeque<usize>,
    /// The input of the scheduler before the next cycle.
    input: Vec<Workload>,
    now: Millis,
    cpu: Duration,
    admitted: usize,
}

/// Fills all queues, keeps them full for a while, and then lets all jobs finish.
pub(super) fn measure() -> Figures {
    let load = LARGE_SCALE;
    eprintln!("queue, in memory: {} jobs wait in {} queues", load.jobs(), load.queues);
    let mut simulation = Simulation {
        load,
        scheduler: with_setups(&load, &DEFAULT),
        jobs: Vec::new(),
        running: VecDeque::new(),
        input: Vec::new(),
        now: 0,
        cpu: Duration::ZERO,
        admitted: 0,
    };
    for queue in 0..load.queues {
        for (class, kind) in load.classes.iter().enumerate() {
            (0..kind.count).for_each(|_| simulation.submit(queue, class));
        }
    }
    let first_cycle_milliseconds = simulation.cycle();
    let (mut bursts, mut singles) = (Samples::default(), Samples::default());
    for _ in 0..BURSTS {
        for _ in 0..simulation.running.len() {
            simulation.replace_one();
        }
        bursts.add(simulation.cycle());
    }
    for _ in 0..SINGLES {
        simulation.replace_one();
        singles.add(simulation.cycle());
    }
    while !simulation.running.is_empty() {
        for number in std::mem::take(&mut simulation.running) {
            simulation.finish(number);
        }
        simulation.cycle();
    }
    Figures {
        queues: load.queues,
        waiting: load.jobs(),
        admitted: simulation.admitted,
        cpu_seconds: simulation.cpu.as_secs_f64(),
        first_cycle_milliseconds,
        burst_milliseconds: bursts,
        single_milliseconds: singles,
    }
}

impl Simulation {
    fn submit(&mut self, queue: usize, class: usize) {
        let job = job(&self.load, queue, class, self.jobs.len(), self.now);
        self.jobs.push((queue, class, job.clone()));
        self.input.push(job);
    }

    /// Finishes the job that has run longest, and submits a similar one.
    fn replace_one(&mut self) {
        if let Some(number) = self.running.pop_front() {
            let (queue, class, _) = self.jobs[number];
            self.finish(number);
            self.submit(queue, class);
        }
    }

    fn finish(&mut self, number: usize) {
        let job = self.jobs[number].2.clone();
        self.input.push(Workload { finished: true, ..job });
    }

    /// Runs one cycle on the input; returns its CPU time in milliseconds. Its decisions are input
    /// of the next cycle.
    fn cycle(&mut self) -> f64 {
        self.now += 1;
        self.cpu += put_jobs(&mut self.scheduler, std::mem::take(&mut self.input));
        let begin = thread_cpu_time();
        let cycle = self.scheduler.cycle(self.now);
        let took = thread_cpu_time() - begin;
        self.cpu += took;
        self.admitted += cycle.admit.len();
        for admit in cycle.admit {
            let number = number_of(&admit.uid);
            let job = &mut self.jobs[number].2;
            job.admission = Some(admit.admission);
            job.pods_exist = true;
            self.input.push(job.clone());
            self.running.push_back(number);
        }
        1000.0 * took.as_secs_f64()
    }
}

impl Figures {
    fn admissions_per_second(&self) -> f64 {
        self.admitted as f64 / self.cpu_seconds
    }

    pub(super) fn measures(&self) -> Measures {
        let name = |what: &str| format!("queue.crowd.{what}");
        let mut measures =
            Measures::from([(name("admissions_per_second"), self.admissions_per_second())]);
        let p99 = |samples: &Samples| samples.quantile(0.99);
        let cycles = [
            ("burst_milliseconds_p99", p99(&self.burst_milliseconds)),
            ("single_milliseconds_p99", p99(&self.single_milliseconds)),
        ];
        measures.extend(cycles.into_iter().filter_map(|(what, value)| Some((name(what), value?))));
        measures
    }

    pub(super) fn table(&self) -> String {
        let mut rows = vec![vec!["".to_owned(), "in memory".to_owned()]];
        let mut row = |what: &str, text: String| rows.push(vec![what.to_owned(), text]);
        row("admissions", format!("{}", self.admitted));
        row("scheduler CPU time, s", format!("{:.3}", self.cpu_seconds));
        row("admissions per CPU second", format!("{:.0}", self.admissions_per_second()));
        row("first cycle, CPU ms", format!("{:.2}", self.first_cycle_milliseconds));
        row(
            "cycle after one finished job, CPU ms: mean / p50 / p99 / max",
            self.single_milliseconds.mean_and_quantiles(&[0.5, 0.99, 1.0], 3),
        );
        row(
            "after a finished job in every queue, ms: mean / p50 / p99 / max",
            self.burst_milliseconds.mean_and_quantiles(&[0.5, 0.99, 1.0], 3),
        );
        table(&format!("{} jobs wait in {} queues", self.waiting, self.queues), &rows)
    }
}
