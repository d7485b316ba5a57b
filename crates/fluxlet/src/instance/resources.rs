//! Drains and undrains nodes.

use flux_operator_flux::{HostList, IdSet};

use super::{Instance, Origin};
use crate::message::{Drain, RefusalKind, Reply};

impl Instance {
    pub(super) fn drain(
        &mut self,
        origin: Origin,
        tag: u64,
        targets: &str,
        reason: Option<String>,
        force: bool,
    ) {
        let ranks = match self.targets(targets) {
            Ok(ranks) => ranks,
            Err(text) => return self.refuse(origin, tag, RefusalKind::Invalid, text),
        };
        let is_drained = |rank: &u32| self.node(*rank).is_some_and(|node| node.drained.is_some());
        let drained: IdSet = ranks.iter().filter(is_drained).collect();
        if !force && !drained.is_empty() {
            let text = format!("{} already drained", format_ranks(&drained));
            return self.refuse(origin, tag, RefusalKind::Exists, text);
        }
        for rank in ranks.iter() {
            let drain = Drain { timestamp: self.now, reason: reason.clone() };
            self.nodes[rank as usize].drained = Some(drain);
        }
        self.reply(origin, tag, Reply::Done);
    }

    pub(super) fn undrain(&mut self, origin: Origin, tag: u64, targets: &str) {
        let ranks = match self.targets(targets) {
            Ok(ranks) => ranks,
            Err(text) => return self.refuse(origin, tag, RefusalKind::Invalid, text),
        };
        let is_not = |rank: &u32| self.node(*rank).is_some_and(|node| node.drained.is_none());
        let others: IdSet = ranks.iter().filter(is_not).collect();
        if !others.is_empty() {
            let text = format!("{} not drained", format_ranks(&others));
            return self.refuse(origin, tag, RefusalKind::NotFound, text);
        }
        for rank in ranks.iter() {
            self.nodes[rank as usize].drained = None;
        }
        self.reply(origin, tag, Reply::Done);
    }

    /// The ranks that an idset or a host list names.
    fn targets(&self, text: &str) -> Result<IdSet, String> {
        resolve(text, &self.nodes.iter().map(|node| node.host.as_str()).collect::<Vec<_>>())
    }
}

/// The ranks that `text`, an idset or a host list, names; the error is Flux's message.
pub fn resolve(text: &str, hosts: &[&str]) -> Result<IdSet, String> {
    if let Ok(ranks) = text.parse::<IdSet>() {
        let last = ranks.last().map_or(0, |rank| rank as usize);
        return if last < hosts.len() {
            Ok(ranks)
        } else {
            Err("idset is out of range".to_owned())
        };
    }
    let names: HostList = text.parse().map_err(|_| format!("invalid targets: {text}"))?;
    let mut ranks = IdSet::new();
    for name in names.iter() {
        let found = hosts.iter().zip(0..).filter(|(host, _)| **host == name);
        let before = ranks.len();
        ranks = found.fold(ranks, |mut ranks, (_, rank)| {
            ranks.insert(rank);
            ranks
        });
        if ranks.len() == before {
            return Err(format!("invalid targets: {name}"));
        }
    }
    Ok(ranks)
}

fn format_ranks(ranks: &IdSet) -> String {
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {ranks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_ranks_or_hosts() {
        let hosts = ["fs-0", "fs-1", "fs-2"];
        assert_eq!(resolve("0-1", &hosts).unwrap().to_string(), "0-1");
        assert_eq!(resolve("fs-[1-2]", &hosts).unwrap().to_string(), "1-2");
        assert_eq!(resolve("9", &hosts).unwrap_err(), "idset is out of range");
        assert!(resolve("other", &hosts).is_err());
    }
}
