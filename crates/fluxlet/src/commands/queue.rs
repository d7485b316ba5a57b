//! `flux queue`: prints and changes the only queue.

use std::ffi::OsString;
use std::time::Duration;

use super::{CommandFailure, CommandResult, connect};
use crate::client::{Client, ClientError};
use crate::message::{QueueChange, QueueStatus, Reply, Request, SchedulingStopped};
use crate::options::{Flag, ParsedArguments, Syntax, flag, switch};

const FLAGS: [Flag; 9] = [
    flag(Some('m'), "message"),
    flag(Some('t'), "timeout"),
    flag(Some('q'), "queue"),
    switch(Some('a'), "all"),
    switch(Some('v'), "verbose"),
    switch(None, "quiet"),
    switch(None, "nocheckpoint"),
    switch(Some('n'), "no-header"),
    flag(Some('o'), "format"),
];

const USAGE: &str = "\
flux-queue [-h] {status,list,enable,disable,start,stop,drain,idle}
                  ...";

pub fn main(arguments: &[OsString]) -> CommandResult {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(CommandFailure { text: format!("usage: {USAGE}"), code: 2 });
    };
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(rest)
        .map_err(|error| CommandFailure::argparse(USAGE, "flux-queue", &error))?;
    let command = command.to_string_lossy();
    let message = options.get("message").map(str::to_owned);
    let order = match command.as_ref() {
        "start" => QueueChange::Start,
        "stop" => QueueChange::Stop(message),
        "enable" => QueueChange::Enable,
        "disable" => {
            QueueChange::Disable(message.unwrap_or_else(|| "disabled by administrator".to_owned()))
        }
        "status" => return status(&options),
        "list" => return list(&options),
        "idle" | "drain" => return wait(command == "drain", &options),
        other => {
            let text = format!("usage: {USAGE}\nflux-queue: error: invalid choice: '{other}'");
            return Err(CommandFailure { text, code: 2 });
        }
    };
    let mut client = connect("flux-queue")?;
    let status = request_status(&mut client, Request::Queue(order))?;
    if !options.has("quiet") {
        match command.as_ref() {
            "start" | "stop" => println!("{}", scheduling(&status)),
            _ => println!("{}", submission(&status)),
        }
    }
    Ok(0)
}

fn request_status(client: &mut Client, request: Request) -> Result<QueueStatus, CommandFailure> {
    match client.first_reply(request) {
        Ok(Reply::Queue(status)) => Ok(status),
        Ok(_) => Err(CommandFailure::client("flux-queue", &ClientError::UnexpectedReply)),
        Err(error) => Err(CommandFailure::client("flux-queue", &error)),
    }
}

fn status(options: &ParsedArguments) -> CommandResult {
    let mut client = connect("flux-queue")?;
    let status = request_status(&mut client, Request::QueueStatus)?;
    println!("{}\n{}", submission(&status), scheduling(&status));
    if options.has("verbose") {
        println!("{} alloc requests queued", status.pending);
        println!("{} alloc requests pending to scheduler", status.pending);
        println!("{} running jobs", status.running);
    }
    Ok(0)
}

fn submission(status: &QueueStatus) -> String {
    match &status.disabled {
        None => "Job submission is enabled".to_owned(),
        Some(reason) => format!("Job submission is disabled: {reason}"),
    }
}

fn scheduling(status: &QueueStatus) -> String {
    match &status.stopped {
        None => "Scheduling is started".to_owned(),
        Some(SchedulingStopped { reason: None }) => "Scheduling is stopped".to_owned(),
        Some(SchedulingStopped { reason: Some(reason) }) => {
            format!("Scheduling is stopped: {reason}")
        }
    }
}

fn list(options: &ParsedArguments) -> CommandResult {
    let mut client = connect("flux-queue")?;
    let status = request_status(&mut client, Request::QueueStatus)?;
    let failed = |error: &_| CommandFailure::client("flux-queue", error);
    let reply = client.first_reply(Request::Resources).map_err(|error| failed(&error))?;
    let Reply::Resources(nodes) = reply else { return Ok(1) };
    let mark = |good: bool| if good { "✔" } else { "✗" };
    let range = |count: u64| format!("0-{count}");
    let cores = nodes.iter().map(|node| node.cores.len()).sum();
    let gpus = nodes.iter().map(|node| node.gpus.len()).sum();
    if !options.has("no-header") {
        println!(" EN ST TDEFAULT   TLIMIT     NNODES     NCORES      NGPUS");
    }
    println!(
        "  {}  {}      inf      inf {:>10} {:>10} {:>10}",
        mark(status.disabled.is_none()),
        mark(status.stopped.is_none()),
        range(nodes.len() as u64),
        range(cores),
        range(gpus)
    );
    Ok(0)
}

/// Waits until no job is running (`idle`) or no job is active at all (`drain`).
fn wait(pending: bool, options: &ParsedArguments) -> CommandResult {
    let name = if pending { "drain" } else { "idle" };
    let fail = |text: String| CommandFailure::new(format!("flux-queue: ERROR: {name}: {text}"));
    let mut client = connect("flux-queue")?;
    if let Some(text) = options.get("timeout") {
        let seconds = crate::duration::parse(text);
        let seconds = seconds.ok_or_else(|| fail("invalid Flux standard duration".to_owned()))?;
        let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
        client.set_timeout(timeout).map_err(|error| fail(error.to_string()))?;
    }
    let print = |reply| {
        if let Reply::Text(text) = reply
            && !options.has("quiet")
        {
            println!("{text}");
        }
    };
    client
        .for_each_reply(Request::Idle { pending }, print)
        .map_err(|error| fail(error.to_string()))?;
    Ok(0)
}
