//! Agents that cannot start report why, and never print a secret.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Agent, Cluster, argv, free_port, report_key, shell_line};
use flux_operator_wire::{FluxHome, ReportTarget, TerminationReason};

fn wait_for_failure(lead: &mut Agent) -> (TerminationReason, String) {
    assert_eq!(lead.wait(), 1);
    let termination = lead.termination();
    assert!(lead.output().contains(termination.reason.as_str()), "printed: {}", lead.output());
    lead.assert_nothing_left();
    (termination.reason, termination.message)
}

#[test]
fn a_lead_that_was_lost_too_often_does_not_run_its_program_again() {
    for (limit, index_failures, ignored_failures, runs) in
        [(0, "", "", true), (0, "1", "0", false), (3, "1", "2", true), (3, "2", "2", false)]
    {
        let mut cluster = Cluster::without_flux(argv(&["echo", "running"]));
        cluster.plan.restart_limit = limit;
        cluster.environment = vec![
            ("FLUX_OPERATOR_INDEX_FAILURES".into(), index_failures.into()),
            ("FLUX_OPERATOR_IGNORED_FAILURES".into(), ignored_failures.into()),
        ];
        let mut lead = cluster.start(0);
        if runs {
            assert_eq!(lead.wait(), 0);
        } else {
            assert_eq!(wait_for_failure(&mut lead).0, TerminationReason::RestartLimit);
        }
        assert_eq!(lead.output().contains("running"), runs);
    }
}

#[test]
fn an_invalid_certificate_is_rejected_and_not_printed() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    let file = cluster.path().join("secrets/curve.cert");
    let broken = std::fs::read_to_string(&file).unwrap().replace("public-key", "public");
    std::fs::write(&file, broken).unwrap();
    let mut lead = cluster.start(0);
    let (reason, message) = wait_for_failure(&mut lead);
    assert_eq!(reason, TerminationReason::BadCertificate);
    assert!(message.contains("line "), "{message}");
    assert!(!message.contains(&cluster.secret) && !lead.output().contains(&cluster.secret));
    std::fs::remove_file(&file).unwrap();
    let (reason, message) = wait_for_failure(&mut cluster.start(0));
    assert_eq!(reason, TerminationReason::BadCertificate);
    assert!(message.contains("curve.cert"), "{message}");
}

#[test]
fn a_missing_flux_is_reported_with_the_searched_path() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    let empty = cluster.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    cluster.flux = None;
    cluster.plan.flux = FluxHome::View("/no view".into());
    cluster.environment = vec![("PATH".into(), empty.display().to_string())];
    let (reason, message) = wait_for_failure(&mut cluster.start(0));
    assert_eq!(reason, TerminationReason::FluxMissing);
    let searched = format!("PATH={}:/no view/bin", empty.display());
    assert!(message.contains(&searched), "{message}");
    cluster.flux = Some(empty.join("flux"));
    let (reason, message) = wait_for_failure(&mut cluster.start(0));
    assert_eq!(reason, TerminationReason::FluxMissing);
    assert!(message.contains(empty.to_str().unwrap()), "{message}");
}

#[test]
fn an_old_flux_is_rejected_before_a_broker_starts() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    let script = "#!/bin/sh\necho \"$*\" >>\"$0.log\"\necho commands: 0.46.1\n";
    let flux = cluster.script("old-flux", script);
    cluster.flux = Some(flux.clone());
    let (reason, message) = wait_for_failure(&mut cluster.start(0));
    assert_eq!(reason, TerminationReason::FluxTooOld);
    let expected = format!(
        "Flux 0.46.1 is too old: 0.51.0 (June 2023) or newer is needed; update the image that has {flux:?}"
    );
    assert_eq!(message, expected);
    let asked = std::fs::read_to_string(cluster.path().join("old-flux.log")).unwrap();
    assert_eq!(asked, "version\n");
}

#[test]
fn an_invalid_plan_is_rejected() {
    let mut cluster = Cluster::without_flux(argv(&["true"]));
    let (reason, message) = wait_for_failure(&mut cluster.start(5));
    assert_eq!(reason, TerminationReason::BadPlan);
    assert!(message.contains("rank 5 is not in the rank table"), "{message}");
    // A file where the agent's directory should be.
    std::fs::write(cluster.path().join("0"), "").unwrap();
    assert_eq!(wait_for_failure(&mut cluster.start(0)).0, TerminationReason::BadPlan);
}

#[test]
fn secrets_are_only_in_their_files() {
    let show = "env; cat /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; flux getattr size";
    let mut cluster = Cluster::new(2, shell_line(show));
    cluster.plan.hooks.pre = "set -x; env".into();
    cluster.plan.broker.log_level = 7;
    let url = format!("http://127.0.0.1:{}", free_port());
    cluster.plan.report = Some(ReportTarget { url, uid: "uid".into() });
    let mut agents = cluster.start_all();
    assert_eq!(agents[0].wait(), 0, "{}", agents[0].output());
    agents[1].stop();
    assert_eq!(
        files_containing(&cluster, &cluster.secret),
        ["0/config/curve/curve.cert", "1/config/curve/curve.cert", "secrets/curve.cert"]
    );
    assert_eq!(files_containing(&cluster, &report_key().to_secret_text()), ["secrets/report.key"]);
}

/// The files of a cluster that contain this text.
fn files_containing(cluster: &Cluster, text: &str) -> Vec<String> {
    let mut holders: Vec<_> = files(cluster.path())
        .into_iter()
        .filter(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).contains(text))
        .map(|path| path.strip_prefix(cluster.path()).unwrap().display().to_string())
        .collect();
    holders.sort();
    holders
}

fn files(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let nested = entries.map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    nested.flatten().collect()
}
