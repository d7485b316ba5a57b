//! Manifests of users of the Go operator are accepted unchanged.

use anyhow::{Context, Result};
use flux_operator_api::{manifest, validate};
use flux_operator_testkit::cluster::{client, install_crds, refusal};
use flux_operator_testkit::corpus;

/// Manifests for which even a lenient Go operator did not create a Job, and which are refused here,
/// with the reason.
const REFUSED: &[(&str, &str)] = &[];

#[tokio::test]
async fn the_corpus_is_accepted_by_strict_decoding_and_offline() -> Result<()> {
    let examples = corpus::manifests();
    let client = client().await?;
    install_crds(&client).await?;
    let mut wrong = Vec::new();
    for example in &examples {
        let refused = REFUSED.iter().any(|(name, _)| *name == example.name);
        assert!(!(refused && example.strict), "{} must be accepted", example.name);
        for document in manifest::read(example.text.as_bytes())
            .with_context(|| example.name.clone())?
            .documents
            .iter()
            .filter(|document| document.kind() == Some("MiniCluster"))
        {
            let server = refusal(&client, &document.value).await?;
            let offline = validate::check_document(document);
            if server.is_some() != refused || offline.is_empty() == refused {
                wrong.push(format!("{}: server {server:?}, offline {offline:?}", example.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{} manifests of the corpus agree", examples.len());
    Ok(())
}
