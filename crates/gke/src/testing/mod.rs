//! A server for tests that answers as Google's do: the API of Google Kubernetes Engine, the metadata
//! server, the server of tokens, and the API servers of new clusters and of home.
//!
//! It has no clock: an operation is done when it was asked for often enough.

mod http;
mod state;

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::settings::Places;
use http::{Answer, serve};
use state::State;

/// The token that it gives.
pub const TOKEN: &str = "google-token";

/// What happens to one call of a method, instead of an answer.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection is closed, and nothing was done.
    LostBefore,
    /// The connection is closed, and it was done.
    LostAfter,
    /// An error with this HTTP status, status and message.
    Refused(u16, &'static str, String),
}

/// What the API servers of new clusters are.
#[derive(Clone, Debug)]
pub enum Inside {
    /// This server.
    Fake,
    /// A real one, with a token that it accepts.
    Real {
        /// Host and port.
        endpoint: String,
        /// Its certificate as PEM, in base64.
        authority: String,
        /// The token.
        token: String,
    },
}

/// The server. It stops when it is dropped.
pub struct FakeGoogle {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// After how many more requests there are no answers, and whether that is so.
    answers: Arc<watch::Sender<Option<usize>>>,
    server: JoinHandle<()>,
}

impl Drop for FakeGoogle {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeGoogle {
    /// Starts it on an address, such as `127.0.0.1:0`.
    pub async fn start(address: &str, inside: Inside) -> std::io::Result<FakeGoogle> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(Mutex::new(State::new(inside, address)));
        let answers = Arc::new(watch::Sender::new(None::<usize>));
        let (known, left) = (Arc::clone(&state), Arc::clone(&answers));
        let server = tokio::spawn(serve(listener, move |request| {
            let answer = lock(&known).answer(request);
            let mut is_silent = false;
            left.send_if_modified(|left| {
                let Some(left) = left else { return false };
                *left = left.saturating_sub(1);
                is_silent = *left == 0;
                is_silent
            });
            if is_silent { Answer::Silence } else { answer }
        }));
        Ok(FakeGoogle { address, state, answers, server })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address for clients of this machine.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.address.port())
    }

    /// Where Google's services are, for settings.
    pub fn places(&self) -> Places {
        Places { api: Some(self.url()), metadata: Some(self.url()) }
    }

    /// Lets every operation take this many questions.
    pub fn set_slowness(&self, questions: u32) {
        self.state().slowness = questions;
    }

    /// Lets the next call of a method, such as `CreateCluster`, fail.
    pub fn fail(&self, method: &str, fault: Fault) {
        self.state().faults.entry(method.to_owned()).or_default().push_back(fault);
    }

    /// How many calls will still fail.
    pub fn faults(&self) -> usize {
        self.state().faults.values().map(VecDeque::len).sum()
    }

    /// Lets the next operation fail with a `google.rpc.Status`.
    pub fn fail_operation(&self, status: Value) {
        self.state().failing = Some(status);
    }

    /// Revokes the credentials.
    pub fn revoke(&self) {
        self.state().is_revoked = true;
    }

    /// Does what the request after this many others asks for, and does not answer it. Nothing is answered
    /// afterwards, until [`FakeGoogle::answer_again`].
    pub fn fall_silent_at(&self, request: usize) {
        self.answers.send_replace(Some(request));
    }

    /// Waits until a request was not answered.
    pub async fn silence(&self) {
        let mut answers = self.answers.subscribe();
        // The sender is as old as the server.
        let _changed = answers.wait_for(|left| *left == Some(0)).await;
    }

    /// Answers everything again.
    pub fn answer_again(&self) {
        self.answers.send_replace(None);
    }

    /// The methods of all requests, in their order.
    pub fn methods(&self) -> Vec<String> {
        self.state().methods.clone()
    }

    /// The names of all clusters.
    pub fn clusters(&self) -> BTreeSet<String> {
        self.state().names()
    }

    /// A cluster, as Google would answer it.
    pub fn cluster(&self, path: &str) -> Option<Value> {
        self.state().clusters.get(path).cloned()
    }

    /// Adds a cluster, or replaces it.
    pub fn set_cluster(&self, path: &str, cluster: Value) {
        self.state().clusters.insert(path.to_owned(), cluster);
    }

    /// How many clusters were created in all.
    pub fn created(&self) -> u32 {
        self.state().created
    }

    /// An object of a Kubernetes API by its path, such as `/home/api/v1/namespaces/n/secrets/s`.
    pub fn object(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
