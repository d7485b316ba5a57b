//! The broker's command line and environment.
//!
//! Recent brokers reject unknown attributes, so an attribute that only some
//! versions of Flux have is set only for those.

use std::path::Path;

use flux_operator_flux::Version;

use crate::archive;
use crate::arguments::text;
use crate::layout::{Layout, local_uri};
use crate::rank_plan::RankPlan;

/// Flux before 0.82 reads a broker's host name from this variable, if it differs from the
/// machine's. It must be set for this broker only: brokers started by jobs would use it too.
pub const HOSTNAME_VARIABLE: &str = "FLUX_FAKE_HOSTNAME";

/// What depends on the machine rather than on the plan.
#[derive(Clone, Debug, Default)]
pub struct MachineFacts {
    /// The version of Flux, if it is known.
    pub version: Option<Version>,
    /// The host name of the machine.
    pub host_name: String,
    /// This Flux has `flux cron`.
    pub has_cron: bool,
    /// The archive exists, so the instance's state is restored from it.
    pub archive_exists: bool,
}

/// Inspects the machine. `flux` is the program that will be run, of this version.
pub fn inspect_machine(rank: &RankPlan, flux: &Path, version: Option<Version>) -> MachineFacts {
    let archive = rank.plan.broker.archive.as_deref();
    MachineFacts {
        version,
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        has_cron: has_cron(flux),
        archive_exists: archive.is_some_and(|path| Path::new(path).exists()),
    }
}

/// The arguments of `flux`: the subcommand, its options, and `program` at the end.
///
/// Without a program to wrap the broker in, this is `flux broker`, without `flux start` in
/// between.
pub fn build(
    rank: &RankPlan,
    layout: &Layout,
    found: &MachineFacts,
    program: &[String],
) -> Vec<String> {
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
pub fn host_name_variable(rank: &RankPlan, found: &MachineFacts) -> Option<(&'static str, String)> {
    let by_attribute = found.version.is_some_and(Version::has_hostname_attribute);
    let needed = !by_attribute && found.host_name != rank.host;
    needed.then(|| (HOSTNAME_VARIABLE, rank.host.clone()))
}

fn attributes(rank: &RankPlan, layout: &Layout, found: &MachineFacts) -> Vec<String> {
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
    if found.has_cron {
        attributes.push(format!("cron.directory={}", text(&layout.cron())));
    }
    if let Some(archive) = options.archive.as_deref().filter(|_| rank.is_lead()) {
        if found.archive_exists {
            attributes.push(format!("content.restore={archive}"));
        }
        attributes.push(format!("content.dump={}", archive::draft_path(archive).display()));
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
    use crate::rank_plan::tests::{plan, rank};

    fn command_line(rank: &RankPlan, found: &MachineFacts, program: &[&str]) -> String {
        let program: Vec<_> = program.iter().map(|word| (*word).to_owned()).collect();
        build(rank, &Layout::new(Path::new("/r")), found, &program).join(" ")
    }

    #[test]
    fn the_host_name_is_set_in_the_way_the_release_supports() {
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
            let found = MachineFacts {
                version: version.map(|version| version.parse().unwrap()),
                host_name: machine.to_owned(),
                ..MachineFacts::default()
            };
            let rank = rank(plan(), 2);
            let line = command_line(&rank, &found, &[]);
            assert_eq!(line.contains("-Shostname=fs-2 "), attribute, "{version:?}: {line}");
            let expected = variable.then(|| ("FLUX_FAKE_HOSTNAME", "fs-2".to_owned()));
            assert_eq!(host_name_variable(&rank, &found), expected, "{version:?}");
        }
    }

    #[test]
    fn a_broker_gets_its_host_name_its_paths_and_the_plans_settings() {
        assert_eq!(
            command_line(&rank(plan(), 2), &MachineFacts::default(), &[]),
            "broker --config-path=/r/config/etc/flux/config -Shostname=fs-2 \
             -Srundir=/r/config/run/flux -Sstatedir=/r/config/var/lib/flux \
             -Slocal-uri=local:///r/config/run/flux/local -Stbon.topo=kary:256 \
             -Stbon.connect_timeout=5s -Sbroker.quorum=4 -Slog-stderr-level=6 \
             -Slog-stderr-mode=local"
        );
    }

    #[test]
    fn unset_options_are_omitted() {
        let mut plan = plan();
        plan.broker.socket = false;
        plan.broker.topology.clear();
        plan.broker.connect_timeout.clear();
        plan.logging.quiet = true;
        plan.broker.log_connections = true;
        let line = command_line(&rank(plan, 0), &MachineFacts::default(), &[]);
        for absent in ["local-uri", "tbon.topo", "connect_timeout"] {
            assert!(!line.contains(absent), "{line}");
        }
        assert!(line.contains("-Stbon.zmqdebug=1") && line.contains("-Slog-stderr-level=0"));
    }

    #[test]
    fn a_wrapped_broker_is_started_by_flux_start_and_keeps_its_program() {
        let mut plan = plan();
        plan.broker.wrap = Some("strace,-f".into());
        let line = command_line(&rank(plan, 0), &MachineFacts::default(), &["agent", "program"]);
        assert!(line.starts_with("start --wrap=strace,-f -o--config-path="), "{line}");
        assert!(line.ends_with("-o-Slog-stderr-mode=local agent program"), "{line}");
    }

    #[test]
    fn only_the_lead_has_an_archive_and_restores_it_only_if_it_exists() {
        let mut plan = plan();
        plan.broker.archive = Some("/archive".into());
        let found =
            MachineFacts { has_cron: true, archive_exists: true, ..MachineFacts::default() };
        let lead = command_line(&rank(plan.clone(), 0), &found, &[]);
        assert!(lead.contains("-Scontent.restore=/archive -Scontent.dump=/.new-archive"), "{lead}");
        assert!(lead.contains("-Scron.directory=/r/config/etc/flux/system/cron.d"), "{lead}");
        assert!(!command_line(&rank(plan.clone(), 1), &found, &[]).contains("content."));
        let missing = MachineFacts { archive_exists: false, ..found };
        let first = command_line(&rank(plan, 0), &missing, &[]);
        assert!(first.contains("content.dump") && !first.contains("restore"), "{first}");
    }

    #[test]
    fn flux_cron_is_searched_for_in_the_resolved_prefix() {
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
