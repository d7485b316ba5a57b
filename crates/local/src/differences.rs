//! What a manifest asks for that one machine cannot provide, and what is done instead.

use std::path::Path;

use flux_operator_api::MiniClusterSpec;
use flux_operator_api::minicluster::Container;

/// Each difference as a sentence, printed once before the cluster starts.
pub(crate) fn differences(spec: &MiniClusterSpec, runner: &Container) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note_if = |asked: bool, sentence: String| {
        if asked {
            notes.push(sentence);
        }
    };
    let image = &runner.image;
    note_if(!image.is_empty(), format!("image {image:?} is not used: this machine's programs run"));
    for name in runner.volumes.keys().chain(runner.existing_volumes.keys()) {
        note_if(true, format!("volume {name:?} is not mounted: this machine's files are used"));
    }
    for name in runner.secrets.keys() {
        note_if(
            true,
            format!("variable {name} comes from a Secret and is not set: set it yourself"),
        );
    }
    let directory = &runner.working_dir;
    let missing = !directory.is_empty() && !Path::new(directory).is_dir();
    note_if(
        missing,
        format!("working directory {directory:?} does not exist: the current one is used"),
    );
    let flux = spec.flux.clone().unwrap_or_default();
    // A joiner has the certificate of its lender, here as in pods.
    let (secret, is_own) = (&flux.curve_cert_secret, !spec.is_joiner());
    note_if(
        is_own && !secret.is_empty(),
        format!("Secret {secret:?} is not used: a certificate is generated"),
    );
    note_if(
        is_own && !flux.curve_cert.is_empty(),
        "flux.curveCert is not used: a certificate is generated".into(),
    );
    let others = spec.containers.len() - 1;
    note_if(others > 0, format!("{others} sidecar(s) are not started"));
    let services = spec.services.len();
    note_if(services > 0, format!("{services} service(s) are not started"));
    note_if(runner.resources.is_some(), "resource limits are not enforced".into());
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_from_pods_is_noted() {
        let spec: MiniClusterSpec = serde_json::from_str(
            r#"{"containers": [{"image": "ubuntu", "workingDir": "/nowhere/at/all",
                "volumes": {"data": {"path": "/data", "claimName": "data"}}}]}"#,
        )
        .unwrap();
        let notes = differences(&spec, &spec.containers[0]);
        assert_eq!(notes.len(), 3, "{notes:?}");
        let secret = |flux: &str| -> MiniClusterSpec {
            serde_json::from_str(&format!(r#"{{"containers": [{{}}], "flux": {flux}}}"#)).unwrap()
        };
        let spec = secret(r#"{"curveCertSecret": "mine"}"#);
        assert_eq!(
            differences(&spec, &spec.containers[0]),
            ["Secret \"mine\" is not used: a certificate is generated"]
        );
        let spec = secret(r#"{"curveCertSecret": "mine", "join": {"name": "a"}}"#);
        assert_eq!(differences(&spec, &spec.containers[0]), Vec::<String>::new());
        let spec: MiniClusterSpec = serde_json::from_str(r#"{"containers": [{}]}"#).unwrap();
        assert_eq!(differences(&spec, &spec.containers[0]), Vec::<String>::new());
    }
}
