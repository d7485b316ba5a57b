//! The command line.
//!
//! Paths are made absolute here, because hooks may change the working directory
//! before an inner stage parses them again, and must be UTF-8, because they are
//! written to configuration files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flux_operator_wire::names::{command, option};
use lexopt::prelude::*;

/// The option that passes the outer agent's process ID to an inner stage.
pub const AGENT: &str = "--agent";

/// What the agent was asked to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Boot one broker and supervise it.
    Run(RunArguments),
    /// Inner stage of [`Command::Run`]: start the broker, and restart it if needed.
    Broker(StageArguments),
    /// Inner stage of [`Command::Run`]: become the program.
    Program(StageArguments),
    /// Run the command of a sidecar container.
    Sidecar(SidecarArguments),
    /// Inner stage of [`Command::Sidecar`]: wait until a broker listens on this socket.
    Await(PathBuf),
    /// Run the job of this jobspec.
    RunJob(RunJobArguments),
    /// Copy this program into a directory.
    Copy(PathBuf),
    /// Copy the view in this image into a directory.
    CopyView(PathBuf),
    /// Print the version.
    Version,
    /// Print the usage.
    Help,
}

/// Arguments that `run` and the inner stages share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonArguments {
    /// The boot plan.
    pub plan: PathBuf,
    /// The directory with the certificate and the report key.
    pub secrets: PathBuf,
    /// The directory that the agent may write to.
    pub root: PathBuf,
    /// The agent's index in the cluster.
    pub index: u32,
    /// The `flux` to use, instead of the plan's.
    pub flux: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, PartialEq, Eq)]
pub struct RunArguments {
    /// The shared arguments.
    pub common: CommonArguments,
    /// The directory for the broker's copy of the certificate, instead of one below
    /// [`CommonArguments::root`].
    pub private: Option<PathBuf>,
    /// The file to write the termination message to.
    pub termination: PathBuf,
    /// The file, usually a named pipe, to write a line to when the program starts; for a worker,
    /// when it is online.
    pub ready: Option<PathBuf>,
    /// Stop at the end of standard input.
    pub stop_on_eof: bool,
}

/// Arguments of an inner stage.
#[derive(Debug, PartialEq, Eq)]
pub struct StageArguments {
    /// The shared arguments.
    pub common: CommonArguments,
    /// Process ID of the outer agent.
    pub agent: i32,
}

/// Arguments of `sidecar`.
#[derive(Debug, PartialEq, Eq)]
pub struct SidecarArguments {
    /// The container's name.
    pub name: String,
    /// The boot plan.
    pub plan: PathBuf,
    /// The directory shared with the runner.
    pub root: PathBuf,
}

/// Arguments of `run-job`.
#[derive(Debug, PartialEq, Eq)]
pub struct RunJobArguments {
    /// The file with the jobspec.
    pub jobspec: PathBuf,
    /// The directory of the agent whose program it is.
    pub root: PathBuf,
}

/// Why the arguments are not valid.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// An unknown option, or a missing or invalid value.
    #[error("failed to parse the arguments")]
    Syntax {
        /// What is wrong.
        source: lexopt::Error,
    },
    /// An unknown command.
    #[error("unknown command {command:?}")]
    UnknownCommand {
        /// What was given.
        command: String,
    },
    /// An option or argument is missing.
    #[error("{what} is required")]
    Missing {
        /// The option or argument.
        what: &'static str,
    },
    /// A path that cannot be made absolute, or is not UTF-8.
    #[error("{path:?} cannot be converted to an absolute UTF-8 path")]
    Path {
        /// What was given.
        path: String,
    },
}

/// How to use the program.
pub const USAGE: &str = "\
Usage: flux-operator-agent COMMAND

  run --plan FILE --secrets DIR --root DIR [--private DIR] [--index N]
      [--flux PROGRAM] [--ending FILE] [--ready FILE] [--stop-on-eof]
                 boot one broker of a cluster and supervise it
  sidecar --name NAME --plan FILE --root DIR
                 run the command of a sidecar container
  run-job FILE --root DIR
                 run the job of a jobspec, and exit with its exit code
  copy DIR       copy this program to DIR
  copy-view DIR  copy the Flux view in this image to DIR
  version        print the version
";

