//! Tests of the whole lifecycle of small instances.

use flux_operator_flux::{IdSet, JobId, JobResult, JobState};

use super::node::Node;
use super::{Action, Input, Instance, InstanceSettings, Origin};
use crate::bytes::Bytes;
use crate::message::{Hello, PROTOCOL, Reply, Report, Request, TaskOwner, TaskRequest, Urgency};
use crate::submission::{Shape, Submission};

const CLIENT: Origin = Origin { rank: 0, channel: 1 };

/// An instance, and its actions so far.
struct TestInstance {
    instance: Instance,
    now: f64,
    orders: Vec<(u32, TaskRequest)>,
    replies: Vec<(u64, Reply)>,
    tag: u64,
}

impl TestInstance {
    /// `size` nodes of two cores, of which the first `online` are online.
    fn new(size: u32, online: u32) -> Self {
        let cores = IdSet::first_n(2);
        let nodes = (0..size).map(|rank| Node::new(rank, format!("fs-{rank}"), cores.clone(), 0.0));
        let settings = InstanceSettings { configured: true, ..InstanceSettings::default() };
        let instance = Instance::new(settings, nodes.collect(), 0.0);
        let mut world =
            Self { instance, now: 1.0, orders: Vec::new(), replies: Vec::new(), tag: 0 };
        (0..online).for_each(|rank| world.up(rank));
        world
    }

    fn input(&mut self, input: Input) {
        for action in self.instance.handle(self.now, input) {
            match action {
                Action::Order { rank, order } => self.orders.push((rank, order)),
                Action::Reply { tag, reply, .. } => self.replies.push((tag, reply)),
                Action::Log(_) => {}
            }
        }
    }

    fn up(&mut self, rank: u32) {
        let hostname = format!("fs-{rank}");
        let hello = Hello { protocol: PROTOCOL, rank, hostname, cores: 2, unfit: None };
        self.input(Input::NodeUp(hello));
    }

    /// Sends a request and returns the immediate replies.
    fn request(&mut self, request: Request) -> Vec<Reply> {
        self.tag += 1;
        let tag = self.tag;
        self.input(Input::Request { origin: CLIENT, tag, request });
        self.replies
            .iter()
            .filter(|(found, _)| *found == tag)
            .map(|(_, reply)| reply.clone())
            .collect()
    }

    fn submit(&mut self, change: impl FnOnce(&mut Submission)) -> JobId {
        let shape = Shape { slots: 1, cores: 1, ..Shape::default() };
        let mut submission = Submission { shape, urgency: 16, ..Submission::default() };
        submission.command = vec![Bytes::from("true")];
        change(&mut submission);
        match self.request(Request::Submit(Box::new(submission))).first() {
            Some(Reply::Id(id)) => *id,
            other => panic!("no id but {other:?}"),
        }
    }

    fn submit_nodes(&mut self, nodes: u32) -> JobId {
        self.submit(|job| {
            job.shape.nodes = Some(nodes);
            job.shape.exclusive = true;
        })
    }

    fn state(&self, id: JobId) -> (JobState, Option<JobResult>) {
        let job = &self.instance.jobs[&id];
        (job.state, job.result())
    }

    /// Reports the exit of all tasks of a job.
    fn exit_tasks(&mut self, id: JobId, status: i32) {
        let running = self.instance.jobs[&id].running.clone();
        for (task, rank) in running {
            let report = Report::Exited { run: TaskOwner::Job(id), task, status };
            self.input(Input::Report { rank, report });
        }
    }

    fn launched(&self) -> Vec<(u32, Vec<u32>)> {
        let launches = self.orders.iter().filter_map(|(rank, order)| match order {
            TaskRequest::Launch(launch) => Some((*rank, launch.tasks.clone())),
            _ => None,
        });
        launches.collect()
    }

    fn signals(&self) -> Vec<(u32, i32)> {
        let signals = self.orders.iter().filter_map(|(rank, order)| match order {
            TaskRequest::Signal { signal, .. } => Some((*rank, *signal)),
            _ => None,
        });
        signals.collect()
    }
}

const RUN: (JobState, Option<JobResult>) = (JobState::Run, None);
const SCHED: (JobState, Option<JobResult>) = (JobState::Sched, None);

fn inactive(result: JobResult) -> (JobState, Option<JobResult>) {
    (JobState::Inactive, Some(result))
}

#[test]
fn a_job_runs_and_completes() {
    let mut test = TestInstance::new(2, 2);
    let id = test.submit(|job| (job.shape.nodes, job.shape.slots) = (Some(2), 2));
    assert_eq!(test.launched(), [(0, vec![0, 1]), (1, vec![2, 3])]);
    let watch = Request::Watch { id, output: true, follow: true };
    assert!(!test.request(watch).iter().any(|reply| matches!(reply, Reply::Done)));
    test.exit_tasks(id, 0);
    assert_eq!(test.state(id), inactive(JobResult::Completed));
    let last = &test.replies.last().unwrap().1;
    assert!(matches!(last, Reply::Done), "{last:?}");
    let names: Vec<&str> = test.instance.jobs[&id]
        .history
        .iter()
        .filter_map(|reply| match reply {
            Reply::Event(event) => Some(event.name.as_str()),
            _ => None,
        })
        .collect();
    let flux = "submit validate depend priority alloc start finish release free clean";
    assert_eq!(names.join(" "), flux);
}

