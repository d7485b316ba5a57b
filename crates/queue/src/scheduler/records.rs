//! Admission records and the setups that they name.
//!
//! A record names the setup that granted the quota. When another setup replaces that one, the
//! quota counts there, but only as long as `replaces` says so. Two rules ensure that quota in use
//! is always counted:
//!
//! 1. every record is rewritten to name the setup in whose queue it counts
//!    ([`Scheduler::outdated_records`]), and then does not depend on `replaces`;
//! 2. a setup [is needed](crate::Usage::is_needed), and must not be deleted, until no record
//!    names it, and no job or older setup gets to its successor through it.
//!
//! Both follow from the records and setups that exist, without any other state, so a crash
//! between two writes loses nothing.

use super::Scheduler;
use super::job::Job;
use super::queues::Queues;
use crate::{SetupName, Uid, Workload};

impl Scheduler {
    /// The jobs whose record names another setup than the one in whose queue it counts, each
    /// with the name to write. Admissions that are only decided are left out: they have no
    /// record yet.
    pub fn outdated_records(&self) -> impl Iterator<Item = (&Uid, &SetupName)> {
        let groups = self.index.admitted.iter().filter_map(|(recorded, group)| {
            let queue = group.queue.as_ref().ok().filter(|queue| *queue != recorded)?;
            Some((&group.jobs, queue))
        });
        let outdated = groups.flat_map(|(jobs, queue)| jobs.iter().map(move |uid| (uid, queue)));
        outdated.filter(|(uid, _)| self.index.jobs[*uid].workload.admission.is_some())
    }

    /// Whether anything would lose its queue if a setup were deleted.
    pub(super) fn is_needed(&self, setup: &SetupName) -> bool {
        let queues = &self.queues;
        if self.index.admitted.contains_key(setup) {
            return true;
        }
        // The last setup of a chain does not lead to another one.
        if queues.succession.current(setup) == setup {
            return false;
        }
        let older = queues.setups().map(|setup| &setup.name);
        let mut named = self.index.admitted.keys().chain(older);
        let mut waiting = self.index.namespaces.iter().flat_map(|(namespace, known)| {
            known.waiting.keys().flat_map(|asked| queues.links(namespace, asked))
        });
        named.any(|name| queues.succession.successors_of(name).any(|link| link == setup))
            || waiting.any(|link| link == *setup)
    }
}

impl Queues {
    /// Marks the setups that may no longer be needed because a job leaves its group.
    pub(super) fn mark_links_changed(&mut self, job: &Job) {
        if self.succession.is_empty() {
            return;
        }
        let Workload { namespace, queue, .. } = &job.workload;
        let mut links = self.links(namespace, queue);
        if let Some(admission) = job.admission() {
            links.push(admission.queue.clone());
            links.extend(self.succession.successors_of(&admission.queue).cloned());
        }
        links.iter().for_each(|link| self.mark_changed(link));
    }

    /// Marks the setups that may no longer be needed because one that they replace was deleted.
    pub(super) fn mark_successors_changed(&mut self, setup: &SetupName) {
        let successors: Vec<SetupName> = self.succession.successors_of(setup).cloned().collect();
        successors.iter().for_each(|link| self.mark_changed(link));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, scheduler, setup_of, with_quota};
    use crate::{Admission, Setup};

    fn replacing(name: &str, old: &[&str]) -> Setup {
        let replaces = old.iter().map(|old| old.parse().unwrap()).collect();
        Setup { replaces, ..setup_of(name, 2) }
    }

    fn named(name: &str) -> SetupName {
        name.parse().unwrap()
    }

    fn is_needed(scheduler: &Scheduler, name: &str) -> bool {
        scheduler.usage(&named(name)).unwrap().is_needed
    }

    /// Rewrites the records like the operator.
    fn rewrite(scheduler: &mut Scheduler) -> Vec<(String, String)> {
        let outdated = scheduler.outdated_records();
        let outdated: Vec<(Uid, SetupName)> =
            outdated.map(|(uid, name)| (uid.clone(), name.clone())).collect();
        for (uid, queue) in &outdated {
            let job = scheduler.workload(uid).unwrap().clone();
            let admission = job.admission.clone().unwrap();
            let admission = Some(Admission { queue: queue.clone(), ..admission });
            scheduler.put(Workload { admission, ..job });
        }
        outdated.iter().map(|(uid, queue)| (uid.0.to_string(), queue.to_string())).collect()
    }

