//! What a lender grants, keeps and takes back.

use crate::fixture::*;
use std::sync::Arc;

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_plan::{
    ExistingPod, LenderView, Observed, Outcome, QueryAnswer, ServerReply, Step, decide, queries,
};
use serde_json::json;

#[test]
fn ranks_are_granted_as_they_are_asked_for() {
    let asks = |ranks: &str| joiner(&json!({ "spec": { "flux": { "join": { "ranks": ranks } } } }));
    let pools = json!([{ "name": "joiner", "size": 2 }, { "name": "cloud", "size": 2 }]);
    let spec =
        json!({ "maxSize": 4, "flux": { "bursting": { "clusters": pools, "spareRanks": 2 } } });
    // Own 0-3, of which 2-3 are not in use; pools 4-5 and 6-7; spare 8-9.
    let lender = lender(&json!({ "spec": spec }));
    let granted = |joiner| leases(&lender, &[joiner], None).concat();
    assert_eq!(granted(asks("")), "joiner: 4-5 Active", "the pool of its name first");
    let named = |name: &str| joiner(&json!({ "metadata": { "name": name } }));
    assert_eq!(granted(named("home")), "home: 8-9 Active", "that is not a pool");
    assert_eq!(granted(asks("cloud")), "joiner: 6-7 Active");
    assert_eq!(granted(asks("spare")), "joiner: 8-9 Active");
    assert_eq!(granted(asks("home")), "joiner: 3,2 Active", "the highest first");
    assert_eq!(granted(asks("5,7,9")), "joiner: 5,7 Active");
    assert_eq!(granted(asks("0-1")), "", "they are in use");
    let many = joiner(&json!({ "spec": { "size": 8 } }));
    assert_eq!(granted(many), "joiner: 4-5,8-9,6-7,3,2 Active");
    let too_many = joiner(&json!({ "spec": { "size": 9 } }));
    assert_eq!(granted(too_many), "", "all or none");
}

/// A pod that no watch shows is one whose broker needs no permission.
#[test]
fn own_ranks_are_lent_only_if_the_api_server_has_no_pod_there() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 0 } } });
    let lender = lender(&json!({ "spec": spec }));
    let granted = |own: Option<&[u32]>, joiners: Option<&[u32]>| {
        let mut observed = observed_by_lender(&lender, &[joiner(&json!({}))], None);
        answer(&mut observed, &lender, own, joiners);
        let decision = decide(&lender.minicluster, &observed, &settings());
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        let is_answered = own.is_some() && joiners.is_some();
        let is_decided_again = conclusion.requeue_at.is_some_and(|at| at <= after(2));
        assert!(is_answered || is_decided_again, "it is asked again");
        conclusion.status.unwrap().leases.len()
    };
    assert_eq!(granted(Some(&[0, 1]), Some(&[])), 1);
    assert_eq!(granted(Some(&[0, 1, 2]), Some(&[])), 0);
    assert_eq!(granted(None, Some(&[])), 0, "the API server does not answer");
    assert_eq!(granted(Some(&[0, 1]), None), 0, "nor about joiners");
}

/// The Job keeps the pods that have failed.
#[test]
fn own_ranks_are_lent_although_a_pod_has_failed_there() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 0 } } });
    let lender = lender(&json!({ "spec": spec }));
    let granted = |phase: &str| {
        let mut observed = observed_by_lender(&lender, &[joiner(&json!({}))], None);
        let mut pod = lead_pod();
        pod.metadata.annotations.as_mut().unwrap().insert(INDEX.into(), "3".into());
        pod.status.as_mut().unwrap().phase = Some(phase.into());
        observed.pods.push(Arc::new(pod));
        let decision = decide(&lender.minicluster, &observed, &settings());
        decision.conclude(&Outcome::all(&decision.steps)).status.unwrap().leases.len()
    };
    assert_eq!(granted("Failed"), 1);
    assert_eq!(granted("Running"), 0);
}

