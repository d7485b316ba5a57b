//! Pending jobs, listed for the operator while it asks for them.
//!
//! Uses Flux's commands that are written in C. `flux job list` prints no attributes, so those of
//! jobs that are new in the list are read from Flux's key-value store.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use flux_operator_wire::{PendingJob, PendingPage};
use serde::Deserialize;
use serde_json::Value;

use crate::flux_command::FluxCommand;

/// The maximum number of jobs listed: those that the scheduler considers first.
const MAX_JOBS: &str = "1000";

/// An unchanged list is reported again after this time: the operator may have been restarted.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// How long the attributes of one list may take: reports wait for it.
const ATTRIBUTES_TIMEOUT: Duration = Duration::from_secs(10);

/// How many jobspecs are read with one command.
const JOBSPECS_PER_COMMAND: usize = 64;

type Attributes = BTreeMap<String, Value>;

/// The list of pending jobs, as it was last reported.
pub struct PendingJobs {
    command: FluxCommand,
    /// Attributes of the jobs in the list; they do not change while a job is pending.
    attributes: HashMap<u64, Attributes>,
    /// The number of lists reported so far.
    list: u64,
    /// The list as it was last reported, and when.
    reported: Option<(Vec<PendingJob>, Instant)>,
}

impl PendingJobs {
    /// Creates it without a list.
    pub fn new(command: FluxCommand) -> PendingJobs {
        PendingJobs { command, attributes: HashMap::new(), list: 0, reported: None }
    }

    /// The pages of the list; none if it was reported lately and has not changed since.
    pub fn changed_pages(&mut self) -> Vec<PendingPage> {
        let Some(jobs) = self.list_jobs() else { return Vec::new() };
        let is_known = self
            .reported
            .as_ref()
            .is_some_and(|(before, at)| *before == jobs && at.elapsed() < REPEAT_INTERVAL);
        if is_known {
            return Vec::new();
        }
        self.reported = Some((jobs.clone(), Instant::now()));
        self.list += 1;
        PendingPage::split(self.list, jobs)
    }

    /// Reports the list again next time: it was not received, or is no longer requested.
    pub fn report_again(&mut self) {
        self.reported = None;
    }

    fn list_jobs(&mut self) -> Option<Vec<PendingJob>> {
        let count = format!("--count={MAX_JOBS}");
        let text = self.command.query(&["job", "list", "--states=pending", &count])?;
        let listed: Vec<ListedJob> = text.lines().filter_map(ListedJob::parse).collect();
        let mut known = std::mem::take(&mut self.attributes);
        let unknown: Vec<u64> =
            listed.iter().map(|job| job.id).filter(|id| !known.contains_key(id)).collect();
        let deadline = Instant::now() + ATTRIBUTES_TIMEOUT;
        for ids in unknown.chunks(JOBSPECS_PER_COMMAND) {
            known.extend(self.query_attributes(ids, deadline));
        }
        known.retain(|id, _| listed.iter().any(|job| job.id == *id));
        self.attributes = known;
        let attributes = |id| self.attributes.get(&id).cloned().unwrap_or_default();
        Some(listed.into_iter().map(|job| job.into_pending(attributes(job.id))).collect())
    }

    /// Reads attributes until the deadline. Those that are missing are read with the next list.
    fn query_attributes(&self, ids: &[u64], deadline: Instant) -> Vec<(u64, Attributes)> {
        if Instant::now() >= deadline {
            return Vec::new();
        }
        let keys: Vec<String> = ids.iter().map(|id| jobspec_key(*id)).collect();
        let words: Vec<&str> =
            ["kvs", "get"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        match (self.command.query(&words), ids) {
            (Some(text), _) => {
                ids.iter().copied().zip(text.lines().map(system_attributes)).collect()
            }
            // One of the jobs no longer exists, so the whole command failed: query them one by one.
            (None, [_, _, ..]) => {
                ids.iter().flat_map(|id| self.query_attributes(&[*id], deadline)).collect()
            }
            (None, _) => Vec::new(),
        }
    }
}

/// A line of `flux job list`.
#[derive(Clone, Copy, Deserialize)]
struct ListedJob {
    id: u64,
    #[serde(default)]
    ntasks: u32,
    nnodes: Option<u32>,
    #[serde(default)]
    t_submit: f64,
}

impl ListedJob {
    fn parse(line: &str) -> Option<ListedJob> {
        serde_json::from_str(line).ok()
    }

