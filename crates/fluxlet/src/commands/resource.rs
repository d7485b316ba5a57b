//! `flux resource`: lists nodes and their states, and drains and undrains them.

use std::ffi::OsString;

use flux_operator_flux::{HostList, IdSet};

use super::format::{Cell, Template};
use super::{CommandFailure, CommandResult, connect};
use crate::client::{Client, ClientError};
use crate::message::{RefusalKind, Reply, Request, ResourceNode};
use crate::options::{Flag, ParsedArguments, Syntax, flag, switch};
use crate::time::Civil;

const FLAGS: [Flag; 9] = [
    flag(Some('s'), "states"),
    flag(Some('o'), "format"),
    flag(Some('i'), "include"),
    switch(Some('n'), "no-header"),
    switch(Some('f'), "force"),
    switch(Some('u'), "update"),
    flag(Some('q'), "queue"),
    switch(None, "from-stdin"),
    switch(None, "skip-empty"),
];

const USAGE: &str = "\
flux-resource [-h]
                     {acquire-mute,drain,undrain,status,list,info,reload,R,eventlog}
                     ...";

const LIST: &str = "{state:>10} {nnodes:>6} {ncores:>6} {ngpus:>5} {nodelist}";
const STATUS: &str = "{state:>12}{up:>2} {nnodes:>6} {nodelist}";
const DRAIN: &str = "{timestamp:<12} {state:<8.8} {reason:<30.30+} {nodelist}";

/// One line of a table: a state and the nodes in it.
struct StateRow<'a> {
    state: String,
    online: bool,
    nodes: Vec<&'a ResourceNode>,
    /// The cores and GPUs of a node to count, because a node may be partly in use.
    cores: fn(&ResourceNode) -> IdSet,
    gpus: fn(&ResourceNode) -> IdSet,
}

pub fn main(arguments: &[OsString]) -> CommandResult {
    let Some((command, rest)) = arguments.split_first() else {
        return Err(CommandFailure { text: format!("usage: {USAGE}"), code: 2 });
    };
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(rest)
        .map_err(|error| CommandFailure::argparse(USAGE, "flux-resource", &error))?;
    let mut client = connect("flux-resource")?;
    match command.to_string_lossy().as_ref() {
        "list" => list(&nodes(&mut client)?, &options),
        "status" => status(&nodes(&mut client)?, &options),
        "info" => Ok(info(&nodes(&mut client)?)),
        "R" => Ok(print_r(&nodes(&mut client)?)),
        "drain" if options.rest.is_empty() => list_drained(&nodes(&mut client)?, &options),
        "drain" => drain(&mut client, &options),
        "undrain" => undrain(&mut client, &options),
        other => Err(CommandFailure {
            text: format!("usage: {USAGE}\nflux-resource: error: invalid choice: '{other}'"),
            code: 2,
        }),
    }
}

fn nodes(client: &mut Client) -> Result<Vec<ResourceNode>, CommandFailure> {
    match client.first_reply(Request::Resources) {
        Ok(Reply::Resources(nodes)) => Ok(nodes),
        Ok(_) => Err(CommandFailure::client("flux-resource", &ClientError::UnexpectedReply)),
        Err(error) => Err(CommandFailure::client("flux-resource", &error)),
    }
}

/// The scheduler's view: without excluded nodes, and without allocated resources in `free`.
fn list(nodes: &[ResourceNode], options: &ParsedArguments) -> CommandResult {
    let states = options.get("states").unwrap_or("free,allocated,down");
    let mut lines = Vec::new();
    for state in states.split(',') {
        let scheduled = || nodes.iter().filter(|node| !node.excluded);
        let is_down = |node: &&ResourceNode| !node.online || node.drained.is_some();
        let free = |node: &ResourceNode| node.cores.difference(&node.used_cores);
        let line = |nodes: Vec<_>, cores, gpus| StateRow {
            state: state.to_owned(),
            online: true,
            nodes,
            cores,
            gpus,
        };
        lines.push(match state {
            "all" => line(scheduled().collect(), |n| n.cores.clone(), |n| n.gpus.clone()),
            "down" => {
                line(scheduled().filter(is_down).collect(), |n| n.cores.clone(), |n| n.gpus.clone())
            }
            "allocated" => line(
                scheduled().filter(|n| !n.used_cores.is_empty()).collect(),
                |n| n.used_cores.clone(),
                |n| n.used_gpus.clone(),
            ),
            "free" | "up" => line(
                scheduled().filter(|n| !is_down(n) && !free(n).is_empty()).collect(),
                |n| n.cores.difference(&n.used_cores),
                |n| n.gpus.difference(&n.used_gpus),
            ),
            other => {
                let text =
                    format!("flux-resource: ERROR: Invalid resource state {other} specified");
                return Err(CommandFailure::new(text));
            }
        });
    }
    print_table(LIST, &lines, options)
}

