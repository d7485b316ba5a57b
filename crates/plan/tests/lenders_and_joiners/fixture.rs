//! A lender, its joiners, and what each observes.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_flux::IdSet;
use flux_operator_plan::{
    ExistingPod, FINALIZER, JoinerView, LastReport, LenderView, Object, Observed, Outcome,
    QueryAnswer, ServerReply, Step, Subject, decide, queries,
};
use flux_operator_testkit::merge;
use flux_operator_wire::{Drained, InstanceState};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

pub use crate::clusters::{INDEX, START, after, facts, minicluster, settings};

/// A joiner of two brokers.
pub fn joiner(patch: &Value) -> MiniCluster {
    let spec = json!({ "size": 2, "flux": { "join": { "name": "lender" } } });
    let mut joiner = json!({ "spec": spec });
    merge(&mut joiner, patch);
    minicluster("joiner", &joiner)
}

/// A lender of two brokers with four spare ranks, `2-5`, that is up.
pub fn lender(patch: &Value) -> LenderView {
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "Quorum", "message": "",
        "lastTransitionTime": START }]);
    let mut lender = json!({
        "spec": { "size": 2, "interactive": true, "flux": { "bursting": { "spareRanks": 4 } } },
        "status": { "conditions": ready },
    });
    merge(&mut lender, patch);
    let lender = minicluster("lender", &lender);
    let mut before = MiniCluster { status: None, ..lender.clone() };
    before.metadata.deletion_timestamp = None;
    LenderView {
        job: Some(Arc::new(job_of(&before, &Observed::empty(after(0)), "lender-job"))),
        report: Some(report(IdSet::first_n(2), None)),
        minicluster: Arc::new(lender),
    }
}

pub fn report(online: IdSet, drained: Option<Drained>) -> LastReport {
    let state = InstanceState {
        online: Some(online),
        drained,
        lead: Some(facts()),
        ..InstanceState::default()
    };
    LastReport { state, received: after(0) }
}

/// The Job that is created for a MiniCluster.
pub fn job_of(minicluster: &MiniCluster, observed: &Observed, uid: &str) -> Job {
    let decision = decide(minicluster, observed, &settings());
    let job = decision.steps.into_iter().find_map(|step| match step {
        Step::Create(Object::Job(job)) => Some(*job),
        _ => None,
    });
    let mut job = job.unwrap();
    job.metadata.uid = Some(uid.into());
    job.status = Some(serde_json::from_value(json!({ "startTime": START })).unwrap());
    job
}

pub fn lease(ranks: &str, state: LeaseState, lender: &LenderView) -> Value {
    let table = table(lender);
    json!(Lease {
        ranks: ranks.into(),
        holder: "joiner-uid".into(),
        namespace: "hpc".into(),
        name: "joiner".into(),
        table,
        since: START.into(),
        state,
        invitation: None,
    })
}

/// The hash of a lender's rank table, as a grant records it.
pub fn table(lender: &LenderView) -> String {
    let observed = observed_by_lender(lender, &[joiner(&json!({}))], None);
    let decision = decide(&lender.minicluster, &observed, &settings());
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    status.leases[0].table.clone()
}

pub fn leased(ranks: &str, state: LeaseState, patch: &Value) -> LenderView {
    let free = lender(&json!({ "spec": patch.get("spec").unwrap_or(&json!({})) }));
    let mut patch = patch.clone();
    merge(&mut patch, &json!({ "status": { "leases": [lease(ranks, state, &free)] } }));
    let view = lender(&patch);
    LenderView { job: free.job, ..view }
}

pub fn observed_by_lender(
    lender: &LenderView,
    joiners: &[MiniCluster],
    job: Option<&Job>,
) -> Observed {
    let job_of_joiner = job.cloned().map(Arc::new);
    let joiners = joiners.iter().map(|joiner| JoinerView {
        minicluster: Arc::new(joiner.clone()),
        job: job_of_joiner.clone(),
    });
    let mut observed = Observed {
        job: lender.job.clone(),
        pods: vec![Arc::new(lead_pod())],
        report: lender.report.clone(),
        joiners: joiners.collect(),
        watching_since: after(-100),
        ..Observed::empty(after(0))
    };
    // The API server has two pods of the lender, and of joiners those that the Job will create.
    let last = job.and_then(ExistingPod::last_of).map(|pod| pod.index);
    answer(&mut observed, lender, Some(&[0, 1]), Some(last.as_slice()));
    observed
}

