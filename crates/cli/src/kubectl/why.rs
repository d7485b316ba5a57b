//! `kubectl minicluster why`: why a job waits, and what it requests.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_api::view::{AdmissionState, JobExplanation};
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_flux::JobId;
use flux_operator_plan::queueing::ledger::uid_of;
use flux_operator_plan::view::{of_job, of_minicluster};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::ResourceExt;

use super::Connection;
use super::burst::why::{explain_job, parse_job};
use super::explanation::{Explanation, add_cluster, is_certain};
use super::listing::{Listing, list_all};
use super::output_format::DataFormat;
use super::queue::OperatorArguments;
use super::session::Session;
use super::target::{FoundObject, ObjectKind, Target, find};
use super::view::{ListedObjects, Missing, QueueSnapshot};
use crate::{input, print};

/// Show why a job waits: its queue, its position, what is missing and which jobs would free it. For
/// a job that has quota, show which queue granted it and when, and the state of its cluster.
///
/// With --job, show why nodes of other clusters were or were not requested for a job of the Flux
/// instance of a MiniCluster, as `burst why` does.
///
/// With --dry-run, check whether a job that does not exist yet would be admitted now. The exit code
/// is 0 if it would be, otherwise 1.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The job (fj/NAME), or a MiniCluster that names a queue (mc/NAME).
    #[arg(required_unless_present = "filename", conflicts_with = "filename")]
    name: Option<Target>,

    /// The id of a job in the Flux instance of the MiniCluster, in any of Flux's forms.
    #[arg(long, value_name = "ID", value_parser = parse_job, conflicts_with = "filename")]
    job: Option<JobId>,

    /// Use the job in this file instead; `-` is standard input.
    #[arg(short, long = "filename", value_name = "FILE", requires = "dry_run")]
    filename: Option<PathBuf>,

    /// Only check: create nothing.
    #[arg(long, requires = "filename")]
    dry_run: bool,

    /// Output format.
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,

    #[command(flatten)]
    operator: OperatorArguments,
}

pub(super) async fn run(connection: &Connection, arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.filename, &arguments.name) {
        (Some(file), _) => {
            let requested = read(file)?;
            dry_run(Session::open(connection).await?, requested, arguments).await
        }
        (None, Some(name)) => {
            let session = Session::open(connection).await?;
            match arguments.job {
                Some(job) => explain_flux_job(&session, name, job, arguments.output).await,
                None => explain(&session, name, arguments).await,
            }
        }
        (None, None) => bail!("no job is given\nhint: give a name, or --dry-run -f FILE"),
    }
}