    #[test]
    fn quota_in_use_is_counted_when_replaces_is_removed() {
        let mut scheduler = scheduler([setup_of("a/old", 2), replacing("a/new", &["a/old"])], []);
        scheduler.put(with_quota(job("a/runs", 2), "a/old", 0));
        assert!(is_needed(&scheduler, "a/old"), "a record names it");
        scheduler.take_changed();
        assert_eq!(rewrite(&mut scheduler), [("runs".to_owned(), "a/new".to_owned())]);
        assert!(scheduler.take_changed().contains(&named("a/old")), "it can be deleted now");
        assert!(!is_needed(&scheduler, "a/old"));
        assert_eq!(rewrite(&mut scheduler), []);
        scheduler.remove_setup(&named("a/old"));
        scheduler.put_setup(setup_of("a/new", 2));
        assert_eq!(scheduler.usage(&named("a/new")).unwrap().admitted, 1);
        scheduler.put(job("a/next", 1));
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
    }

    #[test]
    fn the_middle_of_a_chain_is_needed_by_jobs_that_reach_its_end_through_it() {
        let setups = [replacing("a/b", &["a/a"]), replacing("a/c", &["a/b"])];
        let waits = Workload { queue: "a".into(), ..job("a/waits", 1) };
        let mut scheduler = scheduler(setups, [waits, with_quota(job("a/runs", 2), "a/a", 0)]);
        assert_eq!(scheduler.usage(&named("a/c")).unwrap().admitted, 1);
        assert!(is_needed(&scheduler, "a/b"));
        rewrite(&mut scheduler);
        assert!(is_needed(&scheduler, "a/b"), "a waiting job reaches its queue through it");
        scheduler.take_changed();
        scheduler.remove(&"waits".into());
        assert!(scheduler.take_changed().contains(&named("a/b")), "it can be deleted now");
        assert!(!is_needed(&scheduler, "a/b"));
        scheduler.remove_setup(&named("a/b"));
        assert_eq!(scheduler.usage(&named("a/c")).unwrap().admitted, 1);
    }

    #[test]
    fn of_a_chain_the_oldest_is_deleted_first() {
        let setups = [setup_of("a/a", 2), replacing("a/b", &["a/a"]), replacing("a/c", &["a/b"])];
        let mut scheduler = scheduler(setups, []);
        scheduler.take_changed();
        let needed = |scheduler: &Scheduler| ["a/a", "a/b"].map(|name| is_needed(scheduler, name));
        assert_eq!(needed(&scheduler), [false, true]);
        scheduler.remove_setup(&named("a/a"));
        assert!(scheduler.take_changed().contains(&named("a/b")), "it can be deleted now");
        assert!(!is_needed(&scheduler, "a/b"));
    }

    #[test]
    fn a_record_is_rewritten_only_after_it_was_written() {
        let mut scheduler = scheduler([setup_of("a/old", 2)], [job("a/job", 2)]);
        let admission = scheduler.cycle(1).admit[0].admission.clone();
        scheduler.put_setup(replacing("a/new", &["a/old"]));
        assert_eq!(rewrite(&mut scheduler), []);
        assert!(is_needed(&scheduler, "a/old"), "a record that is being written names it");
        scheduler.put(Workload { admission: Some(admission), ..job("a/job", 2) });
        assert_eq!(rewrite(&mut scheduler), [("job".to_owned(), "a/new".to_owned())]);
    }

    #[test]
    fn a_job_that_is_being_evicted_is_not_evicted_again_when_its_record_is_rewritten() {
        let drained = Setup { stop: crate::Stop::HoldAndDrain, ..replacing("a/new", &["a/old"]) };
        let mut scheduler = scheduler([setup_of("a/old", 2), drained], []);
        scheduler.put(with_quota(job("a/runs", 2), "a/old", 0));
        assert_eq!(scheduler.cycle(1).evict.len(), 1);
        rewrite(&mut scheduler);
        assert_eq!(scheduler.cycle(2).evict, []);
    }
}
