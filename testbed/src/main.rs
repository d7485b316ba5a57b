//! The command line of the testbed. `testbed help` lists the commands.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use flux_operator_testbed::{
    Addition, Image, Layout, Level, Requirements, SupervisorArguments, Testbed, TestbedName, build,
    down, link, run_with, status, supervise, up,
};

#[derive(Parser)]
#[command(name = "testbed", about = "A real Kubernetes on this machine, for tests")]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the testbed's programs (minutes the first time); `up` does this too
    Build {
        /// Level to build for
        #[arg(long, default_value = "node")]
        level: Level,
        /// Programs that no testbed runs, and some tests do
        #[arg(long, value_name = "PROGRAM")]
        with: Vec<Addition>,
    },
    /// Start a testbed, unless it is already running
    Up {
        #[arg(long, default_value = "default")]
        name: TestbedName,
        /// Which parts of Kubernetes to run
        #[arg(long, default_value = "node")]
        level: Level,
        /// Write an audit log of the metadata of every request
        #[arg(long)]
        audit: bool,
    },
    /// Run a command with a testbed; a testbed that was started for it is stopped afterwards
    Run {
        #[arg(long, default_value = "default")]
        name: TestbedName,
        /// Which parts of Kubernetes to run
        #[arg(long, default_value = "node")]
        level: Level,
        /// Write an audit log of the metadata of every request
        #[arg(long)]
        audit: bool,
        /// The command; KUBECONFIG and TESTBED_NAME are set in its environment
        #[arg(last = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Stop a testbed and remove its files; the compiled programs are kept
    Down {
        #[arg(long, default_value = "default")]
        name: TestbedName,
        /// All testbeds in this target directory
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Connect the nodes of two testbeds, until either is stopped
    Link {
        /// A running testbed of level node
        #[arg(value_name = "A")]
        first: TestbedName,
        /// Another one
        #[arg(value_name = "B")]
        second: TestbedName,
    },
    /// Show what is running
    Status,
    /// Print the path of a testbed's kubeconfig
    Kubeconfig {
        #[arg(long, default_value = "default")]
        name: TestbedName,
    },
    /// Stop one component, such as kubelet, until it is started again
    Stop {
        component: String,
        #[arg(long, default_value = "default")]
        name: TestbedName,
    },
    /// Start a stopped component and wait until it is ready
    Start {
        component: String,
        #[arg(long, default_value = "default")]
        name: TestbedName,
    },
    /// Build images and import them to the node
    #[command(subcommand)]
    Image(ImageCommand),
    /// Run a testbed in the foreground; used by `up`
    #[command(hide = true)]
    Supervise(SupervisorArguments),
}

#[derive(Subcommand)]
enum ImageCommand {
    /// Write an image archive from files of this machine
    Build(ImageOptions),
    /// Import an image archive
    Import {
        archive: PathBuf,
        #[arg(long, default_value = "default")]
        name: TestbedName,
    },
}

#[derive(Args)]
struct ImageOptions {
    /// Name of the image, with a registry that does not exist: flux-operator.test/thing:1
    #[arg(long)]
    tag: String,
    /// Start with a shell and the usual small programs
    #[arg(long)]
    busybox: bool,
    /// A file or directory to add, as SOURCE:PATH
    #[arg(long, value_parser = pair)]
    add: Vec<(String, String)>,
    /// A symbolic link to add, as TARGET:PATH
    #[arg(long, value_parser = pair)]
    link: Vec<(String, String)>,
    /// Entrypoint of a container, one argument each
    #[arg(long, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// Environment variable, as NAME=value
    #[arg(long)]
    env: Vec<String>,
    /// User of a container
    #[arg(long, default_value = "")]
    user: String,
    /// Path of the archive to write
    #[arg(long)]
    output: Option<PathBuf>,
    /// Import the image into the running testbed
    #[arg(long)]
    import: bool,
    #[arg(long, default_value = "default")]
    name: TestbedName,
}

fn main() -> ExitCode {
    match run(CommandLine::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let layout = Layout::discover();
    match command {
        Command::Build { level, with } => {
            build(&layout, level, &with, |program, seconds| {
                print_line(&format!("{seconds:>6.1} s  built {program}"));
            })?;
            print_line(&format!("the programs are in {}", layout.bin().display()));
        }
        Command::Up { name, level, audit } => {
            let program = std::env::current_exe().context("failed to find this program")?;
            let wanted = Requirements { level, audit };
            let (home, _) = up(&layout, &name, wanted, &program, &mut print_line)?;
            print_line(&format!("export KUBECONFIG={}", quoted(&home.kubeconfig())));
        }
        Command::Run { name, level, audit, command } => {
            let program = std::env::current_exe().context("failed to find this program")?;
            let wanted = Requirements { level, audit };
            let code = run_with(&layout, &name, wanted, &program, &command, &mut |line| {
                eprintln!("{line}");
            })?;
            return Ok(ExitCode::from(code));
        }
        Command::Down { name, all } => {
            let names = if all { layout.names() } else { vec![name] };
            for name in names {
                match down(&layout, &name)? {
                    true => print_line(&format!("{name} was stopped")),
                    false => print_line(&format!("{name} is not running")),
                }
            }
        }
        Command::Link { first, second } => match link(&layout, &first, &second)? {
            true => print_line(&format!("{first} and {second} were linked")),
            false => print_line(&format!("{first} and {second} are already linked")),
        },
        Command::Status => print_line(status(&layout).trim_end()),
        Command::Kubeconfig { name } => {
            print_line(&running(&layout, &name)?.kubeconfig().display().to_string());
        }
        Command::Stop { component, name } => running(&layout, &name)?.stop(&component)?,
        Command::Start { component, name } => running(&layout, &name)?.start(&component)?,
        Command::Image(ImageCommand::Build(options)) => build_image(&layout, options)?,
        Command::Image(ImageCommand::Import { archive, name }) => {
            running(&layout, &name)?.import(&archive)?;
        }
        Command::Supervise(supervision) => return Ok(supervise(supervision)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line. Unlike `println` it ignores a closed output, as with `| head -1`: the current
/// operation must be completed.
fn print_line(line: &str) {
    let _no_reader = writeln!(std::io::stdout(), "{line}");
}

/// A path, quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    match text.bytes().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn running(layout: &Layout, name: &TestbedName) -> anyhow::Result<Testbed> {
    Testbed::find_in(layout, name)
        .with_context(|| format!("testbed {name} is not running: run `testbed up --name {name}`"))
}

fn build_image(layout: &Layout, options: ImageOptions) -> anyhow::Result<()> {
    if options.output.is_none() && !options.import {
        anyhow::bail!("nothing to do with the image: give --output, --import or both");
    }
    let mut image = match options.busybox {
        true => Image::busybox(&options.tag)?,
        false => Image::new(&options.tag),
    };
    for (source, place) in &options.add {
        image = image.tree(Path::new(source), place)?;
    }
    for (target, place) in &options.link {
        image = image.link(target, place);
    }
    for variable in &options.env {
        image = image.environment(variable);
    }
    image = image.entrypoint(options.entrypoint).user(&options.user);
    let archive = match &options.output {
        Some(path) => path.clone(),
        None => layout.bin().with_file_name(format!("image-{}.tar", std::process::id())),
    };
    let written = image.write(&archive);
    let imported = written.map_err(anyhow::Error::from).and_then(|()| match options.import {
        true => Ok(running(layout, &options.name)?.import(&archive)?),
        false => Ok(()),
    });
    if options.output.is_none() {
        // The archive itself was not requested; it does not exist if it could not be written.
        let _missing = std::fs::remove_file(&archive);
    }
    imported
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((first, second)) if !first.is_empty() && !second.is_empty() => {
            Ok((first.to_owned(), second.to_owned()))
        }
        _ => Err(format!("expected two paths with a colon between them, not {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_path_is_quoted_only_where_a_shell_needs_it() {
        assert_eq!(quoted(Path::new("/a/b-1.c")), "/a/b-1.c");
        assert_eq!(quoted(Path::new("/a b")), "'/a b'");
        assert_eq!(quoted(Path::new("/it's")), r"'/it'\''s'");
    }

    #[test]
    fn a_pair_needs_both_parts() {
        assert_eq!(pair("a:/b"), Ok(("a".to_owned(), "/b".to_owned())));
        assert!(pair("a").is_err() && pair(":/b").is_err() && pair("a:").is_err());
    }
}
