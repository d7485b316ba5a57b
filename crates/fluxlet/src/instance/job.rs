//! One job: its request, its events and its output.

use std::collections::BTreeMap;

use flux_operator_flux::{HostList, IdSet, JobId, JobResult, JobState};
use serde_json::{Value, json};

use super::Origin;
use super::allocate::NodeAllocation;
use crate::bytes::Bytes;
use crate::message::{Event, Reply};
use crate::record::JobRecord;
use crate::submission::Submission;

/// The maximum output that is kept, the same as in Flux for a single-user instance.
const MAX_OUTPUT: usize = 1 << 30;

/// A job and its history.
#[derive(Debug)]
pub struct Job {
    pub id: JobId,
    pub submission: Submission,
    pub urgency: u8,
    pub state: JobState,
    /// Everything that was reported about it, in order: events, output, notices.
    pub history: Vec<Reply>,
    pub allocation: Vec<NodeAllocation>,
    /// Tasks that have not exited, and their ranks.
    pub running: BTreeMap<u32, u32>,
    /// The largest exit code so far, once there are tasks.
    pub code: i32,
    /// Whether the job failed for a reason that is not the exit of a task.
    pub shell_failed: bool,
    /// The first fatal exception.
    pub fatal: Option<Exception>,
    output_length: usize,
    pub watchers: Vec<Watcher>,
    /// Standard input that arrived before the tasks started.
    pub early_input: Vec<Bytes>,
    /// Whether the first host was asked to close the output files.
    pub closing: bool,
    /// When the job's time limit, the time to SIGKILL, and the exit timeout are reached.
    pub expiration: Option<f64>,
    pub kill_at: Option<f64>,
    pub exit_deadline: Option<(f64, u32)>,
    /// Whether a client has waited for this waitable job.
    pub is_reaped: bool,
    /// Values that the brokers of a nested instance publish for each other.
    pub published: BTreeMap<String, String>,
    pub published_waiters: Vec<(String, Origin, u64)>,
    pub status: Option<i32>,
    /// When it entered each state, by the state's number.
    times: BTreeMap<u64, f64>,
}

/// A client that watches a job.
#[derive(Clone, Copy, Debug)]
pub struct Watcher {
    pub origin: Origin,
    pub tag: u64,
    pub output: bool,
}

/// A job exception.
#[derive(Clone, Debug)]
pub struct Exception {
    pub kind: String,
    pub severity: u8,
    pub note: String,
}

impl Job {
    pub fn new(id: JobId, submission: Submission, now: f64) -> Self {
        Self {
            id,
            urgency: submission.urgency,
            submission,
            state: JobState::New,
            history: Vec::new(),
            allocation: Vec::new(),
            running: BTreeMap::new(),
            code: 0,
            shell_failed: false,
            fatal: None,
            output_length: 0,
            watchers: Vec::new(),
            early_input: Vec::new(),
            closing: false,
            expiration: None,
            kill_at: None,
            exit_deadline: None,
            is_reaped: false,
            published: BTreeMap::new(),
            published_waiters: Vec::new(),
            status: None,
            times: BTreeMap::from([(JobState::New.number(), now)]),
        }
    }

    pub fn enter(&mut self, state: JobState, now: f64) {
        self.state = state;
        self.times.insert(state.number(), now);
    }

    /// When it entered `state`.
    pub fn time(&self, state: JobState) -> Option<f64> {
        self.times.get(&state.number()).copied()
    }

    /// The priority of the job; 0 means held.
    pub fn priority(&self) -> u64 {
        match self.urgency {
            // Flux's EXPEDITE precedes all other jobs.
            31 => u64::from(u32::MAX),
            urgency => u64::from(urgency),
        }
    }

    /// Creates an event of a job.
    pub fn event(now: f64, name: &str, context: Vec<(String, Value)>) -> Reply {
        Reply::Event(Event { timestamp: now, name: name.to_owned(), context })
    }

