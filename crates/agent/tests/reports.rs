//! Agents and the operator: reports, work, permission to join, and forged replies.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;

use common::operator::FakeOperator;
use common::{Cluster, eventually, free_port, shell_line};
use flux_operator_flux::IdSet;
use flux_operator_wire::names::variable;
use flux_operator_wire::{
    BrokerFacts, Drain, Drained, EXIT_REPLACE_POD, JobCounts, JoinAnswer, JoinPlan, JoinRequest,
    Program, TerminationReason, Work,
};
use rustix::process::{Pid, Signal};

/// A name that is never queried: its label is longer than allowed.
fn unknown_name() -> String {
    "x".repeat(64)
}

fn with_operator(size: u32, program: Program) -> (Cluster, FakeOperator) {
    let operator = FakeOperator::start();
    let mut cluster = Cluster::new(size, program);
    cluster.plan.report = Some(operator.target.clone());
    cluster.environment = vec![("FLUX_OPERATOR_POD_UID".into(), "pod-uid".into())];
    (cluster, operator)
}

#[test]
fn the_lead_reports_what_only_flux_knows() {
    let (mut cluster, operator) = with_operator(2, Program::Stay);
    let mut lead = cluster.start(0);
    let reported = |online: &str, started| {
        let online = Some(online.parse().unwrap());
        let reports = operator.reports();
        reports.iter().any(|report| report.online == online && report.program_started == started)
    };
    eventually("the lead is alone", || reported("0", false));
    let mut worker = cluster.start(1);
    eventually("both are there", || reported("0-1", true));
    let connect = lead.root.join("flux-connect.sh");
    let run =
        |words: &[&str]| Command::new(&connect).args(words).output().unwrap().status.success();
    assert!(run(&["flux", "run", "true"]));
    let finished = Some(JobCounts { pending: 0, running: 0, inactive: 1 });
    let known = || operator.reports().iter().any(|report| report.jobs == finished);
    // fluxlet has no `flux job stats`.
    if run(&["flux", "job", "stats"]) {
        eventually("the job is known", known);
    }
    assert_eq!(operator.replays(), 0, "a nonce is used once");
    // It takes both nodes, so that the next job stays pending.
    let job =
        Command::new(&connect).args(["flux", "submit", "-N2", "sleep", "inf"]).output().unwrap();
    assert!(job.status.success());
    operator.set_work(vec![Work::ListPending]);
    // Skipped if this Flux does not accept these options.
    if run(&["flux", "job", "list", "--user=all", "--states=pending", "--count=10000"]) {
        assert!(run(&["flux", "submit", "-N2", "--setattr=burstable", "true"]));
        eventually("the job is listed", || {
            let Some(page) = operator.pending().pop() else { return false };
            let ranks = page.ranks.unwrap_or_default();
            let is_running = |ranks: &str| match page.running.as_slice() {
                [job] => job.ranks.to_string() == ranks,
                _ => false,
            };
            let is_pending = match page.jobs.as_slice() {
                [job] => {
                    job.nodes == Some(2)
                        && job.user == rustix::process::getuid().as_raw()
                        && job.attributes.get("burstable") == Some(&1.into())
                }
                _ => false,
            };
            is_pending && is_running("0-1") && ranks.busy.to_string() == "0-1"
        });
        // No rank is drained.
        let drained = operator.pending().pop().and_then(|page| page.ranks?.drained);
        assert_eq!(drained, Some(IdSet::new()));
    }
    assert_eq!(lead.stop(), 143);
    assert_eq!(worker.stop(), 143);
}

