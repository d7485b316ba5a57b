//! Reads the jobs and nodes of a Flux instance with Flux's own commands, as the lead's agent does for
//! the operator.

use std::collections::HashMap;

use anyhow::{Result, bail};
use flux_operator_api::view::{InstanceJob, InstanceJobs, RunningInstanceJob, SlotRange};
use flux_operator_flux::{
    IdSet, JobId, Jobspec, JobspecBatch, ListedJob, OverlayNode, ResourceSet,
};

use crate::kubectl::exec::CapturedOutput;

/// The maximum number of jobs, as the operator has them too.
const MAX_JOBS: &str = "--count=10000";

/// Runs commands of Flux in an instance.
pub(super) trait FluxCommands {
    /// Runs `flux WORDS`.
    async fn run(&self, words: &[&str]) -> Result<CapturedOutput>;
}

/// An instance as Flux shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ObservedInstance {
    /// The pending jobs, in the order in which the scheduler considers them.
    pub(super) pending: Vec<ListedJob>,
    /// The running jobs.
    pub(super) running: Vec<ListedJob>,
    /// Ranks whose brokers are online.
    pub(super) online: IdSet,
    jobspecs: HashMap<JobId, Jobspec>,
    drained: IdSet,
    lead_cores: u32,
    lead_gpus: u32,
    stops_at_blocked: bool,
    /// What could not be read.
    pub(super) notes: Vec<String>,
}

impl ObservedInstance {
    /// Reads an instance.
    pub(super) async fn read(flux: &impl FluxCommands) -> Result<ObservedInstance> {
        let (pending, running, overlay, drained, resources, modules) = tokio::try_join!(
            list(flux, "--states=pending"),
            list(flux, "--states=running"),
            query(flux, &OverlayNode::COMMAND),
            flux.run(&["resource", "drain", "-n", "-o", "{ranks}"]),
            flux.run(&["resource", "R"]),
            flux.run(&["module", "list"]),
        )?;
        let jobspecs = read_jobspecs(flux, &pending).await?;
        let mut notes = Vec::new();
        if !drained.success {
            notes.push("drained ranks are not known: they count as available".to_owned());
        }
        let missing = pending.iter().filter(|job| !jobspecs.contains_key(&job.id)).count();
        if missing > 0 {
            notes.push(format!(
                "the jobspecs of {missing} jobs cannot be read: they have just started"
            ));
        }
        let lead = ResourceSet::parse(&resources.output).ok().and_then(|it| it.size_of(0));
        if lead.is_none() {
            notes.push("the cores of the lead's node are not known".to_owned());
        }
        let (lead_cores, lead_gpus) = lead.unwrap_or_default();
        let saturate = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(ObservedInstance {
            online: OverlayNode::online_ranks(&overlay),
            drained: IdSet::union_all(&parse_sets(&drained.output)),
            lead_cores: saturate(lead_cores),
            lead_gpus: saturate(lead_gpus),
            // Only Fluxion starts jobs behind one that cannot start.
            stops_at_blocked: !modules.output.contains("fluxion"),
            pending,
            running,
            jobspecs,
            notes,
        })
    }

    /// The form in which the operator shows an instance with these slots.
    pub(super) fn shown(&self, slots: Vec<SlotRange>) -> InstanceJobs {
        let own = slots.iter().find(|slots| slots.owner == "Job");
        let own_gpus = own.and_then(|slots| slots.gpus);
        let running = self.running.iter();
        InstanceJobs {
            listed: true,
            version: 0,
            online: Some(self.online.to_string()),
            busy: Some(IdSet::union_all(running.clone().map(|job| &job.ranks)).to_string()),
            drained: Some(self.drained.to_string()),
            lead_cores: self.lead_cores,
            lead_gpus: own_gpus.unwrap_or(self.lead_gpus),
            stops_at_blocked: self.stops_at_blocked,
            running: running
                .map(|job| RunningInstanceJob { id: job.id.number(), ranks: job.ranks.to_string() })
                .collect(),
            items: self.pending.iter().map(|job| self.shown_job(job)).collect(),
            slots,
        }
    }

    fn shown_job(&self, job: &ListedJob) -> InstanceJob {
        let Jobspec { gpus, attributes } = self.jobspecs.get(&job.id).cloned().unwrap_or_default();
        let ListedJob { id, user, queue, nodes, tasks, cores, .. } = job.clone();
        InstanceJob {
            id: id.number(),
            user,
            queue,
            nodes,
            tasks,
            cores,
            gpus,
            submitted: job.submitted,
            duration: job.duration,
            estimate: job.estimate,
            held: job.is_held,
            attributes: attributes.into(),
            on_hold: job.is_on_hold,
        }
    }
}

