//! Progress on standard error: a spinner on a terminal, otherwise one line per change.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::print;

/// Shows progress while a command waits.
pub(super) struct Progress {
    name: String,
    last: String,
    spinner: Option<ProgressBar>,
}

impl Progress {
    /// Progress of the MiniCluster `name`.
    pub(super) fn of(name: &str) -> Progress {
        let spinner = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Progress { name: name.into(), last: String::new(), spinner }
    }

    /// Shows the current state, unless it is unchanged.
    pub(super) fn show(&mut self, line: String) {
        if line == self.last {
            return;
        }
        let text = format!("{}: {line}", self.name);
        match &self.spinner {
            Some(spinner) if !spinner.is_finished() => spinner.set_message(text),
            _ => print::message(text),
        }
        self.last = line;
    }

    /// Returns a function that clears the spinner before the command prints output. From then on
    /// progress is shown as lines.
    pub(super) fn spinner_clearer(&self) -> impl Fn() + use<> {
        let spinner = self.spinner.clone();
        move || {
            if let Some(spinner) = spinner.as_ref().filter(|spinner| !spinner.is_finished()) {
                spinner.finish_and_clear();
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.spinner_clearer()();
    }
}