/// The status was lost while the pods of a joiner were being deleted: nothing says which ranks
/// their brokers have.
#[test]
fn nothing_is_granted_while_pods_exist_whose_ranks_are_not_known() {
    let lender = lender(&json!({}));
    let decided = |pods: &[u32], namespace: &str| {
        let mut observed = observed_by_lender(&lender, &[joiner(&json!({}))], None);
        observed.answers.clear();
        for query in queries(&lender.minicluster, &observed) {
            let pod = |index: &u32| ExistingPod {
                namespace: namespace.into(),
                holder: "deleted".into(),
                table: "t".into(),
                index: *index,
            };
            let reply = Some(ServerReply::Pods(pods.iter().map(pod).collect()));
            observed.add_answer(QueryAnswer::new(&lender.minicluster, query, reply, after(0)));
        }
        let decision = decide(&lender.minicluster, &observed, &settings());
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        let leases = conclusion.status.unwrap().leases.len();
        let requeue_at = conclusion.requeue_at;
        let is_decided_again = requeue_at.is_some_and(|at| at <= after(2));
        assert!(leases == 1 || is_decided_again, "it is decided again");
        leases
    };
    assert_eq!(decided(&[], "hpc"), 1);
    assert_eq!(decided(&[0], "hpc"), 0);
    assert_eq!(decided(&[0], "elsewhere"), 1, "it cannot have permission: it is forged");
}

/// The annotation may have been written by a user who may not join, or wants the lender's own ranks.
#[test]
fn a_forged_note_changes_nothing() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 2 } } });
    let view = lender(&json!({ "spec": spec }));
    let forged = |ranks: &str, count| {
        let mut forged = joiner_job("2-3");
        let note = json!({ "lender": "lender-uid", "job": "lender-job", "ranks": ranks,
            "table": table(&view) });
        let name = "flux-framework.org/lease".to_owned();
        forged.metadata.annotations.as_mut().unwrap().insert(name, note.to_string());
        forged.spec.as_mut().unwrap().completions = Some(count);
        forged
    };
    let stranger = json!({ "metadata": { "namespace": "elsewhere" },
        "spec": { "flux": { "join": { "namespace": "hpc" } } } });
    let waiting = json!({ "spec": { "suspend": true } });
    for (patch, forged) in [(waiting, forged("0-3", 4)), (stranger, forged("4-5", 2))] {
        assert_eq!(leases(&view, &[joiner(&patch)], Some(&forged)), [""; 0], "{patch}");
        let observed = observed_by_lender(&view, &[joiner(&patch)], Some(&forged));
        let decision = decide(&view.minicluster, &observed, &settings());
        assert_eq!(decision.blocker(), None);
        assert_eq!(decision.lead_work.unwrap().ranks.to_string(), "2-3", "only what is not used");
    }
}

#[test]
fn the_note_of_a_failed_job_is_ignored() {
    let mut job = joiner_job("2-3");
    let failed = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
    job.status = Some(serde_json::from_value(failed).unwrap());
    assert_eq!(
        leases(&lender(&json!({})), &[joiner(&json!({ "spec": { "suspend": true } }))], Some(&job)),
        [""; 0]
    );
}

#[test]
fn the_oldest_of_two_joiners_gets_the_last_ranks() {
    let one = joiner(&json!({ "spec": { "size": 3 } }));
    let patch = json!({ "metadata": { "name": "other", "uid": "other",
        "creationTimestamp": "2025-01-01T00:00:00Z" }, "spec": { "size": 3 } });
    let older = joiner(&patch);
    assert_eq!(leases(&lender(&json!({})), &[one, older], None), ["other: 2-4 Active"]);
}

#[test]
fn a_joiner_that_must_wait_is_granted_nothing() {
    for patch in [
        json!({ "spec": { "suspend": true } }),
        json!({ "spec": { "queue": "batch" } }),
        json!({ "metadata": { "deletionTimestamp": START } }),
        json!({ "metadata": { "namespace": "elsewhere" },
            "spec": { "flux": { "join": { "namespace": "hpc" } } } }),
        json!({ "status": { "conditions": [{ "type": "JobFinished", "status": "True",
            "reason": "DeadlineExceeded", "message": "", "lastTransitionTime": START }] } }),
    ] {
        assert_eq!(leases(&lender(&json!({})), &[joiner(&patch)], None), [""; 0], "{patch}");
    }
    let silent = LenderView { report: None, ..lender(&json!({})) };
    assert_eq!(leases(&silent, &[joiner(&json!({}))], None), [""; 0], "nothing can be compared");
}

