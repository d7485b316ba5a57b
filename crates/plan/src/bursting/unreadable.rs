//! A Burst whose MiniCluster exists and cannot be read, as after a change of the CRD, or another Burst that
//! may run the same job. Jobs may run on its nodes, so that the MiniCluster is not taken for deleted. But
//! nodes cost: its lifetime ends, a run whose job has started goes on to its end, and a Burst that is deleted
//! is given back, after all the time that jobs have to finish.

use flux_operator_api::Burst;
use k8s_openapi::jiff::Timestamp;

use super::claim::lifetime_end;
use crate::time::seconds_after;

/// What exists and cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// The MiniCluster of a Burst.
    pub cluster: bool,
    /// A Burst of the same namespace.
    pub bursts: bool,
}

/// What to do about a Burst while something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhileUnreadable {
    /// Nothing.
    Wait,
    /// Delete the Burst, for this reason.
    DeleteSelf(String),
    /// What is decided with what can be read: without a MiniCluster, give it back without draining, or go
    /// on with the run of its job.
    GoOn,
}

/// Decides what to do about a Burst while something cannot be read.
pub fn while_unreadable(burst: &Burst, unreadable: Unreadable, now: Timestamp) -> WhileUnreadable {
    let may_have_rival = unreadable.bursts && burst.is_isolated();
    if !unreadable.cluster && !may_have_rival {
        return WhileUnreadable::GoOn;
    }
    let grace = i64::from(burst.spec.grace_seconds());
    match &burst.metadata.deletion_timestamp {
        // Of a run that is over only the record is left.
        None if burst.is_record() => WhileUnreadable::GoOn,
        // At the end of its lifetime, what the job has written is saved first.
        None if burst.run().is_some_and(|run| run.may_have_run) => WhileUnreadable::GoOn,
        None if now >= lifetime_end(burst) => {
            WhileUnreadable::DeleteSelf("its lifetime is over".to_owned())
        }
        Some(since) if now >= seconds_after(since.0, grace) => WhileUnreadable::GoOn,
        None | Some(_) => WhileUnreadable::Wait,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_lifetime_ends_and_a_deleted_burst_is_given_back_after_the_grace_time() {
        let burst = |deleted: Option<&str>| -> Burst {
            let target = json!({ "name": "t", "maxNodes": 4, "mock": {} });
            let burst = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "Burst",
                "metadata": { "name": "b", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "deletionTimestamp": deleted },
                "spec": { "cluster": "fs", "nodes": 1, "target": target, "lifetimeSeconds": 3600,
                    "graceSeconds": 60 } });
            serde_json::from_value(burst).unwrap()
        };
        let (kept, deleted) = (burst(None), burst(Some("2026-01-01T00:10:00Z")));
        let with_run = |may_have_run: bool| {
            let mut burst = kept.clone();
            burst.spec.isolated_job = "f2b".into();
            let status = json!({ "run": { "state": "Starting", "mayHaveRun": may_have_run } });
            burst.status = Some(serde_json::from_value(status).unwrap());
            burst
        };
        let (started, waiting) = (with_run(true), with_run(false));
        let over = WhileUnreadable::DeleteSelf("its lifetime is over".to_owned());
        for (burst, time, expected) in [
            (&kept, "00:59:59", WhileUnreadable::Wait),
            (&kept, "01:00:00", over),
            (&deleted, "00:10:59", WhileUnreadable::Wait),
            (&deleted, "00:11:00", WhileUnreadable::GoOn),
            (&started, "00:59:59", WhileUnreadable::GoOn),
            (&started, "01:00:00", WhileUnreadable::GoOn),
            (&waiting, "00:59:59", WhileUnreadable::Wait),
        ] {
            let now = format!("2026-01-01T{time}Z").parse().unwrap();
            let cluster = Unreadable { cluster: true, bursts: false };
            assert_eq!(while_unreadable(burst, cluster, now), expected, "{time}");
            // Another Burst matters only to one that runs a job.
            let expected = if burst.is_isolated() { expected } else { WhileUnreadable::GoOn };
            let bursts = Unreadable { cluster: false, bursts: true };
            assert_eq!(while_unreadable(burst, bursts, now), expected, "{time}");
        }
    }
}
