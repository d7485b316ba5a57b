//! Which ranks a joiner gets where there is no operator, as on one machine.
//!
//! The rules are the operator's, but there is no status in which leases are recorded, and nothing
//! to wait for: a joiner gets all its ranks at once, or the reason why not. The caller passes the
//! leases that exist, and must not decide about two joiners of one lender at the same time.

use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::LeaseState;
use flux_operator_api::validate::Problem;
use flux_operator_flux::{IdSet, RankList};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::claims::choice;
use super::grant::{Claim, FreeRanks, RankChoice, lendable};
use super::lease::{Holder, LeaseRecord};
use super::lender::{lender_of, may_join, wrong_size};
use super::permission::booted_cluster;
use crate::cluster::{Cluster, Joining};
use crate::rank_table::{RankTableError, SlotRange};
use crate::valid::Valid;

/// A lender without an operator.
#[derive(Clone, Debug)]
pub struct OfflineLender {
    /// The MiniCluster.
    pub minicluster: Valid,
    /// The endpoint of its lead.
    pub lead: String,
    /// What is leased already.
    pub leases: Vec<OfflineLease>,
}

/// Ranks that a joiner holds. Its name identifies it, because it has no uid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineLease {
    /// The joiner's name.
    pub holder: String,
    /// Its ranks.
    pub ranks: RankList,
}

/// Why a MiniCluster cannot join another one.
#[derive(Debug, thiserror::Error)]
pub enum OfflineJoinError {
    /// The lender joins another one itself.
    #[error(
        "MiniCluster {joiner:?} cannot join {lender:?}, which joins {other:?} itself\n\
         hint: let {joiner:?} join {other:?}"
    )]
    LenderIsJoiner {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// The lender's own lender.
        other: String,
    },
    /// Both join the other one.
    #[error(
        "{joiner:?} and {lender:?} join each other\n\
         hint: remove flux.join from the one that is to lend ranks"
    )]
    EachOther {
        /// One of them.
        joiner: String,
        /// The other one.
        lender: String,
    },
    /// The lender does not allow the joiner's namespace.
    #[error(
        "MiniCluster {joiner:?} cannot join {lender:?}, which does not allow namespace \
         {namespace:?}\nhint: add it to flux.bursting.allowedNamespaces of {lender:?}"
    )]
    NotAllowed {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// The joiner's namespace.
        namespace: String,
    },
    /// No host of the lender has the property that the joiner selects.
    #[error(
        "no host of {lender:?} has the property {property:?}: it has {}\nhint: change or remove \
         flux.join.ranks of {joiner:?}",
        known.join(", ")
    )]
    NoSuchProperty {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// The property.
        property: String,
        /// The properties that its hosts have.
        known: Vec<String>,
    },
    /// The joiner selects ranks that the lender does not have.
    #[error(
        "{lender:?} has {}, not {wanted}\nhint: change or remove flux.join.ranks of {joiner:?}",
        ranks_of(&IdSet::first_n(*size))
    )]
    NoSuchRanks {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// How many ranks the lender has.
        size: u32,
        /// The ranks that it does not have.
        wanted: IdSet,
    },
    /// The ranks that the joiner selects are leased.
    #[error(
        "{} of {lender:?} {} leased to {holder:?}\nhint: change or remove flux.join.ranks of \
         {joiner:?}, or stop {holder:?}",
        ranks_of(ranks),
        are(ranks.len())
    )]
    RanksLeased {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// The ranks.
        ranks: IdSet,
        /// The joiner that has them.
        holder: String,
    },
    /// The lender has not enough free ranks.
    #[error(
        "MiniCluster {joiner:?} needs {} of {lender:?}, and {}: {} more {} missing\nhint: {hint}",
        count(*needed, "rank"),
        free_ranks(*free),
        needed.saturating_sub(*free),
        are(needed.saturating_sub(*free) as u64)
    )]
    NoFreeRanks {
        /// The joiner's name.
        joiner: String,
        /// The lender's name.
        lender: String,
        /// How many ranks the joiner needs.
        needed: usize,
        /// How many it could get.
        free: usize,
        /// What to do.
        hint: String,
    },
    /// The hosts of one of them do not make a rank table.
    #[error(transparent)]
    Ranks(RankTableError),
}

