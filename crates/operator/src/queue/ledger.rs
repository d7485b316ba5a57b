//! What is known of queues: the scheduler, and what it was told.
//!
//! Watches put in what they see, the scheduler's task takes decisions out, and everybody
//! else reads. An admission that was decided counts at once; whether it could be written
//! down is told afterwards.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use flux_operator_api::{FluxJob, FluxSetup, MiniCluster};
use flux_operator_plan::queueing::setup::{self, Around};
use flux_operator_plan::queueing::workload::{self, Beside, Mistake};
use flux_operator_queue::{
    Admit, Evict, EvictReason, Kind, Millis, NamespaceRoom, Resources, Scheduler, Setup, SetupName,
    Uid, Usage, Waiting, Workload,
};
use kube::ResourceExt;

use crate::metrics::QueueMetrics;

/// Labels of namespaces, by their names.
pub(crate) type Labels = BTreeMap<Arc<str>, BTreeMap<String, String>>;

/// All that is known of queues.
pub(crate) struct Ledger {
    scheduler: Scheduler,
    home: String,
    // Boxed, because a map has places for twice as many as it holds.
    known: HashMap<Uid, Box<Known>>,
    /// Those of them whose command runs.
    running: HashSet<Uid>,
    /// Values of PriorityClasses, by their names.
    classes: HashMap<String, i32>,
    namespaces: Labels,
    /// What nodes have room for, by the setup that asks for it.
    nodes: HashMap<SetupName, Resources>,
    setups: BTreeMap<SetupName, Arc<FluxSetup>>,
    /// The setups as the scheduler was told.
    read: HashMap<SetupName, Setup>,
    /// Something has changed that setups are read with.
    unread: bool,
    /// Setups of whose jobs another number runs since the last cycle.
    counted: HashSet<SetupName>,
    /// When room became free since the last cycle.
    freed: HashMap<SetupName, Instant>,
    metrics: QueueMetrics,
}

/// What is known of a job besides what the scheduler knows.
struct Known {
    kind: Kind,
    namespace: Arc<str>,
    name: Arc<str>,
    /// The version of the object that was told last. Versions grow.
    version: u64,
    standing: Standing,
    since: Millis,
    admitted: bool,
    finished: bool,
    evicted: Option<EvictReason>,
    writing: Option<Writing>,
}

/// How a job stands to the queues.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    /// It waits, has room, or has ended.
    Queued,
    /// It cannot be queued.
    Mistaken(Box<Mistake>),
    /// Somebody else manages it.
    Foreign,
}

/// An admission that is being written down, as of this version of the object.
#[derive(Clone, Copy)]
struct Writing {
    version: u64,
    /// The API server did not take it. The job is looked at again when the watch shows
    /// what has changed.
    refused: bool,
}

/// A job that is to lose its room.
pub(crate) struct Evicted {
    pub(crate) kind: Kind,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) reason: EvictReason,
}

/// What to do now.
pub(crate) struct Decided {
    /// Admissions to write down.
    pub(crate) admit: Vec<Admitted>,
    /// Jobs that lose their room, newly.
    pub(crate) evict: Vec<Evicted>,
    /// Setups of which something else is true now.
    pub(crate) changed: Vec<SetupName>,
    /// When to decide again, if nothing happens before.
    pub(crate) wake: Option<Millis>,
}

/// An admission to write down.
pub(crate) struct Admitted {
    pub(crate) admit: Admit,
    /// The version of the object that was decided on.
    pub(crate) version: u64,
    /// Since when the job has waited.
    pub(crate) since: Millis,
    /// When the room became free, if it was in use before.
    pub(crate) freed: Option<Instant>,
}

/// What a pass over a job must know of the queues.
pub(crate) struct JobFacts {
    pub(crate) standing: Standing,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) evicted: Option<EvictReason>,
    pub(crate) setup: Option<Arc<FluxSetup>>,
}

/// What a pass over a setup must know of the queues.
pub(crate) struct SetupFacts {
    pub(crate) read: Setup,
    pub(crate) usage: Usage,
    pub(crate) running: usize,
}

