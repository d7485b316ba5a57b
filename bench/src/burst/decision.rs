//! The time of a decision about 10,000 pending jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use flux_operator_api::view::{InstanceJob, InstanceJobs, SlotRange};
use flux_operator_api::{BurstPolicy, MiniCluster};
use flux_operator_burst::{IdleRanks, Memory, PolicyState, Situation, decide};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::queue::thread_cpu_time;
use crate::summary::Samples;

/// Pending jobs: as many as the operator lists.
const JOBS: u64 = 10_000;
/// Nodes of the MiniCluster, all of which are busy.
const NODES: u32 = 64;
/// Ranks that can be leased.
const SPARE_RANKS: u32 = 1024;
/// Decisions to measure for each queue.
const DECISIONS: usize = 50;

/// Milliseconds of CPU time, so that a busy machine does not matter.
#[derive(Serialize, Default)]
pub(super) struct Figures {
    /// With free ranks for few of the jobs, as in a long queue.
    pub(super) refused: Samples,
    /// With nodes requested for every job.
    pub(super) requested: Samples,
    /// What is known, from the operator's answer to the arguments of a decision.
    pub(super) situation: Samples,
}

/// Decides about queues of jobs of many shapes, by two policies with two targets each.
pub(super) fn measure() -> Result<Figures> {
    let Figures { mut refused, mut requested, mut situation } = Figures::default();
    let now = Timestamp::now();
    let cluster: MiniCluster = serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
        "metadata": { "name": "fs", "namespace": "bench" },
        "spec": { "size": NODES, "containers": [{ "image": "i" }] },
    }))?;
    let policies = [policy("small", 16)?, policy("large", 1024)?];
    for (nodes, samples) in [(3, &mut refused), (0, &mut requested)] {
        let shown = shown(nodes, now);
        let mut memory = Memory::default();
        for _ in 0..DECISIONS {
            let begin = thread_cpu_time();
            let known = Situation::of(&cluster, &shown, &[], &mut IdleRanks::default(), now);
            situation.add(milliseconds_since(begin));
            let Situation { instance, pools, jobs } = &known;
            let begin = thread_cpu_time();
            let decision = decide(instance, &policies, pools, jobs, &memory, now);
            samples.add(milliseconds_since(begin));
            ensure!(decision.answers.len() as u64 == JOBS, "a job has no answer");
            ensure!(!decision.actions.is_empty(), "nothing is requested");
            memory = decision.memory;
        }
    }
    Ok(Figures { refused, requested, situation })
}

fn policy(name: &str, nodes: i32) -> Result<PolicyState> {
    let target = |name: &str| json!({ "name": name, "maxNodes": 1024, "cluster": {} });
    let policy: BurstPolicy = serde_json::from_value(json!({
        "apiVersion": "flux-framework.org/v1alpha2", "kind": "BurstPolicy",
        "metadata": { "name": name, "namespace": "bench" },
        "spec": {
            "selector": {}, "when": { "stabilizationSeconds": 0 }, "limits": { "nodes": nodes },
            "jobs": { "anyOf": [{ "minNodes": 2 }, { "waitingSeconds": 60 }] },
            "targets": [target("near"), target("far")],
        },
    }))?;
    Ok(PolicyState::of(&policy, [], (0.0, 0.0)))
}

/// What the operator shows: jobs of up to `nodes` nodes, of one core if that is 0.
fn shown(nodes: u32, now: Timestamp) -> InstanceJobs {
    let slots = |ranks: String, hosts: String, owner: &str| SlotRange {
        ranks,
        hosts,
        owner: owner.into(),
        cores: 16,
        ..SlotRange::default()
    };
    let last = NODES + SPARE_RANKS - 1;
    InstanceJobs {
        listed: true,
        online: Some(format!("0-{}", NODES - 1)),
        busy: Some(format!("0-{}", NODES - 1)),
        slots: vec![
            slots(format!("0-{}", NODES - 1), format!("fs-[0-{}]", NODES - 1), "Job"),
            slots(format!("{NODES}-{last}"), format!("fs-spare-[0-{}]", SPARE_RANKS - 1), "Spare"),
        ],
        lead_cores: 16,
        items: (0..JOBS).map(|id| job(id, nodes, now)).collect(),
        ..InstanceJobs::default()
    }
}

/// One of ten jobs is not for bursts, and one of four has a constraint.
fn job(id: u64, nodes: u32, now: Timestamp) -> InstanceJob {
    let mut attributes: BTreeMap<String, Value> =
        BTreeMap::from([("duration".into(), json!(3600)), ("cwd".into(), json!("/home/user"))]);
    if !id.is_multiple_of(10) {
        attributes.insert("burstable".into(), json!(1));
    }
    if id.is_multiple_of(4) {
        attributes.insert("constraints".into(), json!({ "properties": ["spare"] }));
    }
    let count = u32::try_from(id % 7).unwrap_or_default().min(nodes);
    InstanceJob {
        id: (id + 1) << 24,
        user: 1000,
        nodes: (count > 0).then_some(count),
        tasks: count.max(1),
        submitted: u64::try_from(now.as_second()).unwrap_or_default().saturating_sub(id),
        attributes: attributes.into(),
        ..InstanceJob::default()
    }
}

fn milliseconds_since(begin: Duration) -> f64 {
    1000.0 * (thread_cpu_time() - begin).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_answered_and_nodes_are_requested() {
        let figures = measure().unwrap();
        assert!(figures.refused.median().is_some() && figures.requested.median().is_some());
    }
}