#[test]
fn a_lender_in_another_namespace_must_allow_it() {
    let from = joiner(&json!({ "metadata": { "namespace": "elsewhere" },
        "spec": { "flux": { "join": { "namespace": "hpc" } } } }));
    for (allowed, granted) in
        [(json!([]), false), (json!(["elsewhere"]), true), (json!(["*"]), true)]
    {
        let bursting = json!({ "bursting": { "allowedNamespaces": allowed } });
        let lender = lender(&json!({ "spec": { "flux": bursting } }));
        assert_eq!(
            leases(&lender, std::slice::from_ref(&from), None).len() == 1,
            granted,
            "{allowed}"
        );
        let (_, reason, _) = joined(&from, &observed_by_joiner(Some(lender), None));
        assert_eq!(reason == "NotAllowed", !granted, "{allowed}");
    }
}

#[test]
fn leases_follow_the_size_of_the_joiner() {
    let lender = leased("2-4", LeaseState::Active, &json!({}));
    let sized = |size: i32| joiner(&json!({ "spec": { "size": size } }));
    assert_eq!(leases(&lender, &[sized(3)], None), ["joiner: 2-4 Active"]);
    assert_eq!(leases(&lender, &[sized(4)], None), ["joiner: 2-5 Active"]);
    assert_eq!(leases(&lender, &[sized(5)], None), ["joiner: 2-4 Active"], "all or none");
    assert_eq!(leases(&lender, &[sized(1)], None), ["joiner: 2 Active", "joiner: 3-4 Leaving"]);
    assert_eq!(leases(&lender, &[], None), ["joiner: 2-4 Leaving"], "it was deleted");
    let leaving = leased("2-4", LeaseState::Leaving, &json!({}));
    assert_eq!(leases(&leaving, &[sized(3)], None), ["joiner: 2-4 Active"], "it stays after all");
}

#[test]
fn a_lease_that_was_lost_is_found_on_the_job() {
    let job = joiner_job("3-4");
    let found = leases(&lender(&json!({})), &[joiner(&json!({}))], Some(&job));
    assert_eq!(found, ["joiner: 3-4 Active"]);
    // A watch that lags shows a Job that is deleted, whose ranks were given back.
    let lender_without = lender(&json!({}));
    let mut observed = observed_by_lender(&lender_without, &[joiner(&json!({}))], Some(&job));
    answer(&mut observed, &lender_without, Some(&[0, 1]), Some(&[]));
    assert_eq!(leases_of(&lender_without, &observed), ["joiner: 2-3 Active"], "it is granted anew");
    let elsewhere = json!({ "metadata": { "uid": "another" } });
    let other = lender(&elsewhere);
    let found = leases(&other, &[joiner(&json!({}))], Some(&job));
    assert_eq!(found, [""; 0], "it could not use ranks before that Job is deleted");
    assert_eq!(leases(&other, &[joiner(&json!({}))], None), ["joiner: 2-3 Active"]);
}

/// A joiner whose manifest is refused keeps what it has, also if only its Job shows it.
#[test]
fn a_refused_joiner_keeps_its_ranks() {
    let refused = joiner(&json!({ "spec": { "flux": { "bursting": { "spareRanks": 1 } } } }));
    let (job, held) = (joiner_job("2-3"), leased("2-3", LeaseState::Active, &json!({})));
    let kept = ["joiner: 2-3 Active"];
    assert_eq!(leases(&held, std::slice::from_ref(&refused), Some(&job)), kept);
    assert_eq!(leases(&lender(&json!({})), &[refused], Some(&job)), kept, "the status was lost");
}

