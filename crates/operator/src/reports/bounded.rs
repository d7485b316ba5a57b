//! Limits the size of a stored report, whatever the cluster has sent.

use flux_operator_flux::IdSet;
use flux_operator_wire::{Drain, Drained, InstanceState, JoinRefusal, JoinRequest};

/// The maximum length of a stored error: agents cut theirs to the same length.
const MAX_ERROR: usize = 512;

/// The maximum length of a set of ranks, as text, that is stored unchanged: enough for 2,000 ranks of
/// which every second one is online.
const MAX_RANKS: usize = 16 * 1024;

/// Longer than any job id, version, hash of a rank table, and time that the operator writes into a
/// [`Drain`].
const MAX_TEXT: usize = 64;

/// As long as a namespace and a name can be.
const MAX_NAMES: usize = 63 + 1 + 253;

/// The state with the size of everything in it limited.
pub(super) fn bounded(state: InstanceState) -> InstanceState {
    let InstanceState {
        online,
        program_started,
        jobs,
        mut first_job,
        drained,
        blocking_job,
        lead,
        mut last_error,
    } = state;
    first_job.truncate(first_job.floor_char_boundary(MAX_TEXT));
    last_error.truncate(last_error.floor_char_boundary(MAX_ERROR));
    last_error.shrink_to_fit();
    InstanceState {
        // Other ranks than those that are online must never be shown.
        online: online.filter(|ranks| !is_long(ranks)),
        program_started,
        jobs,
        first_job,
        drained: drained.and_then(bounded_drain),
        blocking_job,
        // A version has a few characters.
        lead: lead.filter(|facts| facts.version.len() <= MAX_TEXT),
        last_error,
    }
}

/// The request with the size of everything in it limited.
pub(super) fn bounded_request(mut request: JoinRequest) -> JoinRequest {
    let JoinRequest { index: _, rank: _, table, facts, last_error, refusal } = &mut request;
    let mut texts =
        vec![(table, MAX_TEXT), (&mut facts.version, MAX_TEXT), (last_error, MAX_ERROR)];
    if let Some(JoinRefusal { reason, message }) = refusal {
        texts.extend([(reason, MAX_TEXT), (message, MAX_ERROR)]);
    }
    for (text, limit) in texts {
        cut(text, limit);
    }
    request
}

/// A name or uid, cut to a sensible length. It is shown in terminals, so it has no other characters than
/// names in Kubernetes have.
pub(super) fn bounded_text(mut text: String) -> String {
    cut(&mut text, MAX_NAMES);
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '/'].contains(&c);
    text.chars().map(|c| if is_of_name(c) { c } else { '?' }).collect()
}

fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
    text.shrink_to_fit();
}

/// None if the operator cannot have requested this drain: it only requests a few ranges.
fn bounded_drain(drained: Drained) -> Option<Drained> {
    let Drained { asked: Drain { ranks, since }, busy } = drained;
    if since.len() > MAX_TEXT || is_long(&ranks) {
        return None;
    }
    // Widened to the whole range: it is safe to wait for an idle rank, not to ignore a busy one.
    let busy = if is_long(&busy) { span(&busy) } else { busy };
    Some(Drained { asked: Drain { ranks, since }, busy })
}

fn is_long(ranks: &IdSet) -> bool {
    ranks.to_string().len() > MAX_RANKS
}

fn span(ranks: &IdSet) -> IdSet {
    let (first, last) = (ranks.first().unwrap_or_default(), ranks.last().unwrap_or_default());
    IdSet::first_n(last.saturating_add(1)).difference(&IdSet::first_n(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(asked: &str, since: &str, busy: &str) -> Option<Drained> {
        let asked = Drain { ranks: asked.parse().unwrap(), since: since.into() };
        Some(Drained { asked, busy: busy.parse().unwrap() })
    }

    #[test]
    fn a_normal_report_is_stored_unchanged() {
        let state = InstanceState {
            drained: drained("4-7", "2026-01-01T00:00:00Z", "5,7"),
            last_error: "e".repeat(MAX_ERROR),
            program_started: true,
            online: Some("0-3,7".parse().unwrap()),
            ..InstanceState::default()
        };
        assert_eq!(bounded(state.clone()), state);
    }

    #[test]
    fn long_texts_are_cut_and_long_sets_widened() {
        let ranks: Vec<String> = (0..5000).map(|rank| (2 * rank + 3).to_string()).collect();
        let state = InstanceState {
            last_error: format!("x{}", "é".repeat(30_000)),
            drained: drained("4-7", "", &ranks.join(",")),
            online: Some(ranks.join(",").parse().unwrap()),
            ..InstanceState::default()
        };
        let kept = bounded(state);
        assert_eq!(kept.last_error.len(), MAX_ERROR - 1);
        assert_eq!(kept.drained.unwrap().busy.to_string(), "3-10001");
        assert_eq!(kept.online, None);
        for (asked, since) in [(ranks.join(","), ""), ("1".into(), &*"1".repeat(65))] {
            let state =
                InstanceState { drained: drained(&asked, since, "1"), ..InstanceState::default() };
            assert_eq!(bounded(state).drained, None);
        }
    }
}
