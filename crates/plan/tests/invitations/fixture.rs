//! A lender that is exposed, with the objects that the API server has of it.

use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{InvitationLease, Lease};
use flux_operator_flux::IdSet;
use flux_operator_plan::{
    Conclusion, ExistingPod, Failure, FailureKind, GatewayEndpoint, InvitedCluster, LastReport,
    LenderView, Object, Observed, Outcome, QueryAnswer, ServerReply, Step, Subject, Target,
    TargetKind, decide, queries,
};
use flux_operator_testkit::merge;
use flux_operator_wire::{BootPlan, Drain, Drained, InstanceState};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use crate::clusters::{INDEX, START, after, facts, minicluster, settings};

/// An hour later.
pub const END: &str = "2026-01-01T01:00:00Z";
pub const HOUR: i64 = 3600;
/// After this many seconds the port of a revoked invitation is closed.
pub const CLOSING: i64 = 20;

pub fn invitation(name: &str, ranks: i32, expires: &str) -> Value {
    json!({ "name": name, "ranks": ranks, "expires": expires })
}

/// One invitation for two ranks, for an hour.
pub fn one_invitation() -> Value {
    json!({ "invitations": [invitation("a", 2, END)] })
}

/// A lender that runs, and what is observed of it.
#[derive(Clone, Debug)]
pub struct Lender {
    pub minicluster: MiniCluster,
    pub observed: Observed,
    /// The pods of joiners that the API server has.
    pub joiner_pods: Vec<ExistingPod>,
    /// How many pods of its own the API server has.
    pub own_pods: u32,
}

impl Lender {
    /// A lender of size 2 and maxSize 10 that is exposed, with this in `flux.bursting`.
    pub fn new(bursting: &Value) -> Lender {
        let mut all = json!({ "expose": {} });
        merge(&mut all, bursting);
        let spec = json!({ "size": 2, "maxSize": 10, "interactive": true,
            "flux": { "bursting": all } });
        Lender::of(minicluster("lender", &json!({ "spec": spec })))
    }

    /// A lender with this manifest, whose lead is ready. The gateway has a pod on node-a.
    pub fn of(minicluster: MiniCluster) -> Lender {
        let mut observed = Observed::empty(after(0));
        observed.watching_since = after(-100);
        let mut lender = Lender { minicluster, observed, joiner_pods: Vec::new(), own_pods: 0 };
        lender.reconcile();
        let name = lender.minicluster.name_any();
        lender.own_pods = u32::try_from(lender.minicluster.spec.size).unwrap();
        let workers = (1..lender.own_pods).map(|index| pod(&name, index, &json!({})));
        let pods = std::iter::once(lead_pod(&name)).chain(workers);
        lender.observed.pods = pods.map(Arc::new).collect();
        lender.online(&IdSet::first_n(lender.own_pods).to_string());
        let pod = GatewayEndpoint { address: [10, 2, 0, 9].into(), node: "node-a".into() };
        lender.observed.gateway.endpoints.insert(pod);
        let nodes = [("node-a", "203.0.113.1"), ("node-b", "203.0.113.2")];
        let nodes = nodes.map(|(name, address)| (name.to_owned(), address.to_owned()));
        lender.observed.gateway.nodes = Some(nodes.into());
        lender
    }

    /// A lender that has granted what it can.
    pub fn settled(bursting: &Value) -> Lender {
        let mut lender = Lender::new(bursting);
        lender.settle();
        lender
    }

    /// The lead reports that these ranks are online.
    pub fn online(&mut self, ranks: &str) {
        let online: IdSet = ranks.parse().unwrap();
        let state =
            InstanceState { online: Some(online), lead: Some(facts()), ..InstanceState::default() };
        self.observed.report = Some(LastReport { state, received: self.observed.now });
    }

    /// Time passes, and the lead reports the same as before.
    pub fn at(&mut self, seconds: i64) {
        self.observed.now = after(seconds);
        if let Some(report) = &mut self.observed.report {
            report.received = after(seconds);
        }
    }