#[test]
fn a_joiner_that_may_not_have_ranks_any_more_gives_them_back() {
    let finished = json!({ "type": "JobFinished", "status": "True", "reason": "DeadlineExceeded",
        "message": "", "lastTransitionTime": START });
    for patch in [
        json!({ "status": { "conditions": [finished] } }),
        json!({ "spec": { "suspend": true } }),
        json!({ "spec": { "queue": "batch" } }),
        json!({ "metadata": { "deletionTimestamp": START } }),
    ] {
        let held = leased("2-3", LeaseState::Active, &json!({}));
        assert_eq!(leases(&held, &[joiner(&patch)], None), ["joiner: 2-3 Leaving"], "{patch}");
    }
}

/// B33: a rank is free again when its broker is offline and the API server has no pod.
#[test]
fn b33_ranks_are_free_once_their_brokers_are_offline_and_their_pods_deleted() {
    let free_after = |online: Option<&str>, pods: &[u32], seconds| {
        let mut lender = leased("2-3", LeaseState::Leaving, &json!({}));
        let report = |online: &str| report(online.parse().unwrap(), None);
        // A report that does not say which brokers are online is as good as none.
        let silent = || {
            let mut silent = report("0");
            silent.state.online = None;
            silent
        };
        lender.report = Some(online.map_or_else(silent, report));
        let mut observed = observed_by_lender(&lender, &[], None);
        observed.now = after(seconds);
        answer(&mut observed, &lender, None, Some(pods));
        let decision = decide(&lender.minicluster, &observed, &settings());
        let conclusion = decision.conclude(&Outcome::all(&decision.steps));
        let is_free = conclusion.status.unwrap().leases.is_empty();
        assert!(is_free || conclusion.requeue_at.is_some(), "it is decided again");
        is_free
    };
    let free = |online, pods: &[u32]| free_after(Some(online), pods, 0);
    assert!(free("0-1", &[]));
    assert!(!free("0-1", &[1]), "a pod is left");
    assert!(!free("0-2", &[]), "a broker is online");
    assert!(!free_after(None, &[], 59), "nothing is known");
    assert!(free_after(None, &[], 60), "the lead was silent for too long");
    assert!(free_after(Some("0-3"), &[], 60), "so was this one");
    assert!(!free_after(Some("0-3"), &[1], 60), "a pod is left");
}

#[test]
fn b33_a_joiner_that_shrinks_frees_the_ranks_of_its_last_pods() {
    let free = |pods: &[u32]| {
        let all = leased("2-3", LeaseState::Active, &json!({}));
        let mut lender = leased("2", LeaseState::Active, &json!({}));
        let leases = &mut Arc::make_mut(&mut lender.minicluster).status.as_mut().unwrap().leases;
        let last = all.minicluster.status.as_ref().unwrap().leases[0].clone();
        leases.push(Lease { ranks: "3".into(), state: LeaseState::Leaving, ..last });
        lender.report = Some(report("0-2".parse().unwrap(), None));
        let joiner = joiner(&json!({ "spec": { "size": 1 } }));
        let mut observed = observed_by_lender(&lender, &[joiner], None);
        answer(&mut observed, &lender, None, Some(pods));
        let decision = decide(&lender.minicluster, &observed, &settings());
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        status.leases.len() == 1
    };
    assert!(free(&[0]));
    assert!(!free(&[0, 1]));
    assert!(!free(&[0, u32::MAX]), "the index of a pod is not known");
}

#[test]
fn a_lender_that_grows_needs_hosts_that_are_not_leased() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 0 } } });
    let lender = leased("3", LeaseState::Active, &json!({ "spec": spec }));
    let minicluster = Arc::new(minicluster_resized(&lender, 4));
    let lender = LenderView { minicluster, ..lender };
    let observed = observed_by_lender(&lender, &[joiner(&json!({ "spec": { "size": 1 } }))], None);
    let decision = decide(&lender.minicluster, &observed, &settings());
    let resize = decision.steps.iter().find_map(|step| match step {
        Step::Patch { patch, .. } => patch["spec"]["completions"].as_i64(),
        _ => None,
    });
    assert_eq!(resize, Some(3), "up to the first that is leased");
    let message = decision.blocker().unwrap().to_string();
    assert!(message.contains("host 3, which MiniCluster hpc/joiner leases"), "{message}");
    let work = decision.lead_work.unwrap();
    assert_eq!(work.ranks.to_string(), "", "a leased rank is not drained");
}