/// The pending and the running jobs.
pub(super) async fn list_jobs(
    flux: &impl FluxCommands,
) -> Result<(Vec<ListedJob>, Vec<ListedJob>)> {
    tokio::try_join!(list(flux, "--states=pending"), list(flux, "--states=running"))
}

/// The state of a job that is neither pending nor running, such as `INACTIVE COMPLETED`. `None` if
/// there is no such job.
pub(super) async fn job_state(flux: &impl FluxCommands, id: JobId) -> Result<Option<String>> {
    let id = id.to_f58_plain();
    let printed = flux.run(&["jobs", "-n", "-o", "{state} {result}", &id]).await?;
    let line = printed.output.lines().next().map(str::trim).unwrap_or_default();
    Ok((printed.success && !line.is_empty()).then(|| line.to_owned()))
}

/// The output of a command that must succeed.
async fn query(flux: &impl FluxCommands, words: &[&str]) -> Result<String> {
    let printed = flux.run(words).await?;
    if !printed.success {
        let (command, errors) = (words.join(" "), printed.errors.trim());
        bail!("`flux {command}` failed in the lead's pod: {errors}\nhint: try again");
    }
    Ok(printed.output)
}

async fn list(flux: &impl FluxCommands, states: &str) -> Result<Vec<ListedJob>> {
    let text = query(flux, &["job", "list", "--user=all", states, MAX_JOBS]).await?;
    Ok(text.lines().filter_map(ListedJob::parse).collect())
}

/// Reads jobspecs. Those of jobs that are no longer in the key-value store are left out.
async fn read_jobspecs(
    flux: &impl FluxCommands,
    jobs: &[ListedJob],
) -> Result<HashMap<JobId, Jobspec>> {
    let mut jobspecs = HashMap::new();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut rest = ids.as_slice();
    while !rest.is_empty() {
        let batch = JobspecBatch::first_of(rest);
        let command = batch.command();
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let read = batch.parse(&flux.run(&words).await?.output);
        // It stops at the first job that does not exist; that one is left out.
        rest = &rest[batch.ids().len().min(read.len() + 1)..];
        jobspecs.extend(read);
    }
    Ok(jobspecs)
}

