//! `flux job`: attaches to, waits for and changes jobs.

use std::ffi::OsString;
use std::time::Duration;

use flux_operator_flux::JobId;

use super::attach::{AttachedJob, PrintStyle, attach, forward_input, task_message};
use super::job_show::{convert, event_line, eventlog, info, last, list};
use super::{CommandFailure, CommandResult, connect};
use crate::client::ClientError;
use crate::instance::exit_code;
use crate::message::{RefusalKind, Reply, Request, Urgency};
use crate::options::{Flag, ParsedArguments, Syntax, flag, switch};

const FLAGS: [Flag; 20] = [
    switch(Some('l'), "label-io"),
    switch(Some('v'), "verbose"),
    switch(Some('q'), "quiet"),
    switch(Some('a'), "all"),
    flag(Some('s'), "severity"),
    flag(Some('t'), "type"),
    flag(Some('m'), "message"),
    flag(Some('c'), "count"),
    flag(None, "to"),
    flag(Some('f'), "format"),
    flag(None, "signal"),
    flag(None, "states"),
    flag(Some('u'), "user"),
    switch(None, "json"),
    switch(Some('E'), "show-exec"),
    switch(None, "show-events"),
    switch(Some('i'), "stdin-ranks"),
    switch(Some('r'), "read-only"),
    flag(None, "timeout"),
    switch(None, "original"),
];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(CommandFailure::new("Usage: flux-job [OPTIONS] COMMAND ARGS"));
    };
    let command = command.to_string_lossy();
    // Two letters have different meanings in different commands.
    let mut flags = FLAGS;
    match command.as_ref() {
        "kill" => reassign_letter(&mut flags, 's', "signal"),
        "list" => reassign_letter(&mut flags, 's', "states"),
        "wait-event" => reassign_letter(&mut flags, 't', "timeout"),
        _ => {}
    }
    let options = Syntax { flags: &flags, permute: true }
        .parse(rest)
        .map_err(|error| CommandFailure::option(&format!("flux-job {command}"), &error))?;
    match command.as_ref() {
        "attach" => attach_command(&options),
        "submit" => super::job_submit::main(&options),
        "status" => status(&options),
        "wait" => wait(&options),
        "wait-event" => wait_event(&options),
        "eventlog" => eventlog(&options),
        "info" => info(&options),
        "list" => list(&options),
        "last" => last(&options),
        "id" => convert(&options),
        "kill" => kill(&options),
        "raise" => raise(&options),
        "cancel" => raise(&options),
        "urgency" => urgency(&options),
        "memo" => memo(&options),
        _ => Err(CommandFailure::new("Usage: flux-job [OPTIONS] COMMAND ARGS")),
    }
}

fn reassign_letter(flags: &mut [Flag], letter: char, long: &str) {
    for flag in flags.iter_mut() {
        if flag.long == long {
            flag.short = Some(letter);
        } else if flag.short == Some(letter) {
            flag.short = None;
        }
    }
}

pub fn fail(text: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::new(format!("flux-job: {text}"))
}

pub fn failed(error: &ClientError) -> CommandFailure {
    CommandFailure::client("flux-job", error)
}

/// The argument at `index`, as text and as a job ID.
pub fn parse_id(
    options: &ParsedArguments,
    index: usize,
) -> Result<(String, JobId), CommandFailure> {
    let word = options.positional().get(index).cloned();
    let word = word.ok_or_else(|| fail("job id is missing"))?;
    let id = word.parse().map_err(|_| fail(format!("error parsing jobid: \"{word}\"")))?;
    Ok((word, id))
}

fn attach_command(options: &ParsedArguments) -> CommandResult {
    let (word, id) = parse_id(options, 0)?;
    let mut client = connect("flux-job")?;
    let verbose = options.all("verbose").count();
    let show_events = options.has("show-events") || options.has("show-exec");
    let verbose = if show_events { 2 } else { verbose };
    if !options.has("read-only") {
        forward_input(&super::uri(), id).map_err(|error| failed(&error))?;
    }
    let style = PrintStyle { label: options.has("label-io"), verbose, multiple_jobs: false };
    let job = attach(&mut client, id, style).map_err(|error| match error.refusal() {
        Some(_) => fail(format!("Failed to attach to {word}: No such job")),
        None => failed(&error),
    })?;
    if let Some(text) = job.task_message() {
        eprintln!("flux-job: {text}");
    }
    Ok(job.code())
}

/// Waits for jobs; the largest exit code is the result.
fn status(options: &ParsedArguments) -> CommandResult {
    let mut client = connect("flux-job")?;
    let mut worst = 0;
    for index in 0..options.rest.len() {
        let (word, id) = parse_id(options, index)?;
        let mut termination = AttachedJob::default();
        let take = |reply| {
            if let Reply::Event(event) = reply {
                termination.record(&event);
            }
        };
        let request = Request::Watch { id, output: false, follow: true };
        client.for_each_reply(request, take).map_err(|error| match error.refusal() {
            Some(_) => fail(format!("{word}: No such job")),
            None => failed(&error),
        })?;
        if options.has("verbose") && termination.code() > 0 {
            // Flux prints nothing for a job that never ran.
            if let Some(text) = termination.task_message() {
                eprintln!("flux-job: {word}: {}", text.trim_start_matches("task(s) "));
            }
        }
        worst = worst.max(termination.code());
    }
    Ok(worst)
}

