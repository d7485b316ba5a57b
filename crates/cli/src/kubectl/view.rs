//! Queues as the operator sees them, computed here by the same ledger from the same objects.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::queueing::ledger::{self, Identity, Ledger, setup_name};
use flux_operator_plan::queueing::namespace_room;
use flux_operator_plan::queueing::quantity::amounts;
use flux_operator_plan::queueing::workload::Mistake;
use flux_operator_queue::{
    Admit, Millis, Reason, Resource, Resources, Setup, SetupName, Strategy, Uid, Usage, Waiting,
    Workload,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// What there is, as far as its user may list it.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) setups: Vec<Arc<FluxSetup>>,
    pub(super) jobs: Vec<FluxJob>,
    pub(super) miniclusters: Vec<MiniCluster>,
    /// Labels of the namespaces.
    pub(super) namespaces: BTreeMap<Arc<str>, BTreeMap<String, String>>,
    /// Values of the PriorityClasses.
    pub(super) classes: BTreeMap<String, i32>,
    /// Kubernetes' own quotas.
    pub(super) quotas: Vec<ResourceQuota>,
    /// Of all namespaces, not of one.
    pub(super) everywhere: bool,
}

/// All queues at one moment.
pub(super) struct View {
    ledger: Ledger,
    /// Places in the queues before anybody was admitted.
    positions: BTreeMap<Uid, usize>,
    /// Those that the operator is about to admit.
    admitted_now: BTreeMap<Uid, Admit>,
    now: Millis,
}

/// How a job stands.
pub(super) enum Standing<'a> {
    /// It has finished, and its quota is free.
    Ended,
    /// It has room.
    Admitted(&'a flux_operator_queue::Admission),
    /// There is room for it, and it is about to get it.
    Next(&'a Admit),
    /// It waits.
    Waits(Waiting),
    /// It cannot be queued.
    Refused(&'a Mistake),
    /// It is not for a queue: somebody else manages it.
    NotQueued,
}

impl View {
    /// Puts everything into a ledger, which decides once. Setups in `home` serve other
    /// namespaces.
    pub(super) fn of(objects: &Objects, home: &str, now: Timestamp) -> View {
        let now = now.as_millisecond();
        let mut ledger = Ledger::new(home);
        for (name, labels) in &objects.namespaces {
            ledger.put_namespace(name, Some(labels.clone()));
        }
        for (name, value) in &objects.classes {
            ledger.put_class(name, Some(*value));
        }
        for (namespace, quotas) in by_namespace(&objects.quotas) {
            ledger.put_namespace_room(namespace, namespace_room(quotas.into_iter()));
        }
        for setup in &objects.setups {
            ledger.put_setup(setup);
        }
        ledger.put_nodes(nodes(objects));
        for minicluster in &objects.miniclusters {
            ledger.put_minicluster(minicluster, now);
        }
        let named: HashMap<(Option<&String>, Option<&String>), &MiniCluster> =
            objects.miniclusters.iter().map(|named| (place(&named.metadata), named)).collect();
        for job in &objects.jobs {
            ledger.put_job(job, named.get(&place(&job.metadata)).copied(), now);
        }
        View::decided(ledger, now)
    }

    fn decided(mut ledger: Ledger, now: Millis) -> View {
        ledger.read_setups();
        let mut positions = BTreeMap::new();
        for (setup, _) in ledger.setups() {
            let waiting = ledger.scheduler().pending(setup).into_iter().zip(0..);
            positions.extend(waiting.map(|(job, place)| (job.uid.clone(), place)));
        }
        let admit = ledger.cycle(now).admit.into_iter().map(|admitted| admitted.admit);
        let admitted_now = admit.map(|admit| (admit.uid.clone(), admit)).collect();
        View { ledger, positions, admitted_now, now }
    }

    /// The setups, in the order of their names.
    pub(super) fn setups(&self) -> impl Iterator<Item = &Setup> {
        self.ledger.setups().filter_map(|(name, _)| self.setup(name))
    }

    /// A setup by name.
    pub(super) fn setup(&self, name: &SetupName) -> Option<&Setup> {
        self.ledger.read(name)
    }

    /// What is true of a setup. Who is about to be admitted still waits.
    pub(super) fn usage(&self, name: &SetupName) -> Usage {
        let mut usage = self.ledger.scheduler().usage(name).unwrap_or_default();
        let now = self.admitted_now.values().filter(|admit| admit.admission.queue == *name);
        for admit in now {
            usage.admitted -= 1;
            usage.pending += 1;
            usage.used.subtract(&admit.admission.resources);
        }
        usage
    }

    /// The jobs that have not ended.
    pub(super) fn unfinished(&self) -> impl Iterator<Item = &Workload> {
        self.ledger.scheduler().workloads()
    }

    /// The jobs that wait, by queue and place; those without a queue last.
    pub(super) fn waiting(&self) -> Vec<&Workload> {
        let mut waiting: Vec<&Workload> =
            self.unfinished().filter(|job| job.admission.is_none()).collect();
        waiting.sort_by_cached_key(|job| {
            let queue = self.queue_of(&job.uid);
            (queue.is_none(), queue.cloned(), self.position(&job.uid), job.since, job.uid.clone())
        });
        waiting
    }

    /// The jobs that have room of a queue.
    pub(super) fn admitted<'a>(
        &'a self,
        queue: &'a SetupName,
    ) -> impl Iterator<Item = &'a Workload> {
        let with_room = self.unfinished().filter(|job| job.admission.is_some());
        with_room.filter(move |job| self.queue_of(&job.uid) == Some(queue))
    }

    /// The queue a job waits at or was admitted by.
    pub(super) fn queue_of(&self, uid: &Uid) -> Option<&SetupName> {
        self.ledger.scheduler().queue_of(uid)
    }

    /// How many of its queue come before a job.
    pub(super) fn position(&self, uid: &Uid) -> Option<usize> {
        self.positions.get(uid).copied()
    }

    /// A job that has not finished, as its queue sees it.
    pub(super) fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.ledger.scheduler().workload(uid)
    }

    /// Kind and name of a job.
    pub(super) fn identity(&self, uid: &Uid) -> Option<Identity> {
        self.ledger.identity(uid)
    }

    /// How a job stands.
    pub(super) fn standing(&self, uid: &Uid) -> Standing<'_> {
        let mistake = self.ledger.standing(uid).and_then(ledger::Standing::mistake);
        if let Some(mistake) = mistake {
            return Standing::Refused(mistake);
        }
        if self.ledger.is_finished(uid) {
            return Standing::Ended;
        }
        let Some(workload) = self.workload(uid) else { return Standing::NotQueued };
        if let Some(admission) = &workload.admission {
            return Standing::Admitted(admission);
        }
        match (self.admitted_now.get(uid), self.ledger.scheduler().why(uid, self.now)) {
            (Some(admit), _) => Standing::Next(admit),
            (None, Some(waiting)) => Standing::Waits(waiting),
            (None, None) => Standing::NotQueued,
        }
    }

    /// What a job asks for in all.
    pub(super) fn asks(&self, workload: &Workload) -> Resources {
        workload.request_at(self.setup_of(workload))
    }

    /// The setup at which a job waits or counts.
    pub(super) fn setup_of(&self, workload: &Workload) -> Option<&Setup> {
        self.queue_of(&workload.uid).and_then(|queue| self.setup(queue))
    }
}

