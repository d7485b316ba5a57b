//! fluxlet: a small stand-in for Flux, in one program.
//!
//! It starts brokers from the same configuration as Flux, runs jobs on them, and its commands
//! print what those of Flux print. It is for machines without Flux and for tests. It is **not for
//! production**: one scheduler, one queue, everything in memory, no MPI bootstrap.
//!
//! Flow: [`main`] selects a command. `flux broker` ([`broker`]) runs an event loop; the lead's owns
//! the [`instance`], a pure state machine. All other commands ([`commands`]) are clients that
//! connect to a broker's local socket ([`message`], [`frame`]). Brokers communicate through
//! encrypted connections ([`secure`]).
//!
//! A program that embeds this one must call [`main`] when it is started under the name `flux`,
//! because brokers start the program again under that name.
//!
//! It must never know Kubernetes.

// First, so that its macros are visible in all modules.
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

/// The version that `flux version` prints. The first part is the version of Flux that is followed.
pub const VERSION: &str = concat!("0.88.0-fluxlet-", env!("CARGO_PKG_VERSION"));

/// Runs the program with its arguments, of which the first is its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().skip(1).collect();
    commands::run(&arguments)
}