    /// A user edits `flux.bursting`.
    pub fn edit(&mut self, bursting: &Value) {
        let patch = json!({ "spec": { "flux": { "bursting": bursting } } });
        self.minicluster = merged(&self.minicluster, &patch);
    }

    /// Another cluster asks with invitation `a`, which expires after an hour.
    pub fn asked_by(&mut self, uid: &str) {
        self.asked_until(uid, END);
    }

    /// The same with one that expires at another time.
    pub fn asked_until(&mut self, uid: &str, expires: &str) {
        self.observed.invited.retain(|it| it.uid != uid);
        self.observed.invited.push(InvitedCluster {
            invitation: "a".into(),
            expires: expires.into(),
            uid: uid.into(),
            name: format!("theirs/{uid}"),
            asked: self.observed.now,
            refusal: None,
        });
        self.observed.invited.sort_by_key(|it| it.asked);
    }

    /// Decides, applies every step and stores the status. Returns the steps in a few words each.
    pub fn reconcile(&mut self) -> Vec<String> {
        let (steps, conclusion) = self.decide();
        steps.iter().for_each(|step| self.apply(step));
        self.minicluster.status = conclusion.status;
        steps.iter().map(words).collect()
    }

    /// Reconciles, but the step with these words fails: those before it are applied. Returns whether the
    /// reconciliation is retried.
    pub fn fail(&mut self, step: &str, kind: FailureKind, message: &str) -> bool {
        let observed = self.answered();
        let decision = decide(&self.minicluster, &observed, &settings());
        let done = decision.steps.iter().position(|it| words(it) == step);
        let done = done.unwrap_or_else(|| panic!("{step:?} is not one of {:?}", decision.steps));
        let failure = Some(Failure { kind, message: message.into() });
        let conclusion = decision.conclude(&Outcome { done, failure });
        let (status, steps) = (conclusion.status, decision.steps[..done].to_vec());
        steps.iter().for_each(|step| self.apply(step));
        self.minicluster.status = status;
        conclusion.retry
    }

