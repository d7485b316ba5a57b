//! The state of a job in its queue, in full: what it requests, where it waits, and why.

use flux_operator_api::view::{AdmissionState, JobExplanation, QueuePosition};
use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_queue::{Admission, Resource, SetupName, Uid, WaitReason, Workload};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::queue::{AdmissionStatus, QueueView, amounts_text, kind, strategy};
use crate::queueing::ledger::{Guard, JobIdentity};
use crate::reason::of_waiting;

impl<G: Guard> QueueView<'_, G> {
    /// The state of a job in its queue; None if it is not in a queue.
    pub fn explain(&self, uid: &Uid) -> Option<JobExplanation> {
        let status = self.admission_status(uid);
        let JobIdentity { kind: what, namespace, name } = self.identity(uid)?;
        let mut explanation = JobExplanation {
            kind: kind(what).into(),
            namespace: namespace.to_string(),
            name: name.to_string(),
            ..JobExplanation::default()
        };
        let queue = self.queue_of(uid);
        if let Some(workload) = self.workload(uid) {
            explanation.asks = amounts_text(&self.requests(workload));
            explanation.queue = queue.map(|queue| self.queue_text(queue)).unwrap_or_default();
        }
        match status {
            AdmissionStatus::Finished => explanation.state = AdmissionState::Ended,
            AdmissionStatus::NotQueued => return None,
            AdmissionStatus::Refused(refusal) => {
                explanation.state = AdmissionState::Refused;
                explanation.reason = refusal.reason.to_string();
                explanation.message = refusal.message.clone();
            }
            AdmissionStatus::Admitted(admission) => {
                explanation.state = AdmissionState::Admitted;
                explanation.message = admitted(admission);
            }
            AdmissionStatus::Admissible(admit) => {
                explanation.state = AdmissionState::Admissible;
                let amounts = amounts_text(&admit.admission.resources);
                explanation.message = format!("quota is available now: {amounts}");
            }
            AdmissionStatus::Waiting(waiting) => {
                explanation.state = AdmissionState::Waiting;
                explanation.reason = of_waiting(&waiting.reason).to_string();
                explanation.message = waiting.reason.to_string();
                explanation.position = queue.and_then(|queue| {
                    let pending = self.usage(queue).pending;
                    self.position(uid).map(|place| QueuePosition { place, pending })
                });
                if let Some((resource, amount)) = missing(&waiting.reason) {
                    explanation.missing = resource.describe(amount);
                }
                if let (Some(queue), WaitReason::WaitingForQuota { resource, missing }) =
                    (queue, &waiting.reason)
                {
                    explanation.freed_by = self.freed_by(queue, resource, *missing);
                }
            }
        }
        Some(explanation)
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
        let (mut named, mut unnamed) = (Vec::new(), 0_u32);
        for (job, admission) in holders {
            if freed >= missing {
                break;
            }
            freed = freed.saturating_add(admission.resources.amount(resource));
            if !self.may_name(&job.namespace) {
                unnamed = unnamed.saturating_add(1);
                continue;
            }
            let amount = resource.describe(admission.resources.amount(resource));
            let end = end(job, admission).map(|end| format!(" by {}", time(end)));
            named.push(format!("{} ({amount}{})", job.name, end.unwrap_or_default()));
        }
        match unnamed {
            0 => {}
            1 => named.push("a job of another namespace".into()),
            _ => named.push(format!("{unnamed} jobs of other namespaces")),
        }
        // If all of them together would not be enough, none is named.
        if freed < missing { Vec::new() } else { named }
    }
}

/// What is missing, according to a reason.
fn missing(reason: &WaitReason) -> Option<(&Resource, i64)> {
    match reason {
        WaitReason::WaitingForQuota { resource, missing }
        | WaitReason::NamespaceQuota { resource, missing, .. } => Some((resource, *missing)),
        WaitReason::ExceedsQuota { resource, requested, quota } => {
            Some((resource, requested.saturating_sub(*quota)))
        }
        _ => None,
    }
}

fn admitted(admission: &Admission) -> String {
    let Admission { queue, size, at, .. } = admission;
    format!("{queue} granted {} at {}", Resource::Nodes.describe((*size).into()), time(*at))
}

/// What the operator last reported of a job.
pub fn of_job(job: &FluxJob) -> JobExplanation {
    let status = job.status.clone().unwrap_or_default();
    let (reason, message) = match status.conditions.iter().find(|c| c.type_ == "Admitted") {
        Some(condition) => reason_and_message(condition),
        None => (status.reason.clone(), String::new()),
    };
    let state = match (&status.finish_time, &status.admission) {
        (Some(_), _) => AdmissionState::Ended,
        (None, Some(_)) => AdmissionState::Admitted,
        (None, None) => AdmissionState::Waiting,
    };
    let finished =
        status.exit_code.map(|code| format!("its command finished with exit code {code}"));
    JobExplanation {
        kind: "FluxJob".into(),
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        state,
        queue: status.queue,
        reason: if finished.is_some() { status.phase } else { reason },
        message: finished.unwrap_or(message),
        ..JobExplanation::default()
    }
}

/// What the operator last reported of a MiniCluster.
pub fn of_minicluster(minicluster: &MiniCluster) -> JobExplanation {
    let status = minicluster.status.clone().unwrap_or_default();
    let condition = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
    let is_true = |kind: &str| condition(kind).is_some_and(|c| c.status == "True");
    let (reason, message) = condition("Admitted").map(reason_and_message).unwrap_or_default();
    JobExplanation {
        kind: "MiniCluster".into(),
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
        state: match (is_true("JobFinished"), is_true("Admitted")) {
            (true, _) => AdmissionState::Ended,
            (false, true) => AdmissionState::Admitted,
            (false, false) => AdmissionState::Waiting,
        },
        reason,
        message,
        ..JobExplanation::default()
    }
}

fn reason_and_message(condition: &Condition) -> (String, String) {
    (condition.reason.clone(), condition.message.clone())
}

fn time(millis: i64) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}
