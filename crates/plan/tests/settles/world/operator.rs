//! What the operator does: it makes the real decision, and applies its steps to this world.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::{CLUSTER_LABEL, DeliveryMethod, Settings};
use flux_operator_plan::queueing::merge_patch;
use flux_operator_plan::{
    Blocker, Failure, FailureKind, Object, Observed, Outcome, QueryAnswer, ServerReply, Step,
    Subject, TargetKind, decide, queries,
};
use flux_operator_testkit::merge;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Objects, World};

/// The result of one reconciliation.
#[derive(Clone, Debug, Default)]
pub struct Reconciliation {
    /// The decided steps.
    pub steps: Vec<Step>,
    /// Everything, for the recording.
    pub recording: Value,
}

/// What the operator would decide now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecidedCluster {
    pub steps: Vec<Step>,
    pub blocker: Option<Blocker>,
    /// When it would reconcile again, if all steps are applied.
    pub requeue_at: Option<Timestamp>,
}

impl World {
    /// Reconciles once.
    pub fn reconcile(&mut self) -> Reconciliation {
        if std::mem::take(&mut self.has_unobserved_writes) {
            // Nothing is decided before the watches show what was written.
            self.catch_up();
        }
        let Some(minicluster) = self.parsed() else { return Reconciliation::default() };
        let observed = self.observe(&minicluster);
        let decision = decide(&minicluster, &observed, &settings());
        self.work.clone_from(&decision.lead_work);
        let outcome = self.apply(&decision.steps);
        let conclusion = decision.conclude(&outcome);
        let events = conclusion.events.iter();
        let events = events.map(|it| format!("{} {} {}", it.is_normal, it.reason, it.note));
        let failure = outcome.failure.filter(|failure| !failure.kind.is_transient());
        let said = json!({
            "steps": decision.steps.iter().map(shown).collect::<Vec<_>>(),
            "work": decision.lead_work,
            "failure": failure.map(|failure| failure.message),
            "status": conclusion.status,
            "urgency": format!("{:?}", conclusion.urgency),
            "events": events.collect::<Vec<_>>(),
            "again": conclusion.requeue_at.map(|again| again.to_string()),
        });
        let before = minicluster.status.clone().unwrap_or_default();
        let has_changed_self = decision.steps.iter().take(outcome.done).any(Step::changes_self);
        let patch = conclusion.status.and_then(|status| merge_patch(&before, &status));
        if let Some(patch) = patch.filter(|_| !has_changed_self) {
            self.write_own_status(&minicluster, &patch);
        }
        Reconciliation { steps: decision.steps, recording: said }
    }

    /// Applies steps until one fails.
    fn apply(&mut self, steps: &[Step]) -> Outcome {
        let failing = self.next_failure.take_if(|_| !steps.is_empty());
        for (done, step) in steps.iter().enumerate() {
            let fails = failing.filter(|(at, _)| *at == done).map(|(_, how)| how);
            let result = match fails.filter(|how| can_fail(step, *how)) {
                None => self.apply_step(step),
                Some(FailureKind::Unknown) => self.apply_step(step).and(Err(FailureKind::Unknown)),
                Some(how) => Err(how),
            };
            match result {
                Ok(()) => self.has_unobserved_writes = true,
                Err(kind) => {
                    let failure = Some(Failure { kind, message: format!("{kind:?}") });
                    return Outcome { done, failure };
                }
            }
        }
        Outcome::all(steps)
    }

    /// Applies these steps, and then the operator crashes.
    pub fn crash_after(&mut self, steps: &[Step]) {
        for step in steps {
            let _ = self.apply_step(step);
        }
        self.catch_up();
    }

    /// What the operator would decide now.
    pub fn decided(&self) -> DecidedCluster {
        let Some(minicluster) = self.parsed() else { return DecidedCluster::default() };
        let observed = self.observe(&minicluster);
        let decision = decide(&minicluster, &observed, &settings());
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        DecidedCluster {
            blocker: decision.blocker().cloned(),
            steps: decision.steps,
            requeue_at: conclusion.requeue_at,
        }
    }

    /// What the watches show, and the API server's answers to queries.
    fn observe(&self, minicluster: &MiniCluster) -> Observed {
        let mut observed = self.watched_state();
        for query in queries(minicluster, &observed) {
            let uid = self.stored.minicluster.as_ref().map(|it| &it["metadata"]["uid"]);
            let reply = match query.subject {
                Subject::MiniCluster
                    if uid.and_then(Value::as_str) != minicluster.uid().as_deref() =>
                {
                    ServerReply::Deleted
                }
                Subject::JoinerPods { .. } | Subject::OwnPods { .. } => {
                    ServerReply::Pods(Vec::new())
                }
                Subject::MiniCluster | Subject::Namespace | Subject::Keys { .. } => {
                    ServerReply::Exists
                }
                Subject::Job { .. } | Subject::Pod { .. } => ServerReply::Events(Vec::new()),
            };
            let answer = QueryAnswer::new(minicluster, query, Some(reply), self.now);
            observed.answers.push(answer);
        }
        observed
    }

