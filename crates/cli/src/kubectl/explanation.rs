//! How a job stands, in full: what it asks for, where it waits, and why.

use std::fmt;

use flux_operator_api::{FluxJob, MiniCluster};
use flux_operator_plan::queueing::ledger::Identity;
use flux_operator_plan::reason::of_waiting;
use flux_operator_queue::{Admission, Kind, Reason, Resource, SetupName, Uid, Workload};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;

use super::view::{Standing, View, amounts_text, missing, strategy};

/// How a job stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation {
    kind: &'static str,
    namespace: String,
    name: String,
    /// In one word.
    state: &'static str,
    /// What it asks for, or was given.
    #[serde(skip_serializing_if = "String::is_empty")]
    asks: String,
    /// The setup and its strategy.
    #[serde(skip_serializing_if = "String::is_empty")]
    queue: String,
    /// How many of its queue come before it, and how many wait there.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<Position>,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    missing: String,
    /// How far the cluster is that its room is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    cluster: String,
    /// Jobs whose end would make room for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    freed_by: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Position {
    place: usize,
    pending: usize,
}

impl Explanation {
    /// It has ended: nothing can change any more.
    pub(super) fn is_over(&self) -> bool {
        self.state == "Ended"
    }

    /// It would be admitted now.
    pub(super) fn admissible(&self) -> bool {
        self.state == "Admissible"
    }

    /// Nothing that cannot be seen would change it: its queue was found, or it needs none.
    pub(super) fn is_certain(&self) -> bool {
        !self.queue.is_empty() || self.state == "Refused"
    }

    /// Says of one that has room how far its cluster is, by what the operator last said.
    pub(super) fn tell_cluster(&mut self, conditions: &[Condition]) {
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        if let Some(ready) = ready.filter(|_| self.state == "Admitted") {
            self.cluster = format!("{}: {}", ready.reason, ready.message);
        }
    }

