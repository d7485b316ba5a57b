//! Small commands about the broker and the instance: attributes, version, uptime, log,
//! configuration, proxy.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use serde_json::Value;

use super::{CommandFailure, CommandResult, connect};
use crate::client::Client;
use crate::message::{Reply, Request};
use crate::time::{Civil, now};

pub fn get_attribute(arguments: &[OsString]) -> CommandResult {
    let [name] = arguments else {
        let usage = "Usage: flux getattr name\nGet broker attribute\n  -h, --help             Display this message.";
        return Err(CommandFailure::new(usage));
    };
    let name = name.to_string_lossy();
    let mut client = connect("flux-getattr")?;
    let attributes =
        client.attributes().map_err(|error| CommandFailure::client("flux-getattr", &error))?;
    match attributes.get(name.as_ref()) {
        Some(value) => println!("{value}"),
        None => {
            return Err(CommandFailure::new(format!(
                "flux-getattr: {name}: No such file or directory"
            )));
        }
    }
    Ok(0)
}

pub fn set_attribute(arguments: &[OsString]) -> CommandResult {
    let [name, value] = arguments else {
        return Err(CommandFailure::new("Usage: flux setattr name value"));
    };
    let [name, value] = [name, value].map(|word| word.to_string_lossy().into_owned());
    let mut client = connect("flux-setattr")?;
    let request = Request::SetAttribute { name: name.clone(), value };
    let failed = |error: &_| CommandFailure::client(&format!("flux-setattr: {name}"), error);
    client.execute(request).map_err(|error| failed(&error))?;
    Ok(0)
}

pub fn list_attributes(arguments: &[OsString]) -> CommandResult {
    let mut client = connect("flux-lsattr")?;
    let attributes =
        client.attributes().map_err(|error| CommandFailure::client("flux-lsattr", &error))?;
    let values = arguments.iter().any(|word| word == "-v" || word == "--values");
    for (name, value) in attributes {
        if values {
            println!("{name:<40}{value}");
        } else {
            println!("{name}");
        }
    }
    Ok(0)
}

pub fn version() -> u8 {
    let version = crate::VERSION;
    println!("commands:    \t\t{version}");
    println!("libflux-core:\t\t{version}");
    let uri = std::env::var("FLUX_URI").ok();
    if let Some(uri) = uri {
        let broker = Client::connect(&uri).and_then(|mut client| client.attributes());
        if let Ok(version) = broker.map(|all| all.get("version").cloned().unwrap_or_default()) {
            println!("broker:  \t\t{version}");
        }
        println!("FLUX_URI:\t\t{uri}");
    }
    println!("build-options:\t\t+fluxlet (a small stand-in for Flux, not for production)");
    0
}

pub fn uptime() -> CommandResult {
    let mut client = connect("flux-uptime")?;
    let reply = client.first_reply(Request::Uptime);
    let reply = reply.map_err(|error| CommandFailure::client("flux-uptime", &error))?;
    let Reply::Uptime(status) = reply else { return Ok(1) };
    let clock = Civil::new(now()).to_clock();
    let mut parts = vec![
        format!(
            " {clock} {} {}",
            status.state,
            crate::duration::print_significant(status.seconds, 2)
        ),
        format!("owner {}", user_name(status.owner)),
        format!("depth {}", status.level),
        format!("size {}", status.size),
    ];
    if status.drained > 0 {
        parts.push(format!("{} drained", status.drained));
    }
    if status.offline > 0 {
        parts.push(format!("{} offline", status.offline));
    }
    println!("{}", parts.join(",  "));
    Ok(0)
}

pub fn log() -> CommandResult {
    let mut client = connect("flux-dmesg")?;
    let print = |reply| {
        if let Reply::Text(line) = reply {
            println!("{line}");
        }
    };
    client
        .for_each_reply(Request::Log, print)
        .map_err(|error| CommandFailure::client("flux-dmesg", &error))?;
    Ok(0)
}

pub fn config(arguments: &[OsString]) -> CommandResult {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let Some(("get", rest)) = words.split_first().map(|(first, rest)| (first.as_ref(), rest))
    else {
        return Err(CommandFailure::new("Usage: flux config get [NAME]"));
    };
    let mut client = connect("flux-config")?;
    let reply = client.first_reply(Request::Configuration);
    let reply = reply.map_err(|error| CommandFailure::client("flux-config", &error))?;
    let Reply::Value(mut value) = reply else { return Ok(1) };
    if let Some(name) = rest.iter().find(|word| !word.starts_with('-')) {
        for key in name.split('.') {
            let found = value.get_mut(key).map(Value::take);
            value = found
                .ok_or_else(|| CommandFailure::new(format!("flux-config: {name} is not set")))?;
        }
    }
    match value {
        Value::String(text) => println!("{text}"),
        value => println!("{value}"),
    }
    Ok(0)
}

pub fn ping(arguments: &[OsString]) -> CommandResult {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let count = words.iter().position(|word| *word == "-c" || *word == "--count");
    let count = count.and_then(|position| words.get(position + 1)?.parse().ok()).unwrap_or(1u32);
    let mut client = connect("flux-ping")?;
    let target = words.last().map_or("0", |word| word.as_ref());
    println!("flux-ping {target}!broker");
    for sequence in 0..count {
        let start = std::time::Instant::now();
        client
            .execute(Request::Uptime)
            .map_err(|error| CommandFailure::client("flux-ping", &error))?;
        let milliseconds = start.elapsed().as_secs_f64() * 1000.0;
        println!("{target}!broker.ping pad=0 seq={sequence} time={milliseconds:.3} ms (fluxlet)");
    }
    Ok(0)
}

/// `flux proxy URI COMMAND`: runs the command as a client of that instance. As in Flux, its
/// arguments are joined and run by a shell.
pub fn proxy(arguments: &[OsString]) -> CommandResult {
    let words: Vec<&OsString> = arguments.iter().skip_while(|word| is_option(word)).collect();
    let Some((uri, command)) = words.split_first() else {
        return Err(CommandFailure::new("Usage: flux proxy [OPTIONS] URI [COMMAND...]"));
    };
    let uri = uri.to_string_lossy();
    Client::connect(&uri).map_err(|error| CommandFailure::client("flux-proxy", &error))?;
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| OsString::from("/bin/sh"));
    let mut process = Command::new(shell);
    if !command.is_empty() {
        let line: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        process.arg("-c").arg(line.join(" "));
    }
    process.env("FLUX_URI", uri.as_ref());
    let status =
        process.status().map_err(|error| CommandFailure::new(format!("flux-proxy: {error}")))?;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

fn is_option(word: &OsString) -> bool {
    word.to_string_lossy().starts_with('-')
}

/// The name of a user, or the ID if the system has no such user.
pub fn user_name(id: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of_line = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    };
    users.lines().find_map(of_line).unwrap_or_else(|| id.to_string())
}
