//! `flux keygen`: generates a certificate for the brokers of an instance.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use flux_operator_flux::certificate::Keygen;
use flux_operator_flux::{Certificate, Metadata, SecretKey};

use super::{CommandFailure, CommandResult};
use crate::options::{Flag, Syntax, flag};
use crate::time::{Civil, now};

const FLAGS: [Flag; 2] = [flag(Some('n'), "name"), flag(None, "meta")];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(arguments)
        .map_err(|error| CommandFailure::option("flux-keygen", &error))?;
    let fail = |text: &dyn std::fmt::Display| CommandFailure::new(format!("flux-keygen: {text}"));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let time = Civil::new(now()).to_iso();
    let keygen = Keygen {
        hostname: Some(&host),
        time: Some(&time),
        userid: Some(rustix::process::geteuid().as_raw()),
        flux_core_version: Some(crate::VERSION),
        zmq_version: None,
    };
    let mut metadata = Metadata::new(options.get("name").unwrap_or(&host))
        .and_then(|metadata| metadata.with_keygen(&keygen))
        .map_err(|error| fail(&error))?;
    for entry in options.all("meta").flat_map(|text| text.split(',')) {
        let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
        metadata.set(key, value).map_err(|error| fail(&error))?;
    }
    let key = SecretKey::from_os().map_err(|error| fail(&error))?;
    let certificate = Certificate::new(key, metadata);
    let Some(path) = options.rest.first() else {
        eprintln!("flux-keygen: WARNING: add PATH argument to save generated certificate");
        return Ok(0);
    };
    // Brokers reject any mode but 0600, so an existing file with another mode is removed.
    let _not_there = std::fs::remove_file(path);
    let mut open = std::fs::OpenOptions::new();
    open.create_new(true).write(true).mode(0o600);
    open.open(path)
        .and_then(|mut file| file.write_all(certificate.to_secret_text().as_bytes()))
        .map_err(|error| fail(&format!("{}: {error}", path.display())))?;
    Ok(0)
}
