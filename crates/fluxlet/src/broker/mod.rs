//! A broker: one process per host; rank 0 is the lead.
//!
//! All events are put into one queue ([`loop_event`]) and handled by one thread, so no locks are
//! needed. [`lead`] runs the instance, [`worker`] runs tasks for it.

mod attributes;
pub mod boot;
mod clients;
mod executor;
mod host;
mod join_listener;
mod lead;
mod links;
mod log;
mod loop_event;
mod nested;
pub mod options;
mod program;
mod resources;
pub mod task;
mod worker;

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::options::OptionError;
use attributes::Attributes;
use boot::Boot;
pub use host::create_temporary_directory;
use host::{BrokerHost, HostError};
use log::Log;
pub use log::error_chain;
use loop_event::LoopEvent;
use options::{BrokerOptions, ConfigError};

/// The capacity of the event queue. Enough for a burst; when it is full, senders block.
const QUEUE_LENGTH: usize = 1024;

/// Why a broker did not start, or had to exit.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("invalid command line")]
    Options { source: OptionError },
    #[error("Config file error")]
    Config { source: ConfigError },
    #[error("bootstrap")]
    Boot { source: boot::BootError },
    #[error("failed to set up this host")]
    Host { source: HostError },
    #[error("failed to handle signals")]
    Signals { source: std::io::Error },
    #[error("invalid resources")]
    Resources { source: resources::ResourcesError },
    #[error("failed to listen for other brokers")]
    Listen { source: crate::socket::SocketError },
    #[error("rejected by the lead broker: {reason}")]
    Refused { reason: String },
    #[error("lost the connection to the lead broker: {reason}")]
    LostLead { reason: String },
}

/// What both the lead and workers need.
struct Broker {
    options: BrokerOptions,
    config: flux_operator_flux::BrokerConfig,
    boot: Boot,
    host: BrokerHost,
    attributes: Attributes,
    log: Log,
    sender: SyncSender<LoopEvent>,
    events: std::sync::mpsc::Receiver<LoopEvent>,
}

/// Runs a broker with the arguments after `flux broker`.
pub fn main(arguments: &[OsString]) -> ExitCode {
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(BrokerError::Options { source }) => {
            eprintln!("flux-broker: {source}\nTry `flux-broker --help' for more information.");
            ExitCode::FAILURE
        }
        Err(error) => {
            let time = crate::time::Civil::new(crate::time::now()).to_log();
            let options = BrokerOptions::parse(arguments).unwrap_or_default();
            let given = options.attributes.into_iter().rfind(|(name, _)| name == "hostname");
            let name = given.map_or_else(host::system_name, |(_, value)| value);
            eprintln!("{time} broker.crit[{name}]: {}", error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<u8, BrokerError> {
    let options =
        BrokerOptions::parse(arguments).map_err(|source| BrokerError::Options { source })?;
    let config = options.load_config().map_err(|source| BrokerError::Config { source })?;
    let mut attributes = Attributes::new(options.attributes.iter().cloned());
    let system_name = host::system_name();
    let hostname = attributes.get("hostname").unwrap_or(&system_name).to_owned();
    let local = attributes.get(boot::LOCAL_BOOT);
    let boot = boot::boot(config.bootstrap.as_ref(), &hostname, local)
        .map_err(|source| BrokerError::Boot { source })?;
    attributes.set("hostname", hostname);
    let host =
        BrokerHost::new(&mut attributes, &boot).map_err(|source| BrokerError::Host { source })?;
    if let Some(path) = &options.config {
        attributes.set("config.path", path.display().to_string());
    }
    let shown = attributes.get("log-stderr-level").and_then(|level| level.parse().ok());
    let log = Log::new(boot.rank, shown.unwrap_or(3));
    if attributes.get("content.restore").or(attributes.get("content.dump")).is_some() {
        // Printed even if nothing is logged, because the user relies on it.
        eprintln!("flux-broker: fluxlet does not support archives: no state is restored or saved");
    }
    let (sender, events) = sync_channel(QUEUE_LENGTH);
    watch_signals(&sender).map_err(|source| BrokerError::Signals { source })?;
    let listener = host.listen().map_err(|source| BrokerError::Host { source })?;
    clients::serve(listener, sender.clone(), log.clone());
    let broker = Broker { options, config, boot, host, attributes, log, sender, events };
    if broker.boot.rank == 0 { lead::run(broker) } else { worker::run(broker) }
}

/// Turns signals into events.
fn watch_signals(events: &SyncSender<LoopEvent>) -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let (mut reader, writer) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, writer)?;
        let events = events.clone();
        thread::spawn(move || {
            while reader.read(&mut [0]).is_ok_and(|count| count > 0) {
                if events.send(LoopEvent::Signal(signal)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}
