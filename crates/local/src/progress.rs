//! Progress on standard error: a line with the time for each phase, and on a
//! terminal a spinner for the current phase.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows progress while a cluster starts.
pub struct Progress {
    started: Instant,
    spinner: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    /// Starts the clock. With `quiet` it prints nothing.
    pub fn start(quiet: bool) -> Progress {
        let spinner = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg}").expect("the template is right");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Progress { started: Instant::now(), spinner, quiet }
    }

    /// Prints nothing.
    pub(crate) fn silent() -> Progress {
        Progress::start(true)
    }

    /// Shows the current phase.
    pub(crate) fn begin(&self, what: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(what.to_owned());
        }
    }

    /// Prints what has been done.
    pub(crate) fn done(&self, what: &str) {
        if !self.quiet {
            self.line(&format!("{:6.2} s  {what}", self.started.elapsed().as_secs_f64()));
        }
    }

    /// Prints a difference from what the manifest asks for.
    pub(crate) fn note(&self, what: &str) {
        if !self.quiet {
            self.line(&format!("note: {what}"));
        }
    }

    /// Prints that a cluster runs under another name than its own, if it does.
    pub(crate) fn note_other_name(&self, name: &str, used: &str) {
        if used != name {
            self.note(&format!("{name:?} is in use: this run is {used:?}"));
        }
    }

    /// Prints what is probably a mistake.
    pub(crate) fn warning(&self, what: &str) {
        if !self.quiet {
            self.line(&format!("warning: {what}"));
        }
    }

    /// Stops the spinner, before the command's own output.
    pub(crate) fn finish(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        // The cluster keeps running even if standard error is closed.
        let write = || drop(writeln!(std::io::stderr(), "{text}"));
        match &self.spinner {
            Some(spinner) if !spinner.is_finished() => spinner.suspend(write),
            _ => write(),
        }
    }
}