/// Another client has scaled the Job: its own broker needs no permission.
#[test]
fn a_job_that_covers_leased_hosts_is_made_smaller_at_once() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 0 } } });
    let mut lender = leased("3", LeaseState::Active, &json!({ "spec": spec }));
    let scaled = Arc::make_mut(lender.job.as_mut().unwrap()).spec.as_mut().unwrap();
    (scaled.completions, scaled.parallelism) = (Some(4), Some(4));
    let resize = |size: i32| {
        let minicluster = Arc::new(minicluster_resized(&lender, size));
        let lender = LenderView { minicluster, ..lender.clone() };
        let joiner = joiner(&json!({ "spec": { "size": 1 } }));
        let observed = observed_by_lender(&lender, &[joiner], None);
        let decision = decide(&lender.minicluster, &observed, &settings());
        decision.steps.iter().find_map(|step| match step {
            Step::Patch { patch, .. } => patch["spec"]["completions"].as_i64(),
            _ => None,
        })
    };
    assert_eq!(resize(3), Some(3));
    assert_eq!(resize(4), Some(3));
}

/// The Job was created again with another tree, in which the rank is not a child of the lead.
#[test]
fn a_lease_of_a_rank_that_cannot_reach_the_lead_ends() {
    let state = |topology: &str| {
        let spec = json!({ "maxSize": 6, "flux": { "bursting": { "spareRanks": 0 } } });
        let before = leased("5", LeaseState::Active, &json!({ "spec": spec }));
        let flux = json!({ "topology": topology, "bursting": { "spareRanks": 0 } });
        let now = lender(&json!({ "spec": { "maxSize": 6, "flux": flux } }));
        let now = LenderView { job: now.job, ..before };
        leases(&now, &[joiner(&json!({ "spec": { "size": 1 } }))], None).concat()
    };
    assert_eq!(state("kary:0"), "joiner: 5 Active");
    assert_eq!(state("kary:2"), "joiner: 5 Leaving");
}

#[test]
fn the_table_of_a_running_lender_does_not_follow_its_spec() {
    let view = leased("2-3", LeaseState::Active, &json!({}));
    let mut edited = (*view.minicluster).clone();
    edited.spec.flux.as_mut().unwrap().bursting.as_mut().unwrap().spare_ranks = Some(9);
    let edited = LenderView { minicluster: Arc::new(edited), ..view };
    assert_eq!(leases(&edited, &[joiner(&json!({}))], None), ["joiner: 2-3 Active"]);
    let many = joiner(&json!({ "spec": { "size": 5 } }));
    assert_eq!(leases(&edited, &[many], None), ["joiner: 2-3 Active"], "Flux has no more ranks");
}

/// Pods of a joiner that no lease covers may have any rank.
#[test]
fn a_lender_does_not_grow_while_there_are_pods_whose_ranks_are_not_known() {
    let spec = json!({ "maxSize": 4, "flux": { "bursting": { "spareRanks": 1 } } });
    let decided = |pods: Option<&[u32]>| {
        let lender = leased("4", LeaseState::Active, &json!({ "spec": spec }));
        let minicluster = Arc::new(minicluster_resized(&lender, 4));
        let lender = LenderView { minicluster, ..lender };
        let joiner = joiner(&json!({ "spec": { "size": 1 } }));
        let mut observed = observed_by_lender(&lender, &[joiner], None);
        answer(&mut observed, &lender, None, pods);
        let decision = decide(&lender.minicluster, &observed, &settings());
        let resize = decision.steps.iter().find_map(|step| match step {
            Step::Patch { patch, .. } => patch["spec"]["completions"].as_i64(),
            _ => None,
        });
        (resize, decision.blocker().map(ToString::to_string))
    };
    assert_eq!(decided(Some(&[0])), (Some(4), None));
    let (resize, blocker) = decided(Some(&[0, 1]));
    assert_eq!(resize, None);
    assert!(blocker.unwrap().contains("pods of former joiners"));
    assert_eq!(decided(None), (None, None), "the API server does not answer");
}