/// Waitable jobs are reaped once, as children of a shell are.
fn wait(options: &ParsedArguments) -> CommandResult {
    let mut client = connect("flux-job")?;
    let wanted = match options.rest.first() {
        Some(_) => Some(parse_id(options, 0)?.1),
        None => None,
    };
    let mut worst = 0;
    loop {
        let (id, status, note) = match client.first_reply(Request::Wait { id: wanted }) {
            Ok(Reply::Waited { id, status, note }) => (id, status, note),
            Ok(_) => return Err(failed(&ClientError::UnexpectedReply)),
            Err(error) if error.refusal() == Some(RefusalKind::NotWaitable) => {
                if options.has("all") {
                    return Ok(worst);
                }
                return Err(CommandFailure { code: 2, ..failed(&error) });
            }
            Err(error) => return Err(failed(&error)),
        };
        let text = if note.is_empty() { task_message(status) } else { Some(note) };
        let code = u8::try_from(exit_code(status)).unwrap_or(1);
        if options.has("all") {
            worst = worst.max(u8::from(code > 0));
            match text {
                Some(text) => eprintln!("{id}: {text}"),
                None if options.has("verbose") => eprintln!("{id}: job completed successfully"),
                None => {}
            }
            continue;
        }
        if wanted.is_none() {
            println!("{id}");
        }
        if let Some(text) = text {
            eprintln!("flux-job: {text}");
        }
        return Ok(u8::from(code > 0));
    }
}

fn wait_event(options: &ParsedArguments) -> CommandResult {
    let (word, id) = parse_id(options, 0)?;
    let Some(name) = options.positional().get(1).cloned() else {
        return Err(fail("event is missing"));
    };
    let mut client = connect("flux-job")?;
    if let Some(seconds) = options.get("timeout").and_then(crate::duration::parse) {
        let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
        client.set_timeout(timeout).map_err(|error| failed(&error))?;
    }
    let tag = client.send(Request::Watch { id, output: false, follow: true });
    let tag = tag.map_err(|error| failed(&error))?;
    loop {
        match client.receive() {
            Ok((found, Reply::Event(event))) if found == tag && event.name == name => {
                if !options.has("quiet") {
                    println!("{}", event_line(&event));
                }
                return Ok(0);
            }
            Ok((_, Reply::Done)) => return Err(fail(format!("event '{name}' never received"))),
            Ok((_, Reply::Error(_))) => return Err(fail(format!("job {word} not found"))),
            Err(ClientError::Timeout) => {
                return Err(fail(format!("wait-event timeout on event '{name}'")));
            }
            Err(error) => return Err(failed(&error)),
            Ok(_) => {}
        }
    }
}

fn kill(options: &ParsedArguments) -> CommandResult {
    let name = options.get("signal").unwrap_or("SIGTERM");
    let signal = crate::signal::parse(name);
    let signal = signal.ok_or_else(|| fail(format!("Invalid signal {name}")))?;
    let mut client = connect("flux-job")?;
    let mut code = 0;
    for index in 0..options.rest.len() {
        let (word, id) = parse_id(options, index)?;
        if let Err(error) = client.execute(Request::Kill { id, signal }) {
            eprintln!("flux-job: kill {word}: {error}");
            code = 1;
        }
    }
    Ok(code)
}

fn raise(options: &ParsedArguments) -> CommandResult {
    let severity = options.get("severity").unwrap_or("0");
    let severity = severity.parse().ok().filter(|level| *level <= 7);
    let severity = severity.ok_or_else(|| fail("invalid severity"))?;
    let kind = options.get("type").unwrap_or("cancel").to_owned();
    let (_, id) = parse_id(options, 0)?;
    let words = options.positional();
    let note = match options.get("message") {
        Some(message) => message.to_owned(),
        None => words[1..].join(" "),
    };
    let mut client = connect("flux-job")?;
    let request = Request::Raise { id, kind, severity, note };
    client.execute(request).map_err(|error| fail(format!("raise {}: {error}", words[0])))?;
    Ok(0)
}

fn urgency(options: &ParsedArguments) -> CommandResult {
    let (word, id) = parse_id(options, 0)?;
    let text = options.positional().get(1).cloned().unwrap_or_default().to_lowercase();
    let urgency = match text.as_str() {
        "hold" => Urgency::Value(0),
        "expedite" => Urgency::Value(31),
        "default" => Urgency::Default,
        text => match text.parse() {
            Ok(value @ 0..=31) => Urgency::Value(value),
            Ok(_) => return Err(fail(format!("{word}: urgency value is out of range"))),
            Err(_) => return Err(fail(format!("{word}: invalid urgency"))),
        },
    };
    let mut client = connect("flux-job")?;
    let reply =
        client.first_reply(Request::Urgency { id, urgency }).map_err(|error| {
            match error.refusal() {
                Some(RefusalKind::NoSuchJob) => fail(format!("{word}: unknown job")),
                _ => fail(format!("{word}: {error}")),
            }
        })?;
    if let (true, Reply::Value(old)) = (options.has("verbose"), reply) {
        match old.as_u64() {
            Some(0) => eprintln!("old urgency: job held"),
            Some(31) => eprintln!("old urgency: job expedited"),
            _ => eprintln!("old urgency: {old}"),
        }
    }
    Ok(0)
}

/// Writes a memo, whose keys are not paths here.
fn memo(options: &ParsedArguments) -> CommandResult {
    let (_, id) = parse_id(options, 0)?;
    let mut memo = Vec::new();
    for word in &options.positional()[1..] {
        let (key, value) =
            word.split_once('=').ok_or_else(|| fail(format!("memo: no value for key={word}")))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        memo.push((key.to_owned(), value));
    }
    let mut client = connect("flux-job")?;
    let written = client.execute(Request::Memo { id, memo });
    written.map_err(|error| fail(format!("memo: {error}")))?;
    Ok(0)
}
