//! What conditions of Bursts and BurstPolicies mean for their users.

use flux_operator_api::reason::Outlook;
use flux_operator_api::{BurstPolicy, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// A problem that only a user can solve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserProblem {
    /// What is wrong: reason and message.
    pub(super) message: String,
    /// What to do.
    pub(super) remedy: &'static str,
}

/// The first condition that is not true and that only a user can change.
pub(super) fn needs_user(conditions: &[Condition]) -> Option<UserProblem> {
    let not_true = conditions.iter().filter(|condition| condition.status != "True");
    not_true.filter_map(|it| Some((it, it.reason.parse::<Reason>().ok()?))).find_map(
        |(condition, reason)| {
            (reason.outlook() == Outlook::NeedsUser).then(|| UserProblem {
                message: format!("{}: {}", condition.reason, condition.message),
                remedy: reason.remedy(),
            })
        },
    )
}

/// The condition Accepted of a policy. Without it, no burst controller has processed the policy.
pub(super) fn accepted(policy: &BurstPolicy) -> Option<&Condition> {
    condition(policy, "Accepted")
}

/// A condition of a policy.
pub(super) fn condition<'a>(policy: &'a BurstPolicy, kind: &str) -> Option<&'a Condition> {
    policy.status.as_ref()?.conditions.iter().find(|it| it.type_ == kind)
}

/// Why a policy without the condition Accepted does nothing.
pub(super) fn unprocessed(policy: &str) -> String {
    format!(
        "BurstPolicy {policy:?} has no condition Accepted, so no burst controller seems to be \
         running"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::condition;
    use super::*;

    #[test]
    fn only_what_a_user_can_solve_is_a_problem() {
        let conditions = [
            condition("TargetReady", "False", "TargetUnreachable", "no answer"),
            condition("CredentialsAccepted", "True", "NotExposed", "true is no problem"),
            condition("Prepared", "Unknown", "FromTheFuture", "?"),
            condition("Joined", "False", "CredentialsRefused", "401"),
            condition("Ready", "False", "NotExposed", "later"),
        ];
        let problem = needs_user(&conditions).unwrap();
        assert_eq!(problem.message, "CredentialsRefused: 401");
        assert_eq!(problem.remedy, Reason::CredentialsRefused.remedy());
        assert_eq!(needs_user(&conditions[..3]), None);
    }
}