    /// Reconciles until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..5 {
            let before = self.minicluster.status.clone();
            if self.reconcile().is_empty() && self.minicluster.status == before {
                return;
            }
        }
        panic!("it never settles: {:?}", self.reconcile());
    }

    /// The decision, without applying it.
    pub fn decide(&self) -> (Vec<Step>, Conclusion<flux_operator_api::MiniClusterStatus>) {
        let observed = self.answered();
        let decision = decide(&self.minicluster, &observed, &settings());
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        (decision.steps, conclusion)
    }

    /// What the lead should drain.
    pub fn drain(&self) -> Drain {
        decide(&self.minicluster, &self.answered(), &settings()).lead_work.unwrap()
    }

    /// The lead reports that it has applied the request, and that jobs run on these ranks.
    pub fn drained(&mut self, busy: &str) {
        let drained = Drained { asked: self.drain(), busy: busy.parse().unwrap() };
        self.observed.report.as_mut().unwrap().state.drained = Some(drained);
    }

    /// What is observed, with the answers to all queries.
    fn answered(&self) -> Observed {
        let mut observed = self.observed.clone();
        for query in queries(&self.minicluster, &observed) {
            let pod = |index| ExistingPod {
                namespace: "hpc".into(),
                holder: String::new(),
                table: String::new(),
                index,
            };
            let reply = match &query.subject {
                Subject::OwnPods { .. } => ServerReply::Pods((0..self.own_pods).map(pod).collect()),
                Subject::JoinerPods { .. } => ServerReply::Pods(self.joiner_pods.clone()),
                Subject::MiniCluster | Subject::Namespace | Subject::Keys { .. } => {
                    ServerReply::Exists
                }
                Subject::Job { .. } | Subject::Pod { .. } => ServerReply::Events(Vec::new()),
            };
            let answer = QueryAnswer::new(&self.minicluster, query, Some(reply), observed.now);
            observed.add_answer(answer);
        }
        observed
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Create(object) | Step::CreateOrApply(object) | Step::Apply { object, .. } => {
                self.put(object);
            }
            Step::Patch { target, patch } => self.patch(target, patch),
            Step::Delete(Target { kind, name, .. }) => match kind {
                TargetKind::Job => self.observed.job = None,
                TargetKind::Service => self.observed.services.retain(|it| it.name_any() != *name),
                TargetKind::EndpointSlice => {
                    self.observed.endpoint_slices.retain(|it| it.name_any() != *name);
                }
                TargetKind::Pod | TargetKind::MiniCluster => panic!("{name} is not deleted here"),
            },
            Step::CreateKeys(_)
            | Step::CopyCertificate(_)
            | Step::PatchSelf(_)
            | Step::DeleteSelf => {}
        }
    }

    fn put(&mut self, object: &Object) {
        let observed = &mut self.observed;
        match object {
            Object::ConfigMap(map) => observed.config_map = Some(Arc::new((**map).clone())),
            Object::Service(service) => {
                let before =
                    observed.services.iter().find(|it| it.name_any() == service.name_any());
                let stored = stored_service(service, before.map(|it| &**it));
                observed.services.retain(|it| it.name_any() != service.name_any());
                observed.services.push(Arc::new(stored));
            }
            Object::EndpointSlice(slice) => {
                observed.endpoint_slices.retain(|it| it.name_any() != slice.name_any());
                observed.endpoint_slices.push(Arc::new((**slice).clone()));
            }
            Object::Job(job) => {
                let mut job = (**job).clone();
                job.metadata.uid = Some(format!("{}-job", job.name_any()));
                let status = json!({ "startTime": START });
                job.status = Some(serde_json::from_value(status).unwrap());
                observed.job = Some(Arc::new(job));
            }
            Object::Pod(_) | Object::MiniCluster(_) => panic!("{object:?} is not created here"),
        }
    }

    fn patch(&mut self, target: &Target, patch: &Value) {
        let observed = &mut self.observed;
        match target.kind {
            TargetKind::Job => {
                let job = merged(&**observed.job.as_ref().unwrap(), patch);
                observed.job = Some(Arc::new(job));
            }
            TargetKind::Service => {
                for service in &mut observed.services {
                    if service.name_any() == target.name {
                        let patched: Service = merged(&**service, patch);
                        *service = Arc::new(stored_service(&patched, Some(&**service)));
                    }
                }
            }
            TargetKind::Pod => {}
            kind => panic!("{kind:?} is not changed here"),
        }
    }

    /// The leases, as `name: ranks state`, by name.
    pub fn leases(&self) -> Vec<String> {
        let leases = self.minicluster.status.iter().flat_map(|status| &status.leases);
        let leases = leases.map(|it| format!("{}: {} {:?}", it.name, it.ranks, it.state));
        let mut leases: Vec<String> = leases.collect();
        leases.sort();
        leases
    }

    /// The lease of an invitation.
    pub fn lease(&self, name: &str) -> &Lease {
        let mut leases = self.minicluster.status.iter().flat_map(|status| &status.leases);
        leases.find(|it| it.name == name && it.invitation.is_some()).unwrap()
    }

    /// What is special about the lease of an invitation.
    pub fn invited(&self, name: &str) -> &InvitationLease {
        self.lease(name).invitation.as_ref().unwrap()
    }

    /// Changes the stored status.
    pub fn change_status(&mut self, patch: &Value) {
        self.minicluster = merged(&self.minicluster, &json!({ "status": patch }));
    }

    /// The Service by which others reach it.
    pub fn service(&self) -> Option<&Service> {
        let mut services = self.observed.services.iter();
        services.find(|it| it.name_any() == "lender-external").map(|it| &**it)
    }

    pub fn condition(&self, kind: &str) -> &Condition {
        condition(&self.minicluster, kind)
    }

    /// As its joiners' agents are shown it.
    pub fn view(&self) -> LenderView {
        LenderView {
            minicluster: Arc::new(self.minicluster.clone()),
            job: self.observed.job.clone(),
            report: self.observed.report.clone(),
        }
    }
}