    /// Keeps a reply in the history; output only up to the maximum.
    pub fn add_to_history(&mut self, reply: &Reply) {
        if let Reply::Output { data, .. } = reply {
            self.output_length += data.0.len();
            if self.output_length > MAX_OUTPUT {
                return;
            }
        }
        self.history.push(reply.clone());
    }

    /// The result, if the job is inactive.
    pub fn result(&self) -> Option<JobResult> {
        if self.state != JobState::Inactive {
            return None;
        }
        Some(match &self.fatal {
            Some(fatal) if fatal.kind == "cancel" => JobResult::Canceled,
            Some(fatal) if fatal.kind == "timeout" => JobResult::Timeout,
            None if self.status == Some(0) => JobResult::Completed,
            _ => JobResult::Failed,
        })
    }

    pub fn ranks(&self) -> IdSet {
        self.allocation.iter().map(|share| share.rank).collect()
    }

    /// The job's hosts, in rank order.
    pub fn hosts(&self) -> String {
        let mut hosts = HostList::new();
        for share in &self.allocation {
            // Names come from a host list, so they are valid.
            let _never_refused = hosts.push(&share.host);
        }
        hosts.to_string()
    }

    /// Flux's short form of the allocation, such as `rank[0-1]/core[0-1]`.
    pub fn resource_summary(&self) -> String {
        let groups = self.groups();
        let text = groups.iter().map(|(ranks, cores, gpus)| {
            let gpus =
                if gpus.is_empty() { String::new() } else { format!(",gpu{}", brackets(gpus)) };
            format!("rank{}/core{}{gpus}", brackets(ranks), brackets(cores))
        });
        text.collect::<Vec<_>>().join(" ")
    }

    /// Ranks grouped by their cores and GPUs.
    fn groups(&self) -> Vec<(IdSet, IdSet, IdSet)> {
        let mut groups: Vec<(IdSet, IdSet, IdSet)> = Vec::new();
        for share in &self.allocation {
            match groups.iter_mut().find(|group| group.1 == share.cores && group.2 == share.gpus) {
                Some(group) => drop(group.0.insert(share.rank)),
                None => {
                    let ranks = IdSet::from_iter([share.rank]);
                    groups.push((ranks, share.cores.clone(), share.gpus.clone()));
                }
            }
        }
        groups
    }

    /// R (Flux RFC 20), as text because a JSON object would not keep the order of its keys.
    pub fn to_r(&self) -> String {
        let entries = self.groups().into_iter().map(|(ranks, cores, gpus)| {
            let gpus =
                if gpus.is_empty() { String::new() } else { format!(", \"gpu\": \"{gpus}\"") };
            format!("{{\"rank\": \"{ranks}\", \"children\": {{\"core\": \"{cores}\"{gpus}}}}}")
        });
        format!(
            "{{\"version\": 1, \"execution\": {{\"R_lite\": [{}], \"starttime\": {:?}, \"expiration\": {:?}, \"nslots\": {}, \"nodelist\": [{}]}}}}",
            entries.collect::<Vec<_>>().join(", "),
            self.time(JobState::Run).unwrap_or(0.0),
            self.expiration.unwrap_or(0.0),
            self.submission.shape.slot_count(),
            Value::from(self.hosts()),
        )
    }

