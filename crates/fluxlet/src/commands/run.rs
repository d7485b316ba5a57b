//! `flux run`: submits a job and attaches to it, with standard input.

use std::ffi::OsString;

use super::attach::{PrintStyle, attach, forward_input};
use super::job_options::{self, JobCommand};
use super::{CommandFailure, CommandResult, connect, submit};

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = job_options::parse(JobCommand::Run, arguments)?;
    let submission = submit::submission(JobCommand::Run, &options)?;
    if options.has("dry-run") {
        println!("{}", crate::json::spaced(&submission.to_jobspec()));
        return Ok(0);
    }
    let mut client = connect("flux-run")?;
    let failed = |error: &_| CommandFailure::client("flux-run", error);
    let id = client.submit(submission).map_err(|error| submit::rejected(&error))?;
    let verbose = options.all("verbose").count();
    if verbose > 0 {
        eprintln!("jobid: {id}");
    }
    forward_input(&super::uri(), id).map_err(|error| failed(&error))?;
    let style = PrintStyle { label: options.has("label-io"), verbose, multiple_jobs: false };
    let job = attach(&mut client, id, style).map_err(|error| failed(&error))?;
    if let Some(text) = job.task_message() {
        eprintln!("flux-job: {text}");
    }
    Ok(job.code())
}
