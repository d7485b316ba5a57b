//! The rank table of an instance: whose brokers have which rank, and whether they are online.

use flux_operator_api::MiniCluster;
use flux_operator_api::condition::ConditionType;
use flux_operator_api::minicluster::{Lease, LeaseState};
use flux_operator_api::view::{RankRange, RankState, RankTable};
use flux_operator_flux::IdSet;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::observed::completions;
use crate::rank_table::{self, RankTableError, SlotOwner};
use crate::resize::DRAINING_ANNOTATION;
use crate::stamp::booted_rank_table;
use crate::verdict::find;

/// Why there is no rank table to show.
#[derive(Debug, thiserror::Error)]
pub enum NoRankTable {
    /// Its brokers have the ranks of another MiniCluster's instance.
    #[error("it joins another MiniCluster, so it has no rank table of its own")]
    Joiner,
    /// The instance was not started.
    #[error("it has no Job yet, so its Flux instance was not started")]
    NoJob,
    /// Its hosts are not valid.
    #[error("its manifest has no valid rank table")]
    Invalid(#[source] RankTableError),
}

/// The rank table of the instance of `minicluster`, as it was booted. With a `joiner`, only the
/// ranks that are leased to that one.
pub fn rank_table(
    minicluster: &MiniCluster,
    job: Option<&Job>,
    joiner: Option<&MiniCluster>,
) -> Result<RankTable, NoRankTable> {
    let (table, job) = booted_table(minicluster, job)?;
    let asked_about = joiner.unwrap_or(minicluster);
    let instance = Instance::of(minicluster, job, &asked_about.namespace().unwrap_or_default());
    let holder = joiner.map(|joiner| joiner.uid().unwrap_or_default());
    let mut rows: Vec<Row<'_>> = Vec::new();
    for slots in &table.slots {
        for rank in slots.ranks().iter() {
            let used = instance.usage(rank, &slots.owner);
            if holder.as_deref().is_some_and(|holder| used.holder != Some(holder)) {
                continue;
            }
            match rows.last_mut() {
                Some(row) if row.end() == rank && row.owner == &slots.owner && row.used == used => {
                    row.count = row.count.saturating_add(1);
                }
                _ => rows.push(Row { first: rank, count: 1, owner: &slots.owner, used }),
            }
        }
    }
    let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let range = |row: Row<'_>| RankRange {
        ranks: IdSet::first_n(row.end()).difference(&IdSet::first_n(row.first)).to_string(),
        hosts: table.hosts.slice(index(row.first), index(row.count)).to_string(),
        owner: row.used.owner.to_owned(),
        state: row.used.state,
        property: row.owner.property().to_owned(),
        since: row.used.since.map(ToOwned::to_owned),
    };
    Ok(RankTable {
        namespace: minicluster.namespace().unwrap_or_default(),
        name: minicluster.name_any(),
        joiner: joiner.map(ResourceExt::name_any),
        items: rows.into_iter().map(range).collect(),
    })
}

/// The rank table with which an instance was booted, and its Job.
pub(super) fn booted_table<'a>(
    minicluster: &MiniCluster,
    job: Option<&'a Job>,
) -> Result<(rank_table::RankTable, &'a Job), NoRankTable> {
    if minicluster.spec.is_joiner() {
        return Err(NoRankTable::Joiner);
    }
    let uid = minicluster.metadata.uid.as_deref().unwrap_or_default();
    let is_ours = |job: &&Job| job.owner_references().iter().any(|owner| owner.uid == uid);
    let job = job.filter(is_ours).ok_or(NoRankTable::NoJob)?;
    let table = booted_rank_table(minicluster, Some(job)).map_err(NoRankTable::Invalid)?;
    Ok((table, job))
}

/// Consecutive ranks that are used in the same way.
struct Row<'a> {
    first: u32,
    count: u32,
    owner: &'a SlotOwner,
    used: Usage<'a>,
}

impl Row<'_> {
    /// The rank after the last.
    fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }
}

