//! Jobs that are handed over, with brokers: what the lead does with a job at home, and how another
//! instance runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::io::Write;
use std::process::Command;

use common::operator::FakeOperator;
use common::{Agent, Cluster, argv, eventually};
use flux_operator_flux::{JobId, JobRun};
use flux_operator_wire::{
    HomeJobState, JobGoal, JobOrder, OrderAnswer, Program, TerminationReason, Work,
};

/// What a shell would change.
const SCRIPT: &str = r#"printf '%s|%s|%s\n' "$1" "$TOKEN" "$PWD"; exit 7"#;
const ARGUMENT: &str = "a 'b' \"c\" $HOME `id` é";

/// Runs `flux` in the instance of a lead.
fn flux(lead: &Agent, words: &[&str]) -> String {
    let connect = lead.root.join("flux-connect.sh");
    // Not with --env, which expands it.
    let mut command = Command::new(connect);
    let output = command.arg("flux").args(words).env("TOKEN", "hunter2 $x").output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A lead with an operator, and a job that is held.
fn home() -> (Cluster, FakeOperator, Agent, u64) {
    let operator = FakeOperator::start();
    let mut cluster = Cluster::new(1, Program::Stay);
    cluster.plan.report = Some(operator.target.clone());
    cluster.environment = vec![("FLUX_OPERATOR_POD_UID".into(), "pod-uid".into())];
    let lead = cluster.start(0);
    eventually("it is there", || operator.reports().iter().any(|report| report.program_started));
    let words = ["submit", "-N1", "--urgency=hold", "--cwd=/tmp"];
    let words = [&words[..], &["sh", "-c", SCRIPT, "sh", ARGUMENT]].concat();
    let job: JobId = flux(&lead, &words).parse().unwrap();
    (cluster, operator, lead, job.number())
}

/// The answer of a lead to an order.
fn answer(operator: &FakeOperator, job: u64, goal: JobGoal) -> OrderAnswer {
    let order = JobOrder { job, goal };
    operator.set_work(vec![Work::Jobs(vec![order.clone()])]);
    let find = || operator.answers().into_iter().find(|answer| answer.order == order);
    eventually("the lead answers", || find().is_some());
    operator.set_work(Vec::new());
    find().unwrap()
}

#[test]
fn a_job_is_held_and_runs_in_another_instance_exactly_as_it_was_submitted() {
    let (_home, operator, mut lead, job) = home();
    let held = answer(&operator, job, JobGoal::Held);
    assert_eq!((held.state, held.urgency), (HomeJobState::Held, None), "its user holds it");
    let run = JobRun::parse(held.part.as_secret_str()).unwrap();
    assert_eq!(run.argv, ["sh", "-c", SCRIPT, "sh", ARGUMENT]);
    assert_eq!(run.environment.get("TOKEN"), Some("hunter2 $x"));

    let mut away = Cluster::new(1, Program::Stay);
    let jobspec = away.path().join("jobspec.json");
    std::fs::write(&jobspec, run.to_jobspec()).unwrap();
    let agent = env!("CARGO_BIN_EXE_flux-operator-agent");
    let root = away.path().join("0");
    let words = [agent, "run-job", jobspec.to_str().unwrap(), "--root", root.to_str().unwrap()];
    away.plan.program = argv(&words);
    let mut there = away.start(0);
    assert_eq!(there.wait(), 7, "{}", there.output());
    let termination = there.termination();
    assert_eq!((termination.exit_code, termination.reason), (7, TerminationReason::CommandFailed));
    let printed = format!("{ARGUMENT}|hunter2 $x|/tmp");
    assert!(there.output().lines().any(|line| line == printed), "{}", there.output());

    let message = "ran as Burst b at target t: exit code 7";
    let canceled = answer(&operator, job, JobGoal::Canceled(message.into()));
    assert_eq!(canceled.state, HomeJobState::Finished);
    let id = JobId::from(job).to_f58_plain();
    assert!(flux(&lead, &["job", "eventlog", &id]).contains(message));
    assert_eq!(lead.stop(), 143);
}

/// It has not run, so that it has no exit code.
#[test]
fn a_job_that_is_not_accepted_elsewhere_has_no_exit_code() {
    let mut away = Cluster::new(1, Program::Stay);
    let jobspec = away.path().join("jobspec.json");
    std::fs::write(&jobspec, "{}").unwrap();
    let agent = env!("CARGO_BIN_EXE_flux-operator-agent");
    let root = away.path().join("0");
    let words = [agent, "run-job", jobspec.to_str().unwrap(), "--root", root.to_str().unwrap()];
    away.plan.program = argv(&words);
    let mut there = away.start(0);
    assert_eq!(there.wait(), 1, "{}", there.output());
    let termination = there.termination();
    assert_eq!(termination.reason, TerminationReason::BrokerFailed);
    assert_eq!(termination.message, "flux did not accept the job");
}

/// Otherwise the exit code of the program that was killed would be that of the job, which goes on.
#[test]
fn a_signal_while_the_job_is_submitted_cancels_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let script = format!(
        "#!/bin/sh\ncd {}\ncase \"$2\" in\nsubmit) read go <gate; echo f1;;\n\
         raise) echo \"$*\" >raised;;\nattach) exit 1;;\n\
         eventlog) echo '{{\"name\":\"exception\",\"context\":{{\"type\":\"cancel\",\"severity\":0}}}}';;\nesac\n",
        folder.path().display()
    );
    std::fs::write(file("script"), script).unwrap();
    // Not written here: a process that another test starts meanwhile would keep it busy.
    let make = ["-c", "mkfifo gate && cp script flux && chmod 755 flux"];
    let made = Command::new("/bin/sh").args(make).current_dir(folder.path()).status().unwrap();
    assert!(made.success());
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let mut program = Command::new(env!("CARGO_BIN_EXE_flux-operator-agent"))
        .args(["run-job", "jobspec.json", "--root"])
        .arg(folder.path())
        .env("PATH", path)
        .spawn()
        .unwrap();
    // Opened when flux job submit reads it.
    let mut gate = File::options().write(true).open(file("gate")).unwrap();
    let pid = program.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    gate.write_all(b"go\n").unwrap();
    assert_eq!(program.wait().unwrap().code(), Some(126), "it has no exit code of the job");
    let raised = std::fs::read_to_string(file("raised")).unwrap();
    assert_eq!(raised.trim(), "job raise --type=cancel --severity=0 f1");
}