/// The resource module's view.
fn status(nodes: &[ResourceNode], options: &ParsedArguments) -> CommandResult {
    let mut lines = Vec::new();
    for state in ["avail", "exclude", "draining", "drained"] {
        for online in [true, false] {
            let is_in = |node: &&ResourceNode| node.online == online && node_status(node) == state;
            let nodes: Vec<_> = nodes.iter().filter(is_in).collect();
            if nodes.is_empty() && (state, online) != ("avail", true) {
                continue;
            }
            let state = format!("{state}{}", if online { "" } else { "*" });
            lines.push(StateRow {
                state,
                online,
                nodes,
                cores: |n| n.cores.clone(),
                gpus: |n| n.gpus.clone(),
            });
        }
    }
    print_table(STATUS, &lines, options)
}

fn node_status(node: &ResourceNode) -> &'static str {
    match (&node.drained, node.used_cores.is_empty()) {
        _ if node.excluded => "exclude",
        (Some(_), true) => "drained",
        (Some(_), false) => "draining",
        (None, _) => "avail",
    }
}

/// Prints drained nodes with their reasons.
fn list_drained(nodes: &[ResourceNode], options: &ParsedArguments) -> CommandResult {
    let mut lines: Vec<StateRow<'_>> = Vec::new();
    for node in nodes.iter().filter(|node| node.drained.is_some()) {
        let star = if node.online { "" } else { "*" };
        let state = format!("{}{star}", node_status(node));
        let same =
            |line: &&mut StateRow<'_>| line.state == state && line.nodes[0].drained == node.drained;
        match lines.iter_mut().find(same) {
            Some(line) => line.nodes.push(node),
            None => lines.push(StateRow {
                state,
                online: node.online,
                nodes: vec![node],
                cores: |n| n.cores.clone(),
                gpus: |n| n.gpus.clone(),
            }),
        }
    }
    print_table(DRAIN, &lines, options)
}