/// Parses the arguments (without the program's name). `job_index` is the index from the
/// environment, for a command line without `--index`.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    job_index: Option<&str>,
) -> Result<Command, ArgumentsError> {
    let syntax = |source| ArgumentsError::Syntax { source };
    let mut parser = lexopt::Parser::from_args(words);
    let mut given = RawArguments::default();
    while given.parse_next(&mut parser).map_err(syntax)? {}
    given.into_command(job_index)
}

impl CommonArguments {
    /// The arguments that pass the same values to an inner stage.
    pub fn to_arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        let paths = [
            (option::PLAN, &self.plan),
            (option::SECRETS, &self.secrets),
            (option::ROOT, &self.root),
        ];
        for (option, path) in paths {
            words.extend([option.to_owned(), text(path).to_owned()]);
        }
        words.extend([option::INDEX.to_owned(), self.index.to_string()]);
        if let Some(flux) = &self.flux {
            words.extend([option::FLUX.to_owned(), flux.clone()]);
        }
        words
    }
}

/// The text of a path that came from the command line.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("paths were UTF-8 when the arguments were parsed, and we append UTF-8")
}

/// The arguments of any command, before they are checked.
#[derive(Default)]
struct RawArguments {
    words: Vec<String>,
    plan: Option<String>,
    secrets: Option<String>,
    root: Option<String>,
    private: Option<String>,
    index: Option<u32>,
    flux: Option<String>,
    termination: Option<String>,
    ready: Option<String>,
    name: Option<String>,
    agent: Option<i32>,
    stop_on_eof: bool,
}

impl RawArguments {
    /// Parses the next argument; returns false if there is none.
    fn parse_next(&mut self, parser: &mut lexopt::Parser) -> Result<bool, lexopt::Error> {
        let Some(argument) = parser.next()? else { return Ok(false) };
        let option = match argument {
            Value(word) => {
                self.words.push(word.string()?);
                return Ok(true);
            }
            Short('h') => "--help".to_owned(),
            Short('V') => "--version".to_owned(),
            Long(name) => format!("--{name}"),
            other => return Err(other.unexpected()),
        };
        match option.as_str() {
            option::PLAN => self.plan = Some(parser.value()?.string()?),
            option::SECRETS => self.secrets = Some(parser.value()?.string()?),
            option::ROOT => self.root = Some(parser.value()?.string()?),
            option::PRIVATE => self.private = Some(parser.value()?.string()?),
            option::INDEX => self.index = Some(parser.value()?.parse()?),
            option::FLUX => self.flux = Some(parser.value()?.string()?),
            option::TERMINATION => self.termination = Some(parser.value()?.string()?),
            option::READY => self.ready = Some(parser.value()?.string()?),
            option::NAME => self.name = Some(parser.value()?.string()?),
            option::STOP_ON_EOF => self.stop_on_eof = true,
            AGENT => self.agent = Some(parser.value()?.parse()?),
            "--help" => self.words.insert(0, "help".to_owned()),
            "--version" => self.words.insert(0, "version".to_owned()),
            _ => return Err(lexopt::Error::UnexpectedOption(option)),
        }
        Ok(true)
    }

    fn into_command(self, job_index: Option<&str>) -> Result<Command, ArgumentsError> {
        let missing = |what| ArgumentsError::Missing { what };
        let mut words = self.words.iter().map(String::as_str);
        let command = match words.next().ok_or_else(|| missing("a command"))? {
            command::RUN => Command::Run(RunArguments {
                common: self.common(job_index)?,
                private: self.private.as_deref().map(absolute).transpose()?,
                termination: absolute(
                    self.termination.as_deref().unwrap_or("/dev/termination-log"),
                )?,
                ready: self.ready.as_deref().map(absolute).transpose()?,
                stop_on_eof: self.stop_on_eof,
            }),
            "broker" => Command::Broker(self.stage(job_index)?),
            "program" => Command::Program(self.stage(job_index)?),
            command::SIDECAR => Command::Sidecar(SidecarArguments {
                name: self.name.clone().ok_or_else(|| missing(option::NAME))?,
                plan: required_path(&self.plan, option::PLAN)?,
                root: required_path(&self.root, option::ROOT)?,
            }),
            "await" => Command::Await(absolute(words.next().ok_or_else(|| missing("a file"))?)?),
            command::RUN_JOB => {
                let jobspec = absolute(words.next().ok_or_else(|| missing("a file"))?)?;
                let root = required_path(&self.root, option::ROOT)?;
                Command::RunJob(RunJobArguments { jobspec, root })
            }
            command::COPY => {
                Command::Copy(absolute(words.next().ok_or_else(|| missing("a directory"))?)?)
            }
            command::COPY_VIEW => {
                Command::CopyView(absolute(words.next().ok_or_else(|| missing("a directory"))?)?)
            }
            "version" => Command::Version,
            "help" => Command::Help,
            other => return Err(ArgumentsError::UnknownCommand { command: other.to_owned() }),
        };
        match words.next() {
            Some(word) => Err(ArgumentsError::UnknownCommand { command: word.to_owned() }),
            None => Ok(command),
        }
    }