/// The word of the API for a strategy.
pub(super) fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::BestEffort => "BestEffortFIFO",
        Strategy::Strict => "StrictFIFO",
        Strategy::Backfill => "Backfill",
    }
}

/// Amounts for people: `2 nodes, 500m cpu`.
pub(super) fn amounts_text(resources: &Resources) -> String {
    let amounts = resources.iter().map(|(resource, amount)| resource.amount(amount));
    amounts.collect::<Vec<_>>().join(", ")
}

/// What a reason says is missing.
pub(super) fn missing(reason: &Reason) -> Option<(&Resource, i64)> {
    match reason {
        Reason::WaitingForQuota { resource, missing }
        | Reason::NamespaceQuota { resource, missing, .. } => Some((resource, *missing)),
        Reason::ExceedsQuota { resource, asked, room } => Some((resource, asked - room)),
        _ => None,
    }
}

fn by_namespace(quotas: &[ResourceQuota]) -> BTreeMap<&str, Vec<&ResourceQuota>> {
    let mut sorted: BTreeMap<&str, Vec<&ResourceQuota>> = BTreeMap::new();
    for quota in quotas {
        sorted
            .entry(quota.metadata.namespace.as_deref().unwrap_or_default())
            .or_default()
            .push(quota);
    }
    sorted
}

/// Where an object is: its namespace and name.
fn place(metadata: &ObjectMeta) -> (Option<&String>, Option<&String>) {
    (metadata.namespace.as_ref(), metadata.name.as_ref())
}