    fn parsed(&self) -> Option<MiniCluster> {
        let shown = self.shown_minicluster.as_ref().or(self.view().minicluster.as_ref());
        Some(serde_json::from_value(shown?.clone()).unwrap())
    }

    fn view(&self) -> &Objects {
        self.shown.as_ref().unwrap_or(&self.stored)
    }

    /// What the watches show: only objects with the label.
    fn watched_state(&self) -> Observed {
        let view = self.view();
        let services = view.services.values().filter(|service| is_labelled(*service));
        let report = self.report.as_ref().filter(|(uid, _)| {
            view.pods.values().any(|pod| {
                pod.uid().as_ref() == Some(uid) && pod.metadata.deletion_timestamp.is_none()
            })
        });
        Observed {
            job: view.job.clone().map(Arc::new),
            pods: view.pods.values().cloned().map(Arc::new).collect(),
            config_map: view.config_map.clone().filter(is_labelled).map(Arc::new),
            services: services.cloned().map(Arc::new).collect(),
            report: report.map(|(_, report)| report.clone()),
            waiting: self.waiting.clone(),
            watching_since: self.start,
            ..Observed::empty(self.now)
        }
    }

    fn write_own_status(&mut self, computed_from: &MiniCluster, patch: &Value) {
        let Some(there) = &self.stored.minicluster else { return };
        let version = there["metadata"]["resourceVersion"].as_str();
        if self.strict && version != computed_from.metadata.resource_version.as_deref() {
            return;
        }
        self.has_unobserved_writes = true;
        let version = self.next_version();
        if let Some(minicluster) = &mut self.stored.minicluster {
            merge(&mut minicluster["status"], patch);
            minicluster["metadata"]["resourceVersion"] = version.into();
        }
    }
}

fn settings() -> Settings {
    Settings {
        agent_image: "example.org/flux-operator:1".into(),
        cluster_domain: "cluster.local".into(),
        report_url: Some("http://10.0.0.1:8080".into()),
        delivery: DeliveryMethod::ImageVolume,
    }
}

/// Whether a step can fail like this.
fn can_fail(step: &Step, how: FailureKind) -> bool {
    match how {
        FailureKind::Conflict => matches!(step, Step::Patch { .. }),
        FailureKind::NotOurs | FailureKind::Transient => {
            matches!(step, Step::CreateKeys(_) | Step::Create(_))
        }
        FailureKind::Refused | FailureKind::Invalid | FailureKind::Unknown => true,
    }
}

/// A step in a few words, with a digest of what it writes.
fn shown(step: &Step) -> String {
    let digest = |object: &Value| {
        let text = object.to_string();
        let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{digest:016x}")
    };
    let of = |object: &Object| match object {
        Object::ConfigMap(it) => ("ConfigMap", it.name_any(), digest(&json!(it))),
        Object::Service(it) => ("Service", it.name_any(), digest(&json!(it))),
        Object::Pod(it) => ("Pod", it.name_any(), digest(&json!(it))),
        Object::Job(it) => {
            let mut job = json!(it);
            // It differs with every build.
            job["metadata"]["annotations"]["flux-framework.org/version"] = json!("0.1.0+plan2");
            ("Job", it.name_any(), digest(&job))
        }
        Object::EndpointSlice(_) | Object::MiniCluster(_) => {
            panic!("it is not exposed, and makes no other")
        }
    };
    match step {
        Step::CreateKeys(_) => "create keys".into(),
        Step::CopyCertificate(_) => panic!("it joins no other"),
        Step::Create(object) | Step::CreateOrApply(object) => {
            let (kind, name, digest) = of(object);
            format!("create {kind} {name} {digest}")
        }
        Step::Apply { object, manager } => {
            let (kind, name, digest) = of(object);
            let manager = if kind == "Service" { format!(" as {manager}") } else { String::new() };
            format!("apply {kind}{manager} {name} {digest}")
        }
        Step::Patch { target, patch } => match target.kind {
            TargetKind::Job => format!("patch Job {patch}"),
            TargetKind::Pod => {
                let index = patch["metadata"]["labels"]["job-index"].as_str().unwrap();
                format!("label Pod {} {index}", target.name)
            }
            other => panic!("no {other:?} is patched"),
        },
        Step::Delete(target) => match target.kind {
            TargetKind::Job => "delete Job".into(),
            TargetKind::Service => format!("delete Service {}", target.name),
            other => panic!("no {other:?} is deleted"),
        },
        Step::DeleteSelf => "delete MiniCluster".into(),
        Step::PatchSelf(patch) => panic!("{patch}"),
    }
}

fn is_labelled<K: ResourceExt>(object: &K) -> bool {
    object.labels().contains_key(CLUSTER_LABEL)
}
