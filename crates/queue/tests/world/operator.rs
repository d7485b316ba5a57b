//! What the operator does with setups and records besides admissions.

use flux_operator_queue::{Admission, SetupName, Uid, Workload};

use super::{World, reference};

impl World {
    /// Rewrites the record of one admission to name the setup in whose queue it counts.
    pub fn rewrite(&mut self, which: usize) {
        let mut outdated: Vec<(Uid, SetupName)> = self
            .scheduler
            .outdated_records()
            .map(|(uid, queue)| (uid.clone(), queue.clone()))
            .collect();
        outdated.sort();
        let Some((uid, queue)) = outdated.get(which % outdated.len().max(1)).cloned() else {
            return;
        };
        let job = self.jobs[&uid].clone();
        let admission = job.admission.clone().map(|given| Admission { queue, ..given });
        self.record(Workload { admission, ..job });
    }

    /// Reconciles some setups like the operator: deletes those that are replaced or being
    /// deleted, and idle. No job loses its queue by that.
    pub fn reconcile_setups(&mut self, names: Vec<SetupName>) {
        for name in names {
            let usage = self.scheduler.usage(&name).unwrap();
            let is_terminating = self.setups[&name].terminating;
            if usage.admitted > 0 || usage.is_needed || !is_terminating && usage.successor.is_none()
            {
                continue;
            }
            let before = self.queues_of_jobs();
            let mut all = self.setups.values();
            let is_clear =
                !is_terminating && !all.any(|it| reference::has_conflict(&self.setups, it));
            self.setups.remove(&name);
            self.scheduler.remove_setup(&name);
            if is_clear {
                assert_eq!(before, self.queues_of_jobs(), "{name} was deleted");
            }
            self.check();
        }
    }

    /// The queue of each job.
    fn queues_of_jobs(&self) -> Vec<Option<SetupName>> {
        self.jobs.keys().map(|uid| self.scheduler.queue_of(uid).cloned()).collect()
    }
}
