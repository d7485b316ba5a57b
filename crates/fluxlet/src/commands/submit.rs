//! `flux submit`: submits one job or several, prints their IDs, and waits for them if requested.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use flux_operator_flux::JobId;

use super::attach::{AttachedJob, PrintStyle};
use super::job_options::{self, JobCommand};
use super::{CommandFailure, CommandResult, connect};
use crate::bytes::Bytes;
use crate::client::{Client, ClientError};
use crate::message::{Reply, Request};
use crate::options::ParsedArguments;
use crate::submission::Submission;

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = job_options::parse(JobCommand::Submit, arguments)?;
    let submission = submission(JobCommand::Submit, &options)?;
    if options.has("dry-run") {
        println!("{}", crate::json::spaced(&submission.to_jobspec()));
        return Ok(0);
    }
    let copies = job_options::copies(JobCommand::Submit, &options)?;
    let mut client = connect("flux-submit")?;
    let mut ids = Vec::new();
    let ordered: Vec<Option<u32>> = match &copies {
        Some(copies) => copies.iter().map(Some).collect(),
        None => vec![None],
    };
    for copy in ordered {
        let mut job = submission.clone();
        if let Some(number) = copy.filter(|_| options.has("cc")) {
            job.environment.push((Bytes::from("FLUX_JOB_CC"), Bytes::from(number.to_string())));
            for word in &mut job.command {
                if let Ok(text) = std::str::from_utf8(&word.0) {
                    *word = Bytes::from(text.replace("{cc}", &number.to_string()));
                }
            }
            for file in job.files.iter_mut().flatten() {
                *file = file.replace("{cc}", &number.to_string());
            }
        }
        let id = client.submit(job).map_err(|error| rejected(&error))?;
        if !options.has("quiet") {
            println!("{id}");
        }
        ids.push(id);
    }
    let watch = options.has("watch");
    if !watch && !options.has("wait") {
        return Ok(0);
    }
    let failed = |error: &_| CommandFailure::client("flux-submit", error);
    wait_for_jobs(&mut client, &ids, watch, &options).map_err(|error| failed(&error))
}

/// The job that the arguments and options describe.
pub fn submission(
    kind: JobCommand,
    options: &ParsedArguments,
) -> Result<Submission, CommandFailure> {
    let Some(first) = options.rest.first() else {
        return Err(kind.fail("job command and arguments are missing"));
    };
    let name = Path::new(first).file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let command = options.rest.iter().map(|word| Bytes::from(word.as_os_str())).collect();
    job_options::submission(kind, options, command, &name)
}

/// The failure of a job that was rejected, as Python prints it.
pub fn rejected(error: &ClientError) -> CommandFailure {
    match error {
        ClientError::Refused(refusal) => {
            CommandFailure::new(format!("[Errno 22] {}", refusal.text))
        }
        other => CommandFailure::client("flux-submit", other),
    }
}

/// Waits for all jobs; the largest exit code is the result.
fn wait_for_jobs(
    client: &mut Client,
    ids: &[JobId],
    output: bool,
    options: &ParsedArguments,
) -> Result<u8, ClientError> {
    let verbose = options.all("verbose").count();
    let style = PrintStyle { label: options.has("label-io"), verbose: 0, multiple_jobs: true };
    let mut watched: BTreeMap<u64, (JobId, AttachedJob)> = BTreeMap::new();
    for id in ids {
        let tag = client.send(Request::Watch { id: *id, output, follow: true })?;
        watched.insert(tag, (*id, AttachedJob::default()));
    }
    let mut open = watched.len();
    while open > 0 {
        let (tag, reply) = client.receive()?;
        let Some((id, job)) = watched.get_mut(&tag) else { continue };
        match reply {
            Reply::Done => open -= 1,
            Reply::Error(refusal) => return Err(ClientError::Refused(refusal)),
            reply => {
                show(*id, job, &reply, style, verbose);
            }
        }
    }
    Ok(watched.values().map(|(_, termination)| termination.code()).max().unwrap_or(0))
}

/// Prints events as `flux submit -v` does: with the job ID, because there may be several jobs.
fn show(
    id: JobId,
    termination: &mut AttachedJob,
    reply: &Reply,
    style: PrintStyle,
    verbose: usize,
) {
    termination.print_reply(id, reply, style);
    let Reply::Event(event) = reply else { return };
    let seconds = event.timestamp - termination.submitted;
    if event.name != "exception" && verbose > 1 {
        // Python sorts the keys.
        let sorted: serde_json::Map<_, _> = event.context.iter().cloned().collect();
        let context = match sorted.is_empty() {
            true => String::new(),
            false => serde_json::Value::from(sorted).to_string(),
        };
        eprintln!("{id}: {seconds:.3}s: {} {context}", event.name);
    }
    if event.name == "finish" && verbose > 0 {
        let status = termination.status.unwrap_or(0);
        let word = if status == 0 { "complete" } else { "failed" };
        eprintln!("{id}: {seconds:.3}s: {word}: status={status}");
    }
}
