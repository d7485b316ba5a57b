//! The job at home: what it should become, and what the operator says about it.

use std::sync::Arc;

use flux_operator_api::burst::{BurstRun, RunState};
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_wire::{HomeJobState, JobGoal, JobRefusal, JobspecText};

use super::rivals::{Standing, standing};
use crate::bursting::life::{has_finalizer, was_prepared};

/// The longest message of a canceled job and of a status, in bytes. The operator accepts 1,024.
const MAX_MESSAGE: usize = 1000;

/// What has become of the job at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeJob {
    /// What it is.
    pub state: HomeJobState,
    /// Its urgency before it was held for this run; `None` if it was held already.
    pub urgency: Option<u32>,
    /// Why it cannot be handed over, of a job that waits.
    pub refusal: Option<JobRefusal>,
    /// Its jobspec, of a job that is held.
    pub jobspec: JobspecText,
    /// The jobspec is larger than what can be handed over.
    pub is_too_large: bool,
}

/// What the operator says about the job at home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HomeAnswer {
    /// It was not asked.
    #[default]
    NotAsked,
    /// It has been asked, and the lead has not answered yet.
    Awaited,
    /// What has become of the job.
    Job(HomeJob),
    /// The operator has waited for the lead for long enough; why it does not answer.
    NoAnswer(String),
    /// Why the operator does not answer.
    Failed(String),
}

/// What the job at home should become now; `None` if it does not matter, or if another Burst decides
/// that. `others` may be any Bursts. It follows from what is recorded, so that the job is never canceled
/// for a result that could be lost. A MiniCluster that was created again has other jobs.
pub fn home_order(
    burst: &Burst,
    others: &[Arc<Burst>],
    cluster: Option<&MiniCluster>,
) -> Option<JobGoal> {
    if !burst.is_isolated() || !cluster.is_some_and(|cluster| burst.is_for(cluster)) {
        return None;
    }
    let default = BurstRun::default();
    let run = burst.run().unwrap_or(&default);
    let is_deleting = burst.metadata.deletion_timestamp.is_some();
    match run.state {
        RunState::Holding if is_deleting || !has_finalizer(burst) => None,
        // It is recorded first: otherwise nobody would release it if the answer is lost.
        RunState::Holding if !run.hold_ordered => None,
        RunState::Holding => match standing(burst, others) {
            Standing::Behind(_) => None,
            Standing::Alone | Standing::First => Some(JobGoal::Held),
        },
        // As long as it may run: a user may release it.
        RunState::Starting | RunState::Running => Some(JobGoal::Held),
        RunState::Finishing if run.home_settled => None,
        RunState::Finishing if !run.may_have_run => {
            let urgency = run.urgency.and_then(|urgency| u32::try_from(urgency).ok());
            let is_alone = standing(burst, others) == Standing::Alone;
            is_alone.then_some(JobGoal::Released(urgency))
        }
        RunState::Finishing if !run.output_settled => Some(JobGoal::Held),
        RunState::Finishing => Some(JobGoal::Canceled(cancel_message(burst, run))),
        RunState::Completed | RunState::Failed => None,
        RunState::Refused | RunState::Yielded => None,
    }
}

/// Whether the jobspec of the job at home is needed, because its instance is to be created. Otherwise it
/// is enough to have the job held from time to time.
pub fn needs_jobspec(burst: &Burst) -> bool {
    match burst.run().map(|run| run.state).unwrap_or_default() {
        RunState::Holding => true,
        RunState::Starting => !was_prepared(burst),
        RunState::Running | RunState::Finishing => false,
        RunState::Completed | RunState::Failed => false,
        RunState::Refused | RunState::Yielded => false,
    }
}

/// Why the job at home is canceled.
fn cancel_message(burst: &Burst, run: &BurstRun) -> String {
    let name = burst.metadata.name.as_deref().unwrap_or_default();
    let target = &burst.spec.target.name;
    let end = match run.exit_code {
        Some(code) => format!("exit code {code}"),
        None => run.message.clone(),
    };
    cut(&format!("ran as Burst {name} at target {target}: {end}"))
}

/// A text that the operator and Flux accept as a message: it may be that of a target.
pub(super) fn cut(text: &str) -> String {
    let is_short =
        |(at, letter): &(usize, char)| at.saturating_add(letter.len_utf8()) <= MAX_MESSAGE;
    let letters = text.char_indices().take_while(is_short);
    letters.map(|(_, letter)| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator refuses a message of more than 1,024 bytes, or with a NUL.
    #[test]
    fn a_message_is_short_in_bytes_and_has_no_control_characters() {
        let cases = ["🦀".repeat(400), "\0a\u{1b}b\n".repeat(300), "x".repeat(1000)];
        for text in cases {
            let text = cut(&text);
            assert!((990..=MAX_MESSAGE).contains(&text.len()), "{}", text.len());
            assert!(!text.chars().any(char::is_control));
        }
        assert_eq!(cut("a\0b\nc"), "a b c");
    }
}
