//! The file of an invitation: a Secret and a MiniCluster for the other Kubernetes cluster.

use anyhow::{Context, Result};
use flux_operator_api::MiniCluster;
use flux_operator_api::minicluster::Invitation;
use flux_operator_plan::{InvitationFile, shown_expiry};
use kube::ResourceExt;
use serde::Serialize;

use super::invitation::count_of_ranks;

/// The file as text: a comment, and two YAML documents.
pub(super) fn text(
    lender: &MiniCluster,
    invitation: &Invitation,
    file: &InvitationFile,
) -> Result<String> {
    // The operator's fields have no place in a manifest.
    let minicluster = MiniCluster { status: None, ..file.minicluster.clone() };
    Ok(comment(lender, invitation) + &document(&file.secret)? + &document(&minicluster)?)
}

fn document(object: &impl Serialize) -> Result<String> {
    let yaml = serde_saphyr::to_string(object).context("failed to write an object as YAML")?;
    Ok(format!("---\n{yaml}"))
}

fn comment(lender: &MiniCluster, invitation: &Invitation) -> String {
    let (cluster, namespace) = (lender.name_any(), lender.namespace().unwrap_or_default());
    let Invitation { name, ranks, expires, property: _, keep: _ } = invitation;
    let (ranks, expires) = (count_of_ranks(*ranks), shown_expiry(expires));
    format!(
        "# Invitation {name:?} to the Flux instance of the MiniCluster {cluster:?} in namespace \
         {namespace:?},\n\
         # for {ranks}, until {expires}.\n\
         #\n\
         # Use it in another Kubernetes cluster with `kubectl apply -f join.yaml`. There it creates\n\
         # brokers that join the instance. The namespace is that of kubectl, or given with -n.\n\
         #\n\
         # Keep this file secret: whoever can read it owns the Flux instance, and can run any\n\
         # program in it.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{invitation, lender};
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn file(bytes: Vec<u8>, environment: Value) -> InvitationFile {
        let mut secret = Secret::default();
        secret.metadata.name = Some("fs-a-invitation".into());
        secret.data = Some([("munge.key".to_owned(), ByteString(bytes))].into());
        let container = json!({ "image": "busybox", "environment": environment });
        let spec = json!({ "size": 2, "containers": [container] });
        let mut minicluster = MiniCluster::new("fs-a", serde_json::from_value(spec).unwrap());
        minicluster.status = Some(Default::default());
        InvitationFile { secret, minicluster, left_out: Vec::new() }
    }

    fn parsed(file: &InvitationFile) -> Vec<Value> {
        let invitation = invitation("a", 2, "2026-01-01T01:00:00Z");
        let text = text(&lender(), &invitation, file).unwrap();
        serde_saphyr::from_multiple(&text).unwrap()
    }

    #[test]
    fn a_comment_says_what_it_is_and_how_to_use_it() {
        let invitation = invitation("a", 2, "2026-01-01T01:00:00.123456Z");
        let text = text(&lender(), &invitation, &file(Vec::new(), json!({}))).unwrap();
        let comment: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(comment.iter().all(|line| line.len() <= 100), "{comment:?}");
        let comment = comment.join("\n");
        for expected in [
            "Invitation \"a\" to the Flux instance of the MiniCluster \"fs\" in namespace \"near\"",
            "for 2 ranks, until 2026-01-01T01:00:00Z.",
            "`kubectl apply -f join.yaml`",
            "owns the Flux instance",
        ] {
            assert!(comment.contains(expected), "{expected}: {comment}");
        }
        assert!(text.starts_with("# ") && text.contains("\n---\napiVersion: v1\nkind: Secret\n"));
    }

    #[test]
    fn the_objects_have_no_namespace_no_status_and_no_empty_fields() {
        let documents = parsed(&file(vec![0], json!({ "EMPTY": "" })));
        let [secret, minicluster] = documents.as_slice() else { panic!("{documents:?}") };
        assert_eq!(secret["metadata"], json!({ "name": "fs-a-invitation" }));
        assert_eq!(minicluster["metadata"], json!({ "name": "fs-a" }));
        assert_eq!(minicluster.get("status"), None);
        // An empty variable is not an empty field.
        let environment = json!({ "EMPTY": "" });
        assert_eq!(minicluster["spec"]["containers"][0]["environment"], environment);
        for document in &documents {
            assert!(!has_empty_field(document), "{document}");
        }
    }

    fn has_empty_field(value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty() || items.iter().any(has_empty_field),
            Value::Object(fields) => {
                let mut fields = fields.iter().filter(|(name, _)| *name != "environment");
                fields.any(|(_, value)| {
                    *value == json!("") || *value == json!({}) || has_empty_field(value)
                })
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }

    proptest! {
        /// Also text that other versions of YAML would read as a number, a time or a truth value.
        #[test]
        fn nothing_changes_on_the_way(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            value in prop_oneof![
                "\\PC{0,120}",
                "[ \\t\\n#:'\"|>~-]{0,8}[a-z0-9 \\n]{0,100}",
                "yes|no|on|off|null|~|0x1f|0o7|017|1:30|1e3|\\.inf|2026-01-01|=|<<",
            ],
        ) {
            let file = file(bytes, json!({ "V": value.clone() }));
            let documents = parsed(&file);
            let secret: Secret = serde_json::from_value(documents[0].clone()).unwrap();
            prop_assert_eq!(&secret, &file.secret);
            prop_assert_eq!(&documents[1]["spec"]["containers"][0]["environment"]["V"], &json!(value));
        }
    }
}
