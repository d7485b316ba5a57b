//! An admitted job: its cluster runs in a thread of its own.

use std::sync::mpsc::Sender;
use std::thread;

use flux_operator_api::MiniCluster;
use flux_operator_queue::{Millis, NewAdmission};
use signal_hook::consts::SIGTERM;

use super::Event;
use crate::flux::Programs;
use crate::home::Home;
use crate::request::RunRequest;
use crate::supervisor::{self, EventChannel, run_prefixed};

/// A job whose cluster is running or starting.
pub(super) struct RunningJob {
    pub(super) name: String,
    /// When it must have finished.
    pub(super) deadline: Option<Millis>,
    /// It was stopped because it exceeded the deadline.
    pub(super) timed_out: bool,
    /// What one machine cannot provide for it.
    pub(super) notes: Vec<String>,
    events: Sender<supervisor::Event>,
}

impl RunningJob {
    /// Starts the cluster of an admitted job, which must have finished by `deadline`. `sender`
    /// receives its events.
    pub(super) fn start(
        home: &Home,
        minicluster: MiniCluster,
        admit: &NewAdmission,
        deadline: Option<Millis>,
        programs: &Programs,
        sender: Sender<Event>,
    ) -> Result<RunningJob, String> {
        let mut request = RunRequest::new(minicluster).map_err(|error| error.to_string())?;
        // The queue prints progress; the rest of the output is the command's.
        request.silence();
        let notes = request.notes.clone();
        let channel = EventChannel::new();
        let sender_to_job = channel.sender();
        let (home, programs, uid) = (home.clone(), programs.clone(), admit.uid.clone());
        thread::spawn(move || {
            let ready = |_: &_| {
                // There is no receiver any more when the program exits.
                let _ = sender.send(Event::Ready(uid.clone()));
            };
            let finished = run_prefixed(&home, &request, &programs, channel, ready);
            let finished = finished.map_err(|error| error_chain(&error));
            let _ = sender.send(Event::Finished(uid, finished));
        });
        Ok(RunningJob {
            name: admit.name.to_string(),
            deadline,
            timed_out: false,
            notes,
            events: sender_to_job,
        })
    }

    /// Stops it, as a signal would.
    pub(super) fn stop(&self, signal: i32) {
        // It may just have finished by itself.
        let _ = self.events.send(supervisor::Event::Signal(signal));
    }

    /// Stops it because it exceeded its deadline.
    pub(super) fn time_out(&mut self) {
        self.deadline = None;
        self.timed_out = true;
        self.stop(SIGTERM);
    }
}

/// An error with its causes, on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
