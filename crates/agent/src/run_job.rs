//! `run-job FILE`: the program of an instance that runs one job, which was handed over to it.
//!
//! The jobspec in the file is submitted as it is: no shell and no option of `flux run` touches its
//! arguments, environment or working directory. The output of the job is this program's, and so is
//! its exit code, which is that of the job's events: `flux job attach` fails with 1 as well if it loses
//! its connection, or if the job never ran. Without one the agent is told why, so that none is reported.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use flux_operator_flux::{JobEvent, JobException};
use flux_operator_wire::TerminationReason;

use crate::arguments::RunJobArguments;
use crate::flux_command::command_output;
use crate::layout::Layout;
use crate::notice::{self, Notice};
use crate::processes;
use crate::signals;
use crate::termination::{error_chain, log};

/// The exit code if there is none of the job. It is not reported.
const NO_EXIT_CODE: u8 = 126;

/// Why there is no exit code of the job.
#[derive(Debug, thiserror::Error)]
enum RunJobError {
    #[error("failed to run flux")]
    Flux { source: io::Error },
    #[error("flux did not accept the job")]
    Refused,
    #[error("the job did not run: {exception}")]
    NotRun { exception: String },
    #[error("the exit code of the job is not known: flux job attach exited with {status}")]
    Unknown { status: ExitStatus },
    #[error("failed to handle signals")]
    Signals { source: io::Error },
}

/// Runs the job of a jobspec to its end.
pub fn run(arguments: &RunJobArguments) -> ExitCode {
    match run_with("flux", &arguments.jobspec) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let (reason, message) = (TerminationReason::BrokerFailed, error_chain(&error));
            log(&message);
            let notices = Layout::new(&arguments.root).notices();
            notice::send(&notices, &Notice::Failed { reason, message });
            ExitCode::from(NO_EXIT_CODE)
        }
    }
}

fn run_with(flux: &str, jobspec: &Path) -> Result<u8, RunJobError> {
    let failed = |source| RunJobError::Flux { source };
    let no_signals = |source| RunJobError::Signals { source };
    // A signal must not kill this program before the job has an ID: that would be its exit code.
    let mut early = signals::ignore_stop().map_err(no_signals)?;
    let submit = Command::new(flux)
        .args(["job", "submit"])
        .arg(jobspec)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(failed)?;
    let id = String::from_utf8_lossy(&submit.stdout).trim().to_owned();
    if !submit.status.success() || id.is_empty() {
        return Err(RunJobError::Refused);
    }
    let (program, job) = (flux.to_owned(), id.clone());
    // The job gets the signal by being canceled: its exit code then says so.
    let cancel = move || {
        let words = ["job", "raise", "--type=cancel", "--severity=0", &job];
        // If it fails, the job has finished, or the instance is gone.
        drop(Command::new(&program).args(words).stdin(Stdio::null()).status());
        true
    };
    signals::on_stop(cancel.clone()).map_err(no_signals)?;
    if early.pending().next().is_some() {
        cancel();
    }
    let attached = Command::new(flux)
        .args(["job", "attach", &id])
        .stdin(Stdio::null())
        .status()
        .map_err(failed)?;
    if attached.success() {
        return Ok(0);
    }
    let log = command_output(Command::new(flux).args(["job", "eventlog", "--format=json", &id]));
    let events = log.and_then(|log| JobEvent::parse_log(&log)).unwrap_or_default();
    exit_code(&events)?.ok_or(RunJobError::Unknown { status: attached })
}

/// The exit code of a job by its events; `None` if it has not finished.
fn exit_code(events: &[JobEvent]) -> Result<Option<u8>, RunJobError> {
    let status = events.iter().find_map(|event| match event {
        JobEvent::Finished(status) => Some(ExitStatus::from_raw(*status)),
        _ => None,
    });
    let fatal = events.iter().find_map(|event| match event {
        JobEvent::Exception(exception) if exception.severity == 0 => Some(exception),
        _ => None,
    });
    match (status, fatal) {
        // As Flux does.
        (Some(status), Some(_)) if status.success() => Ok(Some(1)),
        (Some(status), _) => Ok(Some(processes::exit_code(status))),
        (None, Some(JobException { kind, note, severity: _ })) => {
            let exception = if note.is_empty() { kind.clone() } else { format!("{kind}: {note}") };
            Err(RunJobError::NotRun { exception })
        }
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a job with a fake `flux`, whose `flux job attach` is this script, and whose job has these
    /// events.
    fn run_fake(directory: &Path, attach: &str, events: &str) -> Result<u8, RunJobError> {
        let flux = directory.join("flux");
        std::fs::write(directory.join("events"), events).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in\nsubmit) cp \"$3\" {0}/submitted && echo ƒ1;;\n\
             attach) test \"$3\" = ƒ1 && {attach};;\n\
             eventlog) test \"$4\" = ƒ1 && cat {0}/events;;\nesac\n",
            directory.display()
        );
        crate::files::tests::write_script(&flux, &script);
        run_with(flux.to_str().unwrap(), &directory.join("jobspec.json"))
    }

    fn event(name: &str, context: &str) -> String {
        format!("{{\"timestamp\":1.0,\"name\":\"{name}\",\"context\":{{{context}}}}}\n")
    }

    #[test]
    fn the_jobspec_is_submitted_as_it_is_and_the_exit_code_is_the_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let missing = run_fake(path, "exit 0", "");
        assert!(matches!(missing, Err(RunJobError::Refused)));
        let jobspec = "{\"tasks\": [{\"command\": [\"a 'b'\", \"\", \"$HOME\", \"{{id}}\"]}]}";
        std::fs::write(path.join("jobspec.json"), jobspec).unwrap();
        assert_eq!(run_fake(path, "exit 0", "").unwrap(), 0);
        assert_eq!(std::fs::read_to_string(path.join("submitted")).unwrap(), jobspec);
        let canceled = event("exception", "\"type\":\"cancel\",\"severity\":0,\"note\":\"\"");
        for (attach, before, status, code) in [
            ("exit 7", "", 7 << 8, 7),
            ("exit 143", canceled.as_str(), 15, 143),
            // Attach has lost its connection, or was killed.
            ("exit 1", "", 7 << 8, 7),
            ("exit 1", "", 0, 0),
            ("kill -9 $$", "", 3 << 8, 3),
            ("exit 1", canceled.as_str(), 0, 1),
        ] {
            let events = format!("{before}{}", event("finish", &format!("\"status\":{status}")));
            assert_eq!(run_fake(path, attach, &events).unwrap(), code, "{attach} {events}");
        }
    }

    #[test]
    fn without_an_exit_code_of_the_job_none_is_made_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("jobspec.json"), "{}").unwrap();
        let message = |attach, events: &str| {
            let error = run_fake(path, attach, events).unwrap_err();
            error.to_string()
        };
        let exception = |severity, note| {
            let context = format!("\"type\":\"alloc\",\"severity\":{severity},\"note\":\"{note}\"");
            event("exception", &context)
        };
        let events = [exception(3, "slow"), exception(0, "unsatisfiable request")].concat();
        assert_eq!(message("exit 1", &events), "the job did not run: alloc: unsatisfiable request");
        assert_eq!(message("exit 1", &exception(0, "")), "the job did not run: alloc");
        for (attach, how) in [("exit 1", "exit status: 1"), ("kill -9 $$", "signal: 9 (SIGKILL)")] {
            let unknown = "the exit code of the job is not known: flux job attach exited with";
            assert_eq!(message(attach, &exception(3, "slow")), format!("{unknown} {how}"));
        }
    }
}
