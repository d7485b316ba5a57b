//! The Flux instance: what its lead reports, and when brokers start.

use std::sync::Arc;

use flux_operator_flux::IdSet;
use flux_operator_plan::{LastReport, LenderView, Permission, permission};
use flux_operator_wire::{BrokerFacts, Drained, InstanceState, JoinRequest};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::{JoinerPod, Kind, LENDER, LENDER_JOB, LenderPod, World, nth_pod};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

impl World {
    /// The lead reports to an operator; it has done what it was asked to.
    pub fn report(&mut self, operator: usize, busy: bool) {
        let own = self.stored.lender_pods.values().filter(|pod| pod.is_online);
        let own: IdSet = own.map(|pod| pod.index).collect();
        let pods = self.stored.joiner_pods.values().filter(|pod| pod.is_online);
        let online = own.union(&pods.filter_map(|pod| pod.broker).collect());
        let online = online.union(&self.remote_ranks_online().collect());
        let drained = Drained {
            asked: self.work.clone(),
            busy: if busy { self.work.ranks.intersection(&online) } else { IdSet::new() },
        };
        let state = InstanceState {
            online: Some(online),
            drained: Some(drained).filter(|drained| !drained.asked.since.is_empty()),
            lead: Some(facts()),
            ..InstanceState::default()
        };
        self.operators[operator].report = Some(LastReport { state, received: self.now });
    }

    /// The agent of a pod asks an operator.
    pub fn ask(&mut self, operator: usize, pod: usize) {
        if let Some(name) = nth_pod(&self.stored.joiner_pods, pod, JoinerPod::asks) {
            self.ask_by_name(operator, &name);
        }
    }

    /// Every agent asks an operator that knows their pods.
    pub fn ask_all(&mut self, operator: usize) {
        self.catch_up(operator, Kind::Pods);
        self.report(operator, false);
        let pods = self.stored.joiner_pods.iter().filter(|(_, pod)| pod.asks());
        let names: Vec<String> = pods.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.ask_by_name(operator, name));
        self.remote_pods_ask(operator);
    }

    /// The agent of a pod asks an operator, which reads the lender from the API server. Its broker
    /// starts, or it asks again later, or it exits, so that the pod is replaced.
    fn ask_by_name(&mut self, operator: usize, name: &str) {
        let pod = self.stored.joiner_pods[name].clone();
        let Some(rank) = pod.ranks.nth(pod.index as usize) else {
            self.stored.joiner_pods.remove(name);
            return;
        };
        let view = &self.operators[operator].view;
        let is_known = view
            .joiner_pods
            .get(name)
            .is_some_and(|known| known.uid == pod.uid && !known.is_terminating);
        let joiner = self.read(view, &pod.owner);
        let joiner = joiner.filter(|joiner| joiner.metadata.uid.as_ref() == Some(&pod.holder));
        let (true, Some(joiner), Some(cached), Some(lender)) =
            (is_known, joiner, self.lender(operator), self.read(&self.stored, LENDER))
        else {
            return;
        };
        let fresh = LenderView { minicluster: Arc::new(lender), ..cached };
        let request = JoinRequest {
            index: pod.index,
            rank,
            table: pod.table,
            facts: facts(),
            last_error: String::new(),
            refusal: None,
        };
        match permission(&joiner, Some(&fresh), &request) {
            Permission::Granted => {
                self.stored.joiner_pods.get_mut(name).unwrap().broker = Some(rank);
            }
            Permission::Denied(..) => {}
            Permission::Outdated(_) => {
                self.stored.joiner_pods.remove(name);
            }
        }
    }

    /// A broker that was allowed to start has joined the instance.
    pub fn go_online(&mut self, pod: usize) {
        let pods = &mut self.stored.joiner_pods;
        if let Some(name) = nth_pod(pods, pod, |pod| pod.broker.is_some() && !pod.is_online) {
            pods.get_mut(&name).unwrap().is_online = true;
        }
    }

    /// A broker of the lender has joined the instance.
    pub fn go_online_of_lender(&mut self, pod: usize) {
        let pods = &mut self.stored.lender_pods;
        if let Some(name) = nth_pod(pods, pod, |pod| !pod.is_online) {
            pods.get_mut(&name).unwrap().is_online = true;
        }
    }

    /// Every broker has joined the instance.
    pub(super) fn go_online_all(&mut self) {
        for pod in self.stored.joiner_pods.values_mut() {
            pod.is_online = pod.broker.is_some();
        }
        self.stored.lender_pods.values_mut().for_each(|pod| pod.is_online = true);
        self.remote_pods_connect();
    }
}

pub(super) fn facts() -> BrokerFacts {
    BrokerFacts { version: "0.88.0".into(), uid: 0, cores: 2 }
}

/// A pod of the lender, as an operator observes it.
pub(super) fn lender_pod(pod: &LenderPod) -> Pod {
    let (index, since) = (pod.index.to_string(), "2026-01-01T00:00:00Z");
    let owner =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "name": LENDER, "uid": LENDER_JOB });
    serde_json::from_value(json!({
        "metadata": { "name": format!("lender-{index}"), "ownerReferences": [owner],
            "annotations": { INDEX: index }, "labels": { "job-index": index },
            "deletionTimestamp": pod.is_terminating.then_some(since) },
        "status": { "phase": "Running",
            "containerStatuses": [{ "name": LENDER, "image": "a", "imageID": "", "ready": true,
                "restartCount": 0, "state": { "running": { "startedAt": since } } }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": since }] },
    }))
    .unwrap()
}