/// How a rank is used.
#[derive(Clone, Debug, PartialEq)]
struct Usage<'a> {
    /// Whose broker has it, as it is shown; empty if no MiniCluster has it.
    owner: &'a str,
    state: RankState,
    /// Uid of the MiniCluster that has leased it.
    holder: Option<&'a str>,
    since: Option<&'a str>,
}

/// What decides how the ranks of an instance are used.
struct Instance<'a> {
    name: String,
    leases: Vec<Leased<'a>>,
    /// Ranks whose brokers are online; `None` if that is not known.
    online: Option<IdSet>,
    /// How many of its own ranks, from 0 on, should have brokers.
    size: u32,
    /// How many of them, from 0 on, the Job has pods for.
    completions: u32,
    /// Since when the cluster shrinks.
    draining_since: Option<&'a str>,
}

/// A lease of ranks.
struct Leased<'a> {
    ranks: IdSet,
    /// The holder, as it is shown.
    owner: String,
    holder: &'a str,
    since: &'a str,
    state: LeaseState,
}

impl<'a> Leased<'a> {
    fn of(lease: &'a Lease, namespace: &str) -> Leased<'a> {
        Leased {
            ranks: lease.rank_list().to_set(),
            owner: lease.holder_in(namespace),
            holder: &lease.holder,
            since: &lease.since,
            state: lease.state,
        }
    }
}

impl<'a> Instance<'a> {
    /// The instance of a MiniCluster and its Job; holders are shown as in `namespace`.
    fn of(minicluster: &'a MiniCluster, job: &'a Job, namespace: &str) -> Instance<'a> {
        let status = minicluster.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let is_led = find(conditions, ConditionType::Ready).is_some_and(|it| it.status == "True");
        let online: IdSet = status.and_then(|it| it.online.parse().ok()).unwrap_or_default();
        let leases = status.iter().flat_map(|status| &status.leases);
        let count = |number: i32| u32::try_from(number).unwrap_or_default();
        Instance {
            name: minicluster.name_any(),
            leases: leases.map(|lease| Leased::of(lease, namespace)).collect(),
            // A lead that reports is online itself. One that is ready and does not report has
            // brokers that are not known; without a ready one there is no instance.
            online: Some(online).filter(|online| !online.is_empty() || !is_led),
            size: count(minicluster.spec.size),
            completions: u32::try_from(completions(Some(job))).unwrap_or(u32::MAX),
            draining_since: job.annotations().get(DRAINING_ANNOTATION).map(String::as_str),
        }
    }

