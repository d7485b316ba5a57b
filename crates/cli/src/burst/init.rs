//! `flux-operator burst init`: write the configuration of an instance that others can join.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use flux_operator_flux::{Certificate, Metadata, SecretKey};
use flux_operator_plan::bursting::NewInstance;

use super::{BROKER_TOML, absolute};
use crate::number::number;
use crate::{image, print};

/// Write the configuration of a Flux instance with spare ranks, for brokers that join later.
///
/// The folder gets broker.toml and curve.cert. Who can read curve.cert has full access to the instance.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Folder to write to. It is created if it is missing.
    directory: PathBuf,

    /// Address at which brokers elsewhere reach this machine. Default: that of its route to the internet.
    #[arg(long)]
    address: Option<String>,

    /// Port of the instance.
    #[arg(long, default_value_t = 8050, value_parser = number(1..=u16::MAX))]
    port: u16,

    /// Number of spare ranks: the largest number of nodes that can join.
    #[arg(long, default_value_t = 8, value_parser = number(1..=1024_u32))]
    ranks: u32,

    /// Cores of this machine that jobs may use. Default: all.
    #[arg(long, value_parser = number(1..=65_536_u32))]
    cores: Option<u32>,

    /// Cores of each node that joins. Default: as many as this machine.
    #[arg(long, value_parser = number(1..=65_536_u32))]
    spare_cores: Option<u32>,

    /// GPUs of each node that joins.
    #[arg(long, default_value_t = 0, value_parser = number(0..=1024_u32))]
    spare_gpus: u32,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let address = match &arguments.address {
        Some(address) => address.clone(),
        None => own_address().context(
            "the address of this machine is not known\nhint: give --address, at which pods elsewhere \
             reach it",
        )?,
    };
    check_address(&address)?;
    let cores = arguments.cores.unwrap_or_else(|| flux_operator_agent::count_cores(None).get());
    fs::create_dir_all(&arguments.directory)
        .with_context(|| format!("failed to create {:?}", arguments.directory))?;
    let directory = absolute(&arguments.directory)?;
    let (config, certificate) = (directory.join(BROKER_TOML), directory.join("curve.cert"));
    for path in [&config, &certificate] {
        if path.exists() {
            bail!("{path:?} exists\nhint: remove it, or choose another folder");
        }
    }
    let instance = NewInstance {
        host: host_name(),
        bind: bind_address(&address),
        address,
        port: arguments.port,
        certificate: certificate.display().to_string(),
        spare_ranks: arguments.ranks,
        cores,
        spare_cores: arguments.spare_cores.unwrap_or(cores),
        spare_gpus: arguments.spare_gpus,
    };
    let text = instance.config().context("the host name of this machine is not valid for Flux")?;
    let text = text.to_toml().context("failed to write the configuration")?;
    let key = SecretKey::from_os().context("failed to make a key")?;
    let metadata = Metadata::new("flux-operator burst").context("failed to make a certificate")?;
    let secret = Certificate::new(key, metadata).to_secret_text();
    write(&certificate, secret.as_bytes(), 0o600)?;
    write(&config, text.as_bytes(), 0o644)?;
    let folder = shell_word(&directory);
    let image = match image::BUILT_IN {
        Some(_) => "",
        None => " --agent-image IMAGE",
    };
    print::output(format!(
        "{}: brokers elsewhere reach this machine at {}, port {}\n\
         start the instance:  flux start --config-path={folder} -Sbroker.quorum=1\n\
         then, inside it:     flux-operator burst --config-path {folder} --policy FILE \
         --kubeconfig NAME=FILE{image}\n",
        directory.display(),
        instance.address,
        instance.port
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what is not an address, and one at which no other machine reaches this one.
fn check_address(address: &str) -> Result<()> {
    let what_it_is = "hint: give --address the host name or the IP address at which pods elsewhere reach this \
                      machine, such as laptop.example.org, 192.0.2.7 or 2001:db8::7, without a port (--port)";
    let is_local = match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) if is_host_name(address) => address == "localhost",
        Err(_) => bail!("{address:?} is neither a host name nor an IP address\n{what_it_is}"),
    };
    if is_local {
        bail!("{address:?} is this machine itself for every pod\n{what_it_is}");
    }
    Ok(())
}

/// Whether this is a host name (RFC 1123); with underscores, which some networks have. The last label of one
/// is not a number: that would be a wrong IPv4 address.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        (1..=63).contains(&label.len())
            && label.chars().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.chars().all(|letter| letter.is_ascii_digit());
    name.len() <= 253
        && name.split('.').all(is_label)
        && !name.rsplit('.').next().is_some_and(is_number)
}

/// A path as one word of a shell.
fn shell_word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@%:,".contains(letter);
    match path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

/// The address of the route to the internet. Nothing is sent: connecting only chooses a route.
fn own_address() -> Option<String> {
    let probe = |own: IpAddr, other: &str| {
        let socket = UdpSocket::bind((own, 0)).ok()?;
        socket.connect((other, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    };
    // Addresses of documentation, which every default route leads to (RFC 5737, RFC 3849).
    probe(Ipv4Addr::UNSPECIFIED.into(), "198.51.100.1")
        .or_else(|| probe(Ipv6Addr::UNSPECIFIED.into(), "2001:db8::1"))
}

/// Where the instance listens: at the address, if that is one of this machine, else at all.
fn bind_address(address: &str) -> IpAddr {
    match address.parse::<IpAddr>() {
        Ok(address) if TcpListener::bind((address, 0)).is_ok() => address,
        Ok(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
        Ok(IpAddr::V4(_)) | Err(_) => Ipv4Addr::UNSPECIFIED.into(),
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn write(path: &Path, content: &[u8], mode: u32) -> Result<()> {
    let written = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    written
        .and_then(|mut file| file.write_all(content))
        .with_context(|| format!("failed to write {path:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_name_or_an_ip_address_of_this_machine() {
        for good in ["laptop", "laptop.example.org", "my_laptop", "192.0.2.7", "2001:db8::7", "7up"]
        {
            check_address(good).unwrap();
        }
        let no_address = [
            "",
            "a b",
            "192.0.2.7:8050",
            "300.1.1.1",
            "https://x",
            "a\"b",
            "x.",
            "[::1]",
            "fe80::1%eth0",
        ];
        for bad in no_address {
            let error = check_address(bad).unwrap_err().to_string();
            assert!(error.contains("neither a host name nor an IP address\nhint: "), "{error}");
        }
        for own in ["localhost", "127.0.0.1", "::1", "0.0.0.0"] {
            let error = check_address(own).unwrap_err().to_string();
            assert!(
                error.contains("this machine itself") && error.contains("192.0.2.7"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_folder_is_one_word_of_a_shell() {
        for (path, word) in [
            ("/home/me/laptop-1", "/home/me/laptop-1"),
            ("/home/me/my laptop", "'/home/me/my laptop'"),
            ("/home/me/it's", r"'/home/me/it'\''s'"),
        ] {
            assert_eq!(shell_word(Path::new(path)), word);
        }
    }
}