fn parse_sets(text: &str) -> Vec<IdSet> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use std::cell::RefCell;

    /// A fake Flux: outputs of commands by the first words of each, and jobspecs by id.
    #[derive(Default)]
    pub(crate) struct FakeFlux {
        pub(crate) outputs: Vec<(&'static str, String)>,
        pub(crate) jobspecs: HashMap<u64, String>,
        pub(crate) log: RefCell<Vec<String>>,
    }

    impl FluxCommands for FakeFlux {
        async fn run(&self, words: &[&str]) -> Result<CapturedOutput> {
            let line = words.join(" ");
            self.log.borrow_mut().push(line.clone());
            if let ["kvs", "get", keys @ ..] = words {
                let spec = |key: &&str| {
                    let mut all = self.jobspecs.iter();
                    all.find(|(id, _)| Jobspec::key(JobId::from(**id)) == **key).map(|(_, it)| it)
                };
                let found: Vec<_> = keys.iter().map_while(spec).collect();
                let success = found.len() == keys.len();
                let output = found.iter().map(|it| format!("{it}\n")).collect();
                return Ok(CapturedOutput { output, success, ..CapturedOutput::default() });
            }
            let found = self.outputs.iter().find(|(start, _)| line.starts_with(start));
            let output = found.map(|(_, text)| text.clone());
            let (success, errors) = (output.is_some(), "no such command\n".to_owned());
            Ok(CapturedOutput { output: output.unwrap_or_default(), success, errors })
        }
    }

    /// Two brokers with four cores; one of them runs a job. The pending jobs need whole nodes.
    pub(crate) fn fake_flux(pending: &[(u64, u32, &str)]) -> FakeFlux {
        let line = |(id, nodes, _): &(u64, u32, &str)| {
            json!({ "id": id, "userid": 1000, "urgency": 16, "state": 8, "ntasks": nodes,
                "nnodes": nodes, "t_submit": 1_767_225_600.5 })
            .to_string()
                + "\n"
        };
        let spec = |(id, _, attribute): &(u64, u32, &str)| {
            let system = json!({ *attribute: 1 });
            (*id, json!({ "resources": [], "attributes": { "system": system } }).to_string())
        };
        let running = json!({ "id": 5, "state": 16, "nnodes": 1, "ranks": "0" }).to_string();
        let r = json!({ "version": 1, "execution": { "R_lite":
            [{ "rank": "0-5", "children": { "core": "0-3" } }], "starttime": 0,
            "expiration": 0, "nodelist": ["fs-[0-1],fs-spare-[0-3]"] } });
        FakeFlux {
            outputs: vec![
                ("job list --user=all --states=pending", pending.iter().map(line).collect()),
                ("job list --user=all --states=running", running),
                ("overlay status", "0 fs-0: full\n1 fs-1: full\n2 fs-spare-0: offline\n".into()),
                ("resource drain", "1\n".into()),
                ("resource R", r.to_string()),
                ("module list", "sched-fluxion-qmanager 1\n".into()),
                ("jobs -n -o {state} {result} f8", "INACTIVE COMPLETED\n".into()),
            ],
            jobspecs: pending.iter().map(spec).collect(),
            log: RefCell::default(),
        }
    }

    #[tokio::test]
    async fn an_instance_is_read_as_the_operator_shows_it() {
        let flux = fake_flux(&[(7, 2, "burstable"), (8, 1, "other")]);
        let observed = ObservedInstance::read(&flux).await.unwrap();
        let slots = vec![SlotRange { owner: "Job".into(), ..SlotRange::default() }];
        let shown = observed.shown(slots);
        assert_eq!(observed.notes, Vec::<String>::new());
        let sets = [&shown.online, &shown.busy, &shown.drained].map(|it| it.as_deref());
        assert_eq!(sets, [Some("0-1"), Some("0"), Some("1")]);
        assert_eq!((shown.lead_cores, shown.stops_at_blocked), (4, false));
        assert_eq!(shown.running, [RunningInstanceJob { id: 5, ranks: "0".into() }]);
        let expected = InstanceJob {
            id: 7,
            user: 1000,
            nodes: Some(2),
            tasks: 2,
            submitted: 1_767_225_600,
            attributes: std::collections::BTreeMap::from([("burstable".to_owned(), json!(1))])
                .into(),
            ..InstanceJob::default()
        };
        assert_eq!(shown.items[0], expected);
        assert_eq!(shown.items.len(), 2);
    }

    #[tokio::test]
    async fn jobspecs_behind_one_that_is_missing_are_read() {
        let jobs: Vec<(u64, u32, &str)> = (1..=1200).map(|id| (id, 1, "a")).collect();
        let mut flux = fake_flux(&jobs);
        flux.jobspecs.retain(|id, _| *id != 3 && *id != 700);
        let observed = ObservedInstance::read(&flux).await.unwrap();
        let shown = observed.shown(Vec::new());
        let empty: Vec<u64> =
            shown.items.iter().filter(|it| it.attributes.is_empty()).map(|it| it.id).collect();
        assert_eq!(empty, [3, 700]);
        // 1-3, 4-503, 504-700, 701-1200.
        let log = flux.log.borrow();
        assert_eq!(log.iter().filter(|line| line.starts_with("kvs get")).count(), 4);
        assert!(observed.notes[0].starts_with("the jobspecs of 2 jobs"), "{:?}", observed.notes);
    }

    #[tokio::test]
    async fn what_must_be_known_is_an_error_and_the_rest_a_note() {
        let without = |name: &str| {
            let mut flux = fake_flux(&[]);
            flux.outputs.retain(|(start, _)| !start.contains(name));
            flux
        };
        for name in ["pending", "running", "overlay"] {
            let error = ObservedInstance::read(&without(name)).await.unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("no such command"), "{error}");
        }
        for (name, note) in [("resource drain", "drained ranks"), ("resource R", "the cores")] {
            let observed = ObservedInstance::read(&without(name)).await.unwrap();
            assert!(observed.notes[0].starts_with(note), "{:?}", observed.notes);
        }
        // Flux's simple scheduler is assumed if the modules cannot be listed.
        let observed = ObservedInstance::read(&without("module")).await.unwrap();
        assert!(observed.shown(Vec::new()).stops_at_blocked);
    }

    #[tokio::test]
    async fn a_job_that_has_finished_has_a_state() {
        let flux = fake_flux(&[]);
        let state = job_state(&flux, "f8".parse().unwrap()).await.unwrap();
        assert_eq!(state.as_deref(), Some("INACTIVE COMPLETED"));
        assert_eq!(job_state(&flux, "f9".parse().unwrap()).await.unwrap(), None);
    }
}
