//! The commands of `flux job` that only print something: event logs, information, lists, IDs.

use flux_operator_flux::{JobId, JobState, JobStateGroup};
use serde_json::Value;

use super::attach::context_json;
use super::job::{fail, failed, parse_id};
use super::{CommandFailure, CommandResult, connect};
use crate::client::{Client, ClientError};
use crate::message::{Event, Reply, Request};
use crate::options::ParsedArguments;

fn events(client: &mut Client, id: JobId) -> Result<Vec<Event>, ClientError> {
    let mut events = Vec::new();
    let take = |reply| {
        if let Reply::Event(event) = reply {
            events.push(event);
        }
    };
    client.for_each_reply(Request::Watch { id, output: false, follow: false }, take)?;
    Ok(events)
}

pub fn eventlog(options: &ParsedArguments) -> CommandResult {
    let (word, id) = parse_id(options, 0)?;
    let mut client = connect("flux-job")?;
    let events = events(&mut client, id);
    let events = events.map_err(|error| match error.refusal() {
        Some(_) => fail(format!("job {word} not found")),
        None => failed(&error),
    })?;
    for event in events {
        match options.get("format") {
            Some("json") => println!("{}", event_json(&event)),
            _ => println!("{}", event_line(&event)),
        }
    }
    Ok(0)
}

/// `1794721602.226644 submit userid=0 urgency=16`
pub fn event_line(event: &Event) -> String {
    let context = event.context.iter().map(|(key, value)| format!(" {key}={value}"));
    format!("{:.6} {}{}", event.timestamp, event.name, context.collect::<String>())
}

fn event_json(event: &Event) -> String {
    let context = match context_json(event) {
        text if text.is_empty() => text,
        text => format!(",\"context\":{}", text.trim_start()),
    };
    let time = Value::from(event.timestamp);
    format!("{{\"timestamp\":{time},\"name\":{}{context}}}", Value::from(event.name.as_str()))
}

pub fn info(options: &ParsedArguments) -> CommandResult {
    let (_, id) = parse_id(options, 0)?;
    let Some(key) = options.positional().get(1).cloned() else {
        return Err(fail("key is missing"));
    };
    let key = if options.has("original") { format!("original {key}") } else { key };
    let mut client = connect("flux-job")?;
    if key == "eventlog" {
        let events = events(&mut client, id).map_err(|error| match error.refusal() {
            Some(_) => fail("invalid job id"),
            None => failed(&error),
        })?;
        for event in events {
            println!("{}", event_json(&event));
        }
        // The text of the log ends with a newline, and Flux adds another.
        println!();
        return Ok(0);
    }
    let text = client.text(Request::Info { id, key }).map_err(|error| failed(&error))?;
    println!("{text}");
    Ok(0)
}

/// JSON, one job per line.
pub fn list(options: &ParsedArguments) -> CommandResult {
    let mut states = 0;
    for word in options.get("states").unwrap_or("active").split(',') {
        states |= if let Ok(group) = word.parse::<JobStateGroup>() {
            group.number()
        } else if let Ok(state) = word.parse::<JobState>() {
            state.number()
        } else {
            return Err(fail(format!("error parsing --states: {word} is unknown")));
        };
    }
    if options.has("all") && !options.has("states") {
        states = 127;
    }
    let limit = options.get("count").and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    let mut client = connect("flux-job")?;
    let mut count = 0;
    let print = |reply| {
        if let Reply::Job(job) = reply {
            count += 1;
            if count <= limit {
                println!("{}", crate::json::spaced(&job));
            }
        }
    };
    client
        .for_each_reply(Request::List { ids: Vec::new(), states }, print)
        .map_err(|error| failed(&error))?;
    Ok(0)
}

/// Prints the latest job ID, the latest N, or a slice `[a:b]` of them.
pub fn last(options: &ParsedArguments) -> CommandResult {
    let usage = "Usage: flux-job last SLICE\nList my most recently submitted job id(s)\n  -h, --help             Display this message.";
    let text = options.positional().first().cloned().unwrap_or_else(|| "1".to_owned());
    let range = match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(slice) => slice.split_once(':').and_then(|(low, high)| {
            let low = if low.is_empty() { 0 } else { low.parse().ok()? };
            let high = if high.is_empty() { usize::MAX } else { high.parse().ok()? };
            Some(low..high)
        }),
        None => text.parse().ok().map(|count| 0..count),
    };
    let range = range.ok_or_else(|| CommandFailure::new(usage))?;
    let mut client = connect("flux-job")?;
    let mut ids = Vec::new();
    let take = |reply| {
        if let Reply::Id(id) = reply {
            ids.push(id);
        }
    };
    client.for_each_reply(Request::Last, take).map_err(|error| failed(&error))?;
    if ids.is_empty() {
        return Err(fail("job history is empty"));
    }
    for id in ids.iter().take(range.end).skip(range.start) {
        println!("{id}");
    }
    Ok(0)
}

pub fn convert(options: &ParsedArguments) -> CommandResult {
    for word in options.positional() {
        let id: JobId = word.parse().map_err(|_| fail(format!("{word}: malformed input")))?;
        match options.get("to").unwrap_or("dec") {
            "dec" => println!("{}", id.number()),
            "hex" => println!("{:#x}", id.number()),
            "f58" => println!("{id}"),
            "f58plain" => println!("{}", id.to_f58_plain()),
            "kvs" => println!("job.{}", id.to_dotted_hexadecimal()),
            "dothex" => println!("{}", id.to_dotted_hexadecimal()),
            other => return Err(fail(format!("Unknown to={other}"))),
        }
    }
    Ok(0)
}
