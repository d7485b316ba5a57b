//! Jobs that wait, listed for the operator while it asks for them.
//!
//! Asked for with Flux's commands that are written in C. `flux job list` shows no attributes, so
//! those of jobs that are new in the list are read from where Flux keeps them.

use std::collections::{BTreeMap, HashMap};

use flux_operator_wire::{PendingJob, PendingPage};
use serde::Deserialize;
use serde_json::Value;

use crate::flux_command::FluxCommand;

/// How many jobs are listed at most: those the scheduler looks at first.
const MAX_JOBS: &str = "1000";

/// How many jobs are asked about at once.
const AT_ONCE: usize = 64;

type Attributes = BTreeMap<String, Value>;

/// The list of jobs that wait, as it was told last.
pub struct PendingJobs {
    command: FluxCommand,
    /// What is known of jobs in the list: attributes never change while a job waits.
    attributes: HashMap<u64, Attributes>,
    /// Counts the lists that were told.
    list: u64,
    told: Option<Vec<PendingJob>>,
}

impl PendingJobs {
    /// Nothing is listed yet.
    pub fn new(command: FluxCommand) -> PendingJobs {
        PendingJobs { command, attributes: HashMap::new(), list: 0, told: None }
    }

    /// The pages of the list, unless it is as it was told last.
    pub fn changed(&mut self) -> Vec<PendingPage> {
        let Some(jobs) = self.look().filter(|jobs| self.told.as_ref() != Some(jobs)) else {
            return Vec::new();
        };
        self.told = Some(jobs.clone());
        self.list += 1;
        PendingPage::split(self.list, jobs)
    }

    /// The list has to be told again: it did not arrive, or nobody asks for it now.
    pub fn forget(&mut self) {
        self.told = None;
    }

    fn look(&mut self) -> Option<Vec<PendingJob>> {
        let count = format!("--count={MAX_JOBS}");
        let text = self.command.ask(&["job", "list", "--states=pending", &count])?;
        let listed: Vec<Listed> = text.lines().filter_map(Listed::parse).collect();
        let mut known = std::mem::take(&mut self.attributes);
        let unknown: Vec<u64> =
            listed.iter().map(|job| job.id).filter(|id| !known.contains_key(id)).collect();
        for ids in unknown.chunks(AT_ONCE) {
            known.extend(self.ask_attributes(ids));
        }
        known.retain(|id, _| listed.iter().any(|job| job.id == *id));
        self.attributes = known;
        let attributes = |id| self.attributes.get(&id).cloned().unwrap_or_default();
        Some(listed.into_iter().map(|job| job.with(attributes(job.id))).collect())
    }

    fn ask_attributes(&self, ids: &[u64]) -> Vec<(u64, Attributes)> {
        let keys: Vec<String> = ids.iter().map(|id| jobspec_key(*id)).collect();
        let words: Vec<&str> =
            ["kvs", "get"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        match (self.command.ask(&words), ids) {
            (Some(text), _) => {
                ids.iter().copied().zip(text.lines().map(system_attributes)).collect()
            }
            // One of them is gone, and then none is told.
            (None, [_, _, ..]) => ids.iter().flat_map(|id| self.ask_attributes(&[*id])).collect(),
            (None, _) => Vec::new(),
        }
    }
}

/// A line of `flux job list`.
#[derive(Clone, Copy, Deserialize)]
struct Listed {
    id: u64,
    #[serde(default)]
    ntasks: u32,
    nnodes: Option<u32>,
    #[serde(default)]
    t_submit: f64,
}

impl Listed {
    fn parse(line: &str) -> Option<Listed> {
        serde_json::from_str(line).ok()
    }

    fn with(self, attributes: Attributes) -> PendingJob {
        let Listed { id, ntasks: tasks, nnodes: nodes, t_submit } = self;
        // Whole seconds; a time before 1970 is 0.
        PendingJob { id, nodes, tasks, submitted: t_submit as u64, attributes }
    }
}

/// Where Flux keeps the jobspec of a job: by its id, four hexadecimal digits at a time.
fn jobspec_key(id: u64) -> String {
    let part = |shift: u32| (id >> shift) & 0xffff;
    format!("job.{:04x}.{:04x}.{:04x}.{:04x}.jobspec", part(48), part(32), part(16), part(0))
}

/// `attributes.system` of a jobspec, without what is large and about how the job runs.
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

    /// A `flux` that prints the file `list`, or a line of a jobspec for each key it knows.
    fn flux(directory: &Path) -> FluxCommand {
        let flux = directory.join("flux");
        let script = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >>log\n\
             case $1 in job) cat list;; kvs) shift 2; cat \"$@\";; esac\n",
            directory.display()
        );
        crate::files::write(&flux, script, 0o755).unwrap();
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
        let mut pending = PendingJobs::new(flux(directory.path()));
        let pages = pending.changed();
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
        assert_eq!(pending.changed(), [], "nothing has changed");
        // The second one is gone before it is asked about.
        write("list", &format!("{first}\n{second}\nnonsense\n"));
        let pages = pending.changed();
        assert_eq!((pages[0].list, pages[0].total), (2, 2));
        assert_eq!(pages[0].jobs[0], job);
        assert!(pages[0].jobs[1].attributes.is_empty());
        assert_eq!(pages[0].jobs[1].nodes, None);
        write("list", "");
        assert_eq!(pending.changed()[0].total, 0);
        pending.forget();
        assert_eq!(pending.changed().len(), 1);
        let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(log.matches("job.0000.0013.0f00.0000").count(), 1, "{log}");
    }
}
