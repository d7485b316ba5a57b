//! fluxlet: a small stand-in for Flux, in one program.
//!
//! It starts brokers from the same configuration as Flux, runs jobs on them, and its commands
//! print what those of Flux print. It is there for machines without Flux and for tests. It is
//! **not for production**: one scheduler, one queue, everything in memory, no MPI bootstrap.
//!
//! Flow: [`main`] picks a command. `flux broker` ([`broker`]) runs an event loop; the lead's owns
//! the [`instance`], a pure state machine. All other commands ([`commands`]) are clients that talk
//! to a broker through its local socket ([`message`], [`frame`]). Brokers talk to each other
//! through encrypted connections ([`secure`]).
//!
//! A program that embeds this one calls [`main`] whenever it is started under the name `flux`:
//! brokers start this program again under that name.
//!
//! What it must never know: Kubernetes.

// First, so that its macros are known everywhere.
#[macro_use]
mod print;

mod broker;
mod bytes;
mod client;
mod commands;
mod duration;
mod frame;
mod instance;
mod json;
mod message;
mod options;
mod record;
mod secure;
mod signal;
mod socket;
mod submission;
mod time;

use std::ffi::OsString;
use std::process::ExitCode;

/// What `flux version` says. The first part is the version whose formats are followed.
pub const VERSION: &str = concat!("0.88.0-fluxlet-", env!("CARGO_PKG_VERSION"));

/// Runs the program with its arguments, the first of them being its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    commands::run(&arguments)
}
