//! The queue of a job.

use std::sync::Arc;

use super::queues::Queues;
use crate::{
    Inactive, InactiveReason, QueueName, ServedNamespaces, Setup, SetupName, Stop, WaitReason,
};

impl Queues {
    /// The queue of a job, by its namespace and the queue that it names.
    ///
    /// # Errors
    /// Why it has no queue.
    pub(super) fn resolve(
        &self,
        namespace: &Arc<str>,
        queue: &QueueName,
    ) -> Result<SetupName, WaitReason> {
        match queue {
            QueueName::Unspecified => self.resolve_default(namespace),
            QueueName::Named(name) => {
                let candidates = self.candidates(namespace, queue);
                let mut found =
                    candidates.iter().filter_map(|setup| self.resolve_exact(namespace, setup));
                found.next().unwrap_or_else(|| Err(WaitReason::UnknownQueue(name.clone())))
            }
            QueueName::Qualified(setup) => {
                self.resolve_exact(namespace, setup).unwrap_or_else(|| {
                    // Users do not learn what exists in other users' namespaces.
                    match setup.namespace == *namespace
                        || setup.namespace == self.operator_namespace
                    {
                        true => Err(WaitReason::UnknownQueue(setup.to_string().into())),
                        false => Err(WaitReason::NotServed(setup.clone())),
                    }
                })
            }
        }
    }

    /// The queue in which the quota that a setup granted counts.
    ///
    /// # Errors
    /// If that queue does not exist any more.
    pub(super) fn current(&self, setup: &SetupName) -> Result<SetupName, WaitReason> {
        let current = self.succession.current(setup);
        match self.get(current).is_some() {
            true => Ok(current.clone()),
            false => Err(WaitReason::UnknownQueue(setup.to_string().into())),
        }
    }

    /// The setups that a name may refer to, for a job of a namespace.
    fn candidates(&self, namespace: &Arc<str>, asked: &QueueName) -> Vec<SetupName> {
        match asked {
            QueueName::Unspecified => Vec::new(),
            QueueName::Named(name) => [namespace, &self.operator_namespace]
                .map(|namespace| SetupName { namespace: namespace.clone(), name: name.clone() })
                .into(),
            QueueName::Qualified(setup) => vec![setup.clone()],
        }
    }

    /// The setups through which a job that names a queue may get to its current queue.
    pub(super) fn links(&self, namespace: &Arc<str>, asked: &QueueName) -> Vec<SetupName> {
        let meant = self.candidates(namespace, asked);
        meant.iter().flat_map(|setup| self.succession.successors_of(setup)).cloned().collect()
    }

    /// Why a queue admits no jobs, if it does not.
    pub(super) fn inactive(&self, setup: &Setup) -> Option<Inactive> {
        let inactive = |reason, message| Some(Inactive { reason, message });
        let current = self.succession.current(&setup.name);
        if *current != setup.name {
            let message = format!("it was replaced by FluxSetup \"{current}\"");
            inactive(InactiveReason::Replaced, message)
        } else if let Some(problem) = &setup.problem {
            Some(problem.clone())
        } else if let Some(conflict) = self.succession.conflict(&setup.name) {
            inactive(InactiveReason::Conflict, conflict.to_string())
        } else if setup.terminating {
            inactive(InactiveReason::Terminating, "FluxSetup is being deleted".to_owned())
        } else if setup.stop != Stop::No {
            let message = "FluxSetup is stopped: set stopPolicy to None".to_owned();
            inactive(InactiveReason::Stopped, message)
        } else {
            None
        }
    }

    /// The queue of this name or its successor, if it exists and the namespace may know it.
    fn resolve_exact(
        &self,
        namespace: &str,
        setup: &SetupName,
    ) -> Option<Result<SetupName, WaitReason>> {
        let current = self.succession.current(setup);
        let found = &self.get(current)?.quota_account.setup;
        if self.serves(found, namespace) {
            Some(Ok(current.clone()))
        } else if current.namespace == self.operator_namespace {
            Some(Err(WaitReason::NotServed(current.clone())))
        } else {
            None
        }
    }

