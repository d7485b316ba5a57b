//! `flux run`: submits a job and attaches to it, with standard input.

use std::ffi::OsString;

use super::attach::{Style, attach, forward_input};
use super::job_options::{self, Kind};
use super::{Failure, Outcome, connect, submit};

pub fn main(arguments: &[OsString]) -> Outcome {
    let options = job_options::parse(Kind::Run, arguments)?;
    let submission = submit::submission(Kind::Run, &options)?;
    if options.has("dry-run") {
        println!("{}", crate::json::spaced(&submission.to_jobspec()));
        return Ok(0);
    }
    let mut client = connect("flux-run")?;
    let failed = |error: &_| Failure::client("flux-run", error);
    let id = client.submit(submission).map_err(|error| submit::refused(&error))?;
    let verbose = options.all("verbose").count();
    if verbose > 0 {
        eprintln!("jobid: {id}");
    }
    forward_input(&super::uri(), id).map_err(|error| failed(&error))?;
    let style = Style { label: options.has("label-io"), verbose, several: false };
    let ending = attach(&mut client, id, style).map_err(|error| failed(&error))?;
    if let Some(text) = ending.task_message() {
        eprintln!("flux-job: {text}");
    }
    Ok(ending.code())
}
