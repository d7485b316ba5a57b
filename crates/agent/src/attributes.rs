//! The broker's command line and environment.
//!
//! Recent brokers reject unknown attributes, so an attribute that only some
//! versions of Flux have is set only for those.

use std::path::Path;

use flux_operator_flux::Version;

use crate::archive;
use crate::arguments::text;
use crate::layout::{Layout, local_uri};
use crate::rank::Rank;

/// Flux before 0.82 reads a broker's host name from this variable, if it differs from the
/// machine's. It must be set for this broker only: brokers started by jobs would use it too.
pub const HOSTNAME_VARIABLE: &str = "FLUX_FAKE_HOSTNAME";

/// What depends on the machine rather than on the plan.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The version of Flux, if it is known.
    pub version: Option<Version>,
    /// The host name of the machine.
    pub machine: String,
    /// This Flux has `flux cron`.
    pub cron: bool,
    /// The archive exists, so the instance's state is restored from it.
    pub restore: bool,
}

/// Inspects the machine. `flux` is the program that will be run, of this version.
pub fn look(rank: &Rank, flux: &Path, version: Option<Version>) -> Found {
    let archive = rank.plan.broker.archive.as_deref();
    Found {
        version,
        machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cron: has_cron(flux),
        restore: archive.is_some_and(|path| Path::new(path).exists()),
    }
}

/// The arguments of `flux`: the subcommand, its options, and `program` at the end.
///
/// Without a program to wrap the broker in, this is `flux broker`, without `flux start` in
/// between.
pub fn words(rank: &Rank, layout: &Layout, found: &Found, program: &[String]) -> Vec<String> {
    let attributes = attributes(rank, layout, found).into_iter();
    let options = [format!("--config-path={}", text(&layout.config()))]
        .into_iter()
        .chain(attributes.map(|attribute| format!("-S{attribute}")));
    let mut words = match &rank.plan.broker.wrap {
        // `flux start` has its own options for these only since 0.69.
        Some(wrap) => ["start".to_owned(), format!("--wrap={wrap}")]
            .into_iter()
            .chain(options.map(|option| format!("-o{option}")))
            .collect(),
        None => ["broker".to_owned()].into_iter().chain(options).collect::<Vec<_>>(),
    };
    words.extend_from_slice(program);
    words
}

/// The variable that sets the broker's host name, if one is needed.
pub fn host_name_variable(rank: &Rank, found: &Found) -> Option<(&'static str, String)> {
    let by_attribute = found.version.is_some_and(Version::has_hostname_attribute);
    let needed = !by_attribute && found.machine != rank.host;
    needed.then(|| (HOSTNAME_VARIABLE, rank.host.clone()))
}

fn attributes(rank: &Rank, layout: &Layout, found: &Found) -> Vec<String> {
    let options = &rank.plan.broker;
    let mut attributes = Vec::new();
    // Releases before 0.82 accept any attribute, so setting it is safe if the version is unknown.
    if found.version.is_none_or(Version::has_hostname_attribute) {
        attributes.push(format!("hostname={}", rank.host));
    }
    attributes.push(format!("rundir={}", text(&layout.run())));
    attributes.push(format!("statedir={}", text(&layout.state())));
    if options.socket {
        attributes.push(format!("local-uri={}", local_uri(&layout.socket())));
    }
    for (name, value) in
        [("tbon.topo", &options.topology), ("tbon.connect_timeout", &options.connect_timeout)]
    {
        if !value.is_empty() {
            attributes.push(format!("{name}={value}"));
        }
    }
    if options.log_connections {
        attributes.push("tbon.zmqdebug=1".to_owned());
    }
    attributes.push(format!("broker.quorum={}", rank.plan.quorum));
    let level = if rank.plan.logging.quiet { 0 } else { options.log_level };
    attributes.push(format!("log-stderr-level={level}"));
    attributes.push("log-stderr-mode=local".to_owned());
    if found.cron {
        attributes.push(format!("cron.directory={}", text(&layout.cron())));
    }
    if let Some(archive) = options.archive.as_deref().filter(|_| rank.leads()) {
        if found.restore {
            attributes.push(format!("content.restore={archive}"));
        }
        attributes.push(format!("content.dump={}", archive::draft(archive).display()));
    }
    attributes
}

