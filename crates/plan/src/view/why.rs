//! The state of a job in its queue, in full: what it requests, where it waits, and why.

use flux_operator_api::view::{Place, Why, WhyState};
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::{Admission, Reason, Resource, SetupName, Uid, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::queue::{Standing, View, amounts_text, kind, strategy};
use crate::queueing::ledger::{Guard, Identity};
use crate::reason::of_waiting;

impl<G: Guard> View<'_, G> {
    /// The state of a job in its queue; None if it is not in a queue.
    pub fn why(&self, uid: &Uid) -> Option<Why> {
        let standing = self.standing(uid);
        let Identity { kind: what, namespace, name } = self.identity(uid)?;
        let mut why = Why {
            kind: kind(what).into(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            ..Why::default()
        };
        let queue = self.queue_of(uid);
        if let Some(workload) = self.workload(uid) {
            why.asks = amounts_text(&self.asks(workload));
            why.queue = queue.map(|queue| self.queue_text(queue)).unwrap_or_default();
        }
        match standing {
            Standing::Ended => why.state = WhyState::Ended,
            Standing::NotQueued => return None,
            Standing::Refused(mistake) => {
                why.state = WhyState::Refused;
                why.reason = mistake.reason.to_string();
                why.message = mistake.message.clone();
            }
            Standing::Admitted(admission) => {
                why.state = WhyState::Admitted;
                why.message = admitted(admission);
            }
            Standing::Next(admit) => {
                why.state = WhyState::Admissible;
                let amounts = amounts_text(&admit.admission.resources);
                why.message = format!("quota is available now: {amounts}");
            }
            Standing::Waits(waiting) => {
                why.state = WhyState::Waiting;
                why.reason = of_waiting(&waiting.reason).to_string();
                why.message = waiting.reason.to_string();
                why.position = queue.and_then(|queue| {
                    let pending = self.usage(queue).pending;
                    self.position(uid).map(|place| Place { place, pending })
                });
                if let Some((resource, amount)) = missing(&waiting.reason) {
                    why.missing = resource.amount(amount);
                }
                if let (Some(queue), Reason::WaitingForQuota { resource, missing }) =
                    (queue, &waiting.reason)
                {
                    why.freed_by = self.freed_by(queue, resource, *missing);
                }
            }
        }
        Some(why)
    }

    fn queue_text(&self, queue: &SetupName) -> String {
        match self.setup(queue) {
            Some(setup) => format!("{queue} ({})", strategy(setup.strategy)),
            None => queue.to_string(),
        }
    }

    /// The jobs of a queue that would have to finish, in the order in which they may: first
    /// those with a time limit.
    fn freed_by(&self, queue: &SetupName, resource: &Resource, missing: i64) -> Vec<String> {
        let mut holders: Vec<(&Workload, &Admission)> = self
            .admitted(queue)
            .filter_map(|job| Some((job, job.admission.as_ref()?)))
            .filter(|(_, admission)| admission.resources.amount(resource) > 0)
            .collect();
        let end = |job: &Workload, admission: &Admission| {
            job.max_runtime.map(|time| admission.at.saturating_add(time))
        };
        holders.sort_by_key(|(job, admission)| {
            let end = end(job, admission);
            (end.is_none(), end, admission.at, job.uid.clone())
        });
        let mut freed: i64 = 0;
        let mut named = Vec::new();
        for (job, admission) in holders {
            if freed >= missing {
                break;
            }
            freed = freed.saturating_add(admission.resources.amount(resource));
            let amount = resource.amount(admission.resources.amount(resource));
            let end = end(job, admission).map(|end| format!(" by {}", time(end)));
            named.push(format!("{} ({amount}{})", job.name, end.unwrap_or_default()));
        }
        // All of them together would not be enough.
        if freed < missing { Vec::new() } else { named }
    }
}

/// What is missing, according to a reason.
fn missing(reason: &Reason) -> Option<(&Resource, i64)> {
    match reason {
        Reason::WaitingForQuota { resource, missing }
        | Reason::NamespaceQuota { resource, missing, .. } => Some((resource, *missing)),
        Reason::ExceedsQuota { resource, asked, room } => {
            Some((resource, asked.saturating_sub(*room)))
        }
        _ => None,
    }
}

fn admitted(admission: &Admission) -> String {
    let Admission { queue, size, at, .. } = admission;
    format!("{queue} granted {} at {}", Resource::Nodes.amount((*size).into()), time(*at))
}

/// What the operator last reported of a job.
pub fn of_job(job: &FluxJob) -> Why {
    let status = job.status.clone().unwrap_or_default();
    let (reason, message) = match status.conditions.iter().find(|c| c.type_ == "Admitted") {
        Some(condition) => words(condition),
        None => (status.reason.clone(), String::new()),
    };
    let state = match (&status.finish_time, &status.admission) {
        (Some(_), _) => WhyState::Ended,
        (None, Some(_)) => WhyState::Admitted,
        (None, None) => WhyState::Waiting,
    };
    let ended = status.exit_code.map(|code| format!("its command finished with exit code {code}"));
    Why {
        kind: "FluxJob".into(),
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        state,
        queue: status.queue,
        reason: if ended.is_some() { status.phase } else { reason },
        message: ended.unwrap_or(message),
        ..Why::default()
    }
}

/// What the operator last reported of a MiniCluster.
pub fn of_minicluster(minicluster: &MiniCluster) -> Why {
    let status = minicluster.status.clone().unwrap_or_default();
    let condition = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
    let is_true = |kind: &str| condition(kind).is_some_and(|c| c.status == "True");
    let (reason, message) = condition("Admitted").map(words).unwrap_or_default();
    Why {
        kind: "MiniCluster".into(),
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
        state: match (is_true("JobFinished"), is_true("Admitted")) {
            (true, _) => WhyState::Ended,
            (false, true) => WhyState::Admitted,
            (false, false) => WhyState::Waiting,
        },
        reason,
        message,
        ..Why::default()
    }
}

fn words(condition: &Condition) -> (String, String) {
    (condition.reason.clone(), condition.message.clone())
}

fn time(millis: i64) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}
