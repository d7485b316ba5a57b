//! Asks the operator whether a broker may join the instance of another cluster.
//!
//! If the lender is in another Kubernetes cluster, it is asked first (`remote_lead`), and both must
//! agree. A broker with an invitation but without an operator of its own, as a burst creates them,
//! asks the lender alone. A lender outside Kubernetes has no operator either: its
//! brokers only compare themselves with the lead.
//!
//! It is asked before every start of a broker, also when a broker of the same pod has exited: a pod
//! on a node that was given up may outlive its lease.

use std::time::Duration;

use flux_operator_wire::{
    BrokerFacts, JoinAnswer, JoinPlan, JoinRefusal, JoinRequest, Report, Work,
};

use crate::arguments::CommonArguments;
use crate::backoff::Backoff;
use crate::operator_client::OperatorClient;
use crate::rank_plan::RankPlan;

/// The timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The delay between two requests. The first ones are on the critical path of a starting cluster.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Asks for permission, again and again.
#[derive(Debug)]
pub struct PermissionRequest {
    authority: Authority,
    request: JoinRequest,
    /// Whether a lender in another Kubernetes cluster has given permission.
    is_invited: bool,
    delay: Backoff,
}

/// Who gives permission here.
#[derive(Debug)]
enum Authority {
    /// The operator of this Kubernetes cluster.
    Operator(OperatorClient),
    /// The lender: no operator of this Kubernetes cluster has created the pod.
    Lender,
    /// None: the broker can never be part of the instance, for this reason.
    Unfit(String),
    /// The operator, but its key is missing, or no address and no lender to ask: there is never a
    /// permission.
    Missing,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Start the broker.
    Start,
    /// Ask again after this time; the operator's reason, if it has answered.
    AskAgain(Duration, Option<String>),
    /// Exit, so that the pod is replaced.
    Replace(String),
    /// Exit: another pod of this image would be refused too.
    Fail(String),
}

impl PermissionRequest {
    /// The request of a broker that joins; `None` if no permission is needed: the broker starts an
    /// instance of its own, or runs on one machine, where no other broker gets its rank.
    /// `last_error` is that of the broker that exited before, if one did.
    pub fn new(
        common: &CommonArguments,
        rank: &RankPlan,
        facts: BrokerFacts,
        last_error: String,
    ) -> Option<Self> {
        let JoinPlan { table, cluster, remote, .. } = rank.plan.join.as_ref()?;
        if cluster.is_empty() && remote.is_none() {
            return None;
        }
        let has_invitation = remote.as_ref().is_some_and(|remote| remote.invitation.is_some());
        let lead = remote.as_ref().and_then(|remote| remote.standalone_lead.as_ref());
        let authority = match (rank.plan.report.as_ref(), lead) {
            (Some(target), _) => {
                OperatorClient::new(common, target).map_or(Authority::Missing, Authority::Operator)
            }
            (None, Some(lead)) => {
                difference(&facts, lead).map_or(Authority::Lender, Authority::Unfit)
            }
            (None, None) if has_invitation => Authority::Lender,
            (None, None) => Authority::Missing,
        };
        let request = JoinRequest {
            index: common.index,
            rank: rank.number,
            table: table.clone(),
            facts,
            last_error,
            refusal: None,
        };
        Some(PermissionRequest { authority, request, is_invited: false, delay: BACKOFF })
    }

    /// What is asked.
    pub fn request(&self) -> &JoinRequest {
        &self.request
    }

    /// Notes what a lender in another Kubernetes cluster has answered; `None` if there is none.
    pub fn set_lender_answer(&mut self, answer: Option<Result<(), JoinRefusal>>) {
        self.is_invited = matches!(answer, Some(Ok(())));
        self.request.refusal = answer.and_then(Result::err);
    }

    /// Asks once.
    pub fn ask(&mut self) -> NextStep {
        let report = Report::JoinWanted(self.request.clone());
        let operator = match &mut self.authority {
            Authority::Operator(operator) => operator,
            Authority::Lender if self.is_invited => return NextStep::Start,
            Authority::Lender => {
                let why = self.request.refusal.as_ref().map(|refusal| refusal.message.clone());
                return NextStep::AskAgain(self.delay.next_delay(), why);
            }
            Authority::Unfit(why) => return NextStep::Fail(why.clone()),
            Authority::Missing => {
                let why = "there is no operator to ask".to_owned();
                return NextStep::AskAgain(self.delay.next_delay(), Some(why));
            }
        };
        let reply = operator.exchange(&report, TIMEOUT).unwrap_or_default();
        let answer = reply.work.into_iter().find_map(|work| match work {
            Work::Join(answer) => Some(answer),
            _ => None,
        });
        match answer {
            Some(JoinAnswer::Start) => NextStep::Start,
            Some(JoinAnswer::Replace(why)) => NextStep::Replace(why),
            Some(JoinAnswer::Wait(why)) => NextStep::AskAgain(self.delay.next_delay(), Some(why)),
            None => NextStep::AskAgain(self.delay.next_delay(), None),
        }
    }
}