    fn into_pending(self, attributes: Attributes) -> PendingJob {
        let ListedJob { id, ntasks: tasks, nnodes: nodes, t_submit } = self;
        // Whole seconds; a time before 1970 is 0.
        PendingJob { id, nodes, tasks, submitted: t_submit as u64, attributes }
    }
}

/// The key of a job's jobspec in Flux's key-value store: its ID in groups of four hexadecimal
/// digits.
fn jobspec_key(id: u64) -> String {
    let part = |shift: u32| (id >> shift) & 0xffff;
    format!("job.{:04x}.{:04x}.{:04x}.{:04x}.jobspec", part(48), part(32), part(16), part(0))
}

/// `attributes.system` of a jobspec, without large attributes that only matter when the job runs.
fn system_attributes(jobspec: &str) -> Attributes {
    let Ok(mut jobspec) = serde_json::from_str::<Value>(jobspec) else { return Attributes::new() };
    let system = jobspec["attributes"]["system"].take();
    let mut system: Attributes = serde_json::from_value(system).unwrap_or_default();
    system.retain(|name, _| !["environment", "shell", "cwd"].contains(&name.as_str()));
    system
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A fake `flux` that prints the file `list`, or the file of each jobspec key.
    fn fake_flux(directory: &Path) -> FluxCommand {
        let flux = directory.join("flux");
        let script = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >>log\n\
             case $1 in job) cat list;; kvs) shift 2; cat \"$@\";; esac\n",
            directory.display()
        );
        crate::files::tests::write_script(&flux, &script);
        FluxCommand { flux, uri: "local:///x".into() }
    }

    #[test]
    fn jobs_are_listed_with_their_attributes_when_something_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        // What flux-core 0.88 printed.
        let first = r#"{"id": 81856036864, "userid": 0, "urgency": 16, "t_submit": 1794718022.1924691, "state": 8, "name": "hostname", "ntasks": 4, "duration": 0.0, "nnodes": 4}"#;
        let second = r#"{"id": 90563411968, "t_submit": 1794718022.711241, "state": 8, "ntasks": 100, "ncores": 100}"#;
        write("list", &format!("{first}\n"));
        write(
            "job.0000.0013.0f00.0000.jobspec",
            "{\"attributes\": {\"system\": {\"duration\": 0, \"burstable\": 1, \"environment\": {\"A\": \"b\"}}}}\n",
        );
        let mut pending = PendingJobs::new(fake_flux(directory.path()));
        let pages = pending.changed_pages();
        let attributes =
            Attributes::from([("burstable".into(), 1.into()), ("duration".into(), 0.into())]);
        let job = PendingJob {
            id: 81856036864,
            nodes: Some(4),
            tasks: 4,
            submitted: 1794718022,
            attributes,
        };
        assert_eq!(pages.len(), 1);
        assert_eq!(pages[0].jobs, std::slice::from_ref(&job));
        assert_eq!(pending.changed_pages(), [], "nothing has changed");
        // The second job no longer exists when its jobspec is read.
        write("list", &format!("{first}\n{second}\nnonsense\n"));
        let pages = pending.changed_pages();
        assert_eq!((pages[0].list, pages[0].total), (2, 2));
        assert_eq!(pages[0].jobs[0], job);
        assert!(pages[0].jobs[1].attributes.is_empty());
        assert_eq!(pages[0].jobs[1].nodes, None);
        write("list", "");
        assert_eq!(pending.changed_pages()[0].total, 0);
        pending.report_again();
        assert_eq!(pending.changed_pages().len(), 1);
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(log.matches("job.0000.0013.0f00.0000").count(), 1, "{log}");
    }
}