/// Why nodes were or were not requested for a job of a MiniCluster's Flux instance.
async fn explain_flux_job(
    session: &Session,
    name: &Target,
    job: JobId,
    output: Option<DataFormat>,
) -> Result<ExitCode> {
    let answer = explain_job(session, name.minicluster_name()?, job).await?;
    print::output(match output {
        None => answer.to_string(),
        Some(format) => format.print(&answer)?,
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn explain(session: &Session, name: &Target, arguments: &Arguments) -> Result<ExitCode> {
    let found = find(session, name, &[ObjectKind::Job, ObjectKind::MiniCluster]).await?;
    let (mut explanation, uid, conditions) = match found {
        FoundObject::Job(job) => {
            let status = job.status.clone().unwrap_or_default();
            (of_job(&job), uid_of(&*job), status.conditions)
        }
        FoundObject::MiniCluster(minicluster) => {
            let status = minicluster.status.clone().unwrap_or_default();
            (of_minicluster(&minicluster), uid_of(&*minicluster), status.conditions)
        }
        FoundObject::Setup(setup) => {
            let command = session.command(&format!("queue {}", setup.name_any()));
            bail!("{:?} is a queue\nhint: show it with `{command}`", setup.name_any());
        }
    };
    let now = Timestamp::now();
    if explanation.state != AdmissionState::Ended {
        match list_all(session).await? {
            Listing::Objects(objects) => {
                let snapshot =
                    QueueSnapshot::compute(&objects, &arguments.operator.operator_namespace, now);
                match snapshot.view().explain(&uid) {
                    Some(computed) if objects.missing.is_none() || is_certain(&computed) => {
                        explanation = computed;
                    }
                    Some(_) => {
                        let why = objects.missing.map(Missing::explanation).unwrap_or_default();
                        explanation.notes.push(format!("{why}: this is the last reported status"));
                    }
                    None => {}
                }
            }
            Listing::Forbidden(_) => {
                let note = "you may not list queues and jobs: this is the last reported status";
                explanation.notes.push(note.into());
            }
        }
    }
    add_cluster(&mut explanation, &conditions);
    print_why(&explanation, arguments.output)?;
    Ok(ExitCode::SUCCESS)
}

/// A job for --dry-run, which does not exist.
enum ProposedJob {
    Job(Box<FluxJob>),
    MiniCluster(Box<MiniCluster>),
}

/// Reads the job or MiniCluster of a file.
fn read(file: &std::path::Path) -> Result<ProposedJob> {
    let documents = input::parse_checked(file, &input::read_bytes(file)?)?;
    let (jobs, clusters) =
        (input::objects_of_kind(&documents)?, input::objects_of_kind(&documents)?);
    match (<[FluxJob; 1]>::try_from(jobs), <[MiniCluster; 1]>::try_from(clusters)) {
        (Ok([job]), Err(none)) if none.is_empty() => Ok(ProposedJob::Job(Box::new(job))),
        (Err(none), Ok([cluster])) if none.is_empty() => {
            Ok(ProposedJob::MiniCluster(Box::new(cluster)))
        }
        _ => bail!("{} must have exactly one FluxJob or MiniCluster", input::display_name(file)),
    }
}

async fn dry_run(
    session: Session,
    proposed: ProposedJob,
    arguments: &Arguments,
) -> Result<ExitCode> {
    let mut session = session;
    let metadata = match &proposed {
        ProposedJob::Job(job) => &job.metadata,
        ProposedJob::MiniCluster(minicluster) => &minicluster.metadata,
    };
    session.use_namespace(metadata.namespace.as_deref())?;
    let mut objects = match list_all(&session).await? {
        Listing::Objects(objects) => objects,
        Listing::Forbidden(error) => {
            return Err(session.explain(error, "failed to list queues and jobs").await);
        }
    };
    let now = Timestamp::now();
    add_job(&mut objects, proposed, &session.namespace, now);
    let decided = QueueSnapshot::compute(&objects, &arguments.operator.operator_namespace, now);
    let why = decided.view().explain(&DRY_RUN_UID.into());
    let mut why = why.context("it does not name a queue, so it needs no admission")?;
    if let Some(missing) = objects.missing {
        why.notes.push(missing.explanation().into());
    }
    print_why(&why, arguments.output)?;
    let admissible = why.state == AdmissionState::Admissible;
    Ok(if admissible { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The uid of the job for --dry-run. It sorts after every real uid.
const DRY_RUN_UID: &str = "~dry-run";

fn add_job(objects: &mut ListedObjects, requested: ProposedJob, namespace: &str, now: Timestamp) {
    let complete = |metadata: &mut ObjectMeta| {
        metadata.namespace = Some(namespace.into());
        metadata.uid = Some(DRY_RUN_UID.into());
        metadata.creation_timestamp = Some(Time(now));
    };
    match requested {
        ProposedJob::Job(mut job) => {
            complete(&mut job.metadata);
            job.status = None;
            objects.jobs.push(*job);
        }
        ProposedJob::MiniCluster(mut minicluster) => {
            complete(&mut minicluster.metadata);
            minicluster.status = None;
            objects.miniclusters.push(*minicluster);
        }
    }
}

fn print_why(why: &JobExplanation, output: Option<DataFormat>) -> Result<()> {
    let text = match output {
        None => Explanation(why).to_string(),
        Some(format) => format.print(why)?,
    };
    print::output(text)
}