/// Why a broker cannot be part of the instance of a lead outside Kubernetes. `lead` has the cores that
/// the rank must have.
fn difference(own: &BrokerFacts, lead: &BrokerFacts) -> Option<String> {
    if let Some(mismatch) = own.mismatch(lead) {
        return Some(mismatch.to_string());
    }
    (own.cores < lead.cores).then(|| {
        format!(
            "its pods have {} cores, and the lender expects {} of each rank: request more in \
             pods.resources of the target, or list fewer in the lender's [[resource.config]]",
            own.cores, lead.cores
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank_plan::tests::{plan, rank};
    use flux_operator_wire::{BootPlan, RemoteLead, ReportTarget};

    fn request(invitation: Option<&str>, report: Option<ReportTarget>) -> PermissionRequest {
        request_of(invitation, report, None)
    }

    fn request_of(
        invitation: Option<&str>,
        report: Option<ReportTarget>,
        standalone_lead: Option<BrokerFacts>,
    ) -> PermissionRequest {
        let remote = RemoteLead {
            addresses: vec!["127.0.0.1:1".into()],
            invitation: invitation.map(str::to_owned),
            joiner_name: "ns/b".into(),
            standalone_lead,
        };
        let join = JoinPlan {
            lender: "a".into(),
            cluster: "c".into(),
            job: String::new(),
            ranks: "2-3".parse().unwrap(),
            table: "hash".into(),
            remote: Some(remote),
        };
        let common = CommonArguments {
            plan: "/".into(),
            secrets: "/".into(),
            root: "/".into(),
            index: 0,
            flux: None,
        };
        let rank = rank(BootPlan { join: Some(join), report, ..plan() }, 2);
        let facts = BrokerFacts { version: "0.88.0".into(), uid: 7, cores: 2 };
        PermissionRequest::new(&common, &rank, facts, String::new()).unwrap()
    }

    fn why(step: NextStep) -> Option<String> {
        match step {
            NextStep::AskAgain(_, why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_an_operator_the_lender_of_an_invitation_decides() {
        let mut request = request(Some("i"), None);
        assert_eq!(why(request.ask()), None, "the lender was not asked");
        let refusal = JoinRefusal { reason: "Joining".into(), message: "wait for it".into() };
        request.set_lender_answer(Some(Err(refusal.clone())));
        assert_eq!(why(request.ask()).as_deref(), Some("wait for it"));
        request.set_lender_answer(Some(Ok(())));
        assert_eq!(request.ask(), NextStep::Start);
        // It is asked before every start.
        request.set_lender_answer(Some(Err(refusal)));
        assert_eq!(why(request.ask()).as_deref(), Some("wait for it"));
    }

    #[test]
    fn a_lead_outside_kubernetes_is_joined_by_brokers_that_are_like_it() {
        let lead = |version: &str, uid, cores| {
            let lead = BrokerFacts { version: version.into(), uid, cores };
            request_of(None, None, Some(lead))
        };
        let mut alike = lead("0.88.1", 7, 2);
        assert_eq!(why(alike.ask()), None, "its address is not known yet");
        alike.set_lender_answer(Some(Ok(())));
        assert_eq!(alike.ask(), NextStep::Start);
        for (mut other, word) in [
            (lead("0.87.0", 7, 2), "release"),
            (lead("", 7, 2), "compared"),
            (lead("0.88.0", 8, 2), "as user 7"),
            (lead("0.88.0", 7, 3), "2 cores"),
        ] {
            other.set_lender_answer(Some(Ok(())));
            let NextStep::Fail(message) = other.ask() else { panic!("{word}: it may start") };
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn without_an_operator_and_an_invitation_there_is_no_permission() {
        let operator = ReportTarget { url: "http://127.0.0.1:1".into(), uid: "b".into() };
        // The operator's key cannot be read from `/`.
        for mut request in [request(None, None), request(Some("i"), Some(operator))] {
            request.set_lender_answer(Some(Ok(())));
            assert_eq!(why(request.ask()).as_deref(), Some("there is no operator to ask"));
        }
    }
}
