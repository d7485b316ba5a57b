//! What was decided for all MiniClusters of one policy, as its status shows it.

use flux_operator_api::burst::JobAnswer;
use flux_operator_flux::JobId;

use crate::Answer;

/// How many answers a policy's status has.
const MAX_ANSWERS: usize = 50;

/// What was decided for MiniClusters of one policy. Unlike the answers for all jobs, it is small.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub clusters: i32,
    /// How many jobs of theirs the policy selects.
    pub pending: i32,
    /// The first answers for these.
    pub answers: Vec<JobAnswer>,
    /// The MiniClusters whose jobs are not known.
    pub unknown: Vec<String>,
    /// Why the last request was refused, if it was.
    pub refused: Option<String>,
    /// The jobs of a MiniCluster will be known in a moment.
    pub is_incomplete: bool,
}

impl Summary {
    /// What was decided for a MiniCluster.
    pub fn of(policy: &str, cluster: &str, answers: &[Answer]) -> Summary {
        let of_policy = answers.iter().filter(|it| it.policy.as_deref() == Some(policy));
        let selected: Vec<&Answer> = of_policy.filter(|it| it.reason.is_selected()).collect();
        let shown = selected.iter().take(MAX_ANSWERS).map(|answer| JobAnswer {
            cluster: cluster.to_owned(),
            id: JobId::from(answer.job).to_string(),
            reason: answer.reason.as_str().to_owned(),
            message: answer.message.clone(),
        });
        Summary {
            clusters: 1,
            pending: i32::try_from(selected.len()).unwrap_or(i32::MAX),
            answers: shown.collect(),
            ..Summary::default()
        }
    }

    /// A MiniCluster of whose jobs nothing is known yet, as when the controller has just started.
    pub fn expected() -> Summary {
        Summary { clusters: 1, is_incomplete: true, ..Summary::default() }
    }

    /// A MiniCluster of whose jobs nothing is known, although the operator has had time to list them.
    pub fn unknown(cluster: &str) -> Summary {
        Summary { clusters: 1, unknown: vec![cluster.to_owned()], ..Summary::default() }
    }

    /// Adds what was decided for other MiniClusters.
    pub fn add(&mut self, other: &Summary) {
        let Summary { clusters, pending, answers, unknown, refused, is_incomplete } = other;
        self.clusters = self.clusters.saturating_add(*clusters);
        self.pending = self.pending.saturating_add(*pending);
        let left = MAX_ANSWERS.saturating_sub(self.answers.len());
        self.answers.extend(answers.iter().take(left).cloned());
        self.unknown.extend_from_slice(unknown);
        self.refused = self.refused.take().or_else(|| refused.clone());
        self.is_incomplete |= is_incomplete;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnswerReason;

    fn answer(job: u64, reason: AnswerReason, policy: &str) -> Answer {
        Answer { job, reason, message: "m".into(), policy: Some(policy.into()), burst: None }
    }

    #[test]
    fn jobs_that_a_policy_selects_are_counted_and_the_first_ones_shown() {
        let mut answers: Vec<Answer> =
            (0..60).map(|job| answer(job, AnswerReason::Requested, "p")).collect();
        answers.push(answer(70, AnswerReason::NotSelected, "p"));
        answers.push(answer(71, AnswerReason::Requested, "other"));
        let mut summary = Summary::default();
        summary.add(&Summary::of("p", "a", &answers[..49]));
        assert_eq!((summary.pending, summary.answers.len()), (49, 49));
        summary.add(&Summary::of("p", "b", &answers));
        assert_eq!((summary.clusters, summary.pending, summary.answers.len()), (2, 109, 50));
        assert_eq!((summary.answers[49].cluster.as_str(), summary.is_incomplete), ("b", false));
        summary.add(&Summary::unknown("c"));
        summary.add(&Summary::expected());
        assert_eq!((summary.clusters, summary.pending, summary.is_incomplete), (4, 109, true));
        assert_eq!(summary.unknown, ["c"]);
    }
}