    /// The job as printed by `flux job list`.
    pub fn to_record(&self, userid: u32) -> JobRecord {
        let shape = &self.submission.shape;
        let allocated = !self.allocation.is_empty();
        let inactive = self.state == JobState::Inactive;
        let asked_cores = || u64::from(shape.slot_count()) * u64::from(shape.cores.max(1));
        let cores = || self.allocation.iter().map(|share| share.cores.len()).sum();
        let node_count = || u32::try_from(self.allocation.len()).unwrap_or(u32::MAX);
        let fatal = self.fatal.as_ref().filter(|_| inactive);
        JobRecord {
            userid,
            urgency: self.urgency,
            priority: Some(self.priority()),
            t_submit: self.time(JobState::New).unwrap_or(0.0),
            t_depend: self.time(JobState::Depend),
            t_priority: self.time(JobState::Priority),
            t_sched: self.time(JobState::Sched),
            t_run: self.time(JobState::Run),
            t_cleanup: self.time(JobState::Cleanup),
            t_inactive: self.time(JobState::Inactive),
            state: self.state.number(),
            name: self.submission.name.clone(),
            cwd: self.submission.directory.to_text(),
            ntasks: shape.task_count(),
            ncores: match (allocated, shape.nodes) {
                (true, _) => Some(cores()),
                (false, None) => Some(asked_cores()),
                (false, Some(_)) => None,
            },
            duration: self.submission.duration,
            nnodes: if allocated { Some(node_count()) } else { shape.nodes },
            ranks: allocated.then(|| brackets(&self.ranks())),
            nodelist: allocated.then(|| self.hosts()),
            success: self.result().map(|result| result == JobResult::Completed),
            exception_occurred: inactive.then_some(self.fatal.is_some()),
            exception_type: fatal.map(|fatal| fatal.kind.clone()),
            exception_severity: fatal.map(|fatal| fatal.severity),
            exception_note: fatal.map(|fatal| fatal.note.clone()),
            result: self.result().map(JobResult::number),
            expiration: allocated.then(|| self.expiration.unwrap_or(0.0)),
            annotations: allocated
                .then(|| json!({"sched": {"resource_summary": self.resource_summary()}})),
            waitstatus: self.status.filter(|_| inactive),
            ..JobRecord::new(self.id)
        }
    }
}

/// Formats IDs as in Flux's summaries: with brackets if there is more than one.
fn brackets(ids: &IdSet) -> String {
    if ids.len() == 1 { ids.to_string() } else { format!("[{ids}]") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(shares: &[(u32, u32)]) -> Job {
        let mut job = Job::new(JobId::from(1), Submission::default(), 0.0);
        let share = |(rank, cores): &(u32, u32)| NodeAllocation {
            rank: *rank,
            host: format!("fs-{rank}"),
            cores: IdSet::first_n(*cores),
            gpus: IdSet::new(),
            tasks: 1,
        };
        job.allocation = shares.iter().map(share).collect();
        job
    }

    #[test]
    fn summaries_are_those_of_flux() {
        assert_eq!(job(&[(0, 1)]).resource_summary(), "rank0/core0");
        assert_eq!(job(&[(0, 2), (1, 2)]).resource_summary(), "rank[0-1]/core[0-1]");
        assert_eq!(job(&[(0, 2), (1, 1)]).resource_summary(), "rank0/core[0-1] rank1/core0");
    }

    #[test]
    fn r_is_valid() {
        let text = job(&[(0, 2), (2, 1)]).to_r().replace("\"nslots\": 0", "\"nslots\": 1");
        let resources = flux_operator_flux::ResourceSet::parse(&text).unwrap();
        assert_eq!(resources.core_count(), 3);
        assert_eq!(resources.hosts().to_string(), "fs-[0,2]");
    }

    #[test]
    fn the_result_follows_from_exception_and_status() {
        let mut job = job(&[]);
        assert_eq!(job.result(), None);
        job.enter(JobState::Inactive, 1.0);
        job.status = Some(0);
        assert_eq!(job.result(), Some(JobResult::Completed));
        job.status = Some(256);
        assert_eq!(job.result(), Some(JobResult::Failed));
        let exception =
            |kind: &str| Exception { kind: kind.to_owned(), severity: 0, note: String::new() };
        for (kind, result) in [
            ("cancel", JobResult::Canceled),
            ("timeout", JobResult::Timeout),
            ("exec", JobResult::Failed),
        ] {
            job.fatal = Some(exception(kind));
            assert_eq!(job.result(), Some(result));
        }
    }
}
