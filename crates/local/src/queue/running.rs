//! An admitted job: its cluster runs in a thread of its own.

use std::sync::mpsc::Sender;
use std::thread;

use flux_operator_api::MiniCluster;
use flux_operator_queue::{Admit, Millis};
use signal_hook::consts::SIGTERM;

use super::Event;
use crate::flux::Programs;
use crate::front::{self, Ears, run_one_of_several};
use crate::home::Home;
use crate::request::Request;

/// A job whose cluster is running or starting.
pub(super) struct Running {
    pub(super) name: String,
    /// When it must have finished.
    pub(super) deadline: Option<Millis>,
    /// It was stopped because it exceeded the deadline.
    pub(super) too_long: bool,
    /// What one machine cannot provide for it.
    pub(super) notes: Vec<String>,
    voice: Sender<front::Event>,
}

impl Running {
    /// Starts the cluster of an admitted job, which must have finished by `deadline`. `sender`
    /// receives its events.
    pub(super) fn start(
        home: &Home,
        minicluster: MiniCluster,
        admit: &Admit,
        deadline: Option<Millis>,
        programs: &Programs,
        sender: Sender<Event>,
    ) -> Result<Running, String> {
        let mut request = Request::of(minicluster).map_err(|error| error.to_string())?;
        // The queue prints progress; the rest of the output is the command's.
        request.quieten();
        let notes = request.notes.clone();
        let ears = Ears::new();
        let voice = ears.voice();
        let (home, programs, uid) = (home.clone(), programs.clone(), admit.uid.clone());
        thread::spawn(move || {
            let ready = |_: &_| {
                // There is no receiver any more when the program exits.
                let _ = sender.send(Event::Ready(uid.clone()));
            };
            let ended = run_one_of_several(&home, &request, &programs, ears, ready);
            let ended = ended.map_err(|error| chain(&error));
            let _ = sender.send(Event::Ended(uid, ended));
        });
        Ok(Running { name: admit.name.to_string(), deadline, too_long: false, notes, voice })
    }

    /// Stops it, as a signal would.
    pub(super) fn end(&self, signal: i32) {
        // It may just have finished by itself.
        let _ = self.voice.send(front::Event::Signal(signal));
    }

    /// Stops it because it exceeded its deadline.
    pub(super) fn end_too_long(&mut self) {
        self.deadline = None;
        self.too_long = true;
        self.end(SIGTERM);
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