    fn usage(&self, rank: u32, slot: &'a SlotOwner) -> Usage<'_> {
        let broker = match &self.online {
            Some(online) if online.contains(rank) => RankState::Online,
            Some(_) => RankState::Offline,
            None => RankState::Unknown,
        };
        if let Some(lease) = self.leases.iter().find(|lease| lease.ranks.contains(rank)) {
            let state = match lease.state {
                LeaseState::Active => broker,
                LeaseState::Leaving => RankState::Leaving,
            };
            let (holder, since) = (Some(lease.holder), Some(lease.since));
            return Usage { owner: &lease.owner, state, holder, since };
        }
        let used = |owner, state| Usage { owner, state, holder: None, since: None };
        let is_online = broker == RankState::Online;
        match slot {
            SlotOwner::Job if rank < self.size => used(&self.name, broker),
            SlotOwner::Job if rank < self.completions && self.draining_since.is_some() => {
                Usage { since: self.draining_since, ..used(&self.name, RankState::Leaving) }
            }
            SlotOwner::Job if rank < self.completions || is_online => used(&self.name, broker),
            // Brokers without a lease were started by hand.
            SlotOwner::Pool(name) if is_online => used(name, broker),
            SlotOwner::Spare if is_online => used("", broker),
            SlotOwner::Job | SlotOwner::Pool(_) | SlotOwner::Spare => used("", RankState::Free),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::RANKS_ANNOTATION;
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    /// Two own ranks of up to four, a pool of two, and four spare ranks.
    fn lender(status: Value) -> MiniCluster {
        let pool = json!({ "name": "gke", "size": 2 });
        let flux = json!({ "bursting": { "clusters": [pool], "spareRanks": 4 } });
        let mut lender = smallest_minicluster("fs");
        let spec = json!({ "size": 2, "maxSize": 4, "flux": flux });
        let metadata = json!({ "namespace": "team", "uid": "fs-uid" });
        merge(&mut lender, &json!({ "metadata": metadata, "spec": spec, "status": status }));
        serde_json::from_value(lender).unwrap()
    }

    fn job(changes: Value) -> Job {
        let owner =
            json!({ "apiVersion": "", "kind": "MiniCluster", "name": "fs", "uid": "fs-uid" });
        let pool = json!({ "name": "gke", "size": 2 });
        let others = json!({ "clusters": [pool], "spareRanks": 4 }).to_string();
        let mut job = json!({
            "metadata": { "ownerReferences": [owner], "annotations": { RANKS_ANNOTATION: "4",
                "flux-framework.org/table": others } },
            "spec": { "completions": 2, "template": {} },
        });
        merge(&mut job, &changes);
        serde_json::from_value(job).unwrap()
    }

    fn joiner(namespace: &str, name: &str) -> MiniCluster {
        let mut joiner = smallest_minicluster(name);
        let metadata = json!({ "namespace": namespace, "uid": name });
        let flux = json!({ "join": { "name": "fs", "namespace": "team" } });
        merge(&mut joiner, &json!({ "metadata": metadata, "spec": { "flux": flux } }));
        serde_json::from_value(joiner).unwrap()
    }

    fn lease(namespace: &str, name: &str, ranks: &str, state: &str) -> Value {
        json!({ "ranks": ranks, "holder": name, "namespace": namespace, "name": name,
            "table": "t", "since": "2026-01-01T00:00:00Z", "state": state })
    }

    /// One line for each row.
    fn rows(table: &RankTable) -> Vec<String> {
        let row = |it: &RankRange| {
            format!("{} {} {:?} {} {}", it.ranks, it.hosts, it.owner, it.state, it.property)
        };
        table.items.iter().map(row).collect()
    }

    fn shown(status: Value) -> Vec<String> {
        rows(&rank_table(&lender(status), Some(&job(json!({}))), None).unwrap())
    }

    #[test]
    fn a_cluster_that_nobody_joins_has_its_own_ranks_and_free_ones() {
        let expected = [
            r#"0-1 fs-[0-1] "fs" online home"#,
            r#"2-3 fs-[2-3] "" free home"#,
            r#"4-5 gke-[0-1] "" free gke"#,
            r#"6-9 fs-spare-[0-3] "" free spare"#,
        ];
        assert_eq!(shown(json!({ "online": "0-1" })), expected);
    }

    #[test]
    fn leased_ranks_show_their_holder_and_whether_they_are_given_back() {
        let leases = [
            lease("team", "near", "7,6", "Active"),
            lease("other", "far", "8", "Leaving"),
            lease("team", "near", "3", "Active"),
            lease("team", "broken", "x", "Active"),
        ];
        let expected = [
            r#"0 fs-0 "fs" online home"#,
            r#"1 fs-1 "fs" offline home"#,
            r#"2 fs-2 "" free home"#,
            r#"3 fs-3 "near" offline home"#,
            r#"4-5 gke-[0-1] "" free gke"#,
            r#"6-7 fs-spare-[0-1] "near" online spare"#,
            r#"8 fs-spare-2 "other/far" leaving spare"#,
            r#"9 fs-spare-3 "" free spare"#,
        ];
        assert_eq!(shown(json!({ "online": "0,6-8", "leases": leases })), expected);
    }

    #[test]
    fn brokers_that_were_started_by_hand_are_online() {
        let expected = [
            r#"0-1 fs-[0-1] "fs" online home"#,
            r#"2-3 fs-[2-3] "" free home"#,
            r#"4 gke-0 "gke" online gke"#,
            r#"5 gke-1 "" free gke"#,
            r#"6 fs-spare-0 "" online spare"#,
            r#"7-9 fs-spare-[1-3] "" free spare"#,
        ];
        assert_eq!(shown(json!({ "online": "0-1,4,6" })), expected);
    }

    #[test]
    fn without_a_report_of_a_ready_lead_nothing_is_known_of_the_brokers() {
        let ready = |status: &str| {
            json!({ "conditions": [{ "type": "Ready", "status": status, "reason": "",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] })
        };
        assert_eq!(shown(ready("True"))[0], r#"0-1 fs-[0-1] "fs" unknown home"#);
        assert_eq!(shown(ready("False"))[0], r#"0-1 fs-[0-1] "fs" offline home"#);
    }

    #[test]
    fn a_cluster_that_shrinks_drains_its_last_ranks() {
        let lender = lender(json!({ "online": "0-2" }));
        let of = |job: Job| rank_table(&lender, Some(&job), None).unwrap();
        let since = "2026-01-01T00:00:00Z";
        let metadata = json!({ "annotations": { DRAINING_ANNOTATION: since } });
        let larger = json!({ "completions": 3 });
        let drains = of(job(json!({ "metadata": metadata, "spec": larger })));
        assert_eq!(rows(&drains)[1], r#"2 fs-2 "fs" leaving home"#);
        assert_eq!(drains.items[1].since.as_deref(), Some(since));
        assert_eq!(
            rows(&of(job(json!({ "spec": larger }))))[0],
            r#"0-2 fs-[0-2] "fs" online home"#
        );
    }

    #[test]
    fn a_joiner_has_the_rows_that_it_leases() {
        let leases =
            [lease("other", "far", "6-7", "Active"), lease("other", "far", "9", "Leaving")];
        let lender = lender(json!({ "online": "0-1,6", "leases": leases }));
        let of = |joiner: &MiniCluster| {
            rank_table(&lender, Some(&job(json!({}))), Some(joiner)).unwrap()
        };
        let far = of(&joiner("other", "far"));
        let expected = [
            r#"6 fs-spare-0 "far" online spare"#,
            r#"7 fs-spare-1 "far" offline spare"#,
            r#"9 fs-spare-3 "far" leaving spare"#,
        ];
        assert_eq!(rows(&far), expected);
        assert_eq!((far.name.as_str(), far.joiner.as_deref()), ("fs", Some("far")));
        assert_eq!(rows(&of(&joiner("team", "new"))), [""; 0]);
    }

    #[test]
    fn there_is_no_table_before_the_instance_was_started() {
        let lender = lender(json!({}));
        let error = |minicluster: &MiniCluster, job: Option<&Job>| {
            rank_table(minicluster, job, None).unwrap_err()
        };
        assert!(matches!(error(&lender, None), NoRankTable::NoJob));
        let of_another = job(json!({ "metadata": { "ownerReferences": null } }));
        assert!(matches!(error(&lender, Some(&of_another)), NoRankTable::NoJob));
        assert!(matches!(error(&joiner("team", "a"), None), NoRankTable::Joiner));
    }

    #[test]
    fn a_large_instance_has_few_rows() {
        let mut lender = lender(json!({ "online": "0-99,200-299" }));
        let leases = json!([lease("team", "near", "200-299", "Active")]);
        lender.status.as_mut().unwrap().leases = serde_json::from_value(leases).unwrap();
        lender.spec.size = 100;
        let flux = json!({ "bursting": { "spareRanks": 200 } });
        lender.spec.flux = serde_json::from_value(flux).unwrap();
        let others = json!({ "spareRanks": 200 }).to_string();
        let annotations = json!({ "annotations": { RANKS_ANNOTATION: "100",
            "flux-framework.org/table": others } });
        let job = job(json!({ "metadata": annotations, "spec": { "completions": 100 } }));
        let expected = [
            r#"0-99 fs-[0-99] "fs" online home"#,
            r#"100-199 fs-spare-[0-99] "" free spare"#,
            r#"200-299 fs-spare-[100-199] "near" online spare"#,
        ];
        assert_eq!(rows(&rank_table(&lender, Some(&job), None).unwrap()), expected);
    }
}
