//! What a job at home is, by its events, and who holds it.

use flux_operator_flux::{JobEvent, JobspecUpdate};
use flux_operator_wire::HomeJobState;

/// The key of the memo of a job that is about to be held, and its value, for users.
pub(super) const HOLD_MEMO: (&str, &str) = ("flux-operator-hold", "isolated-run");

/// What a job is, by its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) state: HomeJobState,
    /// The number of the user who has submitted it.
    pub(super) user: Option<u32>,
    pub(super) urgency: u32,
    /// The last urgency with which it could start, if it had one.
    pub(super) before: Option<u32>,
    /// It waits for other jobs, or for a time.
    pub(super) has_dependencies: bool,
    /// It was canceled, or cannot run: it will finish, whatever its state is now.
    pub(super) is_ended: bool,
    /// Whether an agent has held it, and no user has held or released it since. `None` if no memo says
    /// so: agents of earlier builds write none.
    pub(super) is_held_here: Option<bool>,
    /// What was changed since it was submitted.
    pub(super) updates: Vec<JobspecUpdate>,
}

impl Job {
    /// What its events say.
    pub(super) fn by_events(events: &[JobEvent]) -> Job {
        let (mut state, mut urgency, mut before) = (HomeJobState::Pending, 16, None);
        let (mut is_met, mut is_ended, mut user) = (false, false, None);
        // Announced: by a memo that no change of the urgency has followed yet, of a job that its user
        // does not hold.
        let (mut is_announced, mut is_held_here, mut updates) = (false, None, Vec::new());
        for event in events {
            match event {
                JobEvent::Submitted { user: by, urgency: value } => {
                    user = Some(*by);
                    urgency = *value;
                    before = Some(urgency).filter(|it| *it > 0);
                }
                JobEvent::Urgency(value) => {
                    urgency = *value;
                    before = Some(urgency).filter(|it| *it > 0).or(before);
                    // Only the first one after the memo is of an agent. If its user holds the job as
                    // well, it stays held: better that than a user's hold undone.
                    is_held_here = is_held_here.map(|_| is_announced && urgency == 0);
                    is_announced = false;
                }
                JobEvent::Memo(keys) => {
                    if keys.iter().any(|key| key == HOLD_MEMO.0) {
                        is_held_here = is_held_here.or(Some(false));
                        is_announced = urgency > 0 || is_held_here == Some(true);
                    }
                }
                JobEvent::Updated(update) => updates.push(update.clone()),
                JobEvent::DependenciesMet => is_met = true,
                JobEvent::Allocated => state = HomeJobState::Started,
                JobEvent::Exception(exception) => is_ended |= exception.severity == 0,
                JobEvent::Clean => state = HomeJobState::Finished,
                JobEvent::Finished(_) => {}
            }
        }
        let is_pending = state == HomeJobState::Pending;
        if is_pending && is_met && urgency == 0 && !is_ended {
            state = HomeJobState::Held;
        }
        let has_dependencies = is_pending && !is_met;
        Job { state, user, urgency, before, has_dependencies, is_ended, is_held_here, updates }
    }
}

/// Whether a job waits, held or not.
pub(super) fn is_waiting(state: HomeJobState) -> bool {
    matches!(state, HomeJobState::Pending | HomeJobState::Held)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBMITTED: &str =
        r#"{"name":"submit","context":{"userid":0,"urgency":16,"flags":0,"version":1}}"#;
    const MEMO: &str = r#"{"name":"memo","context":{"flux-operator-hold":"isolated-run"}}"#;

    /// Better a job that stays held than a user's hold undone.
    #[test]
    fn only_a_hold_that_follows_a_memo_is_of_an_agent() {
        let held = |urgencies: &[Option<u32>]| {
            let line = |urgency: &Option<u32>| match urgency {
                Some(urgency) => {
                    format!(r#"{{"name":"urgency","context":{{"urgency":{urgency}}}}}"#)
                }
                None => MEMO.to_owned(),
            };
            let lines: String = urgencies.iter().map(|it| line(it) + "\n").collect();
            let log = format!("{SUBMITTED}\n{lines}");
            Job::by_events(&JobEvent::parse_log(&log).unwrap()).is_held_here
        };
        let memo = None;
        for (urgencies, expected) in [
            (vec![], None),
            // Its user, or an agent of an earlier build.
            (vec![Some(0)], None),
            (vec![memo], Some(false)),
            (vec![memo, Some(0)], Some(true)),
            // The user held it a moment before, or held it as well.
            (vec![Some(0), memo, Some(0)], Some(false)),
            (vec![memo, Some(0), Some(0)], Some(false)),
            // The user released it, with another urgency, and holds it.
            (vec![memo, Some(0), Some(20)], Some(false)),
            (vec![memo, Some(0), Some(20), Some(0)], Some(false)),
            // It was held again, and once more before its events were read.
            (vec![memo, Some(0), Some(20), memo, Some(0)], Some(true)),
            (vec![memo, Some(0), memo, Some(0)], Some(true)),
            (vec![memo, Some(0), memo], Some(true)),
        ] {
            assert_eq!(held(&urgencies), expected, "{urgencies:?}");
        }
    }
}
