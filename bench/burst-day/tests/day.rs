//! What is true of the simulated days, and that the documentation has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use flux_operator_burst_day::cloud::{CLOUDS, Cloud, RELEASE_SECONDS};
use flux_operator_burst_day::load::{HEAVY, LOADS, STEADY};
use flux_operator_burst_day::strategy::{Never, Policy, parse_policy};
use flux_operator_burst_day::world::{PaidNode, World};
use flux_operator_burst_day::{Figures, HOME_NODES, HOUR, Load, Run, SEED, docs, simulate};

/// The days of the documentation. They are simulated once for all tests.
static DAYS: LazyLock<Vec<Vec<Run>>> = LazyLock::new(|| docs::days(SEED));

/// GitHub shows larger pictures too, but they would make every clone larger.
const MAX_PICTURE: usize = 40_000;

#[test]
fn the_documentation_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, text) in docs::files(&folder, &DAYS).unwrap() {
        let there = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(there == text, "docs/{name} is stale: run make burst-day");
        let is_picture = name.ends_with(".svg");
        assert!(!is_picture || text.len() < MAX_PICTURE, "{name} has {} bytes", text.len());
    }
}

fn load_of(run: &Run) -> Load {
    LOADS.into_iter().find(|load| load.name == run.load).expect("a run is of a load")
}

#[test]
fn every_day_is_possible() {
    for (seed, run) in
        (SEED..).zip(&*DAYS).flat_map(|(seed, runs)| runs.iter().map(move |run| (seed, run)))
    {
        let name = format!("{} {} {seed}", run.load, run.strategy);
        every_job_runs_once(run, seed, &name);
        no_node_is_used_twice_at_a_time(run, &name);
        jobs_use_nodes_that_are_up(run, &name);
        node_hours_are_those_of_jobs_and_nodes(run, &name);
        quotas_are_kept(run, &name);
    }
}

fn until(node: &PaidNode) -> u64 {
    node.until.expect("every burst is given back")
}

fn every_job_runs_once(run: &Run, seed: u64, name: &str) {
    let jobs = load_of(run).jobs(seed);
    let ran: BTreeMap<u64, _> = run.finished.iter().map(|it| (it.job.id, it)).collect();
    assert_eq!(ran.len(), run.finished.len(), "{name}: a job has run twice");
    for job in jobs {
        let Some(it) = ran.get(&job.id) else {
            assert!(run.never_ran.contains(&(job.id, job.nodes)), "{name}: {job:?} is lost");
            continue;
        };
        assert_eq!(it.job, job);
        assert!(it.started >= job.submitted, "{name}: {it:?} starts before it is submitted");
        let ranks: BTreeSet<u32> = it.ranks.iter().copied().collect();
        assert_eq!(ranks.len(), job.nodes as usize, "{name}: {it:?} has other nodes");
    }
    match run.strategy {
        "never" => {
            assert!(run.paid.is_empty(), "{name} requests nodes");
            assert!(run.never_ran.iter().all(|(_, nodes)| *nodes > HOME_NODES), "{name}");
            assert_eq!(run.never_ran.len(), 2, "{name}");
        }
        _ => assert_eq!(run.never_ran, [], "{name}"),
    }
}

fn no_node_is_used_twice_at_a_time(run: &Run, name: &str) {
    let mut uses: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for it in &run.finished {
        for rank in &it.ranks {
            uses.entry(*rank).or_default().push((it.started, it.started + it.job.duration));
        }
    }
    for (rank, mut uses) in uses {
        uses.sort_unstable();
        let overlaps = uses.windows(2).find(|two| two[0].1 > two[1].0);
        assert_eq!(overlaps, None, "{name}: two jobs run on {rank}");
    }
}

fn jobs_use_nodes_that_are_up(run: &Run, name: &str) {
    let fastest = CLOUDS.map(|cloud| cloud.startup.0).into_iter().fold(u64::MAX, u64::min);
    for it in &run.finished {
        let end = it.started + it.job.duration;
        for rank in it.ranks.iter().filter(|rank| **rank >= HOME_NODES) {
            let is_up = run.paid.iter().any(|node| {
                node.rank == *rank
                    && node.from + fastest <= it.started
                    && node.until.is_some_and(|until| end <= until)
            });
            assert!(is_up, "{name}: {it:?} runs on {rank}, which is not up");
        }
    }
}

