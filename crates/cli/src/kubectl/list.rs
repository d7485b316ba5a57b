//! `kubectl minicluster list`: list MiniClusters.

use std::process::ExitCode;

use anyhow::Result;
use flux_operator_api::MiniCluster;
use jiff::Timestamp;
use kube::ResourceExt;

use super::listing;
use super::outcome::waiting_reason;
use super::printed_list::ListOptions;
use super::session::Session;
use super::table::{format_age, table};

/// List MiniClusters.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    options: ListOptions,
}

pub(super) async fn run(session: &Session, arguments: &Arguments) -> Result<ExitCode> {
    let options = &arguments.options;
    let all = options.all_namespaces;
    let api = if all { session.all() } else { session.api() };
    let mut listed = match listing::list(api).await {
        Ok(listed) => listed.items,
        Err(error) => return Err(session.explain(error, "failed to list MiniClusters").await),
    };
    options
        .print(session, &mut listed, |listed, wide| rows(listed, all, wide, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

/// The columns of `kubectl get`, plus details with `wide`.
fn rows(listed: &[MiniCluster], namespaces: bool, wide: bool, now: Timestamp) -> String {
    let mut header = vec!["NAME", "STATUS", "READY", "EXIT", "AGE"];
    if namespaces {
        header.insert(0, "NAMESPACE");
    }
    if wide {
        header.extend(["JOINED", "LENDER", "IMAGE", "REASON"]);
    }
    let row = |minicluster: &MiniCluster| {
        let status = minicluster.status.clone().unwrap_or_default();
        let created = minicluster.creation_timestamp();
        let age = created.map(|time| format_age(now.as_second() - time.0.as_second()));
        let reason = waiting_reason(&status).unwrap_or_default();
        let joined = status.joined.to_string();
        let mut row = vec![
            minicluster.name_any(),
            status.phase,
            status.ready,
            status.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            age.unwrap_or_default(),
        ];
        if namespaces {
            row.insert(0, minicluster.namespace().unwrap_or_default());
        }
        if wide {
            let containers = &minicluster.spec.containers;
            let runner = containers.iter().find(|container| container.run_flux);
            let image = runner.or(containers.first()).map(|container| container.image.clone());
            row.extend([joined, status.lender, image.unwrap_or_default(), reason]);
        }
        row
    };
    let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
    table(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::minicluster;
    use serde_json::json;

    use super::*;

    fn listed() -> Vec<MiniCluster> {
        let conditions = json!({ "Ready": ["False", "Unschedulable", "no nodes"] });
        let status = json!({ "phase": "Pending", "ready": "0/2", "conditions": conditions });
        let mut waiting = minicluster(json!({ "containers": [{ "image": "busybox" }] }), status);
        waiting.metadata.namespace = Some("team".into());
        waiting.metadata.creation_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        vec![waiting]
    }

    fn shown(namespaces: bool, wide: bool) -> String {
        rows(&listed(), namespaces, wide, "2026-01-01T00:02:05Z".parse().unwrap())
    }

    #[test]
    fn the_table_has_kubectls_columns() {
        assert_eq!(
            shown(false, false),
            "NAME   STATUS    READY   EXIT   AGE\nfs     Pending   0/2            2m5s\n"
        );
    }

    #[test]
    fn namespaces_come_first_and_details_last() {
        let text = shown(true, true);
        let header: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        let kubectls = ["NAMESPACE", "NAME", "STATUS", "READY", "EXIT", "AGE"];
        assert_eq!(header, [&kubectls[..], &["JOINED", "LENDER", "IMAGE", "REASON"]].concat());
        assert!(text.contains("busybox   Unschedulable: no nodes"), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("team "), "{text}");
    }

    #[test]
    fn a_joiner_is_listed_with_its_lender() {
        let status = json!({ "phase": "Joined", "ready": "2/2", "lender": "other/first" });
        let joiner = minicluster(json!({ "containers": [{ "image": "busybox" }] }), status);
        let text = rows(&[joiner], false, true, Timestamp::UNIX_EPOCH);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["fs", "Joined", "2/2", "0", "other/first", "busybox"]);
    }
}
