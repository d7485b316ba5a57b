//! The jobs of an instance, listed for the operator while it asks for them: pending jobs, running
//! jobs, and the ranks in use.
//!
//! Uses Flux's commands that are written in C, except for drained ranks. `flux job list` prints no
//! attributes and no GPUs, so the jobspecs of jobs that are new in the list are read from Flux's
//! key-value store.
//!
//! Measured with flux-core 0.88, 10,000 pending jobs and two busy cores: 0.65 s for the list, of
//! which 0.55 s of a core in the command and the broker, and 6 to 12 s for all jobspecs, once, of
//! which 4.4 s of a core. The pages have 1.2 MB.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use flux_operator_flux::{IdSet, JobId, Jobspec, JobspecBatch, ListedJob};
use flux_operator_wire::{JobCounts, JobList, PendingJob, PendingPage, RankUse, RunningJob};

use crate::blocked::SchedulerProbe;
use crate::drain;
use crate::flux_command::FluxCommand;
use crate::listing_schedule::ListingSchedule;

/// The maximum number of pending jobs listed: those that the scheduler considers first. Also the
/// maximum number of running jobs whose ranks are counted as busy.
const MAX_JOBS: u32 = 10_000;

/// The maximum number of running jobs that are listed one by one.
const MAX_RUNNING: usize = 1000;

/// An unchanged list is reported again after this time: the operator may have been restarted.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// How long reading the jobspecs of one list may take: reports wait for it.
const JOBSPECS_TIMEOUT: Duration = Duration::from_secs(8);

/// How long drained ranks are not queried again: that command is written in Python, and takes 0.14 s
/// of a core.
const DRAINED_INTERVAL: Duration = Duration::from_secs(30);

/// The list of jobs, as it was last reported.
pub struct PendingJobs {
    command: FluxCommand,
    scheduler: SchedulerProbe,
    schedule: ListingSchedule,
    /// Jobspecs of the pending jobs. What is used of them does not change while a job is pending.
    jobspecs: HashMap<JobId, Jobspec>,
    /// The drained ranks, and when they were queried.
    drained: Option<(Option<IdSet>, Instant)>,
    /// The number of lists reported so far.
    list: u64,
    /// A hash of the list as it was last reported, and when.
    reported: Option<(u64, Instant)>,
}

impl PendingJobs {
    /// Creates it without a list.
    pub fn new(command: FluxCommand) -> PendingJobs {
        PendingJobs {
            scheduler: SchedulerProbe::new(command.clone()),
            command,
            schedule: ListingSchedule::default(),
            jobspecs: HashMap::new(),
            drained: None,
            list: 0,
            reported: None,
        }
    }

    /// The pages of the list; none if it is too early to list jobs again, or if the list was reported
    /// lately and has not changed since. `counts` is the number of jobs, if known.
    pub fn changed_pages(&mut self, counts: Option<JobCounts>) -> Vec<PendingPage> {
        if self.schedule.is_due(Instant::now(), counts, self.reported.is_some()) {
            self.list_changed_pages(counts)
        } else {
            Vec::new()
        }
    }

    /// Reports the list again next time: it was not received, or is no longer requested.
    pub fn report_again(&mut self) {
        self.reported = None;
    }

    fn list_changed_pages(&mut self, counts: Option<JobCounts>) -> Vec<PendingPage> {
        let started = Instant::now();
        let listed = self.query_pending().zip(self.query_running());
        let took = started.elapsed();
        let Some((mut pending, running)) = listed else {
            self.schedule.record(started, took, usize::MAX, None);
            return Vec::new();
        };
        // One that has started between the two lists is in both: it needs no nodes any more.
        let started_ids: HashSet<JobId> = running.iter().map(|job| job.id).collect();
        pending.retain(|job| !started_ids.contains(&job.id));
        self.read_jobspecs(&pending);
        let is_complete = pending.iter().all(|job| self.jobspecs.contains_key(&job.id));
        // The time for jobspecs does not count: each is read once.
        let listed = pending.len() + running.len();
        self.schedule.record(started, took, listed, counts.filter(|_| is_complete));
        let drained = if pending.is_empty() { None } else { self.drained_ranks() };
        let in_order = !pending.is_empty() && self.scheduler.is_simple();
        let busy = IdSet::union_all(running.iter().map(|job| &job.ranks));
        let running = running.into_iter().take(MAX_RUNNING);
        let jobs = JobList {
            pending: pending.into_iter().map(|job| self.pending_job(job)).collect(),
            running: running
                .map(|job| RunningJob { id: job.id.number(), ranks: job.ranks })
                .collect(),
            ranks: Some(RankUse { busy, drained, in_order }),
        };
        let hash = hash(&jobs);
        let is_known = self
            .reported
            .is_some_and(|(before, at)| before == hash && at.elapsed() < REPEAT_INTERVAL);
        if is_known {
            return Vec::new();
        }
        self.reported = Some((hash, Instant::now()));
        self.list += 1;
        PendingPage::split(self.list, jobs)
    }