/// Answers every query: the API server has these pods of the lender, and these of the joiner.
pub fn answer(
    observed: &mut Observed,
    lender: &LenderView,
    own: Option<&[u32]>,
    joiners: Option<&[u32]>,
) {
    let leases = lender.minicluster.status.iter().flat_map(|status| &status.leases);
    let recorded = leases.map(|lease| lease.table.clone()).next();
    let table = recorded.or_else(|| noted_table(observed)).unwrap_or_default();
    observed.answers.clear();
    for query in queries(&lender.minicluster, observed) {
        let (holder, indexes) = match query.subject {
            Subject::OwnPods { .. } => ("", own),
            Subject::JoinerPods { .. } => ("joiner-uid", joiners),
            _ => continue,
        };
        let pod = |index: &u32| ExistingPod {
            namespace: "hpc".into(),
            holder: holder.into(),
            table: table.clone(),
            index: *index,
        };
        let reply = indexes.map(|it| ServerReply::Pods(it.iter().map(pod).collect()));
        observed.add_answer(QueryAnswer::new(&lender.minicluster, query, reply, after(0)));
    }
}

/// The rank table that a joiner's Job notes.
fn noted_table(observed: &Observed) -> Option<String> {
    let job = observed.joiners.iter().find_map(|joiner| joiner.job.as_deref())?;
    let note = job.metadata.annotations.as_ref()?.get("flux-framework.org/lease")?;
    let note: Value = serde_json::from_str(note).unwrap();
    Some(note["table"].as_str()?.to_owned())
}

pub fn lead_pod() -> Pod {
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "lender", "uid": "lender-job" });
    let annotations = json!({ INDEX: "0" });
    let running = json!({ "running": { "startedAt": START } });
    serde_json::from_value(json!({
        "metadata": { "name": "lender-0", "uid": "lead", "ownerReferences": [owner],
            "annotations": annotations, "labels": { "job-index": "0" } },
        "status": { "phase": "Running",
            "containerStatuses": [{ "name": "lender", "image": "a", "imageID": "", "ready": true,
                "restartCount": 0, "state": running }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": START }] },
    }))
    .unwrap()
}

/// The leases that a lender grants, as `name: ranks state`.
pub fn leases(lender: &LenderView, joiners: &[MiniCluster], job: Option<&Job>) -> Vec<String> {
    leases_of(lender, &observed_by_lender(lender, joiners, job))
}

/// The leases that a lender grants with what it observes.
pub fn leases_of(lender: &LenderView, observed: &Observed) -> Vec<String> {
    let decision = decide(&lender.minicluster, observed, &settings());
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    let shown = |lease: Lease| format!("{}: {} {:?}", lease.name, lease.ranks, lease.state);
    status.leases.into_iter().map(shown).collect()
}

pub fn observed_by_joiner(lender: Option<LenderView>, job: Option<Job>) -> Observed {
    Observed { lender, job: job.map(Arc::new), ..Observed::empty(after(0)) }
}

/// The steps for a joiner, in a word each, and its condition `Joined`.
pub fn joined(joiner: &MiniCluster, observed: &Observed) -> (Vec<String>, String, String) {
    let decision = decide(joiner, observed, &settings());
    let steps = decision.steps.iter().map(|step| match step {
        Step::CreateKeys(_) => "keys".to_owned(),
        Step::CopyCertificate(_) => "certificate".to_owned(),
        Step::Create(Object::Job(_)) => "job".to_owned(),
        Step::Patch { patch, .. } => match &patch["spec"]["completions"] {
            Value::Null => "note".to_owned(),
            size => format!("resize {size}"),
        },
        Step::Delete(target) => format!("delete {}", target.name),
        Step::PatchSelf(patch) => format!("finalizers {}", patch["metadata"]["finalizers"]),
        _ => "object".to_owned(),
    });
    let steps = steps.filter(|step| step != "object").collect();
    let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
    let joined = status.conditions.into_iter().find(|it| it.type_ == "Joined").unwrap();
    (steps, joined.reason, joined.message)
}

pub fn with_finalizer() -> Value {
    json!({ "metadata": { "finalizers": [FINALIZER] } })
}

/// The Job of the joiner for these ranks.
pub fn joiner_job(ranks: &str) -> Job {
    let lender = leased(ranks, LeaseState::Active, &json!({}));
    let count = ranks.parse::<flux_operator_flux::RankList>().unwrap().len();
    let mut patch = with_finalizer();
    merge(&mut patch, &json!({ "spec": { "size": count } }));
    job_of(&joiner(&patch), &observed_by_joiner(Some(lender), None), "joiner-job")
}
