//! Which jobs are evicted.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::job::Job;
use super::queue::Queue;
use crate::{Admission, EvictionReason, OverQuota, Stop, Uid};

impl Queue {
    /// Why jobs are to be evicted, if any are.
    pub(super) fn eviction_reason(&self) -> Option<EvictionReason> {
        let setup = &self.quota_account.setup;
        if setup.stop == Stop::HoldAndDrain {
            Some(EvictionReason::QueueStopped)
        } else if setup.over_quota == OverQuota::Evict
            // The quota of a setup that cannot be used is not reliable.
            && setup.problem.is_none()
            && !self.quota_account.used.fits(&setup.quota)
        {
            Some(EvictionReason::OverQuota)
        } else {
            None
        }
    }

    /// The jobs to evict now. Only an admission that was written can be revoked; one that was only
    /// decided is considered again once it is written.
    pub(super) fn evictions(&self, jobs: &HashMap<Uid, Box<Job>>) -> Vec<(Uid, EvictionReason)> {
        let Some(reason) = self.eviction_reason() else { return Vec::new() };
        let mut staying = self.quota_account.used.clone();
        let mut candidates: Vec<(&Job, &Admission)> = Vec::new();
        for job in self.admitted.iter().map(|uid| &jobs[uid]) {
            match (&job.workload.admission, job.admission()) {
                (_, Some(admission)) if job.is_losing_quota() => {
                    staying.subtract(&admission.resources)
                }
                (Some(admission), _) => candidates.push((job, admission)),
                _ => {}
            }
        }
        candidates.sort_by_cached_key(|(job, admission)| {
            let workload = &job.workload;
            let youngest = Reverse((admission.at, workload.waiting_since, workload.uid.clone()));
            (workload.priority, youngest)
        });
        let quota = &self.quota_account.setup.quota;
        let mut evicted = Vec::new();
        for (job, admission) in candidates {
            if reason == EvictionReason::OverQuota {
                let over = quota.iter().filter(|(each, limit)| staying.amount(each) > *limit);
                let mut helps = over.map(|(each, _)| admission.resources.amount(each) > 0);
                if !helps.any(|helps| helps) {
                    continue;
                }
            }
            staying.subtract(&admission.resources);
            evicted.push((job.workload.uid.clone(), reason));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{job, scheduler, setup_of, wait_reason, with_quota};
    use crate::{
        EvictionReason, Inactive, InactiveReason, OverQuota, Scheduler, Setup, SetupName, Stop,
        WaitReason, Workload,
    };

    fn evicted(scheduler: &mut Scheduler, now: i64) -> Vec<(String, EvictionReason)> {
        let evict = scheduler.cycle(now).evict;
        evict.into_iter().map(|evict| (evict.uid.0.to_string(), evict.reason)).collect()
    }

    fn evicting(nodes: i64) -> Setup {
        Setup { over_quota: OverQuota::Evict, ..setup_of("a/queue", nodes) }
    }

    fn three_running() -> Scheduler {
        let important = Workload { priority: 1, ..job("a/important", 2) };
        let mut scheduler = scheduler([evicting(6)], []);
        scheduler.put(with_quota(job("a/old", 2), "a/queue", 1));
        scheduler.put(with_quota(job("a/young", 2), "a/queue", 2));
        scheduler.put(with_quota(important, "a/queue", 3));
        scheduler
    }

    #[test]
    fn q19_the_youngest_of_the_lowest_priority_are_evicted_until_the_rest_fits() {
        let mut scheduler = three_running();
        assert_eq!(evicted(&mut scheduler, 10), []);
        scheduler.put_setup(evicting(5));
        let over = EvictionReason::OverQuota;
        assert_eq!(evicted(&mut scheduler, 11), [("young".to_owned(), over)]);
        // It counts until it is put without an admission, and is not evicted twice.
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().admitted, 3);
        scheduler.put_setup(evicting(4));
        assert_eq!(evicted(&mut scheduler, 12), []);
        scheduler.put_setup(evicting(3));
        assert_eq!(evicted(&mut scheduler, 13), [("old".to_owned(), over)]);
        // An eviction that failed is decided again.
        scheduler.undo(&"old".into());
        assert_eq!(evicted(&mut scheduler, 14), [("old".to_owned(), over)]);
        scheduler.put(job("a/young", 2));
        let waits = wait_reason(&scheduler, "young", 15);
        assert!(matches!(waits, WaitReason::WaitingForQuota { .. }), "{waits}");
        assert_eq!(scheduler.usage(&SetupName::new("a", "queue")).unwrap().admitted, 2);
    }

    #[test]
    fn only_a_written_admission_is_evicted() {
        let mut scheduler = scheduler([evicting(2)], [job("a/job", 2)]);
        let admission = scheduler.cycle(1).admit[0].admission.clone();
        scheduler.put_setup(evicting(1));
        assert_eq!(evicted(&mut scheduler, 2), []);
        scheduler.put(Workload { admission: Some(admission), ..job("a/job", 2) });
        assert_eq!(evicted(&mut scheduler, 3), [("job".to_owned(), EvictionReason::OverQuota)]);
    }

    #[test]
    fn hold_admits_no_job_and_drain_evicts_all() {
        let stopped = |stop| Setup { stop, ..evicting(8) };
        let mut scheduler = three_running();
        scheduler.put_setup(stopped(Stop::Hold));
        scheduler.put(job("a/next", 1));
        let cycle = scheduler.cycle(1);
        assert_eq!((cycle.admit, cycle.evict), (vec![], vec![]));
        assert!(matches!(
            wait_reason(&scheduler, "next", 1),
            WaitReason::QueueInactive(Inactive { reason: InactiveReason::Stopped, .. })
        ));
        scheduler.put_setup(stopped(Stop::HoldAndDrain));
        let all = evicted(&mut scheduler, 2);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|(_, reason)| *reason == EvictionReason::QueueStopped));
        scheduler.put_setup(stopped(Stop::No));
        assert_eq!(scheduler.cycle(3).admit.len(), 1);
    }
}