    /// The pending jobs. Their names and folders may make the list too long; then its end is missing, as
    /// are jobs beyond the maximum.
    fn query_pending(&self) -> Option<Vec<ListedJob>> {
        let words = list_words("--states=pending");
        Some(parse_jobs(&self.command.query(&words.each_ref().map(String::as_str))?))
    }

    /// The running jobs. All of them: the ranks of one that is missing would be idle.
    fn query_running(&self) -> Option<Vec<ListedJob>> {
        let words = list_words("--states=running");
        Some(parse_jobs(&self.command.try_query(&words.each_ref().map(String::as_str)).ok()?))
    }

    fn pending_job(&self, job: ListedJob) -> PendingJob {
        let jobspec = self.jobspecs.get(&job.id).cloned().unwrap_or_default();
        PendingJob {
            id: job.id.number(),
            user: job.user,
            queue: job.queue,
            nodes: job.nodes,
            tasks: job.tasks,
            cores: job.cores,
            gpus: jobspec.gpus,
            submitted: job.submitted,
            duration: job.duration,
            estimate: job.estimate,
            held: job.is_held,
            on_hold: job.is_on_hold,
            attributes: jobspec.attributes,
        }
    }

    /// Reads the jobspecs of jobs that are new in the list, and forgets those of other jobs. What
    /// cannot be read in time is read with the next list.
    fn read_jobspecs(&mut self, listed: &[ListedJob]) {
        let mut known = std::mem::take(&mut self.jobspecs);
        let mut unknown = Vec::new();
        for job in listed {
            match known.remove(&job.id) {
                Some(jobspec) => drop(self.jobspecs.insert(job.id, jobspec)),
                None => unknown.push(job.id),
            }
        }
        let deadline = Instant::now() + JOBSPECS_TIMEOUT;
        let mut rest = unknown.as_slice();
        while !rest.is_empty() && Instant::now() < deadline {
            let batch = JobspecBatch::first_of(rest);
            let command = batch.command();
            let words: Vec<&str> = command.iter().map(String::as_str).collect();
            let Some(output) = self.command.query_partial(&words) else { break };
            let read = batch.parse(&output);
            // It stops at a job that no longer exists, and if its output is too long. If nothing was
            // read, the first job is the reason.
            rest = &rest[read.len().max(1)..];
            self.jobspecs.extend(read);
        }
    }

    /// The drained ranks, as of a short time ago.
    fn drained_ranks(&mut self) -> Option<IdSet> {
        match &self.drained {
            Some((ranks, at)) if at.elapsed() < DRAINED_INTERVAL => ranks.clone(),
            _ => {
                let ranks = drain::drained_ranks(&self.command);
                self.drained = Some((ranks.clone(), Instant::now()));
                ranks
            }
        }
    }
}

/// The words of `flux job list` for jobs in these states.
fn list_words(states: &str) -> [String; 5] {
    let count = format!("--count={MAX_JOBS}");
    ["job".into(), "list".into(), "--user=all".into(), states.into(), count]
}

fn parse_jobs(text: &str) -> Vec<ListedJob> {
    text.lines().filter_map(ListedJob::parse).collect()
}