impl OfflineJoinError {
    /// Why `joiner` cannot join `lender`, if that one is a joiner too.
    pub fn lender_is_joiner(
        joiner: &MiniCluster,
        lender: &MiniCluster,
    ) -> Option<OfflineJoinError> {
        let other = lender_of(lender)?;
        let namespace = joiner.namespace().unwrap_or_default();
        let (joiner, lender) = (joiner.name_any(), lender.name_any());
        let is_joiner = other.namespace == namespace && other.name == joiner;
        Some(match is_joiner {
            true => OfflineJoinError::EachOther { joiner, lender },
            false => {
                let other = other.shown_in(&namespace);
                OfflineJoinError::LenderIsJoiner { joiner, lender, other }
            }
        })
    }
}

impl OfflineLender {
    /// Leases ranks to a joiner. Returns its brokers as part of the lender's instance.
    pub fn lease(&mut self, joiner: &Valid) -> Result<Cluster, OfflineJoinError> {
        let (name, lender) = (joiner.name_any(), self.minicluster.name_any());
        let namespace = joiner.namespace().unwrap_or_default();
        if let Some(error) = OfflineJoinError::lender_is_joiner(joiner, &self.minicluster) {
            return Err(error);
        }
        if !may_join(&self.minicluster, joiner) {
            return Err(OfflineJoinError::NotAllowed { joiner: name, lender, namespace });
        }
        let cluster = Cluster::of(&self.minicluster).map_err(OfflineJoinError::Ranks)?;
        let ranks = self.free_ranks(joiner, &cluster)?;
        self.leases.push(OfflineLease { holder: name, ranks: ranks.clone() });
        let joining = Joining {
            remote: None,
            lender,
            // Without Kubernetes neither of them has a uid.
            cluster: String::new(),
            job: String::new(),
            ranks,
            table: cluster.ranks.hash(),
            lead: self.lead.clone(),
        };
        let own = Cluster::of(joiner).map_err(OfflineJoinError::Ranks)?;
        Ok(own.joining(&cluster, joining))
    }

    /// The ranks for a joiner.
    fn free_ranks(&self, joiner: &Valid, lender: &Cluster) -> Result<RankList, OfflineJoinError> {
        let table = &lender.ranks;
        let needed = usize::try_from(joiner.spec.size).unwrap_or_default();
        let claim = Claim {
            holder: holder(&joiner.name_any()),
            count: needed,
            choice: choice(&joiner.spec),
            created: None,
            invitation: None,
        };
        let records: Vec<LeaseRecord> = self.leases.iter().map(|it| record(it, lender)).collect();
        let lendable = lendable(table, &lender.broker.topology, table.size);
        // A lease ends with its holder's processes, so none is being given back.
        let mut ranks = FreeRanks::new(table, lendable, &records);
        let free = ranks.available(&claim.choice);
        if let Some(ranks) = ranks.take(&claim.holder, &claim.choice, needed) {
            return Ok(ranks);
        }
        Err(self.wrong_choice(&claim, lender).unwrap_or_else(|| OfflineJoinError::NoFreeRanks {
            joiner: joiner.name_any(),
            lender: lender.name.clone(),
            needed,
            free,
            hint: self.more_ranks(joiner, needed.saturating_sub(free)),
        }))
    }