/// The capacity of nodes. To count them is the operator's; what it found is in the status.
fn nodes(objects: &Objects) -> HashMap<SetupName, Resources> {
    let asking = objects.setups.iter().filter(|setup| setup.spec.quota_from_nodes.is_some());
    let counted = asking.filter_map(|setup| {
        let room = setup.status.as_ref().and_then(|status| amounts(&status.room).ok())?;
        Some((setup_name(&**setup), room))
    });
    counted.collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use flux_operator_api::validate;
    use serde_json::{Value, json};

    /// Objects of namespace `team`, created in this order, a second apart.
    pub(in crate::kubectl) fn objects(manifests: &[Value]) -> Objects {
        let mut objects = Objects { everywhere: true, ..Objects::default() };
        objects.namespaces.insert("team".into(), BTreeMap::new());
        for (place, manifest) in manifests.iter().enumerate() {
            let mut manifest = manifest.clone();
            let metadata = &mut manifest["metadata"];
            metadata["namespace"] = "team".into();
            metadata["uid"] = metadata["name"].clone();
            metadata["creationTimestamp"] = format!("2026-01-01T00:00:{place:02}Z").into();
            match manifest["kind"].as_str().unwrap() {
                "FluxSetup" => {
                    objects.setups.push(Arc::new(validate::read(&manifest).unwrap()));
                }
                "FluxJob" => objects.jobs.push(validate::read(&manifest).unwrap()),
                _ => objects.miniclusters.push(validate::read(&manifest).unwrap()),
            }
        }
        objects
    }

    pub(in crate::kubectl) fn view(manifests: &[Value]) -> View {
        View::of(&objects(manifests), "operator-system", now())
    }

    /// Five minutes after the first object.
    pub(in crate::kubectl) fn now() -> Timestamp {
        "2026-01-01T00:05:00Z".parse().unwrap()
    }

    /// A queue with room for so many nodes.
    pub(in crate::kubectl) fn setup(nodes: u32) -> Value {
        object("FluxSetup", "main", json!({ "quota": { "nodes": nodes } }))
    }

    /// A job that waits.
    pub(in crate::kubectl) fn job(name: &str, spec: Value) -> Value {
        object("FluxJob", name, spec)
    }

    /// A job that has room for so many nodes since the first minute.
    pub(in crate::kubectl) fn admitted(name: &str, nodes: u32, spec: Value) -> Value {
        let mut job = job(name, spec);
        job["spec"]["size"] = nodes.into();
        job["status"]["admission"] = json!({
            "queue": "team/main", "size": nodes, "time": "2026-01-01T00:01:00Z",
            "resources": { "nodes": nodes.to_string(), "pods": nodes.to_string() },
        });
        job
    }

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        json!({
            "apiVersion": "flux-framework.org/v1alpha2",
            "kind": kind,
            "metadata": { "name": name },
            "spec": spec,
        })
    }

    #[test]
    fn who_is_about_to_be_admitted_still_waits() {
        let jobs = [setup(3), admitted("a", 2, json!({})), job("b", json!({ "size": 1 }))];
        let view = view(&jobs);
        let queue = SetupName::new("team", "main");
        let usage = view.usage(&queue);
        assert_eq!((usage.admitted, usage.pending), (1, 1));
        assert_eq!(usage.used.amount(&Resource::Nodes), 2);
        assert!(matches!(view.standing(&"b".into()), Standing::Next(_)));
        assert_eq!(view.position(&"b".into()), Some(0));
    }

    #[test]
    fn a_resource_quota_of_the_namespace_counts() {
        let mut objects = objects(&[setup(4), job("a", json!({ "size": 3 }))]);
        objects.quotas = serde_json::from_value(json!([{
            "metadata": { "name": "few", "namespace": "team" },
            "spec": { "hard": { "pods": "2" } },
        }]))
        .unwrap();
        let view = View::of(&objects, "operator-system", now());
        let Standing::Waits(waiting) = view.standing(&"a".into()) else { panic!("it has room") };
        assert!(matches!(waiting.reason, Reason::NamespaceQuota { .. }), "{waiting:?}");
    }

    #[test]
    fn the_room_that_the_operator_found_on_nodes_is_in_the_status() {
        let mut setup = object("FluxSetup", "main", json!({ "quotaFromNodes": {} }));
        setup["status"] = json!({ "room": { "nodes": "2", "cpu": "4" } });
        let view = view(&[setup, job("a", json!({ "size": 3 }))]);
        let Standing::Waits(waiting) = view.standing(&"a".into()) else { panic!("it has room") };
        assert!(matches!(waiting.reason, Reason::ExceedsQuota { .. }), "{waiting:?}");
    }
}
