//! The command line.
//!
//! Paths are made absolute here, because hooks may change the directory before
//! an inner stage reads them again, and must be UTF-8, because they end up in
//! configuration files that are.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flux_operator_wire::names::{command, option};
use lexopt::prelude::*;

/// The option that gives an inner stage the process id of the outer agent.
pub const AGENT: &str = "--agent";

/// What the agent was asked to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Boot one broker and stay with it.
    Run(Run),
    /// Inner stage of [`Command::Run`]: start the broker, again if need be.
    Broker(Stage),
    /// Inner stage of [`Command::Run`]: become the program.
    Program(Stage),
    /// Run the command of a container beside the runner.
    Sidecar(Sidecar),
    /// Inner stage of [`Command::Sidecar`]: wait until this file exists.
    Await(PathBuf),
    /// Copy this program into a directory.
    Copy(PathBuf),
    /// Copy the view of the image into a directory.
    CopyView(PathBuf),
    /// Print the version.
    Version,
    /// Print how to use the program.
    Help,
}

/// Where an agent finds its part, and where it may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The boot plan.
    pub plan: PathBuf,
    /// The directory with the certificate and the report key.
    pub secrets: PathBuf,
    /// The directory that the agent may write to.
    pub root: PathBuf,
    /// Which of the cluster's agents this is.
    pub index: u32,
    /// The `flux` to use, instead of the one the plan leads to.
    pub flux: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// Where things are.
    pub place: Place,
    /// The directory for the broker's copy of the certificate, instead of one below
    /// [`Place::root`].
    pub private: Option<PathBuf>,
    /// The file for the ending.
    pub ending: PathBuf,
    /// The file, usually a named pipe, to write a line to when the program starts.
    pub ready: Option<PathBuf>,
    /// The end of the standard input means: stop.
    pub stop_on_eof: bool,
}

/// Arguments of an inner stage.
#[derive(Debug, PartialEq, Eq)]
pub struct Stage {
    /// Where things are.
    pub place: Place,
    /// Process id of the outer agent.
    pub agent: i32,
}

/// Arguments of `sidecar`.
#[derive(Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The container's name.
    pub name: String,
    /// The boot plan.
    pub plan: PathBuf,
    /// The directory shared with the runner.
    pub root: PathBuf,
}