#[test]
fn ranks_are_drained_and_undrained_on_request_of_the_operator() {
    let (mut cluster, operator) = with_operator(3, Program::Stay);
    let mut agents = cluster.start_all();
    eventually("all are there", || operator.reports().iter().any(|report| report.program_started));
    let connect = agents[0].root.join("flux-connect.sh");
    let run = |text: &str| {
        let output = Command::new(&connect).args(text.split(' ')).output().unwrap();
        assert!(output.status.success(), "{text}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let go = cluster.path().join("go");
    let script = cluster.path().join("script");
    let waits = format!("until [ -e {} ]; do sleep 0.05; done; hostname", go.display());
    std::fs::write(&script, waits).unwrap();
    // Each job takes a whole node, so all three are used.
    let jobs: Vec<String> = (0..3)
        .map(|_| run(&format!("flux submit -N1 --exclusive sh {}", script.display())))
        .collect();
    eventually("all run", || run("flux jobs -n -f running").lines().count() == 3);
    let asked = Drain { ranks: "1-2".parse().unwrap(), since: "now".into() };
    operator.set_work(vec![Work::Drain(asked.clone())]);
    let last = || operator.reports().last().and_then(|report| report.drained.clone());
    let drained = |busy: &str| Some(Drained { asked: asked.clone(), busy: busy.parse().unwrap() });
    eventually("the ranks are busy", || last() == drained("1-2"));
    std::fs::write(go, "").unwrap();
    eventually("the ranks are idle", || last() == drained(""));
    for job in jobs {
        run(&format!("flux job attach {}", job.trim()));
    }
    // A job that needs the drained ranks waits until they are undrained.
    let job = run("flux submit -N3 true");
    operator.set_work(vec![Work::Drain(Drain::default())]);
    run(&format!("flux job attach {}", job.trim()));
    for agent in &mut agents {
        agent.stop();
    }
}

#[test]
fn forged_replies_have_no_effect() {
    let (mut cluster, operator) = with_operator(1, Program::Stay);
    let go = cluster.path().join("go");
    cluster.plan.program =
        shell_line(&format!("until [ -e {} ]; do sleep 0.05; done; exit 5", go.display()));
    let mut lead = cluster.start(0);
    eventually("the lead reports", || !operator.reports().is_empty());
    let asked = operator.request_count();
    operator.start_forging();
    eventually("the lead has received forged replies", || operator.request_count() >= asked + 8);
    operator.stop_forging();
    let before = operator.reports().len();
    eventually("the lead reports again", || operator.reports().len() > before);
    // Each forged reply orders rank 0 to be drained.
    assert!(operator.reports().iter().all(|report| report.drained.is_none()));
    assert!(lead.is_running());
    std::fs::write(go, "").unwrap();
    assert_eq!(lead.wait(), 5, "{}", lead.output());
}

#[test]
fn an_unreachable_operator_has_no_effect_and_prints_nothing() {
    let (mut cluster, operator) = with_operator(1, shell_line("sleep 1; echo done"));
    let mut target = operator.target;
    target.url = format!("http://127.0.0.1:{}", free_port());
    cluster.plan.report = Some(target);
    cluster.plan.logging.quiet = true;
    let mut lead = cluster.start(0);
    assert_eq!(lead.wait(), 0);
    assert_eq!(lead.output(), "done\n");
}

#[test]
fn workers_get_the_leads_address_and_its_change_from_the_operator() {
    let (mut cluster, operator) = with_operator(2, Program::Stay);
    let go = cluster.path().join("go");
    let text = "until [ -e GO ]; do sleep 0.05; done; flux run -N2 echo from-all";
    cluster.plan.program = shell_line(&text.replace("GO", &go.display().to_string()));
    cluster.plan.port = free_port();
    cluster.plan.lead = format!("tcp://{}:{}", unknown_name(), cluster.plan.port);
    cluster.plan.bind = "tcp://127.0.0.1:%p".into();
    cluster.plan.connect = "tcp://127.0.0.1:%p".into();
    let mut worker = cluster.start(1);
    let mut lead = cluster.start(0);
    eventually("the lead's broker is there", || lead.root.join("config/run/flux/local").exists());
    operator.set_lead([127, 0, 0, 1].into());
    let started = lead.root.join("config/run/program-started");
    eventually("the worker has joined", || started.exists());
    // Another pod with another address takes over.
    lead.kill();
    std::fs::remove_dir_all(&lead.root).unwrap();
    cluster.plan.bind = "tcp://127.0.0.2:%p".into();
    let mut lead = cluster.start(0);
    operator.set_lead([127, 0, 0, 2].into());
    std::fs::write(go, "").unwrap();
    assert_eq!(lead.wait(), 0, "{}\n{}", lead.output(), worker.output());
    assert_eq!(lead.output().matches("from-all\n").count(), 2, "{}", lead.output());
    assert_eq!(worker.stop(), 143);
}

/// A joiner of one agent, which has leased rank 2. Its brokers are not Flux: each logs an error,
/// writes its process id, and sleeps.
struct Joiner {
    cluster: Cluster,
    operator: FakeOperator,
}

impl Joiner {
    fn new() -> Joiner {
        let (mut cluster, operator) = with_operator(4, Program::Stay);
        cluster.environment.push((variable::CPU_LIMIT.into(), "1".into()));
        cluster.plan.join = Some(JoinPlan {
            lender: "lender".into(),
            cluster: "lender-uid".into(),
            job: "job-uid".into(),
            ranks: "2".parse().unwrap(),
            table: "hash".into(),
            remote: None,
        });
        let pids = cluster.path().join("pids");
        let script = format!(
            "#!/bin/sh\ncase $1 in\nversion) echo commands: 0.88.0;;\n\
             broker) echo 'broker.err[2]: lost the lead' >&2; echo $$ >>{}; exec sleep inf;;\n\
             *) exit 1;;\nesac\n",
            pids.display()
        );
        cluster.flux = Some(cluster.script("flux", &script));
        Joiner { cluster, operator }
    }

    /// The brokers that were started until now, including those that have exited.
    fn brokers(&self) -> Vec<Pid> {
        let pids = std::fs::read_to_string(self.cluster.path().join("pids")).unwrap_or_default();
        pids.lines().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
    }

    /// Sets the answer to all requests from now on.
    fn set_answer(&self, answer: JoinAnswer) {
        self.operator.set_work(vec![Work::Join(answer)]);
    }

    /// Waits until the agent has asked this many times more.
    fn wait_for_requests(&self, count: usize) {
        let before = self.operator.join_requests().len();
        eventually("the agent asks", || self.operator.join_requests().len() >= before + count);
    }

    fn wait_for_brokers(&self, count: usize) {
        eventually("the broker was started", || self.brokers().len() >= count);
    }
}

/// The request of the joiner's agent.
fn join_request(last_error: &str) -> JoinRequest {
    let uid = rustix::process::geteuid().as_raw();
    JoinRequest {
        index: 0,
        rank: 2,
        table: "hash".into(),
        facts: BrokerFacts { version: "0.88.0".into(), uid, cores: 1 },
        last_error: last_error.into(),
        refusal: None,
    }
}

#[test]
fn an_agent_asks_for_permission_before_every_start_of_a_joined_broker() {
    let mut joiner = Joiner::new();
    joiner.set_answer(JoinAnswer::Start);
    let mut agent = joiner.cluster.start(0);
    joiner.wait_for_brokers(1);
    assert_eq!(joiner.operator.join_requests(), [join_request("")]);
    // The permission was for one start.
    joiner.set_answer(JoinAnswer::Wait("the rank is given back".into()));
    rustix::process::kill_process(joiner.brokers()[0], Signal::KILL).unwrap();
    // Had it started another broker, it would not ask twice.
    joiner.wait_for_requests(2);
    assert_eq!(joiner.brokers().len(), 1, "{}", agent.output());
    joiner.set_answer(JoinAnswer::Start);
    joiner.wait_for_brokers(2);
    let requests = joiner.operator.join_requests();
    assert!(requests[1..].iter().all(|request| *request == join_request("lost the lead")));
    assert_eq!(agent.stop(), 143);
    assert_eq!(joiner.brokers().len(), 2, "{}", agent.output());
}

#[test]
fn an_agent_without_permission_starts_no_broker_and_asks_again() {
    let mut joiner = Joiner::new();
    // An answer without work, as from an operator that does not know this kind of request.
    let mut agent = joiner.cluster.start(0);
    joiner.wait_for_requests(1);
    joiner.set_answer(JoinAnswer::Wait("the lead has not reported".into()));
    joiner.wait_for_requests(3);
    assert!(joiner.brokers().is_empty(), "{}", agent.output());
    let logged = agent.output().matches("may not join yet: the lead has not reported").count();
    assert_eq!(logged, 1, "the same reason is logged once: {}", agent.output());
    assert_eq!(agent.stop(), 143);
    assert!(joiner.operator.join_requests().iter().all(|request| *request == join_request("")));
    assert!(joiner.brokers().is_empty(), "{}", agent.output());
}

#[test]
fn an_agent_whose_lease_is_for_another_rank_exits_so_that_its_pod_is_replaced() {
    let mut joiner = Joiner::new();
    joiner.set_answer(JoinAnswer::Replace("it has another rank now".into()));
    let mut agent = joiner.cluster.start(0);
    assert_eq!(agent.wait(), i32::from(EXIT_REPLACE_POD), "{}", agent.output());
    let termination = agent.termination();
    assert_eq!(termination.reason, TerminationReason::StaleTable);
    assert!(termination.message.contains("it has another rank now"), "{}", termination.message);
    assert!(joiner.brokers().is_empty());
    agent.assert_nothing_left();
}
