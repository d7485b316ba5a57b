//! Numbers at their limits. Amounts, sizes, priorities and times come from objects that
//! any user may write: none may make the scheduler panic, and what was counted can be
//! subtracted again, however large it was.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use flux_operator_queue::{
    Admission, Kind, Millis, NamespaceQuota, OverQuota, QueueName, Resource, Resources, Scheduler,
    ServedNamespaces, Setup, SetupName, Stop, Strategy as Order, Uid, Workload,
};
use proptest::prelude::*;
use proptest::sample::select;

/// A transition of one of a few jobs, or of the setup.
#[derive(Clone, Debug)]
enum Transition {
    Put(Box<Workload>),
    Removed(usize),
    Undone(usize),
    Setup(Box<Setup>),
    NamespaceQuota(Resources),
    Cycle(Millis),
}

/// The scheduler, and the usage it should have counted.
struct CheckedScheduler {
    scheduler: Scheduler,
    jobs: BTreeMap<Uid, Workload>,
    decided: BTreeMap<Uid, Admission>,
}

impl CheckedScheduler {
    fn apply(&mut self, transition: Transition) {
        match transition {
            Transition::Put(job) => {
                if job.admission.is_some() || job.finished {
                    self.decided.remove(&job.uid);
                }
                self.jobs.insert(job.uid.clone(), (*job).clone());
                self.scheduler.put(*job);
            }
            Transition::Removed(number) => {
                self.decided.remove(&uid(number));
                self.jobs.remove(&uid(number));
                self.scheduler.remove(&uid(number));
            }
            Transition::Undone(number) => {
                self.decided.remove(&uid(number));
                self.scheduler.undo(&uid(number));
            }
            Transition::Setup(setup) => self.scheduler.put_setup(*setup),
            Transition::NamespaceQuota(left) => {
                let left = [("quota".into(), left)].into();
                self.scheduler.put_namespace_quota("a", NamespaceQuota { remaining: left });
            }
            Transition::Cycle(now) => {
                for admit in self.scheduler.cycle(now).admit {
                    self.decided.insert(admit.uid, admit.admission);
                }
                for uid in self.jobs.keys() {
                    let why = self.scheduler.explain(uid, now);
                    drop(why.map(|why| why.reason.to_string()));
                }
            }
        }
    }

    /// The usage is the sum of what was granted, computed here without overflow.
    fn check(&self) {
        let Some(usage) = self.scheduler.usage(&queue()) else { return };
        let mut sums: BTreeMap<Resource, i128> = BTreeMap::new();
        for job in self.jobs.values().filter(|job| !job.finished) {
            let admission = job.admission.as_ref().or_else(|| self.decided.get(&job.uid));
            for (resource, amount) in admission.iter().flat_map(|it| it.resources.iter()) {
                *sums.entry(resource.clone()).or_default() += i128::from(amount);
            }
        }
        let nearest = |sum: i128| i64::try_from(sum.clamp(i64::MIN.into(), i64::MAX.into()));
        let sums = sums.into_iter().filter(|(_, sum)| *sum != 0);
        let expected = Resources::of(sums.map(|(resource, sum)| (resource, nearest(sum).unwrap())));
        assert_eq!(usage.used, expected);
        drop((
            usage.used.to_string(),
            self.scheduler.free(&queue()),
            self.scheduler.pending(&queue()),
        ));
    }
}

fn queue() -> SetupName {
    SetupName::new("a", "queue")
}

fn uid(number: usize) -> Uid {
    number.to_string().as_str().into()
}

fn number() -> impl Strategy<Value = i64> {
    const LIMITS: [i64; 10] =
        [i64::MIN, i64::MIN + 1, -1, 0, 1, 2, 1000, i64::MAX / 2, i64::MAX - 1, i64::MAX];
    select(LIMITS.to_vec())
}

fn size() -> impl Strategy<Value = u32> {
    select(vec![0, 1, 2, u32::MAX / 2, u32::MAX - 1, u32::MAX])
}

fn resources() -> impl Strategy<Value = Resources> {
    let kinds = vec![Resource::Nodes, Resource::Memory, Resource::Other("a/b".into())];
    prop::collection::vec((select(kinds), number()), 0..3).prop_map(Resources::of)
}

fn admission() -> impl Strategy<Value = Admission> {
    (size(), resources(), number()).prop_map(|(size, resources, at)| Admission {
        queue: queue(),
        size,
        resources,
        at,
    })
}

fn job() -> impl Strategy<Value = Workload> {
    let sizes = (prop::option::of(size()), prop::option::of(size()));
    let times = (number(), prop::option::weighted(0.2, number()), prop::option::of(number()));
    let priority = select(vec![i32::MIN, -1, 0, 1, i32::MAX]);
    let amounts = (resources(), resources());
    let records = (prop::option::weighted(0.3, admission()), any::<bool>());
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (0..6_usize, sizes, times, priority, amounts, records, flags).prop_map(
        |(number, sizes, times, priority, (each, once), (admission, started), flags)| Workload {
            uid: uid(number),
            kind: Kind::FluxJob,
            namespace: "a".into(),
            name: "job".into(),
            queue: QueueName::Unspecified,
            priority,
            waiting_since: times.0,
            not_before: times.1,
            suspended: flags.0,
            size: sizes.0,
            min_size: sizes.1,
            per_node: each,
            per_job: once,
            max_runtime: times.2,
            admission,
            pods_exist: started,
            finished: flags.1,
        },
    )
}

fn setup() -> impl Strategy<Value = Setup> {
    let order = select(vec![Order::BestEffort, Order::Strict, Order::Backfill]);
    let over_quota = select(vec![OverQuota::Drain, OverQuota::Evict]);
    let sizes = (prop::option::of(size()), size());
    (resources(), sizes, order, over_quota, number(), number()).prop_map(
        |(quota, (max_size, default_size), strategy, over_quota, patience, created)| Setup {
            name: queue(),
            created,
            quota,
            max_size,
            default_size,
            serves: ServedNamespaces::None,
            strategy,
            patience,
            stop: Stop::No,
            over_quota,
            replaces: Vec::new(),
            terminating: false,
            problem: None,
        },
    )
}

fn transition() -> impl Strategy<Value = Transition> {
    prop_oneof![
        6 => job().prop_map(|job| Transition::Put(Box::new(job))),
        2 => (0..6_usize).prop_map(Transition::Removed),
        1 => (0..6_usize).prop_map(Transition::Undone),
        2 => setup().prop_map(|setup| Transition::Setup(Box::new(setup))),
        1 => resources().prop_map(Transition::NamespaceQuota),
        4 => number().prop_map(Transition::Cycle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn no_number_makes_the_scheduler_panic_or_count_wrongly(
        first in setup(), history in prop::collection::vec(transition(), 1..32),
    ) {
        let mut checked = CheckedScheduler {
            scheduler: Scheduler::new("operator"),
            jobs: BTreeMap::new(),
            decided: BTreeMap::new(),
        };
        checked.apply(Transition::Setup(Box::new(first)));
        for happening in history {
            checked.apply(happening);
            checked.check();
        }
        (0..6).for_each(|number| checked.apply(Transition::Removed(number)));
        prop_assert!(checked.scheduler.usage(&queue()).unwrap().used.is_empty());
    }
}
