//! Which jobs a policy selects.

use flux_operator_api::burst::JobMatch;
use k8s_openapi::jiff::Timestamp;

use crate::answer::{Refusal, Why};
use crate::time::seconds_after;
use crate::{Job, PolicyState};

/// Whether a policy selects a job that needs so many nodes. If no alternative of `anyOf` matches,
/// the answer is that of the one that comes nearest.
pub(crate) fn select<'a>(
    policy: &'a PolicyState,
    job: &'a Job,
    nodes: u32,
    now: Timestamp,
) -> Result<(), Refusal<'a>> {
    let selection = &policy.spec.jobs;
    if let Some(attribute) = selection.attribute()
        && !job.attributes.contains(attribute)
    {
        return Err(Refusal { why: Why::NotSelected { attribute }, until: None });
    }
    let matches = |properties| match_job(&policy.name, properties, job, nodes, now);
    matches(&selection.all)?;
    let mut nearest: Option<Refusal<'a>> = None;
    for properties in &selection.any_of {
        let Err(refusal) = matches(properties) else { return Ok(()) };
        let rank = |refusal: &Refusal<'_>| {
            // The earliest of several waits comes first.
            (refusal.why.reason(), refusal.until.map(std::cmp::Reverse))
        };
        if nearest.as_ref().is_none_or(|nearest| rank(&refusal) > rank(nearest)) {
            nearest = Some(refusal);
        }
    }
    nearest.map_or(Ok(()), Err)
}

fn match_job<'a>(
    policy: &'a str,
    properties: &'a JobMatch,
    job: &'a Job,
    nodes: u32,
    now: Timestamp,
) -> Result<(), Refusal<'a>> {
    let JobMatch { waiting_seconds, min_nodes, max_nodes, users, queues } = properties;
    let never = |why| Err(Refusal { why, until: None });
    if !users.is_empty() && !users.contains(&job.user) {
        return never(Why::OtherUser { policy, user: job.user });
    }
    if !queues.is_empty() && !queues.contains(&job.queue) {
        return never(Why::OtherQueue { policy, queue: &job.queue });
    }
    if let Some(min) = *min_nodes
        && i64::from(nodes) < i64::from(min)
    {
        return never(Why::TooSmall { policy, nodes, min });
    }
    if let Some(max) = *max_nodes
        && i64::from(nodes) > i64::from(max)
    {
        return never(Why::TooLarge { policy, nodes, max });
    }
    if let Some(seconds) = *waiting_seconds {
        let until = seconds_after(job.submitted, i64::from(seconds));
        if now < until {
            return Err(Refusal { why: Why::TooYoung { until }, until: Some(until) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use flux_operator_api::burst::JobSelection;

    use super::*;
    use crate::AnswerReason;
    use crate::testing::{at, job, nodes, policy, target};

    #[test]
    fn each_property_that_does_not_match_has_its_own_reason() {
        let all = JobMatch::default();
        let of = |all: JobMatch| JobSelection { all, ..JobSelection::default() };
        let any = |any_of| JobSelection { any_of, ..JobSelection::default() };
        let min = |nodes| JobMatch { min_nodes: Some(nodes), ..all.clone() };
        let waiting = |seconds| JobMatch { waiting_seconds: Some(seconds), ..all.clone() };
        let attribute = |name: &str| JobSelection { attribute: name.into(), ..of(all.clone()) };
        let cases = [
            (of(all.clone()), None),
            (attribute("*"), None),
            (attribute("cloud"), Some(AnswerReason::NotSelected)),
            (of(min(4)), None),
            (of(min(5)), Some(AnswerReason::TooSmall)),
            (of(JobMatch { max_nodes: Some(4), ..all.clone() }), None),
            (of(JobMatch { max_nodes: Some(3), ..all.clone() }), Some(AnswerReason::TooLarge)),
            (of(JobMatch { users: vec![1, 1000], ..all.clone() }), None),
            (of(JobMatch { users: vec![1], ..all.clone() }), Some(AnswerReason::OtherUser)),
            (
                of(JobMatch { queues: vec!["x".into()], ..all.clone() }),
                Some(AnswerReason::OtherQueue),
            ),
            (of(waiting(60)), None),
            (of(waiting(61)), Some(AnswerReason::TooYoung)),
            (any(vec![min(9), min(2)]), None),
            (any(vec![waiting(70), min(9)]), Some(AnswerReason::TooYoung)),
        ];
        for (selection, reason) in cases {
            let mut policy = policy("p", target("t"));
            policy.spec.jobs = selection;
            let job = nodes(1, 4);
            let result = select(&policy, &job, 4, at(60)).err();
            assert_eq!(result.map(|it| it.why.reason()), reason, "{:?}", policy.spec.jobs);
        }
    }

    #[test]
    fn the_earliest_wait_of_several_is_given() {
        let mut policy = policy("p", target("t"));
        let waiting = |seconds| JobMatch { waiting_seconds: Some(seconds), ..JobMatch::default() };
        policy.spec.jobs.any_of = vec![waiting(90), waiting(70), waiting(80)];
        let job = job(1);
        let refusal = select(&policy, &job, 1, at(60)).unwrap_err();
        assert_eq!(refusal.until, Some(at(70)));
        assert_eq!(refusal.why, Why::TooYoung { until: at(70) });
    }
}
