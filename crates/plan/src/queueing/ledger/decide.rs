//! The decisions of a cycle, and the results of their writes.

use std::sync::Arc;

use flux_operator_queue::{Eviction, EvictionReason, Kind, Millis, NewAdmission, SetupName, Uid};

use super::{Eligibility, Guard, Ledger, PendingWrite};

/// The decisions of a cycle.
#[derive(Debug)]
pub struct CycleActions {
    /// Admissions to write.
    pub admit: Vec<AdmissionWrite>,
    /// Jobs to evict that earlier cycles did not return.
    pub evict: Vec<EvictionWrite>,
    /// Records to rewrite, because another setup has replaced the one they name.
    pub rewrite: Vec<RecordRewrite>,
    /// Setups whose status may have changed.
    pub changed: Vec<SetupName>,
    /// When to run the next cycle, if nothing changes before.
    pub wake_at: Option<Millis>,
}

/// An admission to write.
#[derive(Debug)]
pub struct AdmissionWrite {
    /// The admission.
    pub admit: NewAdmission,
    /// The resource version that was decided on.
    pub version: u64,
    /// Since when the job has waited.
    pub since: Millis,
    /// When the quota became free, if it was in use before.
    pub freed_at: Option<Millis>,
}

/// A job to evict.
#[derive(Debug)]
pub struct EvictionWrite {
    /// Its uid.
    pub uid: Uid,
    /// The resource version that was decided on.
    pub version: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// The setup in whose queue it counts.
    pub queue: Option<SetupName>,
    /// The reason.
    pub reason: EvictionReason,
}

/// A record to rewrite, so that it names another setup.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordRewrite {
    /// The uid of the job.
    pub uid: Uid,
    /// The kind of the job.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name there.
    pub name: Arc<str>,
    /// The resource version that was decided on.
    pub version: u64,
    /// The setup to name.
    pub queue: SetupName,
}

impl<G: Guard> Ledger<G> {
    /// Runs a cycle. Its admissions count from now on.
    pub fn cycle(&mut self, now: Millis) -> CycleActions {
        self.read_setups();
        let cycle = self.scheduler.cycle(now);
        let admit = cycle.admit.into_iter().filter_map(|admit| {
            let known = self.entries.get_mut(&admit.uid)?;
            known.pending_write = Some(PendingWrite { version: known.version, refused: false });
            let freed = self.freed_at.get(&admit.admission.queue).copied();
            Some(AdmissionWrite {
                version: known.version,
                since: known.since,
                freed_at: freed,
                admit,
            })
        });
        let admit = admit.collect();
        self.freed_at.clear();
        let mut evict = Vec::new();
        for Eviction { uid, reason } in cycle.evict {
            let Some(known) = self.entries.get_mut(&uid) else { continue };
            if known.evicted.replace(reason).is_none() {
                let queue = self.scheduler.queue_of(&uid).cloned();
                let (namespace, name) = (known.namespace.clone(), known.name.clone());
                let (kind, version) = (known.kind, known.version);
                evict.push(EvictionWrite { uid, version, kind, namespace, name, queue, reason });
            }
        }
        let rename = self.record_rewrites();
        let mut changed = self.scheduler.take_changed();
        changed.extend(self.running_changed.drain());
        if std::mem::take(&mut self.was_reread) {
            changed = self.setups.keys().cloned().collect();
        }
        CycleActions { admit, evict, rewrite: rename, changed, wake_at: cycle.wake_at }
    }

    /// The records to rewrite, each once for a resource version: a write that fails because
    /// the object has changed is decided again when the watch shows the change.
    fn record_rewrites(&mut self) -> Vec<RecordRewrite> {
        let mut rename = Vec::new();
        for (uid, queue) in self.scheduler.outdated_records() {
            let Some(known) = self.entries.get(uid) else { continue };
            if self.rewriting.insert(uid.clone(), known.version) != Some(known.version) {
                rename.push(RecordRewrite {
                    uid: uid.clone(),
                    kind: known.kind,
                    namespace: known.namespace.clone(),
                    name: known.name.clone(),
                    version: known.version,
                    queue: queue.clone(),
                });
            }
        }
        if !self.rewriting.is_empty() {
            let outdated: std::collections::HashSet<&Uid> =
                self.scheduler.outdated_records().map(|(uid, _)| uid).collect();
            self.rewriting.retain(|uid, _| outdated.contains(uid));
        }
        rename
    }

    /// The write of an admission was refused, because the object has changed or does not exist
    /// any more. The admission is reverted as soon as the watch has shown that.
    pub fn admission_refused(&mut self, uid: &Uid) {
        let Some(known) = self.entries.get_mut(uid) else { return };
        let Some(writing) = &mut known.pending_write else { return };
        if known.version > writing.version {
            self.revert_admission(uid);
        } else {
            writing.refused = true;
        }
    }

    /// The write of an eviction, or of another setup's name into a record, failed because the
    /// object has changed or does not exist any more. It is decided again when the watch has
    /// shown that.
    ///
    /// Returns whether the watch has shown it already, so that it can be decided now.
    pub fn record_write_failed(&mut self, uid: &Uid, version: u64) -> bool {
        // Which setup a record should name is decided again for each resource version anyway.
        let Some(known) = self.entries.get_mut(uid) else { return false };
        let is_shown = known.version > version;
        if known.evicted.is_some() && is_shown {
            known.evicted = None;
            self.scheduler.undo(uid);
        } else if known.evicted.is_some() {
            known.eviction_refused = true;
        }
        is_shown
    }

    /// Reverts an admission that was not written, and never will be.
    pub fn revert_admission(&mut self, uid: &Uid) {
        let Some(known) = self.entries.get_mut(uid) else { return };
        if known.pending_write.take().is_none() {
            return;
        }
        match known.eligibility {
            Eligibility::Queued | Eligibility::ManagedElsewhere => self.scheduler.undo(uid),
            // It was kept only because it might have been admitted.
            Eligibility::Refused(_) | Eligibility::Panicked(_) if !known.admitted => {
                self.scheduler.remove(uid);
            }
            Eligibility::Refused(_) | Eligibility::Panicked(_) => {}
        }
    }
}