fn print_table(default: &str, lines: &[StateRow<'_>], options: &ParsedArguments) -> CommandResult {
    let format = options.get("format").unwrap_or(default);
    let template = Template::parse(format, heading)
        .map_err(|error| CommandFailure::new(format!("flux-resource: ERROR: {error}")))?;
    if !options.has("no-header") {
        println!("{}", template.heading(heading).trim_end());
    }
    for line in lines {
        println!("{}", template.line(|name| cell(line, name)));
    }
    Ok(0)
}

fn heading(name: &str) -> Option<String> {
    let known = ["state", "nnodes", "ncores", "ngpus", "nodelist", "ranks", "rlist", "queue"];
    match name {
        "up" => Some("UP".to_owned()),
        "timestamp" => Some("TIME".to_owned()),
        "reason" => Some("REASON".to_owned()),
        "properties" | "propertiesx" => Some("PROPERTIES".to_owned()),
        name => known.contains(&name).then(|| name.to_uppercase()),
    }
}

fn cell(line: &StateRow<'_>, name: &str) -> Option<Cell> {
    let count = |ids: fn(&ResourceNode) -> IdSet| {
        let total: u64 = line.nodes.iter().map(|node| ids(node).len()).sum();
        Cell::Integer(i64::try_from(total).unwrap_or(i64::MAX))
    };
    let drain = || line.nodes.first().and_then(|node| node.drained.as_ref());
    Some(match name {
        "state" => Cell::Text(line.state.clone()),
        "up" => Cell::Text(if line.online { "✔" } else { "✗" }.to_owned()),
        "nnodes" => Cell::Integer(i64::try_from(line.nodes.len()).unwrap_or(i64::MAX)),
        "ncores" => count(line.cores),
        "ngpus" => count(line.gpus),
        "nodelist" => Cell::Text(hosts(&line.nodes)),
        "ranks" => Cell::Text(ranks(&line.nodes).to_string()),
        "rlist" => Cell::Text(summary(line)),
        "timestamp" => {
            let time = drain().map(|drain| Civil::new(drain.timestamp).to_short());
            Cell::Text(time.unwrap_or_default())
        }
        "reason" => {
            let reason = drain().and_then(|drain| drain.reason.clone());
            Cell::Text(reason.unwrap_or_default())
        }
        "properties" | "propertiesx" => {
            let mut all: Vec<&str> = line
                .nodes
                .iter()
                .flat_map(|node| node.properties.iter().map(String::as_str))
                .collect();
            all.sort_unstable();
            all.dedup();
            Cell::Text(all.join(","))
        }
        "queue" => Cell::Text(String::new()),
        _ => return None,
    })
}

/// Groups nodes with the same cores: `rank[0-3]/core[0-1]`.
fn summary(line: &StateRow<'_>) -> String {
    let mut groups: Vec<(IdSet, IdSet)> = Vec::new();
    for node in &line.nodes {
        let cores = (line.cores)(node);
        match groups.iter_mut().find(|(_, same)| *same == cores) {
            Some((ranks, _)) => drop(ranks.insert(node.rank)),
            None => groups.push((IdSet::from_iter([node.rank]), cores)),
        }
    }
    let brackets = |ids: &IdSet| if ids.len() == 1 { ids.to_string() } else { format!("[{ids}]") };
    let texts = groups
        .iter()
        .map(|(ranks, cores)| format!("rank{}/core{}", brackets(ranks), brackets(cores)));
    texts.collect::<Vec<_>>().join(" ")
}

fn ranks(nodes: &[&ResourceNode]) -> IdSet {
    nodes.iter().map(|node| node.rank).collect()
}

fn hosts(nodes: &[&ResourceNode]) -> String {
    let mut hosts = HostList::new();
    for node in nodes {
        // All hosts of an instance have valid names.
        let _never_refused = hosts.push(&node.host);
    }
    hosts.to_string()
}

fn info(nodes: &[ResourceNode]) -> u8 {
    let cores: u64 = nodes.iter().map(|node| node.cores.len()).sum();
    let gpus: u64 = nodes.iter().map(|node| node.gpus.len()).sum();
    let plural =
        |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    println!(
        "{}, {}, {}",
        plural(nodes.len() as u64, "Node"),
        plural(cores, "Core"),
        plural(gpus, "GPU")
    );
    0
}

/// Prints R of the whole instance.
fn print_r(nodes: &[ResourceNode]) -> u8 {
    let mut groups: Vec<(IdSet, &ResourceNode)> = Vec::new();
    for node in nodes {
        let same = |(_, other): &&mut (IdSet, &ResourceNode)| {
            other.cores == node.cores && other.gpus == node.gpus
        };
        match groups.iter_mut().find(same) {
            Some((ranks, _)) => drop(ranks.insert(node.rank)),
            None => groups.push((IdSet::from_iter([node.rank]), node)),
        }
    }
    let entries = groups.iter().map(|(ranks, node)| {
        let gpus = if node.gpus.is_empty() {
            String::new()
        } else {
            format!(", \"gpu\": \"{}\"", node.gpus)
        };
        format!("{{\"rank\": \"{ranks}\", \"children\": {{\"core\": \"{}\"{gpus}}}}}", node.cores)
    });
    let hosts = hosts(&nodes.iter().collect::<Vec<_>>());
    println!(
        "{{\"version\": 1, \"execution\": {{\"R_lite\": [{}], \"starttime\": 0.0, \"expiration\": 0.0, \"nodelist\": [\"{hosts}\"]}}}}",
        entries.collect::<Vec<_>>().join(", ")
    );
    0
}

fn drain(client: &mut Client, options: &ParsedArguments) -> CommandResult {
    let words = options.positional();
    let reason = (words.len() > 1).then(|| words[1..].join(" "));
    let request = Request::Drain { targets: words[0].clone(), reason, force: options.has("force") };
    client.execute(request).map_err(|error| match error.refusal() {
        Some(RefusalKind::Exists) => CommandFailure::new(format!(
            "flux-resource: ERROR: [Errno 17] {error}\nflux-resource: INFO: Use --force to overwrite existing drain reason"
        )),
        Some(_) => CommandFailure::new(format!("flux-resource: ERROR: [Errno 22] {error}")),
        None => CommandFailure::client("flux-resource", &error),
    })?;
    Ok(0)
}

fn undrain(client: &mut Client, options: &ParsedArguments) -> CommandResult {
    let words = options.positional();
    let Some(targets) = words.first().cloned() else {
        let text = format!(
            "usage: {USAGE}\nflux-resource: error: the following arguments are required: targets"
        );
        return Err(CommandFailure { text, code: 2 });
    };
    client
        .execute(Request::Undrain { targets })
        .map_err(|error| CommandFailure::new(format!("flux-resource: ERROR: {error}")))?;
    Ok(0)
}
