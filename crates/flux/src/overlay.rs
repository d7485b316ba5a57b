//! The brokers of an instance, as `flux overlay status` prints them.

use crate::{IdSet, OverlayStatus};

/// A broker, as a line of [`OverlayNode::COMMAND`] shows it: `1 fs-1: full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlayNode<'a> {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: &'a str,
    /// How much of its subtree is online; `None` if Flux prints an error instead.
    pub status: Option<OverlayStatus>,
}

impl<'a> OverlayNode<'a> {
    /// The words of the command, after `flux`.
    pub const COMMAND: [&'static str; 3] = ["overlay", "status", "--no-pretty"];

    /// Parses a line. What follows the status, such as why a broker is lost, is left out. Returns `None`
    /// if it is not such a line.
    pub fn parse(line: &'a str) -> Option<OverlayNode<'a>> {
        let (node, status) = line.split_once(": ")?;
        let mut words = node.split_whitespace();
        let rank = words.next()?.parse().ok()?;
        let host = words.next()?;
        let status = status.split_whitespace().next().and_then(|word| word.parse().ok());
        Some(OverlayNode { rank, host, status })
    }

    /// The ranks that are online in the output of the command. Lines of another form are left out.
    pub fn online_ranks(output: &str) -> IdSet {
        let nodes = output.lines().filter_map(OverlayNode::parse);
        nodes
            .filter(|node| node.status.is_some_and(OverlayStatus::is_online))
            .map(|node| node.rank)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_rank_a_host_and_a_status() {
        use OverlayStatus::*;
        for (line, expected) in [
            ("0 fs-0: partial", Some((0, "fs-0", Some(Partial)))),
            ("1 fs-1: full", Some((1, "fs-1", Some(Full)))),
            (" 2 fs-2: offline ", Some((2, "fs-2", Some(Offline)))),
            ("3 a.example.org: lost", Some((3, "a.example.org", Some(Lost)))),
            ("4 x: degraded for 2.5m", Some((4, "x", Some(Degraded)))),
            ("7 y: lost administrative disconnect", Some((7, "y", Some(Lost)))),
            ("8 z: lost read error: full", Some((8, "z", Some(Lost)))),
            ("9 z: No route to host", Some((9, "z", None))),
            ("9 z: ", Some((9, "z", None))),
            ("9 z", None),
            ("9: full", None),
            ("-1 x: full", None),
            ("nonsense: here", None),
            (": ", None),
            ("", None),
        ] {
            let parsed = OverlayNode::parse(line).map(|it| (it.rank, it.host, it.status));
            assert_eq!(parsed, expected, "{line:?}");
        }
    }

    #[test]
    fn online_ranks_are_those_of_connected_brokers() {
        let text = "0 fs-0: partial\n1 fs-1: full\n2 fs-2: offline\n3 fs-3: lost\n4 x: degraded\n";
        assert_eq!(OverlayNode::online_ranks(text).to_string(), "0-1,4");
        let text = "nonsense: here\n: \n7 y: lost administrative disconnect";
        assert_eq!(OverlayNode::online_ranks(text), IdSet::new());
    }
}
