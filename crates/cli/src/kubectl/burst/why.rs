//! `kubectl minicluster burst why`, and `why NAME --job`: why nodes were or were not requested for
//! pending jobs.

use std::fmt::Debug;
use std::process::ExitCode;

use anyhow::{Result, bail};
use flux_operator_api::minicluster::LenderName;
use flux_operator_api::{Burst, BurstPolicy};
use flux_operator_flux::JobId;
use flux_operator_plan::view::instance_slots;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answers::{JobReport, OneJob, Report, answers, rows};
use super::instance::{FluxCommands, ObservedInstance, job_state};
use super::jobs::{has_left_job, run_of};
use crate::kubectl::exec::{CapturedOutput, ExecPod, capture};
use crate::kubectl::output_format::DataFormat;
use crate::kubectl::session::Session;
use crate::kubectl::{listing, pod_commands, ranks};
use crate::print;

/// How many jobs are shown without `--all`.
const MAX_SHOWN: usize = 50;

/// Show why nodes were or were not requested for the pending jobs of a MiniCluster.
///
/// Reads the jobs with commands of Flux in the lead's pod, and runs the function by which the burst
/// controller decides. Nodes that it is about to request are shown as Stabilizing.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Name of the MiniCluster.
    cluster: String,

    /// The job, by its id in any of Flux's forms, such as f2bGzJKq or 60565749760. Default: all
    /// pending jobs.
    #[arg(long, value_name = "ID", value_parser = parse_job)]
    job: Option<JobId>,

    /// Show all pending jobs, instead of the first 50.
    #[arg(long, conflicts_with = "job")]
    all: bool,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

/// Parses the id of a job.
pub(in crate::kubectl) fn parse_job(text: &str) -> Result<JobId, String> {
    text.parse().map_err(|error| {
        format!("{error}\nhint: `flux jobs` prints ids, such as f2bGzJKq or 60565749760")
    })
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let text = match arguments.job {
        Some(job) => {
            let report = explain_job(session, &arguments.cluster, job).await?;
            match arguments.output {
                None => report.to_string(),
                Some(format) => format.print(&report)?,
            }
        }
        None => {
            let (_, mut report) = explain_all(session, &arguments.cluster).await?;
            let total = report.items.len();
            if !arguments.all {
                report.items.truncate(MAX_SHOWN);
            }
            if arguments.output.is_none() {
                report.notes.iter().for_each(|note| print::message(format_args!("note: {note}")));
            }
            if report.items.len() < total {
                let shown = report.items.len();
                print::message(format_args!(
                    "note: {shown} of {total} jobs are shown; --all shows all"
                ));
            }
            match arguments.output {
                Some(format) => format.print(&report)?,
                None if total == 0 => {
                    let name = &arguments.cluster;
                    print::message(format_args!("No jobs are pending in {name}."));
                    return Ok(ExitCode::SUCCESS);
                }
                None => rows(&report),
            }
        }
    };
    print::output(text)?;
    Ok(ExitCode::SUCCESS)
}

/// The answer for one job.
#[derive(Serialize)]
pub(in crate::kubectl) struct ExplainedJob {
    namespace: String,
    cluster: String,
    #[serde(flatten)]
    job: JobReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

impl std::fmt::Display for ExplainedJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ExplainedJob { namespace, cluster, job, notes } = self;
        let (namespace, cluster) = (namespace.clone(), cluster.clone());
        let items = vec![job.clone()];
        OneJob(&Report { namespace, cluster, items, notes: notes.clone() }).fmt(f)
    }
}

/// Why nodes were or were not requested for a job of a MiniCluster.
pub(in crate::kubectl) async fn explain_job(
    session: &Session,
    cluster: &str,
    job: JobId,
) -> Result<ExplainedJob> {
    let (flux, report) = explain_all(session, cluster).await?;
    let Report { namespace, cluster, items, notes } = report;
    let shown = job.to_string();
    let answer = match items.into_iter().find(|item| item.job == shown) {
        Some(answer) => answer,
        None => not_pending(&flux, job).await?,
    };
    let bursts = list::<Burst>(session, "Bursts").await?;
    let answer = with_run(answer, &cluster, job, &bursts);
    Ok(ExplainedJob { namespace, cluster, job: answer, notes })
}

