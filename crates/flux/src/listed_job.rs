//! Lines of `flux job list`, each a job as JSON. Flux's `job-list` module defines the keys.

use serde::Deserialize;
use serde_json::Value;

use crate::{IdSet, JobId};

/// A job as `flux job list` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedJob {
    /// Its ID.
    pub id: JobId,
    /// The ID of the user who submitted it.
    pub user: u32,
    /// Its queue in Flux; empty if the instance has no named queues.
    pub queue: String,
    /// How many nodes it requests, or has; `None` if that is left to the scheduler.
    pub nodes: Option<u32>,
    /// How many tasks it has.
    pub tasks: u32,
    /// How many cores it requests, or has, in total; `None` if it requests whole nodes.
    pub cores: Option<u32>,
    /// When it was submitted, in whole seconds since the Unix epoch.
    pub submitted: u64,
    /// Its time limit in seconds, rounded up; 0 if it has none.
    pub duration: u64,
    /// When the scheduler expects to start it, in whole seconds since the Unix epoch.
    pub estimate: Option<u64>,
    /// It does not start whatever is free: its urgency is 0, or it waits for another job or its
    /// priority.
    pub is_held: bool,
    /// It is held by its urgency alone: its dependencies are met.
    pub is_on_hold: bool,
    /// The ranks that it runs on; empty while it is pending.
    pub ranks: IdSet,
}

#[derive(Deserialize)]
struct Line {
    id: u64,
    #[serde(default)]
    userid: u32,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    ntasks: u64,
    nnodes: Option<u64>,
    ncores: Option<u64>,
    #[serde(default)]
    t_submit: f64,
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    ranks: String,
    urgency: Option<u32>,
    state: Option<u32>,
    #[serde(default)]
    annotations: Value,
}

/// Flux's number of the states before `SCHED`: `NEW`, `DEPEND` and `PRIORITY`.
const STATES_BEFORE_SCHED: [u32; 3] = [1, 2, 4];

impl ListedJob {
    /// Parses a line. `None` if it is not a job.
    pub fn parse(line: &str) -> Option<ListedJob> {
        let line: Line = serde_json::from_str(line).ok()?;
        let estimate = line.annotations["sched"]["t_estimate"].as_f64();
        let is_early = line.state.is_some_and(|state| STATES_BEFORE_SCHED.contains(&state));
        Some(ListedJob {
            id: JobId::from(line.id),
            user: line.userid,
            queue: line.queue,
            nodes: line.nnodes.map(saturate),
            tasks: saturate(line.ntasks),
            cores: line.ncores.map(saturate),
            submitted: whole_seconds(line.t_submit),
            duration: whole_seconds(line.duration.ceil()),
            // 0 is how Fluxion writes that it does not know.
            estimate: estimate.filter(|time| *time > 0.0).map(whole_seconds),
            is_held: line.urgency == Some(0) || is_early,
            is_on_hold: line.urgency == Some(0) && !is_early,
            ranks: line.ranks.parse().unwrap_or_default(),
        })
    }
}

fn saturate(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Whole seconds; a time before 1970 is 0.
fn whole_seconds(time: f64) -> u64 {
    time as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    // What flux-core 0.88 printed.
    const NODES: &str = r#"{"id": 81856036864, "userid": 0, "urgency": 16, "priority": 16, "t_submit": 1794718022.1924691, "t_depend": 1794718022.2048988, "t_priority": 1794718022.2167444, "t_sched": 1794718022.2168646, "state": 8, "name": "hostname", "cwd": "/home/user/work", "ntasks": 4, "duration": 0.0, "nnodes": 4}"#;
    const CORES: &str = r#"{"id": 90563411968, "userid": 0, "urgency": 16, "priority": 16, "t_submit": 1794718022.711241, "t_depend": 1794718022.7232389, "t_priority": 1794718022.7349091, "t_sched": 1794718022.7349577, "state": 8, "name": "hostname", "cwd": "/home/user/work", "ntasks": 100, "ncores": 100, "duration": 0.0}"#;
    const RUNNING: &str = r#"{"id": 60565749760, "userid": 0, "urgency": 16, "priority": 16, "t_submit": 1794718020.9226317, "t_depend": 1794718020.9345119, "t_priority": 1794718020.946178, "t_sched": 1794718020.9463487, "t_run": 1794718020.9549363, "state": 16, "name": "slp", "cwd": "/home/user/work", "ntasks": 1, "ncores": 2, "duration": 0.0, "nnodes": 1, "ranks": "0", "nodelist": "fs-0", "expiration": 0.0, "annotations": {"sched": {"resource_summary": "rank0/core[0-1]"}}}"#;

    #[test]
    fn the_lines_of_flux_are_parsed() {
        let job = ListedJob::parse(NODES).unwrap();
        let expected = ListedJob {
            id: JobId::from(81_856_036_864),
            user: 0,
            queue: String::new(),
            nodes: Some(4),
            tasks: 4,
            cores: None,
            submitted: 1_794_718_022,
            duration: 0,
            estimate: None,
            is_held: false,
            is_on_hold: false,
            ranks: IdSet::new(),
        };
        assert_eq!(job, expected);
        for held in [
            NODES.replace("\"urgency\": 16", "\"urgency\": 0"),
            NODES.replace("\"state\": 8", "\"state\": 2"),
        ] {
            let job = ListedJob::parse(&held).unwrap();
            assert_eq!(
                (job.is_held, job.is_on_hold),
                (true, held.contains("urgency\": 0")),
                "{held}"
            );
        }
        let job = ListedJob::parse(CORES).unwrap();
        assert_eq!((job.nodes, job.cores, job.tasks), (None, Some(100), 100));
        let job = ListedJob::parse(RUNNING).unwrap();
        assert_eq!((job.ranks.to_string().as_str(), job.estimate), ("0", None));
    }

    #[test]
    fn optional_keys_are_parsed() {
        let job = ListedJob::parse(
            r#"{"id": 1, "userid": 1000, "queue": "batch", "ntasks": 5000000000, "duration": 0.5,
                "ranks": "[0-3,7]", "annotations": {"sched": {"t_estimate": 1794718099.9}}}"#,
        );
        let job = job.unwrap();
        assert_eq!((job.user, job.queue.as_str(), job.tasks), (1000, "batch", u32::MAX));
        assert_eq!((job.duration, job.estimate), (1, Some(1_794_718_099)));
        assert_eq!(job.ranks.to_string(), "0-3,7");
        let unknown = r#"{"id": 1, "annotations": {"sched": {"t_estimate": 0.0}}, "ranks": "x"}"#;
        let job = ListedJob::parse(unknown).unwrap();
        assert_eq!((job.estimate, job.ranks.is_empty()), (None, true));
        assert_eq!(ListedJob::parse("nonsense"), None);
        assert_eq!(ListedJob::parse(r#"{"userid": 0}"#), None);
    }
}
