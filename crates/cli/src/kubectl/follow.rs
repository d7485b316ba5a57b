//! Prints the log of a rank, from its first line to its last, across broken connections, restarted
//! containers and replaced pods.
//!
//! Lines are requested with timestamps, so that an interrupted log continues where it stopped; the
//! timestamps are not printed. [`LogPrinter`] remembers what was printed, so that nothing is lost
//! when `follow` is dropped.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{AsyncBufReadExt, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, LogParams};
use kube::runtime::{WatchStreamExt, watcher};

use super::pods::{ContainerRun, newest};
use super::watch::is_final;
use crate::print;

/// The delay between two attempts to continue a log. The API server knows that a container has
/// terminated within this time after its log ends.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The log to print.
pub(super) struct LogSource {
    /// The API of the pods.
    pub(super) pods: Api<Pod>,
    /// Selects the pods of the rank.
    pub(super) selector: String,
    /// The container.
    pub(super) container: String,
}

/// Prints a log, and remembers what it has printed.
pub(super) struct LogPrinter<F: Fn()> {
    source: LogSource,
    before_line: F,
    run: Option<ContainerRun>,
    position: LogPosition,
    last_complaint: String,
}

impl<F: Fn()> LogPrinter<F> {
    /// Nothing is printed yet. `before` is called before each line.
    pub(super) fn new(source: LogSource, before: F) -> LogPrinter<F> {
        let (position, last_complaint) = (LogPosition::default(), String::new());
        LogPrinter { source, before_line: before, run: None, position, last_complaint }
    }

    /// Prints every run of the container until the future is dropped.
    pub(super) async fn follow(&mut self) -> Result<Infallible> {
        let of_rank = watcher::Config::default().labels(&self.source.selector);
        let changes = watcher(self.source.pods.clone(), of_rank).default_backoff();
        let mut changes = pin!(changes.applied_objects());
        loop {
            let pod = match changes.next().await {
                Some(Ok(pod)) => pod,
                Some(Err(error)) if is_final(&error) => {
                    return Err(error).context("failed to watch the pods");
                }
                Some(Err(_)) => continue,
                None => anyhow::bail!("the watch of the pods ended"),
            };
            let Some(run) = ContainerRun::of(&pod, &self.source.container) else { continue };
            if self.run.as_ref().is_none_or(|before| run.is_after(before)) {
                self.follow_run(run).await?;
            }
        }
    }

    /// Prints the rest of the newest run, without waiting for more.
    pub(super) async fn print_rest(&mut self) -> Result<()> {
        let of_rank = ListParams::default().labels(&self.source.selector);
        let pods = self.source.pods.list(&of_rank).await.context("failed to list the pods")?;
        let run = newest(pods.items).and_then(|pod| ContainerRun::of(&pod, &self.source.container));
        match run {
            Some(run) => self.print(&run, false).await,
            None => Ok(()),
        }
    }

    /// Prints one run until the container terminates.
    async fn follow_run(&mut self, run: ContainerRun) -> Result<()> {
        loop {
            self.print(&run, true).await?;
            // The log also ends when the connection is lost: check the state of the container.
            let pod = self.source.pods.get_opt(&run.pod).await;
            let now =
                pod.map(|pod| pod.and_then(|pod| ContainerRun::of(&pod, &self.source.container)));
            match now {
                Ok(Some(now)) if now.is_same_run(&run) && !now.terminated => {}
                Ok(Some(now)) if now.is_same_run(&run) => return self.print(&now, false).await,
                Ok(_) => return Ok(()),
                // The API server does not respond; retry.
                Err(_) => {}
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    /// Prints what a run has printed since the last call.
    async fn print(&mut self, run: &ContainerRun, follow: bool) -> Result<()> {
        if self.run.as_ref().is_none_or(|before| !before.is_same_run(run)) {
            self.position = LogPosition::default();
        }
        self.run = Some(run.clone());
        self.position.resume();
        let parameters = LogParams {
            container: Some(self.source.container.clone()),
            follow,
            timestamps: true,
            since_time: self.position.last,
            ..LogParams::default()
        };
        let mut log = match self.source.pods.log_stream(&run.pod, &parameters).await {
            Ok(log) => pin!(log),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                anyhow::bail!("failed to read the log: {}", status.message)
            }
            // The pod is deleted, or its node does not respond; retry.
            Err(_) => return Ok(()),
        };
        let mut line = Vec::new();
        // A lost connection is treated like the end of the log: the caller retries.
        while log.as_mut().read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            match self.position.classify(&line) {
                // An incomplete line, which may have been cut off; it is sent again in full.
                LogLine::New(_, text) if follow && !text.ends_with(b"\n") => {}
                LogLine::New(time, text) => {
                    (self.before_line)();
                    print::output(text)?;
                    self.position.record(time);
                }
                LogLine::Printed => {}
                LogLine::KubeletMessage(text) => self.complain(text),
            }
            line.clear();
        }
        Ok(())
    }

    /// Prints once why the log cannot be read. The caller retries.
    fn complain(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text).trim_end().to_owned();
        if self.last_complaint != text {
            (self.before_line)();
            print::message(format_args!("note: failed to follow the log: {text}"));
            self.last_complaint = text;
        }
    }
}

