//! Which ranks the lead drains, and whether their jobs have finished.

use flux_operator_flux::IdSet;
use flux_operator_wire::{Drain, Drained};
use k8s_openapi::jiff::Timestamp;

use super::lease::{LeaseRecord, ranks};

/// The ranks on which no job may start: those of the cluster's own Job that are not in use, those that
/// joiners give back, and those that invitations do not keep. `own_since` is when the cluster began to wait for jobs on its own.
/// Leases of another table than `table` are of an instance that does not exist any more.
pub(crate) fn drain_request(
    own: &IdSet,
    own_since: Option<Timestamp>,
    leases: &[LeaseRecord],
    table: &str,
) -> Drain {
    let leases: Vec<LeaseRecord> = leases.iter().filter(|it| it.table == table).cloned().collect();
    let leaving: Vec<LeaseRecord> = leases.iter().filter(|it| !it.is_active()).cloned().collect();
    let released: Vec<_> = leases.iter().filter_map(LeaseRecord::released).collect();
    let since = leaving.iter().map(|record| record.since).chain(own_since);
    let since = since.chain(released.iter().map(|(_, since)| *since)).max();
    let released = IdSet::union_all(&released.into_iter().map(|(it, _)| it).collect::<Vec<_>>());
    Drain {
        ranks: own.difference(&ranks(&leases)).union(&ranks(&leaving)).union(&released),
        since: since.map(|since| since.to_string()).unwrap_or_default(),
    }
}

/// The ranks of `ranks` on which jobs still run, if the lead's answer is about them: the request
/// names them all, and is not older than `since`, when they began to be waited for. The lead has one
/// request for all that wait, which has the latest of their times.
pub(crate) fn busy_ranks(drained: &Drained, since: Timestamp, ranks: &IdSet) -> Option<IdSet> {
    let asked = drained.asked.since.parse::<Timestamp>().ok()?;
    let is_answer = asked >= since && ranks.is_subset(&drained.asked.ranks);
    is_answer.then(|| drained.busy.intersection(ranks))
}

/// Whether no job runs on `ranks` any more.
pub(crate) fn is_drained(drained: Option<&Drained>, since: Timestamp, ranks: &IdSet) -> bool {
    let busy = drained.and_then(|drained| busy_ranks(drained, since, ranks));
    busy.is_some_and(|busy| busy.is_empty())
}
