//! `flux-operator crd` prints what `kubectl apply` accepts.

use std::process::Command;

use flux_operator_api::{crd, manifest};

#[test]
fn crd_prints_every_crd_as_yaml() {
    let output = Command::new(env!("CARGO_BIN_EXE_flux-operator")).arg("crd").output().unwrap();
    assert!(output.status.success());
    let printed = manifest::read(&output.stdout).unwrap();
    assert_eq!(printed.warnings, Vec::<String>::new());
    let printed: Vec<_> = printed.documents.into_iter().map(|document| document.value).collect();
    let expected: Vec<_> =
        crd::all().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect();
    assert_eq!(printed, expected);
}
