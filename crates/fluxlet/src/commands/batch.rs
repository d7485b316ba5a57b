//! `flux batch`: submits a script that runs in an instance of its own.

use std::ffi::OsString;
use std::io::Read;

use super::job_options::{self, JobCommand};
use super::{CommandResult, connect, submit};
use crate::bytes::Bytes;

/// The default output file.
const DEFAULT_OUTPUT: &str = "flux-{{id}}.out";

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = job_options::parse(JobCommand::Batch, arguments)?;
    let checked = job_options::submission(JobCommand::Batch, &options, Vec::new(), "")?;
    let (script, words, name) = if options.has("wrap") {
        let words: Vec<String> = options.positional();
        let script = format!("#!/bin/sh\n{}\n", words.join(" "));
        let name = words.first().cloned().unwrap_or_default();
        (script.into_bytes(), &options.rest[options.rest.len()..], name)
    } else {
        read_script(&options.rest)?
    };
    let mut command = vec![Bytes::from("flux"), Bytes::from("broker"), Bytes::from("{script}")];
    command.extend(words.iter().map(|word| Bytes::from(word.as_os_str())));
    let mut submission = checked;
    submission.command = command;
    submission.name = options.get("job-name").unwrap_or(&name).to_owned();
    submission.script = Some(Bytes(script));
    for file in &mut submission.files {
        file.get_or_insert_with(|| DEFAULT_OUTPUT.to_owned());
    }
    let mut client = connect("flux-batch")?;
    let id = client.submit(submission).map_err(|error| submit::rejected(&error))?;
    if !options.has("quiet") {
        println!("{id}");
    }
    Ok(0)
}

/// The script, its arguments, and the name of the job.
fn read_script(
    words: &[OsString],
) -> Result<(Vec<u8>, &[OsString], String), super::CommandFailure> {
    let Some((path, rest)) = words.split_first() else {
        let mut script = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut script)
            .map_err(|error| JobCommand::Batch.fail(error))?;
        return Ok((script, words, "batch".to_owned()));
    };
    let name = path.to_string_lossy().into_owned();
    let script = std::fs::read(path).map_err(|error| {
        let reason = crate::broker::task::system_message(&error);
        JobCommand::Batch.fail(format!("{reason}: '{name}'"))
    })?;
    if !script.starts_with(b"#!") {
        let text = format!("{name} does not appear to start with '#!'");
        return Err(JobCommand::Batch.fail(text));
    }
    Ok((script, rest, name))
}