/// A hash of the list. Keeping the list itself would double the memory.
fn hash(jobs: &JobList) -> u64 {
    let JobList { pending, running, ranks } = jobs;
    let mut hasher = DefaultHasher::new();
    (running, ranks).hash(&mut hasher);
    for job in pending {
        serde_json::to_vec(job).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A fake `flux` that prints the files `pending`, `running` and `drained`, or the file of each
    /// jobspec key up to the first that does not exist, as `flux kvs get` does.
    struct FakeFlux {
        directory: tempfile::TempDir,
        jobs: PendingJobs,
    }

    // What flux-core 0.88 printed.
    const FIRST: &str = r#"{"id": 81856036864, "userid": 0, "urgency": 16, "t_submit": 1794718022.1924691, "state": 8, "name": "hostname", "ntasks": 4, "duration": 0.0, "nnodes": 4}"#;
    const SECOND: &str = r#"{"id": 90563411968, "t_submit": 1794718022.711241, "state": 8, "ntasks": 100, "ncores": 100}"#;
    const FIRST_KEY: &str = "job.0000.0013.0f00.0000.jobspec";
    const SECOND_KEY: &str = "job.0000.0015.1600.0000.jobspec";

    impl FakeFlux {
        fn new() -> FakeFlux {
            let directory = tempfile::tempdir().unwrap();
            let flux = directory.path().join("flux");
            let script = format!(
                "#!/bin/sh\ncd {}\necho \"$@\" >>log\ncase \"$*\" in\n\
                 *states=pending*) cat pending;;\n*states=running*) cat running;;\n\
                 resource*) cat drained;;\n\
                 kvs*) shift 2; for key; do cat $key || exit 1; done;;\nesac\n",
                directory.path().display()
            );
            crate::files::tests::write_script(&flux, &script);
            let command = FluxCommand { flux, uri: "local:///x".into() };
            let fake = FakeFlux { directory, jobs: PendingJobs::new(command) };
            for name in ["pending", "running", "drained"] {
                fake.write(name, "");
            }
            fake
        }

        fn path(&self) -> &Path {
            self.directory.path()
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path().join(name), text).unwrap();
        }

        fn list(&mut self) -> Vec<PendingPage> {
            self.jobs.list_changed_pages(None)
        }

        /// How many of the commands so far contain this text.
        fn count(&self, text: &str) -> usize {
            let log = std::fs::read_to_string(self.path().join("log")).unwrap();
            log.lines().filter(|line| line.contains(text)).count()
        }
    }

    #[test]
    fn jobs_are_listed_with_their_jobspecs_when_something_has_changed() {
        let mut flux = FakeFlux::new();
        flux.write("pending", &format!("{FIRST}\n"));
        flux.write(
            FIRST_KEY,
            "{\"resources\": [{\"type\": \"gpu\", \"count\": 2}], \"attributes\": {\"system\": \
             {\"duration\": 0, \"burstable\": 1, \"environment\": {\"A\": \"b\"}}}}\n",
        );
        let pages = flux.list();
        let attributes = [("burstable".into(), 1.into()), ("duration".into(), 0.into())].into();
        let job = PendingJob {
            id: 81856036864,
            nodes: Some(4),
            tasks: 4,
            gpus: 2,
            submitted: 1794718022,
            attributes,
            ..PendingJob::default()
        };
        assert_eq!(pages.len(), 1);
        assert_eq!(pages[0].jobs, std::slice::from_ref(&job));
        assert_eq!(flux.list(), [], "nothing has changed");
        // The second job no longer exists when its jobspec is read.
        flux.write("pending", &format!("{SECOND}\n{FIRST}\nnonsense\n"));
        let pages = flux.list();
        assert_eq!((pages[0].list, pages[0].total), (2, 2));
        assert_eq!(pages[0].jobs[1], job);
        assert!(pages[0].jobs[0].attributes.is_empty());
        assert_eq!((pages[0].jobs[0].nodes, pages[0].jobs[0].cores), (None, Some(100)));
        flux.write("pending", "");
        assert_eq!(flux.list()[0].total, 0);
        flux.jobs.report_again();
        assert_eq!(flux.list().len(), 1);
        assert_eq!(flux.count(FIRST_KEY), 1);
    }

    #[test]
    fn jobspecs_behind_one_that_is_missing_are_read() {
        let mut flux = FakeFlux::new();
        let lines = (1..=1200).map(|id| format!("{{\"id\":{id}}}\n"));
        flux.write("pending", &lines.collect::<String>());
        for id in (1..=1200).filter(|id| *id != 3 && *id != 700) {
            let text = format!("{{\"attributes\": {{\"system\": {{\"id\": {id}}}}}}}\n");
            flux.write(&Jobspec::key(JobId::from(id)), &text);
        }
        let jobs: Vec<PendingJob> = flux.list().into_iter().flat_map(|page| page.jobs).collect();
        assert_eq!(jobs.len(), 1200);
        for job in jobs.iter().filter(|job| job.id != 3 && job.id != 700) {
            assert_eq!(job.attributes["id"], job.id);
        }
        // 1-2, 3 (fails), 4-503, 504-699, 700 (fails), 701-1200.
        assert_eq!(flux.count("kvs get"), 6);
        flux.write(
            "job.0000.0000.0000.0003.jobspec",
            "{\"attributes\": {\"system\": {\"x\": 1}}}\n",
        );
        let pages = flux.list();
        assert_eq!(pages[0].jobs[2].attributes["x"], 1);
        assert_eq!(flux.count("kvs get"), 8, "only those that are missing are read again");
    }

    #[test]
    fn busy_and_drained_ranks_are_reported_with_the_running_jobs() {
        let mut flux = FakeFlux::new();
        // What flux-core 0.88 printed, shortened.
        let running = r#"{"id": 60565749760, "t_run": 1794718020.9, "state": 16, "nnodes": 2, "ranks": "[1,3]", "nodelist": "fs-[1,3]"}"#;
        flux.write("running", running);
        flux.write("drained", "drained 2 the cluster shrinks\n");
        let pages = flux.list();
        let ranks = |busy: &str, drained: Option<&str>| {
            let drained = drained.map(|ranks| ranks.parse().unwrap());
            // Which scheduler there is, is queried only while jobs are pending.
            let in_order = drained.is_some();
            Some(RankUse { busy: busy.parse().unwrap(), drained, in_order })
        };
        assert_eq!(pages[0].ranks, ranks("1,3", None), "no job is pending");
        let job = RunningJob { id: 60565749760, ranks: "1,3".parse().unwrap() };
        assert_eq!(pages[0].running, [job]);
        assert_eq!(flux.count("resource drain"), 0);
        flux.write("pending", SECOND);
        flux.write(SECOND_KEY, "{}\n");
        assert_eq!(flux.list()[0].ranks, ranks("1,3", Some("2")));
        flux.write("running", "");
        assert_eq!(flux.list()[0].ranks, ranks("", Some("2")));
        assert_eq!(flux.count("resource drain"), 1, "it is written in Python");
    }

    /// Otherwise a Burst would be created for it.
    #[test]
    fn a_job_that_starts_while_jobs_are_listed_is_not_pending() {
        let mut flux = FakeFlux::new();
        flux.write("pending", &format!("{FIRST}\n{SECOND}\n"));
        flux.write(SECOND_KEY, "{}\n");
        flux.write("running", r#"{"id": 81856036864, "state": 16, "nnodes": 4, "ranks": "[0-3]"}"#);
        let pages = flux.list();
        let ids: Vec<u64> = pages[0].jobs.iter().map(|job| job.id).collect();
        assert_eq!((ids, pages[0].total), (vec![90563411968], 1));
        assert_eq!(pages[0].running[0].id, 81856036864);
        assert_eq!(flux.count(FIRST_KEY), 0, "its jobspec is not needed");
    }

    /// Names and folders come from users.
    #[test]
    fn a_list_that_is_too_long_is_cut_off_unless_ranks_would_be_missing() {
        let mut flux = FakeFlux::new();
        let name = "x".repeat(3 << 20);
        let job = |id| format!("{{\"id\":{id},\"name\":\"{name}\",\"ranks\":\"{id}\"}}\n");
        let long: String = (1..=4).map(job).collect();
        flux.write("pending", &long);
        assert_eq!(flux.list()[0].total, 2, "the third is cut off");
        flux.write("running", &long);
        assert_eq!(flux.list(), [], "busy ranks are not known");
    }

    #[test]
    fn jobs_are_not_listed_while_it_is_too_early() {
        let mut flux = FakeFlux::new();
        let counts = Some(JobCounts { pending: 0, running: 0, inactive: 0 });
        assert_eq!(flux.jobs.changed_pages(counts).len(), 1);
        let listed = flux.count("job list");
        assert_eq!(flux.jobs.changed_pages(counts), []);
        assert_eq!(flux.count("job list"), listed);
    }
}
