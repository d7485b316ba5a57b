//! `flux shutdown`: shuts the instance down.

use std::ffi::OsString;

use super::{Failure, Outcome, connect};
use crate::client::{Client, ClientError};
use crate::message::Request;
use crate::options::{Flag, Syntax, Value, flag, switch};

const FLAGS: [Flag; 7] = [
    switch(None, "background"),
    switch(None, "quiet"),
    Flag { short: Some('v'), long: "verbose", value: Value::Optional },
    switch(Some('y'), "yes"),
    switch(Some('n'), "no"),
    switch(None, "skip-gc"),
    flag(None, "dump"),
];

pub fn main(arguments: &[OsString]) -> Outcome {
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(arguments)
        .map_err(|error| Failure::option("flux-shutdown", &error))?;
    let failed = |error: &_| Failure::client("flux-shutdown", error);
    let mut client = match options.words().first() {
        Some(uri) => Client::connect(uri).map_err(|error| failed(&error))?,
        None => connect("flux-shutdown")?,
    };
    if options.has("background") {
        client.send(Request::Shutdown).map_err(|error| failed(&error))?;
        return Ok(0);
    }
    match client.done(Request::Shutdown) {
        // The broker may exit before its last reply has arrived.
        Ok(()) | Err(ClientError::Read { .. }) => Ok(0),
        Err(error) => Err(failed(&error)),
    }
}