    /// Says how far this can be trusted.
    pub(super) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { kind, namespace, name, state, .. } = self;
        writeln!(f, "{kind} {namespace}/{name}: {state}")?;
        let position =
            self.position.map(|Position { place, pending }| format!("{place} ({pending} wait)"));
        let reason = match (self.reason.as_str(), self.message.as_str()) {
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        for (label, text) in [
            ("asks for", self.asks.as_str()),
            ("queue", &self.queue),
            ("position", position.as_deref().unwrap_or_default()),
            ("reason", &reason),
            ("missing", &self.missing),
            ("cluster", &self.cluster),
            ("freed by", &self.freed_by.join(", ")),
        ] {
            if !text.is_empty() {
                writeln!(f, "  {label:<9} {text}")?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}

/// How a job stands by its queue; None if it is for no queue.
pub(super) fn explain(view: &View, uid: &Uid) -> Option<Explanation> {
    let standing = view.standing(uid);
    let Identity { kind: what, namespace, name } = view.identity(uid)?;
    let mut explained = Explanation {
        kind: kind(what),
        namespace: namespace.to_string(),
        name: name.to_string(),
        ..Explanation::default()
    };
    let queue = view.queue_of(uid);
    if let Some(workload) = view.workload(uid) {
        explained.asks = amounts_text(&view.asks(workload));
        explained.queue = queue.map(|queue| queue_text(view, queue)).unwrap_or_default();
    }
    match standing {
        Standing::Ended => explained.state = "Ended",
        Standing::NotQueued => return None,
        Standing::Refused(mistake) => {
            explained.state = "Refused";
            explained.reason = mistake.reason.to_string();
            explained.message = mistake.message.clone();
        }
        Standing::Admitted(admission) => {
            explained.state = "Admitted";
            explained.message = admitted(admission);
        }
        Standing::Next(admit) => {
            explained.state = "Admissible";
            explained.message =
                format!("there is room for it now: {}", amounts_text(&admit.admission.resources));
        }
        Standing::Waits(waiting) => {
            explained.state = "Waiting";
            explained.reason = of_waiting(&waiting.reason).to_string();
            explained.message = waiting.reason.to_string();
            explained.position = queue.and_then(|queue| {
                let pending = view.usage(queue).pending;
                view.position(uid).map(|place| Position { place, pending })
            });
            if let Some((resource, amount)) = missing(&waiting.reason) {
                explained.missing = resource.amount(amount);
            }
            if let (Some(queue), Reason::WaitingForQuota { resource, missing }) =
                (queue, &waiting.reason)
            {
                explained.freed_by = freed_by(view, queue, resource, *missing);
            }
        }
    }
    Some(explained)
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::FluxJob => "FluxJob",
        Kind::MiniCluster => "MiniCluster",
    }
}

fn queue_text(view: &View, queue: &SetupName) -> String {
    match view.setup(queue) {
        Some(setup) => format!("{queue} ({})", strategy(setup.strategy)),
        None => queue.to_string(),
    }
}

fn admitted(admission: &Admission) -> String {
    let Admission { queue, size, at, .. } = admission;
    format!("{queue} gave it {} at {}", Resource::Nodes.amount((*size).into()), time(*at))
}

/// Who of a queue would have to end, in the order in which they may: those first that
/// must end by a time.
fn freed_by(view: &View, queue: &SetupName, resource: &Resource, missing: i64) -> Vec<String> {
    let mut holders: Vec<(&Workload, &Admission)> = view
        .admitted(queue)
        .filter_map(|job| Some((job, job.admission.as_ref()?)))
        .filter(|(_, admission)| admission.resources.amount(resource) > 0)
        .collect();
    let end =
        |job: &Workload, admission: &Admission| job.max_runtime.map(|time| admission.at + time);
    holders.sort_by_key(|(job, admission)| {
        let end = end(job, admission);
        (end.is_none(), end, admission.at, job.uid.clone())
    });
    let mut freed = 0;
    let mut named = Vec::new();
    for (job, admission) in holders {
        if freed >= missing {
            break;
        }
        freed += admission.resources.amount(resource);
        let amount = resource.amount(admission.resources.amount(resource));
        let end = end(job, admission).map(|end| format!(" by {}", time(end)));
        named.push(format!("{} ({amount}{})", job.name, end.unwrap_or_default()));
    }
    // Not even all of them would do.
    if freed < missing { Vec::new() } else { named }
}

/// What the operator last said of a job.
pub(super) fn of_job(job: &FluxJob) -> Explanation {
    let status = job.status.clone().unwrap_or_default();
    let (reason, message) = match status.conditions.iter().find(|c| c.type_ == "Admitted") {
        Some(condition) => words(condition),
        None => (status.reason.clone(), String::new()),
    };
    let state = match (&status.finish_time, &status.admission) {
        (Some(_), _) => "Ended",
        (None, Some(_)) => "Admitted",
        (None, None) => "Waiting",
    };
    let ended = status.exit_code.map(|code| format!("its command ended with {code}"));
    Explanation {
        kind: "FluxJob",
        namespace: job.namespace().unwrap_or_default(),
        name: job.name_any(),
        state,
        queue: status.queue,
        reason: if ended.is_some() { status.phase } else { reason },
        message: ended.unwrap_or(message),
        ..Explanation::default()
    }
}

/// What the operator last said of a MiniCluster.
pub(super) fn of_minicluster(minicluster: &MiniCluster) -> Explanation {
    let status = minicluster.status.clone().unwrap_or_default();
    let condition = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
    let is_true = |kind: &str| condition(kind).is_some_and(|c| c.status == "True");
    let (reason, message) = condition("Admitted").map(words).unwrap_or_default();
    Explanation {
        kind: "MiniCluster",
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
        state: match (is_true("JobFinished"), is_true("Admitted")) {
            (true, _) => "Ended",
            (false, true) => "Admitted",
            (false, false) => "Waiting",
        },
        reason,
        message,
        ..Explanation::default()
    }
}

fn words(condition: &Condition) -> (String, String) {
    (condition.reason.clone(), condition.message.clone())
}

fn time(millis: i64) -> String {
    let time = Timestamp::from_millisecond(millis).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::{admitted, job, objects, setup, view};
    use super::*;
    use serde_json::{Value, json};

    fn explained(manifests: &[Value], name: &str) -> String {
        explain(&view(manifests), &name.into()).unwrap().to_string()
    }

    #[test]
    fn q33_why_says_what_is_missing_and_who_would_free_it() {
        let jobs = [
            setup(4),
            admitted("endless", 2, json!({})),
            admitted("limited", 2, json!({ "maxRuntimeSeconds": 600 })),
            job("other", json!({ "size": 4, "priority": 1 })),
            job("asked", json!({ "size": 3 })),
        ];
        let expected = "\
FluxJob team/asked: Waiting
  asks for  3 nodes, 3 pods
  queue     team/main (BestEffortFIFO)
  position  1 (2 wait)
  reason    WaitingForQuota: missing 3 nodes
  missing   3 nodes
  freed by  limited (2 nodes by 2026-01-01 00:11:00 UTC), endless (2 nodes)
";
        assert_eq!(explained(&jobs, "asked"), expected);
        let room = explained(&jobs, "endless");
        assert!(room.starts_with("FluxJob team/endless: Admitted\n"), "{room}");
        assert!(room.contains("team/main gave it 2 nodes at 2026-01-01 00:01:00 UTC"), "{room}");
    }

    #[test]
    fn of_one_that_has_room_is_told_how_far_its_cluster_is() {
        let ready: Condition = serde_json::from_value(json!({
            "type": "Ready", "status": "False", "reason": "ImagePull",
            "message": "the image cannot be pulled", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let told = |state: &'static str| {
            let mut told = Explanation { state, ..Explanation::default() };
            told.tell_cluster(std::slice::from_ref(&ready));
            told.to_string()
        };
        let text = told("Admitted");
        assert!(text.contains("cluster   ImagePull: the image cannot be pulled"), "{text}");
        assert!(!told("Waiting").contains("cluster"));
    }

    #[test]
    fn what_can_never_be_freed_names_nobody() {
        let jobs = [setup(2), admitted("a", 2, json!({})), job("large", json!({ "size": 3 }))];
        let text = explained(&jobs, "large");
        assert!(text.contains("ExceedsMaxQuota: it asks for 3 nodes"), "{text}");
        assert!(!text.contains("freed by"), "{text}");
    }

    #[test]
    fn what_cannot_be_queued_says_what_is_wrong() {
        let template = json!({ "spec": { "flux": { "mungeSecret": "a" }, "containers": [{}] } });
        let text = explained(&[setup(2), job("a", json!({ "template": template }))], "a");
        assert!(text.starts_with("FluxJob team/a: Refused\n"), "{text}");
        assert!(text.contains("mungeSecret"), "{text}");
    }

    #[test]
    fn what_fits_would_be_admitted() {
        let view = view(&[setup(2), job("a", json!({ "size": 2 }))]);
        let explained = explain(&view, &"a".into()).unwrap();
        assert!(explained.admissible(), "{explained}");
    }

    #[test]
    fn where_nothing_may_be_listed_the_status_speaks() {
        let mut waiting = job("a", json!({}));
        waiting["status"] = json!({
            "phase": "Waiting",
            "queue": "operator-system/all",
            "conditions": [{
                "type": "Admitted", "status": "False", "reason": "WaitingForQuota",
                "message": "missing 1 node", "lastTransitionTime": "2026-01-01T00:00:05Z",
            }],
        });
        let mut told = of_job(&objects(&[waiting]).jobs[0]);
        told.note("you may not");
        let expected = "\
FluxJob team/a: Waiting
  queue     operator-system/all
  reason    WaitingForQuota: missing 1 node
  note: you may not
";
        assert_eq!(told.to_string(), expected);
        let mut ended = job("a", json!({}));
        let status =
            json!({ "phase": "Failed", "finishTime": "2026-01-01T00:00:05Z", "exitCode": 3 });
        ended["status"] = status;
        let told = of_job(&objects(&[ended]).jobs[0]);
        assert!(told.is_over());
        assert!(told.to_string().contains("Failed: its command ended with 3"), "{told}");
    }
}
