//! The CRD in kubectl: client-side apply, short name, category, columns, scale.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use flux_operator_testkit::cluster::{client, in_namespace, install_crds, kubectl};
use flux_operator_testkit::smallest_minicluster;

#[tokio::test]
async fn client_side_apply_accepts_the_generated_crds() -> Result<()> {
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/crd");
    // Client-side apply keeps the whole object in an annotation.
    let output = run(kubectl()?.args(["apply", "--server-side=false", "-f", crds]))?;
    assert!(output.contains("miniclusters.flux-framework.org"), "{output}");
    Ok(())
}

#[tokio::test]
async fn a_minicluster_has_a_short_name_a_category_columns_and_a_scale() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    in_namespace(&client, async |namespace| {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), smallest_minicluster("shown").to_string())?;
        let in_namespace = |arguments: &[&str]| -> Result<String> {
            run(kubectl()?.args(["--namespace", namespace]).args(arguments))
        };
        in_namespace(&["apply", "-f", &file.path().to_string_lossy()])?;
        for name in ["mc", "flux", "minicluster"] {
            let table = in_namespace(&["get", name])?;
            let header: Vec<&str> =
                table.lines().next().unwrap_or_default().split_whitespace().collect();
            assert_eq!(header, ["NAME", "STATUS", "READY", "EXIT", "AGE"], "kubectl get {name}");
            assert!(table.contains("shown"), "{table}");
        }
        let table = in_namespace(&["get", "mc", "-o", "wide"])?;
        let header: Vec<&str> =
            table.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(header, ["NAME", "STATUS", "READY", "JOINED", "LENDER", "EXIT", "AGE"]);
        in_namespace(&["scale", "minicluster/shown", "--replicas=1"])?;
        let refused = in_namespace(&["scale", "minicluster/shown", "--replicas=0"]).unwrap_err();
        assert!(format!("{refused:#}").contains("spec.size"), "{refused:#}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn kubectl_explain_describes_a_field() -> Result<()> {
    install_crds(&client().await?).await?;
    let text = run(kubectl()?.args(["explain", "minicluster.spec.containers.args"]))?;
    assert!(text.contains("without a shell"), "{text}");
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().context("failed to run kubectl")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kubectl failed: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
