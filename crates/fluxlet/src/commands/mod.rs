//! The commands of `flux`, one per file. Each parses its arguments, sends a request to a broker,
//! and prints what the same command of Flux prints.

mod attach;
mod batch;
mod cancel;
mod environment;
mod exec;
mod format;
mod info;
mod job;
mod job_options;
mod job_show;
mod job_submit;
mod jobs;
mod jobs_fields;
mod keygen;
mod kvs;
mod overlay;
mod queue;
mod resource;
mod resource_set;
mod run;
mod shutdown;
mod start;
mod submit;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use crate::broker::{self, error_chain};
use crate::client::{Client, ClientError};
use crate::options::OptionError;

/// Why a command failed. The text is printed as it is.
#[derive(Debug)]
pub struct CommandFailure {
    pub text: String,
    pub code: u8,
}

/// The exit code of a command, or its failure.
pub type CommandResult = Result<u8, CommandFailure>;

impl CommandFailure {
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 1 }
    }

    /// The message of Flux's C commands about an unknown option.
    pub fn option(command: &str, error: &OptionError) -> Self {
        Self::new(format!("{command}: {error}\nTry `{command} --help' for more information."))
    }

    /// The message of Python's argparse about an unknown option.
    pub fn argparse(usage: &str, command: &str, error: &OptionError) -> Self {
        let reason = match error {
            OptionError::Unknown { option } => format!("unrecognized arguments: {option}"),
            other => other.to_string(),
        };
        Self { text: format!("usage: {usage}\n{command}: error: {reason}"), code: 2 }
    }

    /// A refusal or a broken connection, in the format of this command.
    pub fn client(command: &str, error: &ClientError) -> Self {
        Self::new(format!("{command}: {}", error_chain(error)))
    }
}

/// Runs the command that the arguments name.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::FAILURE;
    };
    if name == broker::task::TASK_COMMAND {
        return broker::task::execute_task(rest);
    }
    if name == "broker" {
        return broker::main(rest);
    }
    let outcome = match name.to_string_lossy().as_ref() {
        "start" => return start::main(rest),
        "submit" => submit::main(rest),
        "run" => run::main(rest),
        "batch" => batch::main(rest),
        "jobs" => jobs::main(rest),
        "job" => job::main(rest),
        "cancel" => cancel::main(rest),
        "resource" => resource::main(rest),
        "queue" => queue::main(rest),
        "overlay" => overlay::main(rest),
        "exec" => exec::main(rest),
        "proxy" => info::proxy(rest),
        "shutdown" => shutdown::main(rest),
        "keygen" => keygen::main(rest),
        "kvs" => kvs::main(rest),
        "getattr" => info::get_attribute(rest),
        "setattr" => info::set_attribute(rest),
        "lsattr" => info::list_attributes(rest),
        "uptime" => info::uptime(),
        "dmesg" => info::log(),
        "config" => info::config(rest),
        "ping" => info::ping(rest),
        "R" => resource_set::main(rest),
        "version" | "-V" | "--version" => Ok(info::version()),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            Ok(0)
        }
        other => Err(CommandFailure::new(format!(
            "flux: `{other}' is not a flux command.  See 'flux --help'"
        ))),
    };
    // Some output may still be in the buffer.
    let _no_reader = io::stdout().flush();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("{}", failure.text);
            ExitCode::from(failure.code)
        }
    }
}

/// The URI of the broker that commands connect to.
pub fn uri() -> String {
    std::env::var("FLUX_URI").unwrap_or_else(|_| "local:///run/flux/local".to_owned())
}

/// Connects to that broker.
pub fn connect(command: &str) -> Result<Client, CommandFailure> {
    Client::connect(&uri()).map_err(|error| match error {
        ClientError::NoSocket { path, .. } => {
            let path = path.display();
            let text = format!("Unable to connect to Flux: broker socket {path} was not found");
            CommandFailure::new(format!("{command}: ERROR: {text}"))
        }
        error => CommandFailure::client(command, &error),
    })
}

const USAGE: &str = "\
Usage: flux [OPTIONS] COMMAND ARGS
  -h, --help             Display this message.
  -V, --version          Display command and component versions

This is fluxlet, a small stand-in for Flux. Not for production.

run and submit jobs, allocate resources
   submit             submit a job to a Flux instance
   run                run a Flux job interactively
   batch              submit a batch script to Flux

list and interact with jobs
   jobs               list jobs submitted to Flux
   cancel             cancel one or more jobs
   job                get job status, info, etc
   proxy              proxy connections to Flux instances

get resource, queue and other instance information
   resource           list/manipulate Flux resource status
   queue              list and manipulate flux queues
   overlay            Show flux overlay network status
   uptime             Tell how long Flux has been up and running
   kvs                get jobspecs by their keys
   getattr, setattr, lsattr, config, dmesg, ping

other useful commands
   start              bootstrap a local Flux instance
   broker             run a broker
   shutdown           shut the instance down
   exec               run a command on the hosts of brokers
   keygen             generate a certificate
   R                  encode resource sets
   version            Display flux version information
";