    /// What is wrong with the ranks that a joiner selects.
    fn wrong_choice(&self, claim: &Claim, lender: &Cluster) -> Option<OfflineJoinError> {
        let (table, joiner) = (&lender.ranks, claim.holder.name.clone());
        let lender = lender.name.clone();
        let size = u32::try_from(table.hosts.len()).unwrap_or(u32::MAX);
        let all = IdSet::first_n(size);
        let selected = match &claim.choice {
            RankChoice::Any => return None,
            RankChoice::These(ranks) if !ranks.is_subset(&all) => {
                let wanted = ranks.difference(&all);
                return Some(OfflineJoinError::NoSuchRanks { joiner, lender, size, wanted });
            }
            RankChoice::These(ranks) => ranks.clone(),
            RankChoice::Property(property) => {
                let of_property = table.slots.iter().filter(|it| it.owner.property() == property);
                let ranks: Vec<IdSet> = of_property.map(SlotRange::ranks).collect();
                if ranks.is_empty() {
                    let known = table.slots.iter().map(|it| it.owner.property().to_owned());
                    let (property, known) = (property.clone(), known.collect());
                    return Some(OfflineJoinError::NoSuchProperty {
                        joiner,
                        lender,
                        property,
                        known,
                    });
                }
                IdSet::union_all(&ranks)
            }
        };
        let leased = self.leases.iter().find_map(|lease| {
            let ranks = lease.ranks.to_set().intersection(&selected);
            (!ranks.is_empty()).then(|| (ranks, lease.holder.clone()))
        });
        let (ranks, holder) = leased?;
        Some(OfflineJoinError::RanksLeased { joiner, lender, ranks, holder })
    }

    /// What a joiner's manifest says of the lender although it is not so. The text is that of the
    /// operator's condition.
    pub fn warnings(&self, joiner: &MiniCluster) -> Vec<Problem> {
        wrong_size(joiner, &self.minicluster)
    }

    /// How the lender would have the ranks that are missing.
    fn more_ranks(&self, joiner: &Valid, missing: usize) -> String {
        if choice(&joiner.spec) != RankChoice::Any {
            let join = joiner.spec.flux.as_ref().and_then(|flux| flux.join.as_ref());
            let ranks = join.map(|join| join.ranks.as_str()).unwrap_or_default();
            return format!(
                "it accepts only ranks {ranks:?}: change or remove its flux.join.ranks"
            );
        }
        let (spec, name) = (&self.minicluster.spec, self.minicluster.name_any());
        let bursting = spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
        if bursting.is_some_and(|bursting| !bursting.hostlist.is_empty()) {
            return format!(
                "add {} to flux.bursting.hostlist of {name:?} before it is started",
                count(missing, "host")
            );
        }
        let spare = i32::try_from(missing).unwrap_or(i32::MAX).saturating_add(spec.spare_ranks());
        format!("set flux.bursting.spareRanks of {name:?} to {spare} before it is started")
    }
}

/// How many ranks of a lender others can have at the same time: those that its own pods do not need.
/// `None` if it is refused.
pub fn lendable_ranks(lender: &MiniCluster, job: Option<&Job>) -> Option<usize> {
    let cluster = booted_cluster(lender, job)?;
    Some(lendable(&cluster.ranks, &cluster.broker.topology, cluster.ranks.size).len())
}

/// `1 rank`, `2 ranks`.
fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `rank 3`, `ranks 2-3`.
fn ranks_of(ranks: &IdSet) -> String {
    if ranks.len() == 1 { format!("rank {ranks}") } else { format!("ranks {ranks}") }
}

