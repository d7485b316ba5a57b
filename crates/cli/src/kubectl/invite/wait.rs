//! Waits until the file of an invitation can be written, and says why it cannot.

use std::future::pending;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::{Invitation, LeaseState};
use flux_operator_api::view::{RankRange, RankState};
use flux_operator_api::{MiniCluster, Reason};
use flux_operator_flux::IdSet;
use flux_operator_plan::view::rank_table;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::addition::is_finished;
use super::invitation::{count_of_ranks, external, lease, port};
use super::secrets;
use crate::kubectl::outcome::{readiness, waiting_reason};
use crate::kubectl::session::Session;
use crate::kubectl::table::format_age;
use crate::kubectl::watch::{WatchedState, watch_object};
use crate::print;

/// How long to wait without a message. The operator usually needs less than a second.
const QUIET: Duration = Duration::from_secs(2);

/// What is missing before the file of an invitation can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// No ranks are leased to it.
    Lease,
    /// No address is known at which others reach the lender.
    Address,
    /// The port is not known.
    Port,
    /// The lead has not reported its version and user.
    Report,
}

impl Missing {
    fn description(self) -> &'static str {
        match self {
            Missing::Lease => "no ranks are leased to it",
            Missing::Address => "no address is known at which others reach the MiniCluster",
            Missing::Port => "no port is known at which others reach the MiniCluster",
            Missing::Report => "the lead has not reported its version and user",
        }
    }
}