fn node_hours_are_those_of_jobs_and_nodes(run: &Run, name: &str) {
    let figures = Figures::of(run);
    let jobs: u64 = run.finished.iter().map(|it| u64::from(it.job.nodes) * it.job.duration).sum();
    let paid: u64 = run.paid.iter().map(|it| until(it) - it.from).sum();
    let is = |hours: f64, seconds: u64| (hours - seconds as f64 / HOUR as f64).abs() < 1e-6;
    let of_jobs = figures.home_hours + figures.burst_hours - figures.idle_hours;
    assert!(is(of_jobs, jobs), "{name}: {of_jobs} node-hours of jobs");
    assert!(is(figures.burst_hours, paid), "{name}: {} node-hours", figures.burst_hours);
    assert!(figures.enclosed_hours <= figures.idle_hours, "{name}");
    let cost: f64 =
        (run.paid.iter()).map(|it| (until(it) - it.from) as f64 / HOUR as f64 * it.price).sum();
    assert!((figures.cost - cost).abs() < 1e-6, "{name}");
}

/// For the policy, a burst that is given back counts until it is deleted, as for the burst controller.
/// `always` requests other nodes as soon as it has given some back.
fn quotas_are_kept(run: &Run, name: &str) {
    let limit = parse_policy().spec.limits.nodes.unsigned_abs();
    for sample in run.samples.iter().filter(|_| run.strategy == "policy") {
        assert!(sample.burst <= limit, "{name}: {sample:?}");
    }
    let release = if run.strategy == "policy" { 0 } else { RELEASE_SECONDS };
    // There are never more than when some are requested.
    for at in run.paid.iter().map(|it| it.from).collect::<BTreeSet<u64>>() {
        for Cloud { name: cloud, price, quota, .. } in CLOUDS {
            let at_once = run
                .paid
                .iter()
                .filter(|it| it.price == price && it.from <= at && at < until(it) - release);
            let nodes = at_once.count();
            assert!(nodes <= quota as usize, "{name}: {nodes} nodes of {cloud} at {at}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_day() {
    let again = simulate(&STEADY, HOME_NODES, &mut Policy::default(), SEED);
    assert_eq!(again, DAYS[0][2]);
    assert_ne!(again.finished, DAYS[1][2].finished);
}

/// Time limits are not shorter than jobs, and at home no node is lost: what the scheduler promises the
/// first job that waits, it keeps.
#[test]
fn the_first_job_that_waits_starts_no_later_than_promised() {
    for seed in 1..=5 {
        let mut world = World::new(HOME_NODES, HEAVY.jobs(seed), seed);
        let mut promises: BTreeMap<u64, u64> = BTreeMap::new();
        while let Some(next) = world.next_event() {
            world.advance(next);
            if let Some((id, at)) = world.reserved {
                let before = promises.insert(id, at);
                assert!(before.is_none_or(|before| at <= before), "{id} is delayed");
            }
            for it in &world.running {
                let promised = promises.get(&it.job.id).copied();
                assert!(promised.is_none_or(|at| it.started <= at), "{it:?} starts too late");
            }
        }
        assert!(promises.len() > 20, "jobs wait");
    }
}

#[test]
fn more_nodes_make_waiting_shorter() {
    for runs in DAYS.iter().flat_map(|runs| runs.chunks(3)) {
        let [never, always, policy] = [0, 1, 2].map(|it| Figures::of(&runs[it]));
        assert_eq!([0, 1, 2].map(|it| runs[it].strategy), ["never", "always", "policy"]);
        assert!(always.mean_wait < never.mean_wait, "{}", runs[0].load);
        assert!(policy.mean_wait < never.mean_wait, "{}", runs[0].load);
    }
    for load in LOADS {
        let home = Figures::of(&simulate(&load, HOME_NODES, &mut Never, 1));
        let larger = Figures::of(&simulate(&load, 2 * HOME_NODES, &mut Never, 1));
        assert!(larger.mean_wait < home.mean_wait, "{}", load.name);
        assert_eq!(larger.never_ran, 0, "{}", load.name);
    }
}