impl Ledger {
    /// Nothing known yet; `home` is the operator's namespace.
    pub(crate) fn new(home: &str, metrics: QueueMetrics) -> Ledger {
        Ledger {
            scheduler: Scheduler::new(home),
            home: home.to_owned(),
            known: HashMap::new(),
            running: HashSet::new(),
            classes: HashMap::new(),
            namespaces: Labels::new(),
            nodes: HashMap::new(),
            setups: BTreeMap::new(),
            read: HashMap::new(),
            unread: false,
            counted: HashSet::new(),
            freed: HashMap::new(),
            metrics,
        }
    }

    /// There is this job, and the MiniCluster of its name, whoever that belongs to.
    pub(crate) fn put_job(&mut self, job: &FluxJob, minicluster: Option<&MiniCluster>) {
        let class_value = self.classes.get(&job.spec.priority_class_name).copied();
        let read = workload::of_job(job, Beside { minicluster, class_value });
        self.put(Kind::FluxJob, job, read);
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        self.note_running(
            job,
            minicluster.filter(|minicluster| {
                minicluster.owner_references().iter().any(|owner| owner.uid == uid)
            }),
        );
    }

    /// There is this MiniCluster, which may name a queue itself.
    pub(crate) fn put_minicluster(&mut self, minicluster: &MiniCluster) {
        match workload::of_minicluster(minicluster) {
            Some(workload) => {
                self.put(Kind::MiniCluster, minicluster, Ok(Some(workload)));
                self.note_running(minicluster, Some(minicluster));
            }
            None => self.remove(&uid_of(minicluster)),
        }
    }

    fn put<K: ResourceExt>(
        &mut self,
        kind: Kind,
        object: &K,
        read: Result<Option<Workload>, Mistake>,
    ) {
        let (uid, version) = (uid_of(object), version_of(object));
        let is_new = !self.known.contains_key(&uid);
        let known = self.known.entry(uid.clone()).or_insert_with(|| {
            Box::new(Known {
                kind,
                namespace: object.namespace().unwrap_or_default().into(),
                name: object.name_any().into(),
                version,
                standing: Standing::Queued,
                since: 0,
                admitted: false,
                finished: false,
                evicted: None,
                writing: None,
            })
        });
        if version < known.version {
            return;
        }
        known.version = version;
        let workload = match read {
            Ok(Some(workload)) => workload,
            Ok(None) => {
                known.standing = Standing::Foreign;
                return self.scheduler.remove(&uid);
            }
            Err(mistake) => {
                known.standing = Standing::Mistaken(Box::new(mistake));
                // What has room keeps it until it has ended.
                if !known.admitted {
                    self.scheduler.remove(&uid);
                }
                return;
            }
        };
        known.standing = Standing::Queued;
        known.since = workload.since;
        let has_room = workload.admission.is_some() && !workload.finished;
        if let Some(writing) = known.writing
            && (has_room || workload.finished || writing.refused && version > writing.version)
        {
            known.writing = None;
            if !has_room {
                self.scheduler.undo(&uid);
            }
        }
        if known.admitted && !has_room {
            known.evicted = None;
            if let Some(queue) = self.scheduler.queue_of(&uid) {
                self.freed.entry(queue.clone()).or_insert_with(Instant::now);
            }
        }
        if workload.finished && !known.finished && !is_new {
            let queue = workload.admission.as_ref().map(|admission| &admission.queue);
            self.metrics.finished(queue);
        }
        (known.admitted, known.finished) = (has_room, workload.finished);
        // Each name is kept once.
        let (namespace, name) = (known.namespace.clone(), known.name.clone());
        let uid = self.known.get_key_value(&uid).map_or(uid, |(kept, _)| kept.clone());
        self.scheduler.put(Workload { uid, namespace, name, ..workload });
    }

    fn note_running<K: ResourceExt>(&mut self, object: &K, minicluster: Option<&MiniCluster>) {
        let status = minicluster.and_then(|minicluster| minicluster.status.as_ref());
        let runs = status.is_some_and(|status| {
            status.conditions.iter().any(|it| it.type_ == "Running" && it.status == "True")
        });
        let uid = uid_of(object);
        let changed =
            if runs { self.running.insert(uid.clone()) } else { self.running.remove(&uid) };
        if changed && let Some(queue) = self.scheduler.queue_of(&uid) {
            self.counted.insert(queue.clone());
        }
    }

