//! `flux start`: starts a broker with these arguments, or several brokers on this host.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::CommandFailure;
use crate::broker::boot::{LOCAL_BOOT, LocalBoot, new_certificate};
use crate::broker::{self, error_chain, task};
use crate::options::{Flag, ParsedArguments, Syntax, flag, switch};

const FLAGS: [Flag; 12] = [
    flag(Some('s'), "test-size"),
    flag(Some('o'), "broker-opts"),
    flag(Some('c'), "config-path"),
    flag(Some('S'), "setattr"),
    flag(None, "wrap"),
    flag(None, "recovery"),
    flag(None, "test-hosts"),
    flag(None, "test-exit-timeout"),
    flag(None, "test-exit-mode"),
    flag(None, "test-start-mode"),
    flag(None, "test-rundir"),
    switch(Some('v'), "verbose"),
];

/// How long other brokers may take to exit once the lead's broker has.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

pub fn main(arguments: &[OsString]) -> ExitCode {
    let failed = |failure: CommandFailure| {
        eprintln!("{}", failure.text);
        ExitCode::from(failure.code)
    };
    let options = Syntax { flags: &FLAGS, permute: false }.parse(arguments);
    let options = match options {
        Ok(options) => options,
        Err(error) => return failed(CommandFailure::option("flux-start", &error)),
    };
    let words = broker_arguments(&options);
    match options.get("test-size").map(str::parse::<u32>) {
        None => broker::main(&words),
        Some(Ok(size @ 1..)) => match run_brokers(size, &words) {
            Ok(code) => ExitCode::from(code),
            Err(text) => failed(CommandFailure::new(format!("flux-start: {text}"))),
        },
        Some(_) => failed(CommandFailure::new("flux-start: --test-size argument must be > 0")),
    }
}

/// The arguments of the broker: its options, and then the rest after ours. So for
/// `flux start -o --config DIR -S.. PROGRAM` they are `--config DIR -S.. PROGRAM`.
fn broker_arguments(options: &ParsedArguments) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    for (name, value) in &options.values {
        match *name {
            "broker-opts" => words.extend(value.split(',').map(OsString::from)),
            "config-path" => words.push(format!("--config-path={value}").into()),
            "setattr" => words.push(format!("-S{value}").into()),
            _ => {}
        }
    }
    words.extend(options.rest.iter().cloned());
    words
}

/// Runs `size` brokers and returns the exit code of the lead's.
fn run_brokers(size: u32, arguments: &[OsString]) -> Result<u8, String> {
    let directory = TemporaryDirectory::new()?;
    let certificate = directory.0.join("cert");
    let text = new_certificate("start").map_err(|error| error_chain(&error))?.to_secret_text();
    write_secret(&certificate, text.as_bytes()).map_err(|error| error.to_string())?;
    let mut brokers = Vec::new();
    for rank in 0..size {
        let boot = LocalBoot {
            rank,
            size,
            endpoint: format!("ipc://{}", directory.0.join("lead").display()),
            certificate: certificate.display().to_string(),
        };
        let boot = serde_json::to_string(&boot).map_err(|error| error.to_string())?;
        let mut command = task::bound_command();
        command.args(["/proc/self/exe", "flux", "broker"]);
        command.arg(format!("-S{LOCAL_BOOT}={boot}")).args(arguments);
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        brokers.push(command.spawn().map_err(|error| error.to_string())?);
    }
    let lead = i32::try_from(brokers[0].id()).ok().and_then(Pid::from_raw);
    forward_signals(lead).map_err(|error| error.to_string())?;
    let status = brokers[0].wait().map_err(|error| error.to_string())?;
    stop_brokers(&mut brokers[1..]);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(u8::try_from(code).unwrap_or(1))
}

/// Waits for the other brokers to exit, and kills those that do not.
fn stop_brokers(brokers: &mut [Child]) {
    let until = Instant::now() + EXIT_TIMEOUT;
    for broker in brokers {
        loop {
            match broker.try_wait() {
                Ok(None) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(None) => {
                    let _already_gone = broker.kill();
                    let _already_gone = broker.wait();
                    break;
                }
                _ => break,
            }
        }
    }
}

fn forward_signals(lead: Option<Pid>) -> std::io::Result<()> {
    for (number, signal) in [(SIGTERM, Signal::TERM), (SIGINT, Signal::INT), (SIGHUP, Signal::HUP)]
    {
        let (mut reader, writer) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(number, writer)?;
        std::thread::spawn(move || {
            while reader.read(&mut [0]).is_ok_and(|count| count > 0) {
                if let Some(lead) = lead {
                    let _already_gone = kill_process(lead, signal);
                }
            }
        });
    }
    Ok(())
}

fn write_secret(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.create_new(true).write(true).mode(0o600).open(path)?.write_all(bytes)
}

/// A directory that is removed when this is dropped.
struct TemporaryDirectory(PathBuf);

impl TemporaryDirectory {
    fn new() -> Result<Self, String> {
        broker::create_temporary_directory().map(Self).map_err(|error| error_chain(&error))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _already_gone = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        let options = Syntax { flags: &FLAGS, permute: false }.parse(&words).unwrap();
        broker_arguments(&options).iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_arguments_of_the_go_operator_reach_the_broker() {
        let line = "-o --config /etc/flux -Stbon.fanout=256 -Sbroker.quorum=4 flux submit -N 4 --watch hostname";
        let expected = line.strip_prefix("-o ").unwrap().split(' ').collect::<Vec<_>>();
        assert_eq!(words(line), expected);
        assert_eq!(
            words("-c /etc/flux -Sa=b prog -x"),
            ["--config-path=/etc/flux", "-Sa=b", "prog", "-x"]
        );
    }
}