fn are(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

fn free_ranks(number: usize) -> String {
    match number {
        0 => "none is free".to_owned(),
        number => format!("{number} {} free", are(number as u64)),
    }
}

fn holder(name: &str) -> Holder {
    Holder { uid: name.to_owned(), namespace: String::new(), name: name.to_owned() }
}

fn record(lease: &OfflineLease, lender: &Cluster) -> LeaseRecord {
    LeaseRecord {
        invitation: None,
        ranks: lease.ranks.clone(),
        holder: holder(&lease.holder),
        table: lender.ranks.hash(),
        since: Timestamp::MIN,
        state: LeaseState::Active,
    }
}

#[cfg(test)]
mod tests {
    use flux_operator_testkit::{merge, smallest_minicluster};
    use serde_json::{Value, json};

    use super::*;

    fn valid(name: &str, spec: Value) -> Valid {
        let mut manifest = smallest_minicluster(name);
        merge(&mut manifest, &json!({ "spec": spec }));
        Valid::check(serde_json::from_value(manifest).unwrap()).unwrap()
    }

    fn lender(spec: Value) -> OfflineLender {
        let lead = "ipc:///run/a/lead".to_owned();
        OfflineLender { minicluster: valid("a", spec), lead, leases: Vec::new() }
    }

    fn joiner(name: &str, size: u32, ranks: &str) -> Valid {
        valid(name, json!({ "size": size, "flux": { "join": { "name": "a", "ranks": ranks } } }))
    }

    fn leased(cluster: &Cluster) -> String {
        cluster.joining.as_ref().unwrap().ranks.to_string()
    }

    #[test]
    fn joiners_get_different_ranks_of_the_lenders_table() {
        let mut lender = lender(json!({ "size": 2, "flux": { "bursting": { "spareRanks": 3 } } }));
        let first = lender.lease(&joiner("b", 2, "")).unwrap();
        let second = lender.lease(&joiner("c", 1, "")).unwrap();
        assert_eq!((leased(&first), leased(&second)), ("2-3".into(), "4".into()));
        assert_eq!(first.ranks.hosts.to_string(), "a-[0-1],a-spare-[0-2]");
        assert_eq!((first.name.as_str(), first.ranks.size), ("b", 2));
        let joining = first.joining.unwrap();
        assert_eq!(joining.lead, "ipc:///run/a/lead");
        assert_eq!((joining.lender.as_str(), joining.cluster.as_str()), ("a", ""));
    }

    #[test]
    fn ranks_are_lent_as_the_operator_lends_them() {
        let pool = json!({ "bursting": { "clusters": [{ "name": "c", "size": 2 }] } });
        for (spec, joiner, expected) in [
            (json!({ "jobSelector": "x" }), joiner("b", 8, ""), "1-8"),
            (json!({ "size": 1, "maxSize": 3 }), joiner("b", 1, ""), "2"),
            (json!({ "flux": pool.clone() }), joiner("c", 1, ""), "1"),
            (json!({ "flux": pool }), joiner("b", 1, "c"), "1"),
            (json!({ "size": 1, "maxSize": 4 }), joiner("b", 1, "2"), "2"),
        ] {
            assert_eq!(leased(&lender(spec.clone()).lease(&joiner).unwrap()), expected, "{spec}");
        }
    }

    #[test]
    fn missing_ranks_are_counted_and_the_hint_says_how_to_get_them() {
        let spare = |count: u32| json!({ "flux": { "bursting": { "spareRanks": count } } });
        let hosts = json!({ "size": 1, "flux": { "bursting": { "hostlist": "a-0,x-0" } } });
        for (spec, joiner, count, hint) in [
            (
                json!({}),
                joiner("b", 2, ""),
                "needs 2 ranks of \"a\", and none is free: 2 more are",
                "to 2",
            ),
            (
                spare(1),
                joiner("b", 3, ""),
                "needs 3 ranks of \"a\", and 1 is free: 2 more are",
                "to 3",
            ),
            (hosts, joiner("b", 2, ""), "and 1 is free: 1 more is", "add 1 host to"),
            (
                spare(2),
                joiner("b", 1, "home"),
                "needs 1 rank of \"a\", and none is free: 1 more is",
                "only ranks \"home\"",
            ),
        ] {
            let error = lender(spec).lease(&joiner).unwrap_err().to_string();
            assert!(error.contains(count), "{error}");
            assert!(error.split_once("\nhint: ").unwrap().1.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_lender_lends_what_its_own_pods_do_not_need() {
        let pool = json!([{ "name": "c", "size": 3 }]);
        for (spec, expected) in [
            (json!({ "size": 2 }), 0),
            (json!({ "size": 2, "maxSize": 10 }), 8),
            (
                json!({ "size": 2, "maxSize": 4, "flux": { "bursting": { "spareRanks": 5, "clusters": pool } } }),
                10,
            ),
            (json!({ "size": 2, "flux": { "bursting": { "hostlist": "a-[0-1],x-[0-3]" } } }), 4),
            // Rank 1 has children of its own, and ranks 3 and 4 are its children.
            (json!({ "size": 1, "maxSize": 5, "flux": { "topology": "kary:2" } }), 1),
        ] {
            let lender = valid("a", spec.clone());
            assert_eq!(lendable_ranks(&lender, None), Some(expected), "{spec}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_selected_ranks_is_said() {
        let mut lender = lender(json!({ "size": 2, "flux": { "bursting": { "spareRanks": 4 } } }));
        lender.lease(&joiner("b", 2, "")).unwrap();
        for (ranks, message) in [
            ("fast", "no host of \"a\" has the property \"fast\": it has home, spare\n"),
            ("40-41", "\"a\" has ranks 0-5, not 40-41\n"),
            ("5-6", "\"a\" has ranks 0-5, not 6\n"),
            ("2-3", "ranks 2-3 of \"a\" are leased to \"b\"\n"),
            ("3-4", "rank 3 of \"a\" is leased to \"b\"\n"),
        ] {
            let error = lender.lease(&joiner("c", 2, ranks)).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
            assert!(error.contains("hint: change or remove flux.join.ranks of \"c\""), "{error}");
        }
        assert_eq!(leased(&lender.lease(&joiner("c", 1, "3-4")).unwrap()), "4");
    }

    #[test]
    fn a_size_that_is_not_the_lenders_is_a_warning() {
        let lender = lender(json!({ "size": 2, "flux": { "bursting": { "spareRanks": 4 } } }));
        let joiner = |size: u32| {
            valid("b", json!({ "flux": { "bootServer": "a-0", "bootServerSize": size } }))
        };
        let warnings: Vec<String> =
            lender.warnings(&joiner(9)).iter().map(ToString::to_string).collect();
        let expected =
            "spec.flux.bootServerSize: is 9, but the cluster it joins has size 2; it is not used";
        assert_eq!(warnings, [expected]);
        assert_eq!(lender.warnings(&joiner(2)), []);
    }

    #[test]
    fn two_that_join_each_other_are_named() {
        let mut lender = lender(json!({ "flux": { "join": { "name": "b" } } }));
        let error = lender.lease(&joiner("b", 1, "")).unwrap_err().to_string();
        assert!(error.starts_with("\"b\" and \"a\" join each other\nhint: remove"), "{error}");
    }

    #[test]
    fn a_joiner_lends_nothing_and_other_namespaces_must_be_allowed() {
        let mut itself = lender(json!({ "flux": { "join": { "name": "z" } } }));
        let error = itself.lease(&joiner("b", 1, "")).unwrap_err().to_string();
        assert!(error.contains("\"a\", which joins \"z\" itself"), "{error}");
        let mut manifest = smallest_minicluster("b");
        let spec = json!({ "flux": { "join": { "name": "a", "namespace": "default" } } });
        merge(&mut manifest, &json!({ "metadata": { "namespace": "x" }, "spec": spec }));
        let joiner = Valid::check(serde_json::from_value(manifest).unwrap()).unwrap();
        let bursting = |names: Value| json!({ "spareRanks": 1, "allowedNamespaces": names });
        let lender = |names| lender(json!({ "flux": { "bursting": bursting(names) } }));
        let refused = lender(json!([])).lease(&joiner).unwrap_err().to_string();
        assert!(refused.contains("does not allow namespace \"x\""), "{refused}");
        assert!(lender(json!(["x"])).lease(&joiner).is_ok());
    }
}
