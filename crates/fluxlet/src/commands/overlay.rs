//! `flux overlay status`: prints the tree of brokers.

use std::ffi::OsString;

use super::{CommandFailure, CommandResult, connect};
use crate::message::{OverlayNode, Reply, Request};
use crate::options::{Flag, Syntax, flag, switch};

const FLAGS: [Flag; 10] = [
    flag(Some('r'), "rank"),
    switch(Some('v'), "verbose"),
    flag(Some('t'), "timeout"),
    switch(None, "summary"),
    switch(None, "down"),
    switch(None, "no-pretty"),
    switch(None, "no-ghost"),
    switch(Some('c'), "color"),
    switch(Some('H'), "highlight"),
    flag(Some('w'), "wait"),
];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let Some(rest) = arguments.strip_prefix(&[OsString::from("status")]) else {
        return Err(CommandFailure::new("Usage: flux overlay status [OPTIONS]"));
    };
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(rest)
        .map_err(|error| CommandFailure::option("flux overlay status", &error))?;
    let mut client = connect("flux-overlay")?;
    let failed = |error: &_| CommandFailure::client("flux-overlay", error);
    let reply = client.first_reply(Request::Overlay).map_err(|error| failed(&error))?;
    let Reply::Overlay(nodes) = reply else { return Ok(1) };
    if options.has("summary") {
        println!("{}", nodes.first().map_or("unknown", |node| &node.status));
        return Ok(0);
    }
    for line in lines(&nodes, options.has("verbose"), options.has("no-pretty")) {
        println!("{line}");
    }
    Ok(0)
}

/// The lead, and all other brokers below it.
fn lines(nodes: &[OverlayNode], verbose: bool, flat: bool) -> Vec<String> {
    let last = nodes.len().saturating_sub(1);
    let line = |(index, node): (usize, &OverlayNode)| {
        let branch = match index {
            0 => "",
            _ if flat => " ",
            index if index == last => "└─ ",
            _ => "├─ ",
        };
        let since = if verbose { format!(" for {:.6}s", node.since) } else { String::new() };
        let note = if node.note.is_empty() { String::new() } else { format!(" {}", node.note) };
        format!("{branch}{} {}: {}{note}{since}", node.rank, node.host, node.status)
    };
    nodes.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_drawn_as_flux_does() {
        let node = |rank: u32, status: &str| OverlayNode {
            rank,
            host: format!("fs-{rank}"),
            status: status.to_owned(),
            note: if status == "lost" { "lost connection" } else { "" }.to_owned(),
            since: 1.0,
        };
        let nodes = [node(0, "degraded"), node(1, "lost"), node(2, "offline")];
        let tree = ["0 fs-0: degraded", "├─ 1 fs-1: lost lost connection", "└─ 2 fs-2: offline"];
        assert_eq!(lines(&nodes, false, false), tree);
        assert_eq!(lines(&nodes[..1], true, false), ["0 fs-0: degraded for 1.000000s"]);
    }
}
