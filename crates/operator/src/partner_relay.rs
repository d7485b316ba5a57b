//! A change of a joiner requires a reconciliation of its lender, and the reverse.
//!
//! They may belong to different users, and one must not disturb the other. The reconciler waits until
//! an object has not changed for a moment, so a partner that changes all the time would postpone its
//! reconciliation without end. Because of its partners a name is sent only once in an interval, and
//! only those that a lender allows, or has lent ranks, affect each other, except that all who name a
//! lender must know when it is created, edited or deleted.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use flux_operator_plan::must_consider;
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until};

use crate::cache_sync::SyncedStore;
use crate::index::OwnerKey;
use crate::joins::Joins;
use crate::stores::{GuardedMiniCluster, reference};
use crate::watches::ChangeSender;

/// How often a name is sent because of its partners, at most. Longer than the time for which the
/// reconciler collects changes, see `controller`.
const PARTNER_INTERVAL: Duration = Duration::from_millis(50);

/// Above this number of names, those that were sent long ago are forgotten.
const MAX_REMEMBERED: usize = 1024;

/// Passes on the names of MiniClusters to reconcile, and adds those of their partners.
pub(crate) struct PartnerRelay {
    joins: Joins,
    miniclusters: SyncedStore<GuardedMiniCluster>,
    to: ChangeSender,
    /// When a name was last sent because of a partner.
    sent: HashMap<OwnerKey, Instant>,
    /// Names to send because of a partner, as soon as that is allowed.
    waiting: BTreeSet<OwnerKey>,
    /// The generations of lenders that all who name them know.
    generations: HashMap<OwnerKey, Option<i64>>,
}

/// The reconciler has stopped.
struct Stopped;

impl PartnerRelay {
    pub(crate) fn new(
        joins: Joins,
        miniclusters: SyncedStore<GuardedMiniCluster>,
        to: ChangeSender,
    ) -> PartnerRelay {
        PartnerRelay {
            joins,
            miniclusters,
            to,
            sent: HashMap::new(),
            waiting: BTreeSet::new(),
            generations: HashMap::new(),
        }
    }

    /// Passes on `changes`, and the names of `former_lenders`, which joiners do not name any more.
    pub(crate) async fn run(
        mut self,
        mut changes: UnboundedReceiver<ObjectRef<GuardedMiniCluster>>,
        mut former_lenders: UnboundedReceiver<OwnerKey>,
    ) {
        loop {
            let next = self.next_due();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let outcome = tokio::select! {
                changed = changes.recv() => match changed {
                    Some(changed) => self.pass_on(changed),
                    None => Err(Stopped),
                },
                Some(lender) = former_lenders.recv() => self.notify(lender),
                () = due => self.send_due(),
            };
            if let Err(Stopped) = outcome {
                return;
            }
        }
    }

    fn pass_on(&mut self, changed: ObjectRef<GuardedMiniCluster>) -> Result<(), Stopped> {
        let of = (changed.namespace.clone().unwrap_or_default(), changed.name.clone());
        self.to.send(changed).map_err(|_| Stopped)?;
        let lender = self.affected_lender(&of);
        let joiners = self.affected_joiners(&of);
        lender.into_iter().chain(joiners).try_for_each(|partner| self.notify(partner))
    }

    /// The lender of a joiner, if it exists and must consider it.
    fn affected_lender(&self, joiner: &OwnerKey) -> Option<OwnerKey> {
        let name = self.joins.lender_of(joiner)?;
        let lender = self.miniclusters.get(&reference(&name))?;
        let joiner = self.miniclusters.get(&reference(joiner))?;
        let (lender, joiner) = (lender.0.as_ref().ok()?, joiner.0.as_ref().ok()?);
        must_consider(lender, joiner).then_some(name)
    }

    /// The joiners of a lender that a change of it may affect.
    fn affected_joiners(&mut self, lender: &OwnerKey) -> Vec<OwnerKey> {
        let mut joiners = self.joins.joiners_of(lender);
        if joiners.is_empty() {
            self.generations.remove(lender);
            return joiners;
        }
        let stored = self.miniclusters.get(&reference(lender));
        let Some(Ok(now)) = stored.as_deref().map(|stored| &stored.0) else {
            self.generations.remove(lender);
            return joiners;
        };
        let generation = now.metadata.generation;
        if self.generations.insert(lender.clone(), generation) == Some(generation) {
            joiners.retain(|joiner| {
                let joiner = self.miniclusters.get(&reference(joiner));
                joiner.is_some_and(|it| it.0.as_ref().is_ok_and(|it| must_consider(now, it)))
            });
        }
        joiners
    }