#[test]
fn a_job_that_was_not_held_is_as_before_when_it_is_released() {
    let (_home, operator, mut lead, job) = home();
    let id = JobId::from(job).to_f58_plain();
    flux(&lead, &["queue", "stop"]);
    flux(&lead, &["job", "urgency", &id, "20"]);
    let held = answer(&operator, job, JobGoal::Held);
    assert_eq!((held.state, held.urgency), (HomeJobState::Held, Some(20)));
    let log = flux(&lead, &["job", "eventlog", &id]);
    assert!(log.contains("memo flux-operator-hold=\"isolated-run\""), "{log}");
    let released = answer(&operator, job, JobGoal::Released(None));
    assert_eq!(released.state, HomeJobState::Pending);
    assert!(flux(&lead, &["job", "list", "--states=pending"]).contains("\"urgency\": 20"));
    let canceled = answer(&operator, job, JobGoal::Canceled("--type=x".into()));
    assert_eq!(canceled.state, HomeJobState::Finished);
    assert!(flux(&lead, &["job", "eventlog", &id]).contains("--type=x"));
    let missing = answer(&operator, job + 1, JobGoal::Held);
    assert_eq!(missing.state, HomeJobState::Missing);
    assert_eq!(lead.stop(), 143);
}

/// Flux prints it only together with a jobspec that has no environment.
#[test]
#[ignore = "needs a real Flux: FLUX_ROOT=PREFIX make test-unit"]
fn what_a_user_has_changed_of_a_job_is_handed_over() {
    let (_home, operator, mut lead, job) = home();
    let id = JobId::from(job).to_f58_plain();
    for duration in ["1h", "2h"] {
        flux(&lead, &["update", &id, &format!("duration={duration}")]);
    }
    let held = answer(&operator, job, JobGoal::Held);
    let run = JobRun::parse(held.part.as_secret_str()).unwrap();
    assert_eq!((run.duration, run.environment.get("TOKEN")), (7200.0, Some("hunter2 $x")));
    assert_eq!(lead.stop(), 143);
}