#[test]
fn the_largest_exit_code_is_used_and_includes_signals() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|job| job.shape.slots = 2);
    for (task, status) in [(0, 3 << 8), (1, 9)] {
        let report = Report::Exited { run: TaskOwner::Job(id), task, status };
        world.input(Input::Report { rank: 0, report });
    }
    assert_eq!(world.instance.jobs[&id].status, Some(137 << 8));
    assert_eq!(world.state(id), inactive(JobResult::Failed));
}

#[test]
fn jobs_start_in_order_and_wait_for_late_brokers() {
    let mut world = TestInstance::new(4, 3);
    let large = world.submit_nodes(4);
    let impossible = world.submit_nodes(9);
    let small = world.submit(|_| {});
    let held = world.submit(|job| job.urgency = 0);
    for id in [large, impossible, small, held] {
        assert_eq!(world.state(id), SCHED);
    }
    world.up(3);
    assert_eq!(world.state(large), RUN);
    world.exit_tasks(large, 0);
    assert_eq!(world.state(impossible), inactive(JobResult::Failed));
    assert_eq!(world.state(small), RUN);
    assert_eq!(world.state(held), SCHED);
    world.request(Request::Urgency { id: held, urgency: Urgency::Default });
    assert_eq!(world.state(held), RUN);
}

#[test]
fn the_more_urgent_job_starts_first() {
    let mut world = TestInstance::new(1, 0);
    let first = world.submit_nodes(1);
    let urgent = world.submit(|job| job.urgency = 20);
    let second = world.submit(|_| {});
    world.up(0);
    assert_eq!(world.state(urgent), RUN);
    assert_eq!(world.state(first), SCHED);
    assert_eq!(world.state(second), SCHED);
}

#[test]
fn a_lost_broker_fails_its_jobs_and_may_rejoin() {
    let mut world = TestInstance::new(2, 2);
    let both = world.submit_nodes(2);
    world.input(Input::NodeDown { rank: 1, orderly: false });
    assert_eq!(world.signals(), [(0, 15), (1, 15)]);
    let report = Report::Exited { run: TaskOwner::Job(both), task: 0, status: 15 };
    world.input(Input::Report { rank: 0, report });
    assert_eq!(world.state(both), inactive(JobResult::Failed));
    assert_eq!(world.instance.jobs[&both].status, Some(143 << 8));
    let again = world.submit_nodes(2);
    assert_eq!(world.state(again), SCHED);
    world.up(1);
    assert_eq!(world.state(again), RUN);
}

#[test]
fn a_canceled_job_is_killed_if_it_ignores_sigterm() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|_| {});
    let note = String::new();
    world.request(Request::Raise { id, kind: "cancel".to_owned(), severity: 0, note });
    assert_eq!(world.signals(), [(0, 15)]);
    world.now = world.instance.next_deadline().unwrap();
    world.input(Input::Tick);
    assert_eq!(world.signals(), [(0, 15), (0, 9)]);
    world.exit_tasks(id, 9);
    assert_eq!(world.state(id), inactive(JobResult::Canceled));
    assert_eq!(world.instance.next_deadline(), None);
}

#[test]
fn a_job_at_its_time_limit_gets_sigalrm() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|job| job.duration = 10.0);
    world.now = 10.9;
    world.input(Input::Tick);
    assert!(world.signals().is_empty());
    world.now = 11.0;
    world.input(Input::Tick);
    assert_eq!(world.signals(), [(0, 14)]);
    world.exit_tasks(id, 14);
    assert_eq!(world.state(id), inactive(JobResult::Timeout));
}

#[test]
fn output_files_are_closed_before_the_job_finishes() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|job| job.files = [Some("o.{{id}}".to_owned()), None]);
    world.exit_tasks(id, 0);
    assert_eq!(world.state(id), RUN);
    assert!(matches!(world.orders.last(), Some((0, TaskRequest::Close { .. }))));
    world.input(Input::Report { rank: 0, report: Report::Closed { run: TaskOwner::Job(id) } });
    assert_eq!(world.state(id), inactive(JobResult::Completed));
}

#[test]
fn waitable_jobs_are_reported_once() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|job| job.waitable = true);
    assert!(world.request(Request::Wait { id: None }).is_empty(), "it has to wait");
    world.exit_tasks(id, 0);
    assert!(matches!(world.replies.last(), Some((_, Reply::Done))));
    assert!(matches!(world.request(Request::Wait { id: None })[0], Reply::Error(_)));
}

#[test]
fn drained_nodes_get_no_jobs() {
    let mut world = TestInstance::new(2, 2);
    let drain = Request::Drain { targets: "fs-0".to_owned(), reason: None, force: false };
    assert!(matches!(world.request(drain.clone())[0], Reply::Done));
    assert!(matches!(world.request(drain)[0], Reply::Error(_)), "not twice");
    world.submit(|_| {});
    assert_eq!(world.launched(), [(1, vec![0])]);
    let both = world.submit_nodes(2);
    assert_eq!(world.state(both), SCHED);
}

#[test]
fn brokers_of_a_nested_instance_publish_values_for_each_other() {
    let mut world = TestInstance::new(1, 1);
    let id = world.submit(|_| {});
    let key = "lead".to_owned();
    assert!(world.request(Request::Get { id, key: key.clone() }).is_empty());
    world.request(Request::Put { id, key, value: "here".to_owned() });
    let replied =
        world.replies.iter().any(|(_, reply)| matches!(reply, Reply::Text(text) if text == "here"));
    assert!(replied);
}