    /// This job or MiniCluster is gone.
    pub(crate) fn remove(&mut self, uid: &Uid) {
        let Some(known) = self.known.remove(uid) else { return };
        if known.admitted
            && let Some(queue) = self.scheduler.queue_of(uid)
        {
            self.freed.entry(queue.clone()).or_insert_with(Instant::now);
        }
        self.running.remove(uid);
        self.scheduler.remove(uid);
    }

    /// Of this kind only these are left.
    pub(crate) fn retain(&mut self, kind: Kind, left: &HashSet<Uid>) {
        let is_gone = |uid: &Uid, known: &Known| known.kind == kind && !left.contains(uid);
        let gone = self.known.iter().filter(|(uid, known)| is_gone(uid, known));
        let gone: Vec<Uid> = gone.map(|(uid, _)| uid.clone()).collect();
        gone.iter().for_each(|uid| self.remove(uid));
    }

    /// There is this setup. Returns whether something counts that was not so before.
    pub(crate) fn put_setup(&mut self, setup: &FluxSetup) -> bool {
        let name = setup_name(setup);
        let counts = |setup: &FluxSetup| {
            let metadata = &setup.metadata;
            (metadata.uid.clone(), metadata.generation, metadata.deletion_timestamp.is_some())
        };
        let before = self.setups.get(&name);
        if before.is_some_and(|before| counts(before) == counts(setup)) {
            return false;
        }
        self.setups.insert(name, Arc::new(setup.clone()));
        self.unread = true;
        true
    }

    /// This setup is gone.
    pub(crate) fn remove_setup(&mut self, name: &SetupName) {
        self.unread |= self.setups.remove(name).is_some();
    }

    /// Only these setups are left.
    pub(crate) fn retain_setups(&mut self, left: &HashSet<SetupName>) {
        let gone: Vec<SetupName> =
            self.setups.keys().filter(|name| !left.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.remove_setup(name));
    }

    /// The labels of a namespace; None if it is gone.
    pub(crate) fn put_namespace(&mut self, name: &str, labels: Option<BTreeMap<String, String>>) {
        let before = match labels.clone() {
            Some(labels) => self.namespaces.insert(name.into(), labels),
            None => self.namespaces.remove(name),
        };
        self.unread |= before != labels;
    }

    /// The value of a PriorityClass; None if it is gone. Jobs that name it are to be put
    /// again.
    pub(crate) fn put_class(&mut self, name: &str, value: Option<i32>) {
        match value {
            Some(value) => drop(self.classes.insert(name.to_owned(), value)),
            None => drop(self.classes.remove(name)),
        }
    }

    /// What a namespace's own quota leaves.
    pub(crate) fn put_namespace_room(&mut self, namespace: &str, room: NamespaceRoom) {
        self.scheduler.put_namespace_room(namespace, room);
    }

    /// What the nodes have room for, for the setups that ask for it.
    pub(crate) fn put_nodes(&mut self, nodes: HashMap<SetupName, Resources>) {
        self.unread |= self.nodes != nodes;
        self.nodes = nodes;
    }

    /// Reads all setups again if something has changed that they are read with: each
    /// may take another's place.
    ///
    /// Returns whether it did.
    fn read_setups(&mut self) -> bool {
        if !std::mem::take(&mut self.unread) {
            return false;
        }
        let mut read = HashMap::new();
        for (name, setup) in &self.setups {
            let around = Around {
                home: &self.home,
                namespaces: &self.namespaces,
                nodes: self.nodes.get(name),
            };
            let now = setup::read(setup, around);
            if self.read.get(name) != Some(&now) {
                self.scheduler.put_setup(now.clone());
            }
            read.insert(name.clone(), now);
        }
        for gone in self.read.keys().filter(|name| !read.contains_key(name)) {
            self.scheduler.remove_setup(gone);
        }
        self.read = read;
        true
    }