/// Waits until the operator has leased the ranks of an invitation and published where its brokers
/// connect to. Returns that state of the MiniCluster.
pub(super) async fn wait(
    session: &Session,
    lender: &MiniCluster,
    invitation: &Invitation,
    timeout: Duration,
) -> Result<MiniCluster> {
    let (name, shown_timeout) = (lender.name_any(), format_age(whole_seconds(timeout)));
    let mut last = lender.clone();
    let watched = watch_object(session.miniclusters(), lender, |observed| match observed {
        WatchedState::Deleted(_) => Some(Err("was deleted")),
        WatchedState::Current(now) => {
            last = now;
            if is_finished(&last) {
                return Some(Err("has finished"));
            }
            missing(&last, invitation).is_none().then(|| Ok(last.clone()))
        }
    });
    let notice = async {
        tokio::time::sleep(QUIET).await;
        print::message(format_args!(
            "waiting up to {shown_timeout} for ranks and an address of {name}"
        ));
        pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = watched => Some(ended),
        () = notice => None,
        () = tokio::time::sleep(timeout) => None,
    };
    match ended {
        Some(Ok(Ok(ready))) => Ok(ready),
        Some(Ok(Err(what))) => {
            bail!("{name:?} {what}, so there is no Flux instance to join\nhint: create it again")
        }
        Some(Err(error)) => Err(error.context(format!("failed to wait for {name:?}"))),
        None => {
            let job = secrets::job(session, &name).await.ok().flatten();
            let Cause { message, hint } = cause(&last, job.as_ref(), invitation);
            Err(anyhow!(
                "invitation {:?} cannot be used after {shown_timeout}: {message}\nhint: {}",
                invitation.name,
                session.remedy(&hint, &name)
            ))
        }
    }
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// What is missing before the file can be written; `None` if it can.
fn missing(lender: &MiniCluster, invitation: &Invitation) -> Option<Missing> {
    let active = lease(lender, invitation).filter(|lease| lease.state == LeaseState::Active);
    let Some(lease) = active else { return Some(Missing::Lease) };
    let external = external(lender);
    if external.is_none_or(|external| external.addresses.is_empty()) {
        return Some(Missing::Address);
    }
    if port(lender, lease) <= 0 {
        return Some(Missing::Port);
    }
    external.is_none_or(|external| external.lead.is_none()).then_some(Missing::Report)
}

/// Why an invitation cannot be used, and what to do about it, in the form of a remedy.
#[derive(Debug, PartialEq, Eq)]
struct Cause {
    message: String,
    hint: String,
}

fn cause(lender: &MiniCluster, job: Option<&Job>, invitation: &Invitation) -> Cause {
    let status = lender.status.clone().unwrap_or_default();
    let find = |kind: ConditionType| status.conditions.iter().find(|it| it.type_ == kind.as_str());
    let is_false = |condition: &&Condition| condition.status == "False";
    let of_condition = |condition: &Condition| Cause {
        message: format!("{}: {}", condition.reason, condition.message),
        hint: remedy(&condition.reason),
    };
    if let Some(refused) = find(ConditionType::Accepted).filter(is_false) {
        return of_condition(refused);
    }
    if status.observed_generation < lender.metadata.generation {
        let hint = "check that the operator is running, and that its version knows invitations";
        let message = "the operator has not processed the change".into();
        return Cause { message, hint: hint.into() };
    }
    if let Some(closed) = find(ConditionType::Exposed).filter(is_false) {
        return of_condition(closed);
    }
    if let Some(waits) = waiting_reason(&status) {
        let reason = readiness(&status.conditions).map(|it| it.reason.as_str()).unwrap_or_default();
        let message = format!("{} is not ready: {waits}", lender.name_any());
        return Cause { message, hint: remedy(reason) };
    }
    let missing = missing(lender, invitation);
    let message = missing.map_or("its state has changed", Missing::description).to_owned();
    match (missing, free_ranks(lender, job)) {
        (Some(Missing::Lease), Some(free)) if free < i64::from(invitation.ranks) => Cause {
            message: too_few(free, invitation.ranks),
            hint: format!(
                "{} `kubectl minicluster ranks NAME` shows who has which rank.",
                Reason::NoFreeRanks.remedy()
            ),
        },
        (Some(Missing::Lease) | None, _) => {
            let hint = "`kubectl minicluster ranks NAME` shows who has which rank".to_owned();
            Cause { message, hint }
        }
        (Some(Missing::Address | Missing::Port), _) => {
            Cause { message, hint: Reason::AddressPending.remedy().to_owned() }
        }
        (Some(Missing::Report), _) => {
            Cause { message, hint: Reason::LenderNotReady.remedy().to_owned() }
        }
    }
}

/// The remedy of a condition's reason.
fn remedy(reason: &str) -> String {
    let remedy = reason.parse::<Reason>().ok().map(Reason::remedy);
    let remedy = remedy.filter(|remedy| !remedy.starts_with("Nothing"));
    remedy.unwrap_or("`kubectl describe minicluster NAME` shows its conditions").to_owned()
}

fn too_few(free: i64, needed: i32) -> String {
    let free = match free {
        1 => "1 rank is free".to_owned(),
        count => format!("{count} ranks are free"),
    };
    let is_or_are = if needed == 1 { "is" } else { "are" };
    format!("{free}, and {} {is_or_are} needed", count_of_ranks(needed))
}

/// How many ranks of the lender's instance no broker has; `None` if that is not known.
fn free_ranks(lender: &MiniCluster, job: Option<&Job>) -> Option<i64> {
    let table = rank_table(lender, job, None).ok()?;
    let free = table.items.iter().filter(|it| it.state == RankState::Free);
    let count = |it: &RankRange| it.ranks.parse::<IdSet>().map(|ranks| ranks.len()).ok();
    i64::try_from(free.filter_map(count).sum::<u64>()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bursting_mut, invitation, job, lender};
    use super::*;
    use serde_json::{Value, json};

    fn invited(lender: &MiniCluster) -> Invitation {
        super::super::invitation::invitations(lender)[0].clone()
    }

    fn with(change: impl FnOnce(&mut flux_operator_api::MiniClusterStatus)) -> MiniCluster {
        let mut lender = lender();
        change(lender.status.as_mut().unwrap());
        lender
    }

    #[test]
    fn the_file_needs_a_lease_an_address_a_port_and_a_report() {
        let missing_of = |lender: &MiniCluster| missing(lender, &invited(lender));
        assert_eq!(missing_of(&lender()), None);
        let no_lease = with(|status| status.leases.clear());
        assert_eq!(missing_of(&no_lease), Some(Missing::Lease));
        let leaving = with(|status| status.leases[0].state = LeaseState::Leaving);
        assert_eq!(missing_of(&leaving), Some(Missing::Lease));
        let external = |change: fn(&mut flux_operator_api::minicluster::External)| {
            with(|status| change(status.external.as_mut().unwrap()))
        };
        let no_address = external(|external| external.addresses.clear());
        assert_eq!(missing_of(&no_address), Some(Missing::Address));
        assert_eq!(missing_of(&with(|status| status.external = None)), Some(Missing::Address));
        let no_port = with(|status| status.leases[0].invitation.as_mut().unwrap().port = 0);
        assert_eq!(missing_of(&no_port), Some(Missing::Port));
        assert_eq!(missing_of(&external(|it| it.lead = None)), Some(Missing::Report));
        let another_end = invitation("a", 2, "2026-01-02T00:00:00Z");
        assert_eq!(missing(&lender(), &another_end), Some(Missing::Lease));
    }

    #[test]
    fn the_port_of_an_exposed_lead_is_its_own() {
        let mut direct = with(|status| status.leases[0].invitation.as_mut().unwrap().port = 0);
        bursting_mut(&mut direct).expose =
            serde_json::from_value(json!({ "direct": true })).unwrap();
        assert_eq!(missing(&direct, &invited(&direct)), Some(Missing::Port));
        direct.status.as_mut().unwrap().external.as_mut().unwrap().port = 30_000;
        assert_eq!(missing(&direct, &invited(&direct)), None);
    }

    /// A lender without a lease, with these conditions as type, status, reason and message.
    fn waiting(conditions: &[[&str; 4]]) -> MiniCluster {
        let condition = |[kind, status, reason, message]: &[&str; 4]| {
            json!({ "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        let conditions: Vec<Value> = conditions.iter().map(condition).collect();
        with(|status| {
            status.leases.clear();
            status.conditions = serde_json::from_value(conditions.into()).unwrap();
        })
    }

    fn cause_of(lender: &MiniCluster) -> (String, String) {
        let Cause { message, hint } =
            cause(lender, Some(&job()), &invited(&super::tests::lender()));
        (message, hint)
    }

    #[test]
    fn the_first_condition_that_is_not_met_is_the_cause() {
        let ready = ["Ready", "True", "Quorum", ""];
        let not_ready = ["Ready", "False", "Unschedulable", "no nodes"];
        let closed = ["Exposed", "False", "GatewayMissing", "no gateway"];
        let refused = ["Accepted", "False", "Invalid", "metadata.name is too long"];
        for (conditions, message, hint) in [
            (&[refused, closed, not_ready][..], "Invalid: metadata.name is too long", ""),
            (&[closed, not_ready], "GatewayMissing: no gateway", "Install it with "),
            (&[not_ready], "fs is not ready: Unschedulable: no nodes", ""),
            (
                &[["Ready", "False", "FromTheFuture", "?"]],
                "fs is not ready: FromTheFuture: ?",
                "`kubectl describe minicluster NAME` shows its conditions",
            ),
            (
                &[ready],
                "no ranks are leased to it",
                "`kubectl minicluster ranks NAME` shows who has which rank",
            ),
        ] {
            let (found, remedy) = cause_of(&waiting(conditions));
            assert_eq!(found, message);
            assert!(remedy.starts_with(hint) && !remedy.is_empty(), "{message}: {remedy}");
        }
        let mut unprocessed = waiting(&[closed]);
        unprocessed.metadata.generation = Some(2);
        assert_eq!(cause_of(&unprocessed).0, "the operator has not processed the change");
    }

    #[test]
    fn too_few_free_ranks_are_counted() {
        let mut lender = waiting(&[["Ready", "True", "Quorum", ""]]);
        let joiner = json!({ "ranks": "2-4", "holder": "u", "namespace": "near", "name": "j",
            "table": "t", "since": "2026-01-01T00:00:00Z", "state": "Active" });
        lender.status.as_mut().unwrap().leases = vec![serde_json::from_value(joiner).unwrap()];
        let (message, hint) = cause_of(&lender);
        assert_eq!(message, "1 rank is free, and 2 ranks are needed");
        assert!(hint.contains("spareRanks") && hint.contains(" ranks NAME"), "{hint}");
        assert_eq!(too_few(0, 1), "0 ranks are free, and 1 rank is needed");
    }

    #[test]
    fn a_lease_without_an_address_or_a_report_is_explained() {
        let no_report = with(|status| status.external.as_mut().unwrap().lead = None);
        let found = cause(&no_report, None, &invited(&no_report));
        assert_eq!(found.message, "the lead has not reported its version and user");
        let no_port = with(|status| status.leases[0].invitation.as_mut().unwrap().port = 0);
        let found = cause(&no_port, None, &invited(&no_port));
        assert!(found.message.starts_with("no port is known"), "{found:?}");
        assert!(found.hint.contains("hostname"), "{found:?}");
    }
}