/// How far a log was printed.
#[derive(Debug, Default)]
struct LogPosition {
    /// The timestamp of the last printed line.
    last: Option<Timestamp>,
    /// The number of printed lines with that timestamp.
    count_at_last: usize,
    /// When resuming: the number of lines with that timestamp still to skip.
    to_skip: Option<usize>,
}

impl LogPosition {
    /// Prepares for lines of which the first were already printed.
    fn resume(&mut self) {
        self.to_skip = self.last.is_some().then_some(self.count_at_last);
    }

    /// Classifies a line. Only a resumed log repeats lines, so that otherwise no line is hidden
    /// when the clock jumps back.
    fn classify<'a>(&mut self, line: &'a [u8]) -> LogLine<'a> {
        let Some((time, text)) = split_time(line) else { return LogLine::KubeletMessage(line) };
        if let (Some(left), Some(last)) = (&mut self.to_skip, self.last) {
            if time < last {
                return LogLine::Printed;
            }
            if time == last && *left > 0 {
                *left -= 1;
                return LogLine::Printed;
            }
            self.to_skip = None;
        }
        LogLine::New(time, text)
    }

    /// Records that a line with this timestamp was printed.
    fn record(&mut self, time: Timestamp) {
        self.count_at_last = if self.last == Some(time) { self.count_at_last + 1 } else { 1 };
        self.last = Some(time);
    }
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
enum LogLine<'a> {
    /// A new line, with its timestamp.
    New(Timestamp, &'a [u8]),
    /// A line that was already printed.
    Printed,
    /// A message of the kubelet in place of the log.
    KubeletMessage(&'a [u8]),
}

/// Splits a line into the timestamp that Kubernetes prepends, and the text.
fn split_time(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    let blank = line.iter().position(|byte| *byte == b' ')?;
    let time = std::str::from_utf8(&line[..blank]).ok()?.parse().ok()?;
    Some((time, &line[blank + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(nanosecond: u32, text: &str) -> Vec<u8> {
        format!("2026-01-01T00:00:00.{nanosecond:09}Z {text}\n").into_bytes()
    }

    fn printed(place: &mut LogPosition, lines: &[Vec<u8>]) -> String {
        let mut printed = Vec::new();
        for line in lines {
            if let LogLine::New(time, text) = place.classify(line) {
                printed.extend_from_slice(text);
                place.record(time);
            }
        }
        String::from_utf8(printed).unwrap()
    }

    #[test]
    fn a_log_that_was_cut_off_continues_where_it_stopped() {
        // Lines of the same time on both sides of the cut.
        let lines = [line(1, "a"), line(2, "b"), line(2, "c"), line(2, "d"), line(3, "e")];
        for cut in 0..=lines.len() {
            let mut place = LogPosition::default();
            let mut all = printed(&mut place, &lines[..cut]);
            place.resume();
            all += &printed(&mut place, &lines);
            assert_eq!(all, "a\nb\nc\nd\ne\n", "cut after {cut}");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_hides_no_line() {
        let lines = [line(5, "a"), line(1, "b"), line(1, ""), line(2, " c")];
        assert_eq!(printed(&mut LogPosition::default(), &lines), "a\nb\n\n c\n");
    }

    #[test]
    fn a_line_without_timestamp_is_a_message_of_the_kubelet() {
        let mut place = LogPosition::default();
        for line in [&b"unable to retrieve logs"[..], b"\xff\n", b"\n"] {
            assert_eq!(place.classify(line), LogLine::KubeletMessage(line));
        }
        let zoned = b"2026-01-01T02:00:00.5+02:00 \xff b\n";
        let time = "2026-01-01T00:00:00.5Z".parse().unwrap();
        assert_eq!(place.classify(zoned), LogLine::New(time, b"\xff b\n"));
    }
}
