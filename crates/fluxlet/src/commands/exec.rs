//! `flux exec`: runs a command on the hosts of brokers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};

use flux_operator_flux::IdSet;

use super::{CommandFailure, CommandResult, connect, environment};
use crate::bytes::Bytes;
use crate::instance::exit_code;
use crate::message::{Reply, Request, Stream};
use crate::options::{Flag, Syntax, flag, switch};

const FLAGS: [Flag; 8] = [
    flag(Some('r'), "rank"),
    flag(Some('x'), "exclude"),
    flag(Some('d'), "dir"),
    switch(Some('l'), "label-io"),
    switch(Some('n'), "noinput"),
    switch(Some('v'), "verbose"),
    switch(Some('q'), "quiet"),
    flag(Some('j'), "jobid"),
];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = Syntax { flags: &FLAGS, permute: false }
        .parse(arguments)
        .map_err(|error| CommandFailure::option("flux-exec", &error))?;
    if options.rest.is_empty() {
        return Err(CommandFailure::new("Usage: flux exec [OPTIONS] COMMAND..."));
    }
    let ranks = |name: &str| -> Result<Option<IdSet>, CommandFailure> {
        let Some(text) = options.get(name).filter(|text| *text != "all") else { return Ok(None) };
        let invalid = || CommandFailure::new(format!("flux-exec: --{name}: invalid idset {text}"));
        text.parse().map(Some).map_err(|_| invalid())
    };
    let directory = match options.get("dir") {
        Some(directory) => Some(Bytes::from(directory)),
        None => std::env::current_dir().ok().map(|path| Bytes::from(path.as_os_str())),
    };
    let request = Request::Exec {
        ranks: ranks("rank")?,
        exclude: ranks("exclude")?.unwrap_or_default(),
        command: options.rest.iter().map(|word| Bytes::from(word.as_os_str())).collect(),
        directory,
        environment: environment::filtered(std::iter::empty()),
    };
    let mut client = connect("flux-exec")?;
    let label = options.has("label-io");
    let mut codes: BTreeMap<i32, IdSet> = BTreeMap::new();
    let mut worst = 0;
    let take = |reply| match reply {
        Reply::Output { task, stream, data } => print(task, stream, &data, label),
        Reply::Exited { rank, status } => {
            worst = worst.max(exit_code(status));
            if status != 0 {
                codes.entry(exit_code(status)).or_default().insert(rank);
            }
        }
        Reply::Unreachable { rank, error, code } => {
            worst = worst.max(code);
            eprintln!("flux-exec: Error: rank {rank}: {error}");
        }
        _ => {}
    };
    client
        .for_each_reply(request, take)
        .map_err(|error| CommandFailure::client("flux-exec", &error))?;
    for (code, ranks) in codes {
        let ranks = if ranks.len() == 1 { ranks.to_string() } else { format!("[{ranks}]") };
        match code {
            129.. => eprintln!("{ranks}: {}", crate::signal::describe(code - 128)),
            _ => eprintln!("{ranks}: Exit {code}"),
        }
    }
    Ok(u8::try_from(worst).unwrap_or(1))
}

fn print(rank: u32, stream: Stream, data: &Bytes, label: bool) {
    let mut text = Vec::new();
    for line in data.0.split_inclusive(|byte| *byte == b'\n') {
        if label {
            text.extend_from_slice(format!("{rank}: ").as_bytes());
        }
        text.extend_from_slice(line);
    }
    let _no_reader = match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(&text).and_then(|()| out.flush())
        }
        Stream::Error => io::stderr().lock().write_all(&text),
    };
}
