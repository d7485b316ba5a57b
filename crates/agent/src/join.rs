//! Asks the operator whether a broker may join the instance of another cluster.
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
    /// `None` if its address or the key is missing; then there is never a permission.
    operator: Option<OperatorClient>,
    request: JoinRequest,
    delay: Backoff,
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
        let target = rank.plan.report.as_ref();
        let operator = target.and_then(|target| OperatorClient::new(common, target));
        let request = JoinRequest {
            index: common.index,
            rank: rank.number,
            table: table.clone(),
            facts,
            last_error,
            refusal: None,
        };
        Some(PermissionRequest { operator, request, delay: BACKOFF })
    }

    /// What is asked.
    pub fn request(&self) -> &JoinRequest {
        &self.request
    }

    /// Notes what a lender in another Kubernetes cluster has answered, for the operator here.
    pub fn set_refusal(&mut self, refusal: Option<JoinRefusal>) {
        self.request.refusal = refusal;
    }

    /// Asks once.
    pub fn ask(&mut self) -> NextStep {
        let report = Report::JoinWanted(self.request.clone());
        let Some(operator) = &mut self.operator else {
            let why = "there is no operator to ask".to_owned();
            return NextStep::AskAgain(self.delay.next_delay(), Some(why));
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
