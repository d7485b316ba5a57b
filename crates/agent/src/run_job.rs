//! `run-job FILE`: the program of an instance that runs one job, which was handed over to it.
//!
//! The jobspec in the file is submitted as it is: no shell and no option of `flux run` touches its
//! arguments, environment or working directory. The output of the job is this program's, and so is
//! its exit code. Without one the agent is told why, so that none is reported.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use flux_operator_wire::TerminationReason;

use crate::arguments::RunJobArguments;
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
    #[error("flux job attach was killed: the exit code of the job is not known")]
    Killed,
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
    signals::on_stop(move || {
        let cancel = ["job", "raise", "--type=cancel", "--severity=0", &job];
        // If it fails, the job has finished, or the instance is gone.
        drop(Command::new(&program).args(cancel).stdin(Stdio::null()).status());
        true
    })
    .map_err(|source| RunJobError::Signals { source })?;
    let attached = Command::new(flux)
        .args(["job", "attach", &id])
        .stdin(Stdio::null())
        .status()
        .map_err(failed)?;
    match attached.code() {
        Some(_) => Ok(processes::exit_code(attached)),
        None => Err(RunJobError::Killed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobspec_is_submitted_as_it_is_and_the_exit_code_is_the_jobs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let flux = path.join("flux");
        let script = format!(
            "#!/bin/sh\ncase \"$2\" in\nsubmit) cp \"$3\" {0}/submitted && echo ƒ1;;\n\
             attach) test \"$3\" = ƒ1 && exit 7;;\nesac\n",
            path.display()
        );
        crate::files::tests::write_script(&flux, &script);
        let jobspec = "{\"tasks\": [{\"command\": [\"a 'b'\", \"\", \"$HOME\", \"{{id}}\"]}]}";
        std::fs::write(path.join("jobspec.json"), jobspec).unwrap();
        let code = run_with(flux.to_str().unwrap(), &path.join("jobspec.json"));
        assert_eq!(code.unwrap(), 7);
        assert_eq!(std::fs::read_to_string(path.join("submitted")).unwrap(), jobspec);
        let missing = run_with(flux.to_str().unwrap(), &path.join("nothing"));
        assert!(matches!(missing, Err(RunJobError::Refused)));
    }

    #[test]
    fn without_an_exit_code_of_the_job_none_is_made_up() {
        let directory = tempfile::tempdir().unwrap();
        let flux = directory.path().join("flux");
        let script = "#!/bin/sh\ncase \"$2\" in\nsubmit) echo ƒ1;;\nattach) kill -9 $$;;\nesac\n";
        crate::files::tests::write_script(&flux, script);
        let code = run_with(flux.to_str().unwrap(), Path::new("jobspec.json"));
        assert!(matches!(code, Err(RunJobError::Killed)));
    }
}