    /// The only setup that serves a namespace, or the one called `default` in it. A setup that
    /// is being deleted counts only if there is no other.
    fn resolve_default(&self, namespace: &Arc<str>) -> Result<SetupName, WaitReason> {
        let serving: Vec<&Setup> = [namespace, &self.operator_namespace]
            .into_iter()
            .take(if *namespace == self.operator_namespace { 1 } else { 2 })
            .flat_map(|place| self.of_namespace(place))
            .filter(|setup| self.serves(setup, namespace))
            .filter(|setup| *self.succession.current(&setup.name) == setup.name)
            .collect();
        let staying: Vec<&Setup> =
            serving.iter().filter(|setup| !setup.terminating).copied().collect();
        let candidates = if staying.is_empty() { serving } else { staying };
        match candidates.as_slice() {
            [] => Err(WaitReason::NoQueue),
            [only] => Ok(only.name.clone()),
            several => several
                .iter()
                .map(|setup| &setup.name)
                .find(|name| name.namespace == *namespace && &*name.name == "default")
                .cloned()
                .ok_or_else(|| {
                    WaitReason::AmbiguousQueue(
                        several.iter().map(|each| each.name.clone()).collect(),
                    )
                }),
        }
    }

    fn serves(&self, setup: &Setup, namespace: &str) -> bool {
        let own = &setup.name.namespace;
        **own == *namespace
            || *own == self.operator_namespace
                && match &setup.serves {
                    ServedNamespaces::None => false,
                    ServedNamespaces::All => true,
                    ServedNamespaces::Some(names) => names.contains(namespace),
                }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{admitted, job, scheduler, setup, setup_of, wait_reason, with_quota};
    use crate::{Scheduler, SetupProblem, Workload};

    fn asking(queue: &str) -> Workload {
        Workload { queue: queue.into(), ..job("a/job", 1) }
    }

    fn found(setups: impl IntoIterator<Item = Setup>, queue: &str) -> Result<String, WaitReason> {
        let scheduler = scheduler(setups, [asking(queue)]);
        match scheduler.queue_of(&"job".into()) {
            Some(name) => Ok(name.to_string()),
            None => Err(wait_reason(&scheduler, "job", 0)),
        }
    }

    fn for_all(name: &str) -> Setup {
        Setup { serves: ServedNamespaces::All, ..setup(name) }
    }

    #[test]
    fn q18_a_job_that_names_no_queue_gets_the_only_one_that_serves_it() {
        assert_eq!(found([], ""), Err(WaitReason::NoQueue));
        assert_eq!(found([setup("a/x"), setup("b/y")], ""), Ok("a/x".to_owned()));
        assert_eq!(found([for_all("operator/x")], ""), Ok("operator/x".to_owned()));
        assert_eq!(found([setup("operator/x")], ""), Err(WaitReason::NoQueue));
        let some = ServedNamespaces::Some(["a".into()].into());
        assert_eq!(
            found([Setup { serves: some, ..setup("operator/x") }], ""),
            Ok("operator/x".to_owned())
        );
        // Only setups in the operator's namespace serve other namespaces.
        assert_eq!(found([for_all("b/x")], ""), Err(WaitReason::NoQueue));
    }

    #[test]
    fn q18_of_several_queues_only_the_default_one_is_chosen() {
        let names = vec![SetupName::new("a", "x"), SetupName::new("operator", "y")];
        let setups = || [setup("a/x"), for_all("operator/y")];
        assert_eq!(found(setups(), ""), Err(WaitReason::AmbiguousQueue(names)));
        assert_eq!(found([setup("a/x"), setup("a/default")], ""), Ok("a/default".to_owned()));
        // A setup that is being deleted is not a choice.
        let terminating = Setup { terminating: true, ..setup("a/x") };
        assert_eq!(found([terminating.clone(), setup("a/y")], ""), Ok("a/y".to_owned()));
        assert_eq!(found([terminating], ""), Ok("a/x".to_owned()));
    }

    #[test]
    fn q18_a_name_is_resolved_in_the_jobs_namespace_then_in_the_operators() {
        let both = || [setup("a/x"), for_all("operator/x")];
        assert_eq!(found(both(), "x"), Ok("a/x".to_owned()));
        assert_eq!(found(both(), "operator/x"), Ok("operator/x".to_owned()));
        assert_eq!(found([for_all("operator/x")], "x"), Ok("operator/x".to_owned()));
        let home = SetupName::new("operator", "x");
        assert_eq!(found([setup("operator/x")], "x"), Err(WaitReason::NotServed(home.clone())));
        assert_eq!(found([setup("operator/x")], "operator/x"), Err(WaitReason::NotServed(home)));
        assert_eq!(found([setup("a/x")], "y"), Err(WaitReason::UnknownQueue("y".into())));
        assert_eq!(found([setup("a/x")], "a/y"), Err(WaitReason::UnknownQueue("a/y".into())));
        // Whether a setup of another namespace exists is not revealed.
        let other = Err(WaitReason::NotServed(SetupName::new("b", "x")));
        assert_eq!(found([setup("b/x")], "b/x"), other);
        assert_eq!(found([], "b/x"), other);
    }

    #[test]
    fn q6_jobs_that_came_before_the_setup_are_admitted_in_order() {
        let jobs = [("a/second", 2), ("a/third", 3), ("a/first", 1)];
        let jobs = jobs.map(|(name, since)| Workload { waiting_since: since, ..job(name, 1) });
        let mut scheduler = scheduler([], jobs);
        assert_eq!(admitted(&mut scheduler, 10), [""; 0]);
        assert_eq!(wait_reason(&scheduler, "first", 10), WaitReason::NoQueue);
        scheduler.put_setup(setup_of("a/queue", 2));
        assert_eq!(admitted(&mut scheduler, 11), ["first", "second"]);
        assert_eq!(wait_reason(&scheduler, "third", 11).to_string(), "missing 1 node");
    }

    fn usage(scheduler: &Scheduler, name: &str) -> (usize, usize) {
        let usage = scheduler.usage(&name.parse().unwrap()).unwrap();
        (usage.pending, usage.admitted)
    }

    #[test]
    fn q19_a_successor_takes_over_waiting_and_running_jobs() {
        let mut scheduler = scheduler([setup_of("a/old", 2)], [asking("old")]);
        scheduler.put(with_quota(job("a/runs", 2), "a/old", 0));
        let new = Setup { replaces: vec![SetupName::new("a", "old")], ..setup_of("a/new", 3) };
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        scheduler.put_setup(new);
        assert_eq!((usage(&scheduler, "a/old"), usage(&scheduler, "a/new")), ((0, 0), (1, 1)));
        let old = SetupName::new("a", "old");
        let inactive = scheduler.usage(&old).unwrap().inactive.unwrap();
        assert_eq!(inactive.reason, InactiveReason::Replaced);
        assert_eq!(scheduler.successor(&old), Some(SetupName::new("a", "new")));
        assert_eq!(admitted(&mut scheduler, 2), ["job"]);
        scheduler.remove_setup(&old);
        assert_eq!(usage(&scheduler, "a/new"), (0, 2));
        // A later job that names the old setup is in the queue of the new one.
        scheduler.put(Workload { queue: "a/old".into(), ..job("a/later", 1) });
        assert_eq!(usage(&scheduler, "a/new"), (1, 2));
    }

    #[test]
    fn q19_setups_that_replace_each_other_keep_their_jobs_and_report_a_conflict() {
        let replacing = |name: &str, old: &[&str]| Setup {
            replaces: old.iter().map(|old| SetupName::new("a", old)).collect(),
            ..setup_of(name, 2)
        };
        let mut scheduler = scheduler([setup_of("a/x", 2), setup_of("a/y", 2)], [asking("y")]);
        scheduler.put(with_quota(job("a/runs", 2), "a/y", 0));
        scheduler.put_setup(replacing("a/x", &["y"]));
        assert_eq!(usage(&scheduler, "a/x"), (1, 1));
        scheduler.put_setup(replacing("a/y", &["x"]));
        assert_eq!((usage(&scheduler, "a/x"), usage(&scheduler, "a/y")), ((0, 0), (1, 1)));
        let reported = |scheduler: &Scheduler, name: &str| {
            let usage = scheduler.usage(&name.parse().unwrap()).unwrap();
            assert_eq!(usage.successor, None);
            usage.inactive.map(|inactive| (inactive.reason, inactive.message))
        };
        for (name, other) in [("a/x", "a/y"), ("a/y", "a/x")] {
            let circle = format!(
                "replaces is circular, through \"{other}\": remove a name from replaces of one of them"
            );
            assert_eq!(reported(&scheduler, name), Some((InactiveReason::Conflict, circle)));
        }
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        scheduler.put_setup(replacing("a/y", &["y"]));
        let itself = "it replaces itself: remove its name from replaces";
        let expected = (InactiveReason::Conflict, itself.to_owned());
        assert_eq!(reported(&scheduler, "a/y"), Some(expected));
        scheduler.put_setup(replacing("a/y", &[]));
        assert_eq!((usage(&scheduler, "a/x"), usage(&scheduler, "a/y")), ((1, 1), (0, 0)));
        assert_eq!(reported(&scheduler, "a/x"), None);
    }

    #[test]
    fn q19_a_setup_takes_jobs_over_only_while_it_has_no_problem() {
        let unknown = Inactive::unusable(SetupProblem::NodesUnknown, "no nodes");
        let new = |mistake: Option<&Inactive>| Setup {
            problem: mistake.cloned(),
            replaces: vec![SetupName::new("a", "old")],
            ..setup_of("a/new", 3)
        };
        let mut scheduler = scheduler([setup_of("a/old", 2), new(Some(&unknown))], [asking("old")]);
        scheduler.put(with_quota(job("a/runs", 2), "a/old", 0));
        assert_eq!((usage(&scheduler, "a/old"), usage(&scheduler, "a/new")), ((1, 1), (0, 0)));
        let old = SetupName::new("a", "old");
        assert_eq!(scheduler.successor(&old), None);
        scheduler.put_setup(new(None));
        assert_eq!((usage(&scheduler, "a/old"), usage(&scheduler, "a/new")), ((0, 0), (1, 1)));
        // Running jobs count, even while the nodes are unknown again.
        scheduler.remove_setup(&old);
        scheduler.put_setup(new(Some(&unknown)));
        assert_eq!(usage(&scheduler, "a/new"), (1, 1));
        assert_eq!(wait_reason(&scheduler, "job", 1).to_string(), "no nodes");
    }

    #[test]
    fn quota_of_a_deleted_setup_counts_again_when_it_is_recreated() {
        let mut scheduler = scheduler([setup_of("a/queue", 2)], [asking("")]);
        scheduler.put(with_quota(job("a/runs", 2), "a/queue", 0));
        scheduler.remove_setup(&SetupName::new("a", "queue"));
        assert_eq!(wait_reason(&scheduler, "job", 1), WaitReason::NoQueue);
        assert_eq!(scheduler.queue_of(&"runs".into()), None);
        scheduler.put_setup(setup_of("a/queue", 2));
        assert_eq!(usage(&scheduler, "a/queue"), (1, 1));
        assert_eq!(admitted(&mut scheduler, 2), [""; 0]);
    }

    #[test]
    fn a_setup_that_cannot_be_used_says_why() {
        let mistake = Inactive::unusable(SetupProblem::NotYetSupported, "no cohorts");
        let broken = Setup { problem: Some(mistake), ..setup_of("a/queue", 2) };
        let mut scheduler = scheduler([broken], [asking("")]);
        assert_eq!(admitted(&mut scheduler, 1), [""; 0]);
        assert_eq!(wait_reason(&scheduler, "job", 1).to_string(), "no cohorts");
        scheduler.put_setup(setup_of("a/queue", 2));
        assert_eq!(admitted(&mut scheduler, 2), ["job"]);
    }
}
