//! `flux kvs get`, of jobspecs only: there is no key-value store.

use std::ffi::OsString;

use flux_operator_flux::JobId;

use super::{CommandFailure, CommandResult, connect};
use crate::message::Request;

pub fn main(arguments: &[OsString]) -> CommandResult {
    let words: Vec<String> =
        arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let Some(("get", keys)) = words.split_first().map(|(first, rest)| (first.as_str(), rest))
    else {
        return Err(CommandFailure::new("Usage: flux kvs get KEY..."));
    };
    let mut client = connect("flux-kvs")?;
    // As Flux does, it prints what is before the first key that does not exist.
    for key in keys {
        let missing = || CommandFailure::new(format!("flux-kvs: {key}: No such file or directory"));
        let id = key.strip_prefix("job.").and_then(|key| key.strip_suffix(".jobspec"));
        let id: JobId = id.and_then(|id| id.parse().ok()).ok_or_else(missing)?;
        let request = Request::Info { id, key: "jobspec".to_owned() };
        let text = client.text(request).map_err(|error| match error.refusal() {
            Some(_) => missing(),
            None => CommandFailure::client("flux-kvs", &error),
        })?;
        println!("{text}");
    }
    Ok(0)
}
