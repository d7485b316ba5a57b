//! `flux shutdown`: shuts the instance down.

use std::ffi::OsString;

use super::{CommandFailure, CommandResult, connect};
use crate::client::{Client, ClientError};
use crate::message::Request;
use crate::options::{Flag, Syntax, ValueMode, flag, switch};

const FLAGS: [Flag; 7] = [
    switch(None, "background"),
    switch(None, "quiet"),
    Flag { short: Some('v'), long: "verbose", value: ValueMode::Optional },
    switch(Some('y'), "yes"),
    switch(Some('n'), "no"),
    switch(None, "skip-gc"),
    flag(None, "dump"),
];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(arguments)
        .map_err(|error| CommandFailure::option("flux-shutdown", &error))?;
    let failed = |error: &_| CommandFailure::client("flux-shutdown", error);
    let mut client = match options.positional().first() {
        Some(uri) => Client::connect(uri).map_err(|error| failed(&error))?,
        None => connect("flux-shutdown")?,
    };
    if options.has("background") {
        client.send(Request::Shutdown).map_err(|error| failed(&error))?;
        return Ok(0);
    }
    match client.execute(Request::Shutdown) {
        // The broker may exit before its last reply has arrived.
        Ok(()) | Err(ClientError::Read { .. }) => Ok(0),
        Err(error) => Err(failed(&error)),
    }
}
