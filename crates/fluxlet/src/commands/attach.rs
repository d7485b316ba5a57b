//! Attaches to a job: prints its output and events, and exits with its exit code.

use std::io::{self, Write};
use std::time::Duration;

use flux_operator_flux::JobId;
use serde_json::Value;

use crate::bytes::Bytes;
use crate::client::{Client, ClientError};
use crate::instance::exit_code;
use crate::message::{Event, RefusalKind, Reply, Request, Stream};

/// How to print a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrintStyle {
    /// Prefix lines with the rank of their task.
    pub label: bool,
    /// If 2 or more, print events too.
    pub verbose: usize,
    /// Prefix lines with the ID of the job, and omit times.
    pub multiple_jobs: bool,
}

/// A job whose events and output are printed, and its result.
#[derive(Clone, Debug, Default)]
pub struct AttachedJob {
    pub submitted: f64,
    pub status: Option<i32>,
    starts: [LineStart; 2],
}

/// Whether a stream is at the start of a line.
#[derive(Clone, Copy, Debug)]
struct LineStart(bool);

impl Default for LineStart {
    fn default() -> Self {
        Self(true)
    }
}

impl AttachedJob {
    /// The exit code of the job; 1 for a job that never ran.
    pub fn code(&self) -> u8 {
        let code = self.status.map_or(1, exit_code);
        u8::try_from(code).unwrap_or(1)
    }

    /// Flux's message about tasks that failed.
    pub fn task_message(&self) -> Option<String> {
        task_message(self.status?)
    }

    /// Records an event.
    pub fn record(&mut self, event: &Event) {
        let number = |key: &str| context(event, key).and_then(Value::as_i64);
        match event.name.as_str() {
            "submit" => self.submitted = event.timestamp,
            "finish" => {
                self.status = number("status").and_then(|status| i32::try_from(status).ok())
            }
            _ => {}
        }
    }

    /// Prints one reply of a watched job, as `flux job attach` does.
    pub fn print_reply(&mut self, id: JobId, reply: &Reply, style: PrintStyle) {
        match reply {
            Reply::Event(event) => {
                self.record(event);
                let seconds = event.timestamp - self.submitted;
                if event.name == "exception" {
                    let id = if style.multiple_jobs { String::new() } else { format!(" {id}") };
                    let time = if style.multiple_jobs {
                        String::new()
                    } else {
                        format!("{seconds:.3}s: ")
                    };
                    let colon = if style.multiple_jobs { ":" } else { "" };
                    let word = |key| unquoted(context(event, key));
                    let (kind, severity, note) = (word("type"), word("severity"), word("note"));
                    eprintln!(
                        "{time}job.exception{colon}{id} type={kind} severity={severity} {note}"
                    );
                } else if style.verbose > 1 {
                    let context = context_json(event);
                    eprintln!("{seconds:.3}s: job.{}{context}", event.name);
                }
            }
            Reply::Output { task, stream, data } => {
                let id = if style.multiple_jobs { format!("{id}: ") } else { String::new() };
                let label = style.label.then(|| format!("{id}{task}: "));
                self.print_output(*stream, data, label.as_deref());
            }
            Reply::Notice(text) if style.multiple_jobs => {
                eprintln!("{}", text.split_once("s: ").map_or(text.as_str(), |(_, rest)| rest));
            }
            Reply::Notice(text) => eprintln!("{text}"),
            _ => {}
        }
    }

    fn print_output(&mut self, stream: Stream, data: &Bytes, label: Option<&str>) {
        let start = &mut self.starts[usize::from(stream == Stream::Error)].0;
        let mut text = Vec::new();
        for line in data.0.split_inclusive(|byte| *byte == b'\n') {
            if let (Some(label), true) = (label, *start) {
                text.extend_from_slice(label.as_bytes());
            }
            text.extend_from_slice(line);
            // Labels belong to lines, and lines of different tasks do not continue each other.
            *start = label.is_some() || line.ends_with(b"\n");
        }
        let _no_reader = match stream {
            Stream::Out => {
                let mut out = io::stdout().lock();
                out.write_all(&text).and_then(|()| out.flush())
            }
            Stream::Error => io::stderr().lock().write_all(&text),
        };
    }
}

/// Follows a job until it has finished.
pub fn attach(
    client: &mut Client,
    id: JobId,
    style: PrintStyle,
) -> Result<AttachedJob, ClientError> {
    let mut job = AttachedJob::default();
    let request = Request::Watch { id, output: true, follow: true };
    client.for_each_reply(request, |reply| job.print_reply(id, &reply, style))?;
    Ok(job)
}

/// Starts a thread that forwards standard input to the job.
pub fn forward_input(uri: &str, id: JobId) -> Result<(), ClientError> {
    let mut client = Client::connect(uri)?;
    client.set_timeout(Some(Duration::from_secs(60)))?;
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        loop {
            let count = io::Read::read(&mut io::stdin().lock(), &mut buffer).unwrap_or(0);
            let data = Bytes(buffer[..count].to_vec());
            match client.execute(Request::Input { id, data }) {
                Err(error) if error.refusal() == Some(RefusalKind::Inactive) => return,
                Err(_) => return,
                Ok(()) if count == 0 => return,
                Ok(()) => {}
            }
        }
    });
    Ok(())
}

/// `task(s) exited with exit code 1`, `task(s) Killed`; nothing for success.
pub fn task_message(status: i32) -> Option<String> {
    match exit_code(status) {
        0 => None,
        code @ 129.. => Some(format!("task(s) {}", crate::signal::describe(code - 128))),
        code => Some(format!("task(s) exited with exit code {code}")),
    }
}

pub fn context<'a>(event: &'a Event, key: &str) -> Option<&'a Value> {
    event.context.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// A space and the context as JSON in Flux's order; empty without a context.
pub fn context_json(event: &Event) -> String {
    if event.context.is_empty() {
        return String::new();
    }
    let entries = event.context.iter();
    let entries = entries.map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())));
    format!(" {{{}}}", entries.collect::<Vec<_>>().join(","))
}

/// A value without the quotes of JSON.
fn unquoted(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_exit_codes_are_those_of_flux() {
        for (status, text) in [
            (0, None),
            (7 << 8, Some("task(s) exited with exit code 7")),
            (137 << 8, Some("task(s) Killed")),
            (143 << 8, Some("task(s) Terminated")),
            (127 << 8, Some("task(s) exited with exit code 127")),
        ] {
            assert_eq!(task_message(status).as_deref(), text);
        }
    }
}