/// Adds what has become of a job that has run in an instance of its own.
fn with_run(answer: JobReport, cluster: &str, job: JobId, bursts: &[Burst]) -> JobReport {
    let has_run = |burst: &&Burst| burst.is_record() && !has_left_job(burst);
    let Some(burst) = run_of(cluster, job, bursts).filter(has_run) else {
        return answer;
    };
    let run = burst.run().cloned().unwrap_or_default();
    let (name, target) = (burst.name_any(), &burst.spec.target.name);
    let end = run.exit_code.map_or(run.message, |code| format!("exit code {code}"));
    let message = format!("it ran as Burst {name:?} at target {target:?}: {end}");
    JobReport { message, burst: Some(name), ..answer }
}

/// The state of a job that is not pending.
async fn not_pending(flux: &LeadFlux<'_>, job: JobId) -> Result<JobReport> {
    let running = flux.observed.as_ref().map(|it| it.running.as_slice()).unwrap_or_default();
    let (state, message) = match running.iter().find(|it| it.id == job) {
        Some(running) => ("running".to_owned(), format!("it runs on ranks {}", running.ranks)),
        None => match job_state(flux, job).await? {
            Some(state) => (state, "it does not wait for nodes".to_owned()),
            None => bail!(
                "there is no job {job} in {:?}\nhint: `{}` lists those that wait",
                flux.cluster,
                flux.session.command(&format!("burst why {}", flux.cluster))
            ),
        },
    };
    Ok(JobReport { job: job.to_string(), state, message, ..JobReport::default() })
}

/// Flux in the lead's pod of a MiniCluster.
pub(super) struct LeadFlux<'a> {
    session: &'a Session,
    cluster: String,
    pod: ExecPod,
    observed: Option<ObservedInstance>,
}

impl<'a> LeadFlux<'a> {
    /// That of a MiniCluster with an instance of its own.
    pub(super) async fn open(session: &'a Session, name: &str) -> Result<LeadFlux<'a>> {
        session.minicluster(name).await?;
        let pod = ExecPod::find(session, name, None).await?;
        Ok(LeadFlux { session, cluster: name.to_owned(), pod, observed: None })
    }
}

impl FluxCommands for LeadFlux<'_> {
    async fn run(&self, words: &[&str]) -> Result<CapturedOutput> {
        capture(self.session, &self.pod, &pod_commands::flux(&self.pod.mount, words)).await
    }
}

/// The answers for all pending jobs.
async fn explain_all<'a>(session: &'a Session, name: &str) -> Result<(LeadFlux<'a>, Report)> {
    let cluster = session.minicluster(name).await?;
    if let Some(lender) = LenderName::of(&cluster) {
        let session_of_lender = session.in_namespace(&lender.namespace);
        let command = session_of_lender.command(&format!("burst why {}", lender.name));
        let shown = lender.shown_in(&session.namespace);
        bail!("{name} joins the instance of {shown}, where its jobs are\nhint: `{command}`");
    }
    let policies = list::<BurstPolicy>(session, "BurstPolicies").await?;
    let bursts = list::<Burst>(session, "Bursts").await?;
    let job = match session.api::<Job>().get_opt(name).await {
        Ok(job) => job,
        Err(error) => {
            return Err(session.explain(error, &format!("failed to get the Job {name:?}")).await);
        }
    };
    let pod = ExecPod::find(session, name, None).await?;
    let mut flux = LeadFlux { session, cluster: name.to_owned(), pod, observed: None };
    let observed = ObservedInstance::read(&flux).await?;
    let slots = instance_slots(&cluster, job.as_ref(), &observed.online);
    let slots = slots.map_err(|error| ranks::no_table(session, &cluster, error))?;
    let shown = observed.shown(slots);
    let mut report = answers(&cluster, &shown, &policies, &bursts, Timestamp::now());
    report.notes.extend(observed.notes.iter().cloned());
    flux.observed = Some(observed);
    Ok((flux, report))
}

pub(super) async fn list<K>(session: &Session, what: &str) -> Result<Vec<K>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Debug + DeserializeOwned,
{
    match listing::list(session.api()).await {
        Ok(listed) => Ok(listed.items),
        Err(error) => Err(session.explain(error, &format!("failed to list {what}")).await),
    }
}
