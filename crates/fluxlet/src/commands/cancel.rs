//! `flux cancel`: cancels jobs.

use std::ffi::OsString;

use flux_operator_flux::JobId;

use super::{CommandFailure, CommandResult, connect};
use crate::message::{Reply, Request};
use crate::options::{Flag, Syntax, flag, switch};

const FLAGS: [Flag; 7] = [
    switch(None, "all"),
    switch(Some('n'), "dry-run"),
    switch(None, "quiet"),
    flag(Some('u'), "user"),
    flag(Some('S'), "states"),
    flag(Some('q'), "queue"),
    flag(Some('m'), "message"),
];

const USAGE: &str = "flux cancel [OPTIONS] [JOBID...]";

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(arguments)
        .map_err(|error| CommandFailure::argparse(USAGE, "flux-cancel", &error))?;
    let mut ids: Vec<JobId> = Vec::new();
    for word in options.positional() {
        ids.push(word.parse().map_err(|_| CommandFailure {
            text: format!(
                "usage: {USAGE}\nflux-cancel: error: argument JOBID...: invalid JobID value: '{word}'"
            ),
            code: 2,
        })?);
    }
    let all = options.has("all");
    if ids.is_empty() && !all {
        return Err(CommandFailure::new("flux-cancel: ERROR: No target jobs were provided"));
    }
    let mut client = connect("flux-cancel")?;
    if all {
        let take = |reply| {
            if let Reply::Job(job) = reply {
                ids.push(job.id);
            }
        };
        let request = Request::List { ids: Vec::new(), states: 62 };
        client
            .for_each_reply(request, take)
            .map_err(|error| CommandFailure::client("flux-cancel", &error))?;
    }
    if all && ids.is_empty() {
        eprintln!("flux-cancel: Matched 0 jobs");
        return Ok(0);
    }
    let mut errors = 0;
    for id in &ids {
        let note = options.get("message").unwrap_or_default().to_owned();
        let request = Request::Raise { id: *id, kind: "cancel".to_owned(), severity: 0, note };
        if options.has("dry-run") {
            continue;
        }
        if let Err(error) = client.execute(request) {
            errors += 1;
            if !all {
                eprintln!("flux-cancel: ERROR: {id}: {error}");
            }
        }
    }
    if all && !options.has("quiet") {
        let word = if options.has("dry-run") { "Would cancel" } else { "Canceled" };
        let count = ids.len() - errors;
        let noun = if count == 1 { "job" } else { "jobs" };
        eprintln!("flux-cancel: {word} {count} {noun} ({errors} errors)");
    }
    Ok(u8::from(errors > 0))
}