/// Why the arguments make no command.
#[derive(Debug, thiserror::Error)]
pub enum ArgumentsError {
    /// An option that there is not, or a value that is none.
    #[error("failed to read the arguments")]
    Syntax {
        /// What is wrong.
        source: lexopt::Error,
    },
    /// No command that we know.
    #[error("{command:?} is not a command")]
    UnknownCommand {
        /// What was given.
        command: String,
    },
    /// Something is missing.
    #[error("{what} is needed")]
    Missing {
        /// The option or argument.
        what: &'static str,
    },
    /// A relative path, and no directory that it is relative to.
    #[error("{path:?} cannot be made an absolute path of UTF-8")]
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
                 boot one broker of a cluster and stay with it
  sidecar --name NAME --plan FILE --root DIR
                 run the command of a container beside the runner
  copy DIR       copy this program to DIR
  copy-view DIR  copy the view of Flux in this image to DIR
  version        print the version
";

/// Reads the arguments (without the program's name). `job_index` is what the
/// environment says about the index, for a command line that says nothing.
pub fn parse(
    words: impl IntoIterator<Item = OsString>,
    job_index: Option<&str>,
) -> Result<Command, ArgumentsError> {
    let syntax = |source| ArgumentsError::Syntax { source };
    let mut parser = lexopt::Parser::from_args(words);
    let mut given = Given::default();
    while given.take(&mut parser).map_err(syntax)? {}
    given.command(job_index)
}

impl Place {
    /// The arguments that give an inner stage this place again.
    pub fn to_words(&self) -> Vec<String> {
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
    path.to_str().expect("paths were UTF-8 when the arguments were read, and we append to them")
}

/// Everything that may be given, for any command.
#[derive(Default)]
struct Given {
    words: Vec<String>,
    plan: Option<String>,
    secrets: Option<String>,
    root: Option<String>,
    private: Option<String>,
    index: Option<u32>,
    flux: Option<String>,
    ending: Option<String>,
    ready: Option<String>,
    name: Option<String>,
    agent: Option<i32>,
    stop_on_eof: bool,
}

impl Given {
    /// Takes the next argument; false at the end.
    fn take(&mut self, parser: &mut lexopt::Parser) -> Result<bool, lexopt::Error> {
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
            option::ENDING => self.ending = Some(parser.value()?.string()?),
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

    fn command(self, job_index: Option<&str>) -> Result<Command, ArgumentsError> {
        let missing = |what| ArgumentsError::Missing { what };
        let mut words = self.words.iter().map(String::as_str);
        let command = match words.next().ok_or_else(|| missing("a command"))? {
            command::RUN => Command::Run(Run {
                place: self.place(job_index)?,
                private: self.private.as_deref().map(absolute).transpose()?,
                ending: absolute(self.ending.as_deref().unwrap_or("/dev/termination-log"))?,
                ready: self.ready.as_deref().map(absolute).transpose()?,
                stop_on_eof: self.stop_on_eof,
            }),
            "broker" => Command::Broker(self.stage(job_index)?),
            "program" => Command::Program(self.stage(job_index)?),
            command::SIDECAR => Command::Sidecar(Sidecar {
                name: self.name.clone().ok_or_else(|| missing(option::NAME))?,
                plan: path(&self.plan, option::PLAN)?,
                root: path(&self.root, option::ROOT)?,
            }),
            "await" => Command::Await(absolute(words.next().ok_or_else(|| missing("a file"))?)?),
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

    fn place(&self, job_index: Option<&str>) -> Result<Place, ArgumentsError> {
        let from_job = || job_index.and_then(|index| index.parse().ok());
        let flux = match &self.flux {
            // A name is looked for; a path must survive a change of the directory.
            Some(flux) if flux.contains('/') => Some(text(&absolute(flux)?).to_owned()),
            other => other.clone(),
        };
        Ok(Place {
            plan: path(&self.plan, option::PLAN)?,
            secrets: path(&self.secrets, option::SECRETS)?,
            root: path(&self.root, option::ROOT)?,
            index: self
                .index
                .or_else(from_job)
                .ok_or(ArgumentsError::Missing { what: "--index or JOB_COMPLETION_INDEX" })?,
            flux,
        })
    }

    fn stage(&self, job_index: Option<&str>) -> Result<Stage, ArgumentsError> {
        let agent = self.agent.ok_or(ArgumentsError::Missing { what: AGENT })?;
        Ok(Stage { place: self.place(job_index)?, agent })
    }
}

fn path(given: &Option<String>, what: &'static str) -> Result<PathBuf, ArgumentsError> {
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
    fn run_takes_its_index_from_the_line_or_from_the_job() {
        let line = "run --plan /p --secrets /s --root /r";
        for (line, job, index) in [
            (format!("{line} --index 3"), None, 3),
            (format!("{line} --index=3"), Some("4"), 3),
            (line.to_owned(), Some("4"), 4),
        ] {
            let Ok(Command::Run(run)) = parsed(&line, job) else { panic!("{line}") };
            assert_eq!(run.place.index, index);
            assert_eq!(run.ending, PathBuf::from("/dev/termination-log"));
        }
        for job in [None, Some(""), Some("x"), Some("-1")] {
            assert!(parsed(line, job).is_err(), "{job:?}");
        }
    }

    #[test]
    fn a_stage_gets_the_place_of_its_agent() {
        let line = "run --plan p --secrets s --root r --index 1 --flux ./flux";
        let Ok(Command::Run(run)) = parsed(line, None) else { panic!() };
        assert!(run.place.plan.is_absolute() && run.place.root.is_absolute());
        let mut words = vec!["broker".to_owned(), "--agent".to_owned(), "7".to_owned()];
        words.extend(run.place.to_words());
        let Ok(Command::Broker(stage)) = parse(words.iter().map(OsString::from), None) else {
            panic!()
        };
        assert_eq!(stage, Stage { place: run.place, agent: 7 });
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, message) in [
            ("", "a command is needed"),
            ("fly", "\"fly\" is not a command"),
            ("version 2", "\"2\" is not a command"),
            ("copy", "a directory is needed"),
            ("sidecar --plan p --root r", "--name is needed"),
            ("run --secrets s --root r --index 0", "--plan is needed"),
            ("run --what", "failed to read the arguments"),
        ] {
            assert_eq!(parsed(line, None).unwrap_err().to_string(), message, "{line}");
        }
        assert_eq!(parsed("--help", None).unwrap(), Command::Help);
    }
}
