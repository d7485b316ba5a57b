//! `kubectl minicluster burst policies`: list BurstPolicies.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::BurstPolicy;
use flux_operator_plan::bursting::day;
use jiff::Timestamp;
use kube::ResourceExt;

use super::state::{accepted, needs_user};
use crate::kubectl::listing;
use crate::kubectl::printed_list::ListOptions;
use crate::kubectl::session::Session;
use crate::kubectl::table::{format_age, table};

/// List BurstPolicies: whether they are applied, the MiniClusters and waiting jobs that they serve,
/// and what their Bursts use.
///
/// TODAY are node-hours and cost of this day, in UTC.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    options: ListOptions,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let options = &arguments.options;
    let all = options.all_namespaces;
    let api = if all { session.all() } else { session.api() };
    let mut listed: Vec<BurstPolicy> = match listing::list(api).await {
        Ok(listed) => listed.items,
        Err(error) => return Err(session.explain(error, "failed to list BurstPolicies").await),
    };
    options
        .print(session, &mut listed, |listed, wide| rows(listed, all, wide, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

/// The columns of `kubectl get` and the usage, plus details with `wide`.
fn rows(listed: &[BurstPolicy], namespaces: bool, wide: bool, now: Timestamp) -> String {
    let mut header =
        vec!["NAME", "ACCEPTED", "CLUSTERS", "JOBS", "BURSTS", "NODES", "TODAY", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["TARGETS", "MESSAGE"]);
    }
    let row = |policy: &BurstPolicy| {
        let status = policy.status.clone().unwrap_or_default();
        let created = policy.creation_timestamp();
        let age = created.map(|time| format_age(now.as_second() - time.0.as_second()));
        let mut row = vec![
            policy.name_any(),
            // As kubectl prints a condition that is not there.
            accepted(policy).map(|it| it.status.clone()).unwrap_or_default(),
            status.clusters.to_string(),
            status.pending_jobs.to_string(),
            status.bursts.to_string(),
            format!("{}/{}", status.nodes, policy.spec.limits.nodes),
            today(policy, now),
            age.unwrap_or_default(),
        ];
        if namespaces {
            row.insert(0, policy.namespace().unwrap_or_default());
        }
        if wide {
            let targets = policy.spec.targets.iter();
            let targets: Vec<String> =
                targets.map(|it| format!("{} ({})", it.name, it.max_nodes)).collect();
            let problem = needs_user(&status.conditions).map(|it| it.message);
            let problem = problem.or_else(|| {
                policy.spec.suspend.then(|| "Suspended: it requests no more nodes".to_owned())
            });
            row.extend([targets.join(", "), problem.unwrap_or_default()]);
        }
        row
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    table(&header, &rows)
}

/// What its Bursts have used today.
fn today(policy: &BurstPolicy, now: Timestamp) -> String {
    let usage = policy.status.as_ref().and_then(|status| status.usage.as_ref());
    match usage.filter(|usage| usage.day == day(now)) {
        None => "-".to_owned(),
        Some(usage) if usage.cost.is_empty() => format!("{} node-hours", usage.node_hours),
        Some(usage) => format!("{} node-hours, cost {}", usage.node_hours, usage.cost),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{condition, now, policy};
    use super::*;

    #[test]
    fn the_table_shows_what_a_policy_serves_and_uses() {
        let mut fresh = policy();
        fresh.metadata.name = Some("new".into());
        fresh.status = None;
        let expected = "\
NAME    ACCEPTED   CLUSTERS   JOBS   BURSTS   NODES   TODAY                        AGE
cloud   True       1          2      1        2/8     1.50 node-hours, cost 0.54   30m
new                0          0      0        0/8     -                            30m
";
        assert_eq!(rows(&[policy(), fresh], false, false, now()), expected);
    }

    #[test]
    fn yesterdays_usage_is_not_todays() {
        let tomorrow = "2026-01-02T00:00:01Z".parse().unwrap();
        assert_eq!(today(&policy(), tomorrow), "-");
        let mut free = policy();
        free.status.as_mut().unwrap().usage.as_mut().unwrap().cost.clear();
        assert_eq!(today(&free, now()), "1.50 node-hours");
    }

    #[test]
    fn targets_and_problems_are_shown_when_asked_for() {
        let mut refused = policy();
        refused.status.as_mut().unwrap().conditions =
            vec![condition("Accepted", "False", "NamespaceNotListed", "not served")];
        let text = rows(&[refused], true, true, now());
        let row = text.lines().nth(1).unwrap();
        assert!(row.starts_with("team        cloud   False "), "{text}");
        assert!(row.ends_with("gke (4), pool (8)   NamespaceNotListed: not served"), "{text}");
    }
}