pub fn condition<'a>(minicluster: &'a MiniCluster, kind: &str) -> &'a Condition {
    let mut conditions = minicluster.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|it| it.type_ == kind).unwrap()
}

/// An object changed by a merge patch.
pub fn merged<T: Serialize + DeserializeOwned>(object: &T, patch: &Value) -> T {
    let mut value = json!(object);
    merge(&mut value, patch);
    serde_json::from_value(value).unwrap()
}

/// A Service as the API server stores it: with an address, and with ports on the nodes.
fn stored_service(service: &Service, before: Option<&Service>) -> Service {
    let mut service = service.clone();
    service.metadata.uid = Some("service".into());
    let ports =
        |service: &Service| service.spec.clone().and_then(|it| it.ports).unwrap_or_default();
    let known = before.map(ports).unwrap_or_default();
    let spec = service.spec.as_mut().unwrap();
    spec.cluster_ip.get_or_insert_with(|| "10.96.0.7".into());
    let has_node_ports = matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
    for port in spec.ports.iter_mut().flatten().filter(|_| has_node_ports) {
        let before = known.iter().find(|it| it.port == port.port).and_then(|it| it.node_port);
        port.node_port = port.node_port.or(before).or(Some(port.port + 22_000));
    }
    service
}

/// The pod of the lead, on node-a.
pub fn lead_pod(lender: &str) -> Pod {
    pod(lender, 0, &json!({ "spec": { "nodeName": "node-a" }, "status": { "podIP": "10.1.0.5" } }))
}

/// A pod of the Job with this name that is ready.
pub fn pod(job: &str, index: u32, patch: &Value) -> Pod {
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job,
        "uid": format!("{job}-job") });
    let index = index.to_string();
    let running = json!({ "running": { "startedAt": START } });
    let mut pod = json!({
        "metadata": { "name": format!("{job}-{index}"), "uid": format!("{job}-{index}"),
            "ownerReferences": [owner], "annotations": { INDEX: index },
            "labels": { "job-index": index } },
        "spec": { "containers": [] },
        "status": { "phase": "Running",
            "containerStatuses": [{ "name": job, "image": "a", "imageID": "", "ready": true,
                "restartCount": 0, "state": running }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": START }] },
    });
    merge(&mut pod, patch);
    serde_json::from_value(pod).unwrap()
}

/// The boot plan in the ConfigMap that is created for a MiniCluster.
pub fn boot_plan(minicluster: &MiniCluster) -> BootPlan {
    let observed = Observed::empty(after(0));
    let decision = decide(minicluster, &observed, &settings());
    assert_eq!(decision.refusal(), None);
    let data = decision.steps.iter().find_map(|step| match step {
        Step::CreateOrApply(Object::ConfigMap(map)) => map.data.clone(),
        _ => None,
    });
    serde_json::from_str(&data.unwrap()["boot.json"]).unwrap()
}

/// A step in a few words.
pub fn words(step: &Step) -> String {
    let name = |object: &Object| match object {
        Object::ConfigMap(it) => format!("ConfigMap {}", it.name_any()),
        Object::Service(it) => format!("Service {}", it.name_any()),
        Object::EndpointSlice(it) => format!("EndpointSlice {}", it.name_any()),
        Object::Pod(it) => format!("Pod {}", it.name_any()),
        Object::Job(it) => format!("Job {}", it.name_any()),
        Object::MiniCluster(it) => format!("MiniCluster {}", it.name_any()),
    };
    match step {
        Step::CreateKeys(_) => "create keys".into(),
        Step::CopyCertificate(_) => "copy certificate".into(),
        Step::Create(object) | Step::CreateOrApply(object) => format!("create {}", name(object)),
        Step::Apply { object, .. } => format!("apply {}", name(object)),
        Step::Patch { target, .. } => format!("patch {:?} {}", target.kind, target.name),
        Step::Delete(target) => format!("delete {:?} {}", target.kind, target.name),
        Step::PatchSelf(_) => "patch itself".into(),
        Step::DeleteSelf => "delete itself".into(),
    }
}