    /// Sends a name because of a partner, or notes that it is to be sent.
    fn notify(&mut self, partner: OwnerKey) -> Result<(), Stopped> {
        let is_recent = |sent: &Instant| sent.elapsed() < PARTNER_INTERVAL;
        if self.sent.get(&partner).is_some_and(is_recent) {
            self.waiting.insert(partner);
            return Ok(());
        }
        if self.sent.len() >= MAX_REMEMBERED {
            self.sent.retain(|_, sent| is_recent(sent));
        }
        self.waiting.remove(&partner);
        self.sent.insert(partner.clone(), Instant::now());
        self.to.send(reference(&partner)).map_err(|_| Stopped)
    }

    fn next_due(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|name| Some(*self.sent.get(name)? + PARTNER_INTERVAL)).min()
    }

    fn send_due(&mut self) -> Result<(), Stopped> {
        std::mem::take(&mut self.waiting).into_iter().try_for_each(|name| self.notify(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flux_operator_service::guarded::Guarded;
    use kube::runtime::reflector::store::Writer;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};
    use tokio::sync::mpsc::{self, UnboundedSender};

    struct Relay {
        joins: Joins,
        writer: Writer<GuardedMiniCluster>,
        changes: UnboundedSender<ObjectRef<GuardedMiniCluster>>,
        relayed: UnboundedReceiver<ObjectRef<GuardedMiniCluster>>,
        _former_lenders: UnboundedSender<OwnerKey>,
    }

    fn minicluster(
        namespace: &str,
        name: &str,
        generation: i64,
        flux: Value,
    ) -> GuardedMiniCluster {
        let minicluster = json!({ "apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster",
            "metadata": { "namespace": namespace, "name": name, "generation": generation },
            "spec": { "containers": [{}], "flux": flux } });
        Guarded(Ok(serde_json::from_value(minicluster).unwrap()))
    }

    fn joiner(namespace: &str) -> GuardedMiniCluster {
        let join = json!({ "join": { "name": "lender", "namespace": "n" } });
        minicluster(namespace, "joiner", 1, join)
    }

    impl Relay {
        fn start() -> Relay {
            let (store, writer) = SyncedStore::new();
            let (changes, observed) = mpsc::unbounded_channel();
            let (to, relayed) = mpsc::unbounded_channel();
            let (former, former_lenders) = mpsc::unbounded_channel();
            let joins = Joins::default();
            let relay = PartnerRelay::new(joins.clone(), store, to);
            tokio::spawn(relay.run(observed, former_lenders));
            Relay { joins, writer, changes, relayed, _former_lenders: former }
        }

        fn apply(&mut self, object: GuardedMiniCluster) {
            let event = Event::Apply(object);
            self.writer.apply_watcher_event(&event);
            self.joins.apply(&event);
        }

        /// The names that are sent within a second after a MiniCluster has changed this often.
        async fn names_after(&mut self, times: usize, namespace: &str, name: &str) -> Vec<String> {
            for _ in 0..times {
                self.changes.send(ObjectRef::new(name).within(namespace)).unwrap();
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut names = Vec::new();
            while let Ok(name) = self.relayed.try_recv() {
                names.push(format!("{}/{}", name.namespace.unwrap_or_default(), name.name));
            }
            names
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_joiner_that_changes_all_the_time_does_not_postpone_its_lender() {
        let mut relay = Relay::start();
        relay.apply(minicluster("n", "lender", 1, json!({})));
        relay.apply(joiner("n"));
        let names = relay.names_after(100, "n", "joiner").await;
        let count = |name: &str| names.iter().filter(|it| *it == name).count();
        assert_eq!(count("n/joiner"), 100, "its own changes are passed on");
        // Once at the start, once in each 50 ms, and once after the last change.
        assert!((15..=22).contains(&count("n/lender")), "{}", count("n/lender"));
        assert_eq!(relay.names_after(1, "n", "joiner").await, ["n/joiner", "n/lender"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_joiner_that_is_not_allowed_does_not_affect_its_lender() {
        let mut relay = Relay::start();
        relay.apply(minicluster("n", "lender", 1, json!({})));
        relay.apply(joiner("elsewhere"));
        assert_eq!(relay.names_after(1, "elsewhere", "joiner").await, ["elsewhere/joiner"]);
        let both = ["n/lender", "elsewhere/joiner"];
        assert_eq!(relay.names_after(1, "n", "lender").await, both, "it may be allowed now");
        assert_eq!(relay.names_after(1, "n", "lender").await, ["n/lender"], "only its status");
        let allows = json!({ "bursting": { "allowedNamespaces": ["elsewhere"] } });
        relay.apply(minicluster("n", "lender", 2, allows));
        assert_eq!(relay.names_after(1, "n", "lender").await, both);
        assert_eq!(relay.names_after(1, "n", "lender").await, both, "it is allowed");
        assert_eq!(
            relay.names_after(1, "elsewhere", "joiner").await,
            ["elsewhere/joiner", "n/lender"]
        );
    }
}