    fn common(&self, job_index: Option<&str>) -> Result<CommonArguments, ArgumentsError> {
        let from_job = || job_index.and_then(|index| index.parse().ok());
        let flux = match &self.flux {
            // A name is searched for in PATH; a path must stay valid if the directory changes.
            Some(flux) if flux.contains('/') => Some(text(&absolute(flux)?).to_owned()),
            other => other.clone(),
        };
        Ok(CommonArguments {
            plan: required_path(&self.plan, option::PLAN)?,
            secrets: required_path(&self.secrets, option::SECRETS)?,
            root: required_path(&self.root, option::ROOT)?,
            index: self
                .index
                .or_else(from_job)
                .ok_or(ArgumentsError::Missing { what: "--index or JOB_COMPLETION_INDEX" })?,
            flux,
        })
    }

    fn stage(&self, job_index: Option<&str>) -> Result<StageArguments, ArgumentsError> {
        let agent = self.agent.ok_or(ArgumentsError::Missing { what: AGENT })?;
        Ok(StageArguments { common: self.common(job_index)?, agent })
    }
}

fn required_path(given: &Option<String>, what: &'static str) -> Result<PathBuf, ArgumentsError> {
    absolute(given.as_deref().ok_or(ArgumentsError::Missing { what })?)
}

fn absolute(path: &str) -> Result<PathBuf, ArgumentsError> {
    std::path::absolute(path)
        .ok()
        .filter(|absolute| absolute.to_str().is_some())
        .ok_or_else(|| ArgumentsError::Path { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, job_index: Option<&str>) -> Result<Command, ArgumentsError> {
        parse(line.split_whitespace().map(OsString::from), job_index)
    }

    #[test]
    fn run_takes_its_index_from_the_arguments_or_from_the_job() {
        let line = "run --plan /p --secrets /s --root /r";
        for (line, job, index) in [
            (format!("{line} --index 3"), None, 3),
            (format!("{line} --index=3"), Some("4"), 3),
            (line.to_owned(), Some("4"), 4),
        ] {
            let Ok(Command::Run(run)) = parsed(&line, job) else { panic!("{line}") };
            assert_eq!(run.common.index, index);
            assert_eq!(run.termination, PathBuf::from("/dev/termination-log"));
        }
        for job in [None, Some(""), Some("x"), Some("-1")] {
            assert!(parsed(line, job).is_err(), "{job:?}");
        }
    }

    #[test]
    fn a_stage_gets_the_common_arguments_of_its_agent() {
        let line = "run --plan p --secrets s --root r --index 1 --flux ./flux";
        let Ok(Command::Run(run)) = parsed(line, None) else { panic!() };
        assert!(run.common.plan.is_absolute() && run.common.root.is_absolute());
        let mut words = vec!["broker".to_owned(), "--agent".to_owned(), "7".to_owned()];
        words.extend(run.common.to_arguments());
        let Ok(Command::Broker(stage)) = parse(words.iter().map(OsString::from), None) else {
            panic!()
        };
        assert_eq!(stage, StageArguments { common: run.common, agent: 7 });
    }

    #[test]
    fn errors_name_what_is_wrong() {
        for (line, message) in [
            ("", "a command is required"),
            ("fly", "unknown command \"fly\""),
            ("version 2", "unknown command \"2\""),
            ("copy", "a directory is required"),
            ("sidecar --plan p --root r", "--name is required"),
            ("run --secrets s --root r --index 0", "--plan is required"),
            ("run --what", "failed to parse the arguments"),
        ] {
            assert_eq!(parsed(line, None).unwrap_err().to_string(), message, "{line}");
        }
        assert_eq!(parsed("--help", None).unwrap(), Command::Help);
    }
}
