//! What Kubernetes' own controllers and the kubelet do.

use std::collections::BTreeSet;

use flux_operator_plan::kubernetes::{HOLDER_LABEL, TABLE_LABEL};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use super::{JoinerPod, LENDER, LenderPod, World, nth_pod, wanted};

impl World {
    /// The Job controller and the garbage collector. A pod that terminates is replaced only when it
    /// is deleted: that is the policy of Jobs that have one for failures.
    pub fn control(&mut self) {
        let uids: BTreeSet<String> = self
            .stored
            .miniclusters
            .values()
            .map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned())
            .collect();
        self.stored
            .jobs
            .retain(|_, job| job.owner_references().iter().any(|owner| uids.contains(&owner.uid)));
        let jobs = self.stored.jobs.clone();
        for pod in self.stored.joiner_pods.values_mut() {
            let job = jobs.get(&pod.owner).filter(|job| job.uid().as_ref() == Some(&pod.job));
            pod.is_terminating |= job.is_none_or(|job| pod.index >= wanted(job));
        }
        for (owner, job) in &jobs {
            match owner == LENDER {
                true => self.control_lender(job),
                false => self.create_joiner_pods(owner, job),
            }
        }
    }

    fn create_joiner_pods(&mut self, owner: &str, job: &Job) {
        let uid = job.uid().unwrap();
        for index in 0..wanted(job) {
            let mut pods = self.stored.joiner_pods.values();
            if pods.any(|pod| pod.job == uid && pod.index == index) {
                continue;
            }
            let name = self.fresh("pod");
            let labels = job.spec.as_ref().and_then(|it| it.template.metadata.as_ref());
            let labels = labels.and_then(|it| it.labels.clone()).unwrap();
            let pod = JoinerPod {
                uid: name.clone(),
                holder: labels[HOLDER_LABEL].clone(),
                owner: owner.to_owned(),
                job: uid.clone(),
                table: labels[TABLE_LABEL].clone(),
                index,
                ranks: self.stored.boot_plans[owner].clone(),
                is_terminating: false,
                broker: None,
                is_online: false,
            };
            self.stored.joiner_pods.insert(name, pod);
        }
    }

    fn control_lender(&mut self, job: &Job) {
        for pod in self.stored.lender_pods.values_mut() {
            pod.is_terminating |= pod.index >= wanted(job);
        }
        for index in 0..wanted(job) {
            if !self.stored.lender_pods.values().any(|pod| pod.index == index) {
                let name = self.fresh("lender");
                let pod = LenderPod { index, is_terminating: false, is_online: false };
                self.stored.lender_pods.insert(name, pod);
            }
        }
    }

    /// The kubelet writes the current boot plan, and the agent of the pod reads it before it asks.
    pub fn update_boot_plan(&mut self, pod: usize) {
        let pods = &mut self.stored.joiner_pods;
        if let Some(name) = nth_pod(pods, pod, |pod| pod.broker.is_none()) {
            let pod = pods.get_mut(&name).unwrap();
            pod.ranks = self.stored.boot_plans[&pod.owner].clone();
        }
    }

    /// The kubelet has stopped a pod that terminates.
    pub fn stop_terminating(&mut self, pod: usize) {
        let pods = &mut self.stored.joiner_pods;
        if let Some(name) = nth_pod(pods, pod, |pod| pod.is_terminating) {
            pods.remove(&name);
        }
    }

    /// The same for a pod of the lender.
    pub fn stop_terminating_of_lender(&mut self, pod: usize) {
        let pods = &mut self.stored.lender_pods;
        if let Some(name) = nth_pod(pods, pod, |pod| pod.is_terminating) {
            pods.remove(&name);
        }
    }

    pub fn kill(&mut self, pod: usize) {
        let pods = &mut self.stored.joiner_pods;
        if let Some(name) = nth_pod(pods, pod, |_| true) {
            pods.remove(&name);
        }
    }
}