    /// Decides. Whoever is admitted counts from now on.
    pub(crate) fn cycle(&mut self, now: Millis) -> Decided {
        let all_changed = self.read_setups();
        let begun = Instant::now();
        let cycle = self.scheduler.cycle(now);
        self.metrics.cycle(begun.elapsed(), cycle.admit.len());
        let admit = cycle.admit.into_iter().filter_map(|admit| {
            let known = self.known.get_mut(&admit.uid)?;
            known.writing = Some(Writing { version: known.version, refused: false });
            let freed = self.freed.get(&admit.admission.queue).copied();
            Some(Admitted { version: known.version, since: known.since, freed, admit })
        });
        let admit = admit.collect();
        self.freed.clear();
        let mut evict = Vec::new();
        for Evict { uid, reason } in cycle.evict {
            let Some(known) = self.known.get_mut(&uid) else { continue };
            if known.evicted.replace(reason).is_none() {
                self.metrics.evicted(self.scheduler.queue_of(&uid), reason);
                let (namespace, name) = (known.namespace.clone(), known.name.clone());
                evict.push(Evicted { kind: known.kind, namespace, name, reason });
            }
        }
        let mut changed = self.scheduler.take_changed();
        changed.extend(self.counted.drain());
        if all_changed {
            changed = self.setups.keys().cloned().collect();
        }
        Decided { admit, evict, changed, wake: cycle.wake }
    }

    /// An admission was refused, because the object has changed or is gone. It is taken
    /// back as soon as the watch has shown that.
    pub(crate) fn refused(&mut self, uid: &Uid) {
        let Some(known) = self.known.get_mut(uid) else { return };
        let Some(writing) = &mut known.writing else { return };
        if known.version > writing.version {
            self.take_back(uid);
        } else {
            writing.refused = true;
        }
    }

    /// An admission was not written down, and never will be.
    pub(crate) fn take_back(&mut self, uid: &Uid) {
        let Some(known) = self.known.get_mut(uid) else { return };
        if known.writing.take().is_some() {
            self.scheduler.undo(uid);
        }
    }

    /// What a pass over a job must know; None for a job that was never put.
    pub(crate) fn job(
        &self,
        uid: &Uid,
        recorded: Option<&SetupName>,
        now: Millis,
    ) -> Option<JobFacts> {
        let known = self.known.get(uid)?;
        let setup = self.scheduler.queue_of(uid).or(recorded);
        Some(JobFacts {
            standing: known.standing.clone(),
            waiting: self.scheduler.why(uid, now),
            evicted: known.evicted,
            setup: setup.and_then(|name| self.setups.get(name)).cloned(),
        })
    }

    /// Namespace and name of a job that has no room and has not ended.
    pub(crate) fn name_of_waiting(&self, uid: &Uid) -> Option<(Arc<str>, Arc<str>)> {
        let known = self.known.get(uid).filter(|known| !known.admitted && !known.finished)?;
        Some((known.namespace.clone(), known.name.clone()))
    }

    /// Facts for reconciling a setup. None while changes have not been read; all setups are
    /// reconciled after that.
    pub(crate) fn setup(&self, name: &SetupName) -> Option<SetupFacts> {
        if self.unread {
            return None;
        }
        let in_it = |uid: &&Uid| self.scheduler.queue_of(uid) == Some(name);
        Some(SetupFacts {
            read: self.read.get(name)?.clone(),
            usage: self.scheduler.usage(name)?,
            running: self.running.iter().filter(in_it).count(),
        })
    }

    /// The setups that there are.
    pub(crate) fn setups(&self) -> impl Iterator<Item = (&SetupName, &Arc<FluxSetup>)> {
        self.setups.iter()
    }

    /// A setup as the scheduler knows it.
    pub(crate) fn read(&self, name: &SetupName) -> Option<&Setup> {
        self.read.get(name)
    }

    /// The scheduler, to ask it.
    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

/// Who a job or MiniCluster is.
pub(crate) fn uid_of<K: ResourceExt>(object: &K) -> Uid {
    Uid::from(object.meta().uid.as_deref().unwrap_or_default())
}

/// The name of a setup.
pub(crate) fn setup_name<K: ResourceExt>(setup: &K) -> SetupName {
    SetupName::new(&setup.namespace().unwrap_or_default(), &setup.name_any())
}

/// Versions of one kind grow, and Kubernetes says that they may be compared.
fn version_of<K: ResourceExt>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
