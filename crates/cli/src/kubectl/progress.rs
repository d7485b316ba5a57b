//! Progress on standard error: a spinner on a terminal, else a line per change.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::print;

/// What is shown while somebody waits.
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
                ProgressStyle::with_template("{spinner} {msg}").expect("the template is right");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Progress { name: name.into(), last: String::new(), spinner }
    }

    /// Says how it is now, unless that was said before.
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

    /// Gives the terminal to the command's output. From then on there are lines.
    pub(super) fn room_maker(&self) -> impl Fn() + use<> {
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
        self.room_maker()();
    }
}
