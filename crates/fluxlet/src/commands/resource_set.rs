//! `flux R encode`: prints a resource set that the options describe.

use std::ffi::OsString;
use std::num::NonZeroU32;

use flux_operator_flux::{HostList, IdSet, ResourceSet};

use super::{CommandFailure, CommandResult};
use crate::options::{Flag, Syntax, flag, switch};

const FLAGS: [Flag; 6] = [
    flag(Some('H'), "hosts"),
    flag(Some('c'), "cores"),
    flag(Some('g'), "gpus"),
    flag(Some('r'), "ranks"),
    flag(Some('p'), "property"),
    switch(Some('l'), "local"),
];

pub fn main(arguments: &[OsString]) -> CommandResult {
    let fail = |text: String| CommandFailure::new(format!("flux-R: {text}"));
    let Some(rest) = arguments.strip_prefix(&[OsString::from("encode")]) else {
        return Err(fail("only `flux R encode` is supported".to_owned()));
    };
    let options = Syntax { flags: &FLAGS, permute: true }
        .parse(rest)
        .map_err(|error| CommandFailure::option("flux-R", &error))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts: HostList = options
        .get("hosts")
        .unwrap_or(&host)
        .parse()
        .map_err(|error| fail(format!("invalid --hosts: {error}")))?;
    let count = |name: &str| -> Result<u64, CommandFailure> {
        let Some(text) = options.get(name) else { return Ok(0) };
        let ids: IdSet =
            text.parse().map_err(|error| fail(format!("invalid --{name}: {error}")))?;
        Ok(ids.len())
    };
    let local = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = if options.has("local") { local as u64 } else { count("cores")? };
    let cores = u32::try_from(cores).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
    let gpus = u32::try_from(count("gpus")?).unwrap_or(0);
    let resources =
        ResourceSet::new(&hosts, cores, gpus).map_err(|error| fail(error.to_string()))?;
    println!("{}", crate::json::spaced(&resources));
    Ok(0)
}