fn minicluster_resized(lender: &LenderView, size: i32) -> MiniCluster {
    let mut minicluster = (*lender.minicluster).clone();
    minicluster.spec.size = size;
    minicluster
}

/// A broker that was started by other means, for example by hand in a pool. Flux would replace it.
#[test]
fn a_rank_that_is_online_without_a_lease_is_not_lent() {
    let spec = json!({ "flux": { "bursting": { "spareRanks": 0,
        "clusters": [{ "name": "joiner", "size": 4 }] } } });
    let granted = |online: &str| {
        let mut lender = lender(&json!({ "spec": spec }));
        lender.report = Some(report(online.parse().unwrap(), None));
        leases(&lender, &[joiner(&json!({}))], None).concat()
    };
    assert_eq!(granted("0-1"), "joiner: 2-3 Active");
    assert_eq!(granted("0-3"), "joiner: 4-5 Active");
    assert_eq!(granted("0-4"), "");
    let silent = LenderView { report: None, ..lender(&json!({ "spec": spec })) };
    assert_eq!(leases(&silent, &[joiner(&json!({}))], None), [""; 0], "nothing is known");
}

#[test]
fn a_joiner_that_cannot_use_ranks_gets_none() {
    let spec = json!({ "flux": { "bursting": { "spareRanks": 1 } } });
    let lender = lender(&json!({ "spec": spec }));
    let refused =
        joiner(&json!({ "spec": { "size": 1, "flux": { "bursting": { "spareRanks": 1 } } },
        "metadata": { "creationTimestamp": "2025-01-01T00:00:00Z" } }));
    let younger = joiner(&json!({ "metadata": { "name": "younger", "uid": "younger" },
        "spec": { "size": 1 } }));
    assert_eq!(leases(&lender, &[refused, younger], None), ["younger: 2 Active"]);
}

#[test]
fn a_holder_that_cannot_be_decoded_keeps_its_ranks() {
    let lender = leased("2-3", LeaseState::Active, &json!({}));
    let kept = |undecodable: Vec<String>| {
        let observed = Observed { undecodable, ..observed_by_lender(&lender, &[], None) };
        let decision = decide(&lender.minicluster, &observed, &settings());
        decision.conclude(&Outcome::all(&decision.steps)).status.unwrap().leases[0].state
    };
    assert_eq!(kept(vec!["joiner-uid".into()]), LeaseState::Active);
    assert_eq!(kept(Vec::new()), LeaseState::Leaving, "it is deleted");
}

/// The lender's Job was created again with another table, and old pods terminate slowly.
#[test]
fn a_lease_of_an_earlier_table_ends_with_its_pods_and_drains_nothing() {
    let decided = |old_pods: &[u32]| {
        let mut lender = leased("2-3", LeaseState::Active, &json!({}));
        let leases = &mut Arc::make_mut(&mut lender.minicluster).status.as_mut().unwrap().leases;
        let current = leases[0].clone();
        leases.push(Lease { table: "old".into(), state: LeaseState::Leaving, ..current.clone() });
        // One lease has a rank of another only in this order: an earlier one counts.
        leases[1].ranks = "4-5".into();
        let mut observed = observed_by_lender(&lender, &[joiner(&json!({}))], None);
        observed.answers.clear();
        for query in queries(&lender.minicluster, &observed) {
            let pod = |table: &str, index: u32| ExistingPod {
                namespace: "hpc".into(),
                holder: "joiner-uid".into(),
                table: table.into(),
                index,
            };
            let old = old_pods.iter().map(|index| pod("old", *index));
            let pods = [pod(&current.table, 0), pod(&current.table, 1)].into_iter().chain(old);
            let reply = Some(ServerReply::Pods(pods.collect()));
            observed.add_answer(QueryAnswer::new(&lender.minicluster, query, reply, after(0)));
        }
        let decision = decide(&lender.minicluster, &observed, &settings());
        let drained = decision.lead_work.clone().unwrap().ranks.to_string();
        let status = decision.conclude(&Outcome::all(&decision.steps)).status.unwrap();
        (status.leases.len(), drained)
    };
    assert_eq!(decided(&[1]), (2, String::new()));
    assert_eq!(decided(&[]), (1, String::new()));
}