/// Whether this `flux` has the subcommand `flux cron`.
fn has_cron(flux: &Path) -> bool {
    let Ok(flux) = flux.canonicalize() else { return false };
    let prefix = flux.parent().and_then(Path::parent);
    prefix.is_some_and(|prefix| prefix.join("libexec/flux/cmd/flux-cron").exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;
    use crate::rank::tests::{plan, rank};

    fn line(rank: &Rank, found: &Found, program: &[&str]) -> String {
        let program: Vec<_> = program.iter().map(|word| (*word).to_owned()).collect();
        words(rank, &Layout::new(Path::new("/r")), found, &program).join(" ")
    }

    #[test]
    fn a_host_name_is_set_in_the_way_that_the_release_has() {
        for (version, machine, attribute, variable) in [
            (Some("0.88.0"), "vm", true, false),
            (Some("0.82.0"), "vm", true, false),
            (Some("0.81.0"), "vm", false, true),
            (Some("0.68.0"), "vm", false, true),
            (None, "vm", true, true),
            // As in pods.
            (Some("0.88.0"), "fs-2", true, false),
            (Some("0.68.0"), "fs-2", false, false),
            (None, "fs-2", true, false),
        ] {
            let found = Found {
                version: version.map(|version| version.parse().unwrap()),
                machine: machine.to_owned(),
                ..Found::default()
            };
            let rank = rank(plan(), 2);
            let line = line(&rank, &found, &[]);
            assert_eq!(line.contains("-Shostname=fs-2 "), attribute, "{version:?}: {line}");
            let expected = variable.then(|| ("FLUX_FAKE_HOSTNAME", "fs-2".to_owned()));
            assert_eq!(host_name_variable(&rank, &found), expected, "{version:?}");
        }
    }

    #[test]
    fn a_broker_gets_its_name_its_places_and_the_plans_settings() {
        assert_eq!(
            line(&rank(plan(), 2), &Found::default(), &[]),
            "broker --config-path=/r/config/etc/flux/config -Shostname=fs-2 \
             -Srundir=/r/config/run/flux -Sstatedir=/r/config/var/lib/flux \
             -Slocal-uri=local:///r/config/run/flux/local -Stbon.topo=kary:256 \
             -Stbon.connect_timeout=5s -Sbroker.quorum=4 -Slog-stderr-level=6 \
             -Slog-stderr-mode=local"
        );
    }

    #[test]
    fn what_is_not_wanted_is_not_there() {
        let mut plan = plan();
        plan.broker.socket = false;
        plan.broker.topology.clear();
        plan.broker.connect_timeout.clear();
        plan.logging.quiet = true;
        plan.broker.log_connections = true;
        let line = line(&rank(plan, 0), &Found::default(), &[]);
        for absent in ["local-uri", "tbon.topo", "connect_timeout"] {
            assert!(!line.contains(absent), "{line}");
        }
        assert!(line.contains("-Stbon.zmqdebug=1") && line.contains("-Slog-stderr-level=0"));
    }

    #[test]
    fn a_wrapped_broker_goes_through_flux_start_and_keeps_its_program() {
        let mut plan = plan();
        plan.broker.wrap = Some("strace,-f".into());
        let line = line(&rank(plan, 0), &Found::default(), &["agent", "program"]);
        assert!(line.starts_with("start --wrap=strace,-f -o--config-path="), "{line}");
        assert!(line.ends_with("-o-Slog-stderr-mode=local agent program"), "{line}");
    }

    #[test]
    fn only_the_lead_has_an_archive_and_starts_only_from_one_that_exists() {
        let mut plan = plan();
        plan.broker.archive = Some("/archive".into());
        let found = Found { cron: true, restore: true, ..Found::default() };
        let lead = line(&rank(plan.clone(), 0), &found, &[]);
        assert!(lead.contains("-Scontent.restore=/archive -Scontent.dump=/.new-archive"), "{lead}");
        assert!(lead.contains("-Scron.directory=/r/config/etc/flux/system/cron.d"), "{lead}");
        assert!(!line(&rank(plan.clone(), 1), &found, &[]).contains("content."));
        let missing = Found { restore: false, ..found };
        let first = line(&rank(plan, 0), &missing, &[]);
        assert!(first.contains("content.dump") && !first.contains("restore"), "{first}");
    }

    #[test]
    fn cron_is_looked_for_where_flux_really_is() {
        let prefix = tempfile::tempdir().unwrap();
        let path = |name: &str| prefix.path().join(name);
        for directory in ["bin", "links", "libexec/flux/cmd"] {
            std::fs::create_dir_all(path(directory)).unwrap();
        }
        files::write(&path("bin/flux"), "", 0o755).unwrap();
        std::os::unix::fs::symlink(path("bin/flux"), path("links/flux")).unwrap();
        assert!(!has_cron(&path("links/flux")));
        files::write(&path("libexec/flux/cmd/flux-cron"), "", 0o755).unwrap();
        assert!(has_cron(&path("links/flux")));
        assert!(!has_cron(&path("bin/nothing")));
    }
}
