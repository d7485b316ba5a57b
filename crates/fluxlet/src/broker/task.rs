//! One task: a child process with its three streams.
//!
//! The child is this program again, which asks the kernel to kill it with its broker and then
//! executes the user's program ([`execute_task`]). So a broker that is killed leaves no processes
//! behind.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::bytes::Bytes;
use crate::message::{Launch, Stream};

/// The command that makes this program run a task.
pub const TASK_COMMAND: &str = "__task";

/// The maximum output that is sent in one message.
const MAX_CHUNK: usize = 64 << 10;

/// A task to start.
pub struct TaskSpec {
    pub rank: u32,
    pub local: u32,
    pub directory: PathBuf,
    pub launch: Arc<Launch>,
}

/// A task that was started.
pub struct RunningTask {
    pub group: Pid,
    pub input: Option<Sender<Vec<u8>>>,
    child: Child,
}

/// Why a task did not start: Flux's message and exit code.
pub struct SpawnFailure {
    pub error: String,
    pub code: i32,
}

/// Starts a task.
pub fn spawn(task: &TaskSpec) -> Result<RunningTask, SpawnFailure> {
    let launch = &task.launch;
    let failure = |error: &io::Error| SpawnFailure {
        error: format!("{}: {}", first_word(launch), system_message(error)),
        code: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
    };
    let program = find_program(task).map_err(|error| failure(&error))?;
    let mut command = bound_command();
    command.arg(program);
    command.args(launch.command.iter().map(Bytes::as_os_str));
    command.env_clear();
    command
        .envs(launch.environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())));
    if matches!(launch.run, crate::message::TaskOwner::Job(_)) {
        command.env("FLUX_TASK_RANK", task.rank.to_string());
        command.env("FLUX_TASK_LOCAL_ID", task.local.to_string());
    }
    command.current_dir(&task.directory).process_group(0);
    command.stdin(if launch.input { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failure(&error))?;
    let input = child.stdin.take().map(spawn_input_writer);
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| failure(&io::ErrorKind::Other.into()))?;
    Ok(RunningTask { group, input, child })
}

impl RunningTask {
    /// Forwards output until end of file, and returns the wait status. `on_exit` is called when the
    /// process has exited but its process ID cannot be reused yet.
    pub fn wait(mut self, output: impl Fn(Stream, Bytes) + Sync, on_exit: impl Fn()) -> i32 {
        drop(self.input.take());
        let streams = (self.child.stdout.take(), self.child.stderr.take());
        thread::scope(|scope| {
            if let Some(stream) = streams.0 {
                scope.spawn(|| forward_output(stream, |data| output(Stream::Out, data)));
            }
            if let Some(stream) = streams.1 {
                scope.spawn(|| forward_output(stream, |data| output(Stream::Error, data)));
            }
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(rustix::io::Errno::INTR) =
                rustix::process::waitid(WaitId::Pid(self.group), options)
            {}
            on_exit();
            self.child.wait().map_or(1 << 8, |status| status.into_raw())
        })
    }
}

/// Executes a program that is killed with its parent: `PARENT PROGRAM ARGUMENTS..`, where the first
/// argument is the program's name.
pub fn execute_task(arguments: &[OsString]) -> ExitCode {
    let [parent, program, name, rest @ ..] = arguments else { return ExitCode::from(126) };
    let _not_supported = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The kernel does not send the signal for a parent that has already exited.
    let current = rustix::process::getppid().map(Pid::as_raw_nonzero);
    if current.map(|pid| pid.to_string()).as_deref().map(OsStr::new) != Some(parent) {
        return ExitCode::from(126);
    }
    let error = Command::new(program).arg0(name).args(rest).exec();
    eprintln!("{}: {}", name.display(), system_message(&error));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 })
}

/// The command for a program that is killed with this process. The program and its name follow as
/// arguments. The thread that starts it must live as long as it does.
pub fn bound_command() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("flux").arg(TASK_COMMAND).arg(std::process::id().to_string());
    command
}

/// The message of a system error as in C, without the number that Rust adds.
pub fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn first_word(launch: &Launch) -> String {
    launch.command.first().map(Bytes::to_text).unwrap_or_default()
}

/// Finds the program as a shell would, in the task's own PATH.
fn find_program(task: &TaskSpec) -> io::Result<PathBuf> {
    let launch = &task.launch;
    let name = launch.command.first().map(|word| word.0.as_slice()).unwrap_or_default();
    // A nested broker is always this program, whatever PATH contains.
    if name == b"flux" && launch.command.get(1).is_some_and(|word| word.0 == b"broker") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    if name.contains(&b'/') {
        let path = task.directory.join(OsStr::from_bytes(name));
        return check_executable(&path).map(|()| path);
    }
    let variable = launch.environment.iter().rev().find(|(name, _)| name.0 == b"PATH");
    let path = variable.map_or(&b"/usr/local/bin:/usr/bin:/bin"[..], |(_, value)| &value.0);
    let mut error: io::Error = io::ErrorKind::NotFound.into();
    if name.is_empty() {
        return Err(rustix::io::Errno::NOENT.into());
    }
    for directory in path.split(|byte| *byte == b':') {
        let path = task.directory.join(OsStr::from_bytes(directory)).join(OsStr::from_bytes(name));
        match check_executable(&path) {
            Ok(()) => return Ok(path),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => error = source,
            Err(_) => {}
        }
    }
    match error.kind() {
        io::ErrorKind::NotFound => Err(rustix::io::Errno::NOENT.into()),
        _ => Err(error),
    }
}

fn check_executable(path: &Path) -> io::Result<()> {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?;
    if path.is_dir() { Err(rustix::io::Errno::ACCESS.into()) } else { Ok(()) }
}

/// Starts a thread that writes to the task, so that a task that does not read blocks no other.
fn spawn_input_writer(mut stdin: std::process::ChildStdin) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel::<Vec<u8>>();
    thread::spawn(move || {
        for data in receiver {
            if stdin.write_all(&data).is_err() {
                return;
            }
        }
    });
    sender
}

/// Reads a stream to its end. Whole lines are forwarded at once; an incomplete line is buffered
/// until its newline or a full chunk.
fn forward_output(mut stream: impl Read, forward: impl Fn(Bytes)) {
    let mut buffer = vec![0; MAX_CHUNK];
    let mut filled = 0;
    loop {
        let count = match stream.read(&mut buffer[filled..]) {
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        filled += count;
        let line_end = buffer[..filled].iter().rposition(|byte| *byte == b'\n');
        let end = match line_end {
            Some(position) => position + 1,
            None if filled == MAX_CHUNK => MAX_CHUNK,
            None => continue,
        };
        forward(Bytes(buffer[..end].to_vec()));
        buffer.copy_within(end..filled, 0);
        filled -= end;
    }
    if filled > 0 {
        forward(Bytes(buffer[..filled].to_vec()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn forwarded(input: &[u8]) -> Vec<Vec<u8>> {
        let chunks = RefCell::new(Vec::new());
        forward_output(input, |data| chunks.borrow_mut().push(data.0));
        chunks.into_inner()
    }

    #[test]
    fn lines_stay_whole_and_the_rest_comes_last() {
        assert_eq!(forwarded(b"a\nb\nc"), [b"a\nb\n".to_vec(), b"c".to_vec()]);
        assert_eq!(forwarded(b""), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_long_line_is_forwarded_in_chunks() {
        let long = vec![b'x'; MAX_CHUNK + 7];
        assert_eq!(forwarded(&long).iter().map(Vec::len).collect::<Vec<_>>(), [MAX_CHUNK, 7]);
    }
}
