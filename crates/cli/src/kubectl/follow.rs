//! The log of a rank, from its first line to its last: over broken connections,
//! restarted containers and replaced pods.
//!
//! Lines are asked for with their times, so that a log that was cut off goes on
//! where it stopped; the times are not printed. All that was printed is known to
//! [`Printer`], so a `follow` that is dropped loses nothing.

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

use super::pods::{Run, newest};
use super::watch::is_final;
use crate::print;

/// Between two attempts to go on with a log. A container's end is known to the API
/// server within this time after its log ends.
const AGAIN: Duration = Duration::from_secs(1);

/// Which log.
pub(super) struct Source {
    /// The API of the pods.
    pub(super) pods: Api<Pod>,
    /// Selects the pods of the rank.
    pub(super) selector: String,
    /// The container.
    pub(super) container: String,
}

/// Prints a log, and knows what it has printed.
pub(super) struct Printer<F: Fn()> {
    source: Source,
    before: F,
    run: Option<Run>,
    place: Place,
    complaint: String,
}

impl<F: Fn()> Printer<F> {
    /// Nothing is printed yet. `before` is called before each line.
    pub(super) fn new(source: Source, before: F) -> Printer<F> {
        let (place, complaint) = (Place::default(), String::new());
        Printer { source, before, run: None, place, complaint }
    }

    /// Prints every run of the container, for as long as it is awaited.
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
            let Some(run) = Run::of(&pod, &self.source.container) else { continue };
            if self.run.as_ref().is_none_or(|before| run.follows(before)) {
                self.follow_run(run).await?;
            }
        }
    }

    /// Prints what is left of the newest run, without waiting for more.
    pub(super) async fn rest(&mut self) -> Result<()> {
        let of_rank = ListParams::default().labels(&self.source.selector);
        let pods = self.source.pods.list(&of_rank).await.context("failed to list the pods")?;
        let run = newest(pods.items).and_then(|pod| Run::of(&pod, &self.source.container));
        match run {
            Some(run) => self.print(&run, false).await,
            None => Ok(()),
        }
    }

    /// Prints one run to its end.
    async fn follow_run(&mut self, run: Run) -> Result<()> {
        loop {
            self.print(&run, true).await?;
            // The log also ends when a connection does: is the run over?
            let pod = self.source.pods.get_opt(&run.pod).await;
            let now = pod.map(|pod| pod.and_then(|pod| Run::of(&pod, &self.source.container)));
            match now {
                Ok(Some(now)) if now.is(&run) && !now.ended => {}
                Ok(Some(now)) if now.is(&run) => return self.print(&now, false).await,
                Ok(_) => return Ok(()),
                // Nobody answers; that may pass.
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Prints what a run has printed since the last time.
    async fn print(&mut self, run: &Run, follow: bool) -> Result<()> {
        if self.run.as_ref().is_none_or(|before| !before.is(run)) {
            self.place = Place::default();
        }
        self.run = Some(run.clone());
        self.place.resume();
        let parameters = LogParams {
            container: Some(self.source.container.clone()),
            follow,
            timestamps: true,
            since_time: self.place.last,
            ..LogParams::default()
        };
        let mut log = match self.source.pods.log_stream(&run.pod, &parameters).await {
            Ok(log) => pin!(log),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                anyhow::bail!("failed to read the log: {}", status.message)
            }
            // The pod is gone, or its node does not answer; that may pass.
            Err(_) => return Ok(()),
        };
        let mut line = Vec::new();
        // A cut connection is an end like any other: the caller asks again.
        while log.as_mut().read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
            match self.place.take(&line) {
                // Half a line, which may have been cut off: it comes again as a whole.
                Line::New(_, text) if follow && !text.ends_with(b"\n") => {}
                Line::New(time, text) => {
                    (self.before)();
                    print::output(text)?;
                    self.place.printed(time);
                }
                Line::Printed => {}
                Line::NotOfTheContainer(text) => self.complain(text),
            }
            line.clear();
        }
        Ok(())
    }

    /// Says once what keeps the log from being read. The caller asks again.
    fn complain(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text).trim_end().to_owned();
        if self.complaint != text {
            (self.before)();
            print::message(format_args!("note: the log cannot be read as it is written: {text}"));
            self.complaint = text;
        }
    }
}

/// How far a log was printed.
#[derive(Debug, Default)]
struct Place {
    /// The time of the last line printed.
    last: Option<Timestamp>,
    /// How many lines of that time were.
    of_last: usize,
    /// While going on: how many lines of that time are still to be left out.
    again: Option<usize>,
}

impl Place {
    /// The next lines may hold ones that were printed before.
    fn resume(&mut self) {
        self.again = self.last.is_some().then_some(self.of_last);
    }

    /// What a line is. Only a log that goes on repeats lines: else times that jump
    /// back, as clocks do, leave nothing out.
    fn take<'a>(&mut self, line: &'a [u8]) -> Line<'a> {
        let Some((time, text)) = split_time(line) else { return Line::NotOfTheContainer(line) };
        if let (Some(again), Some(last)) = (&mut self.again, self.last) {
            if time < last {
                return Line::Printed;
            }
            if time == last && *again > 0 {
                *again -= 1;
                return Line::Printed;
            }
            self.again = None;
        }
        Line::New(time, text)
    }

    /// A line of this time was printed.
    fn printed(&mut self, time: Timestamp) {
        self.of_last = if self.last == Some(time) { self.of_last + 1 } else { 1 };
        self.last = Some(time);
    }
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// To be printed, with its time.
    New(Timestamp, &'a [u8]),
    /// Printed before.
    Printed,
    /// A complaint of the node, which puts it where the log should be.
    NotOfTheContainer(&'a [u8]),
}

/// The time that Kubernetes puts before a line, and the line.
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

    fn printed(place: &mut Place, lines: &[Vec<u8>]) -> String {
        let mut printed = Vec::new();
        for line in lines {
            if let Line::New(time, text) = place.take(line) {
                printed.extend_from_slice(text);
                place.printed(time);
            }
        }
        String::from_utf8(printed).unwrap()
    }

    #[test]
    fn a_log_that_was_cut_off_goes_on_where_it_stopped() {
        // Lines of the same time on both sides of the cut.
        let lines = [line(1, "a"), line(2, "b"), line(2, "c"), line(2, "d"), line(3, "e")];
        for cut in 0..=lines.len() {
            let mut place = Place::default();
            let mut all = printed(&mut place, &lines[..cut]);
            place.resume();
            all += &printed(&mut place, &lines);
            assert_eq!(all, "a\nb\nc\nd\ne\n", "cut after {cut}");
        }
    }

    #[test]
    fn a_clock_that_jumps_back_hides_no_line() {
        let lines = [line(5, "a"), line(1, "b"), line(1, ""), line(2, " c")];
        assert_eq!(printed(&mut Place::default(), &lines), "a\nb\n\n c\n");
    }

    #[test]
    fn what_has_no_time_is_not_of_the_container() {
        let mut place = Place::default();
        for line in [&b"unable to retrieve logs"[..], b"\xff\n", b"\n"] {
            assert_eq!(place.take(line), Line::NotOfTheContainer(line));
        }
        let zoned = b"2026-01-01T02:00:00.5+02:00 \xff b\n";
        let time = "2026-01-01T00:00:00.5Z".parse().unwrap();
        assert_eq!(place.take(zoned), Line::New(time, b"\xff b\n"));
    }
}
