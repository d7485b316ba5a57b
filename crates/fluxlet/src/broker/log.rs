//! A broker's log: printed to standard error in Flux's format, and kept for `flux dmesg`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::{Civil, now};

/// How many lines are kept, the same as in Flux.
const RING_SIZE: usize = 1024;

/// Syslog's levels, as far as they are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Critical = 2,
    Error = 3,
    Warning = 4,
    Info = 6,
}

/// The log of one broker.
#[derive(Clone)]
pub struct Log {
    rank: u32,
    /// The level up to which lines are printed to standard error.
    stderr_level: i32,
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Log {
    pub fn new(rank: u32, stderr_level: i32) -> Self {
        Self { rank, stderr_level, lines: Arc::default() }
    }

    pub fn add(&self, level: Level, text: &str) {
        let word = match level {
            Level::Critical => "crit",
            Level::Error => "err",
            Level::Warning => "warning",
            Level::Info => "info",
        };
        let time = Civil::new(now());
        let body = format!("broker.{word}[{}]: {text}", self.rank);
        if level as i32 <= self.stderr_level {
            eprintln!("{} {body}", time.to_log());
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == RING_SIZE {
            lines.pop_front();
        }
        lines.push_back(format!("{}.{:06}Z {body}", time.to_iso(), time.microsecond));
    }

    /// Logs an error and its causes.
    pub fn error(&self, error: &dyn std::error::Error) {
        self.add(Level::Error, &error_chain(error));
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// An error and its causes on one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_lines_are_kept() {
        let log = Log::new(3, 0);
        for number in 0..RING_SIZE + 1 {
            log.add(Level::Info, &number.to_string());
        }
        let lines = log.lines();
        assert_eq!(lines.len(), RING_SIZE);
        assert!(lines[0].ends_with("broker.info[3]: 1"), "{}", lines[0]);
    }
}
