//! The offline check and the API server agree on random manifests, generated from the schema with
//! values near its limits.

use anyhow::Result;
use fastrand::Rng;
use flux_operator_api::{crd, validate};
use flux_operator_testkit::cluster::{client, install_crds, refusal};
use flux_operator_testkit::{merge, smallest_of};
use futures::{StreamExt, stream};
use serde_json::{Value, json};

/// Enough to exercise every rule several times; a thousand take about 5 s.
const MANIFESTS: u64 = 1000;
const CONCURRENCY: usize = 8;

#[tokio::test]
async fn server_and_offline_check_agree_on_random_manifests() -> Result<()> {
    let client = client().await?;
    install_crds(&client).await?;
    let kinds: Vec<(String, Value)> =
        crd::all().iter().map(|crd| (crd.spec.names.kind.clone(), crd::schema(crd))).collect();
    let verdicts: Vec<Result<(bool, Option<String>)>> = stream::iter(0..MANIFESTS)
        .map(|seed| {
            let mut random = Rng::with_seed(seed);
            let (kind, schema) = random.choice(&kinds).expect("there are kinds");
            let manifest = random_manifest(kind, schema, &mut random);
            let client = &client;
            async move {
                let server = refusal(client, &manifest).await?;
                let offline = validate::check_schema_and_rules(&manifest);
                let differ = server.is_some() == offline.is_empty();
                let report = || format!("{manifest}\n  server: {server:?}\n  offline: {offline:?}");
                Ok((server.is_none(), differ.then(report)))
            }
        })
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await;
    let verdicts: Vec<(bool, Option<String>)> = verdicts.into_iter().collect::<Result<_>>()?;
    let differing: Vec<&String> =
        verdicts.iter().filter_map(|(_, report)| report.as_ref()).collect();
    assert!(differing.is_empty(), "{} differ, such as\n{}", differing.len(), differing[0]);
    let accepted = verdicts.iter().filter(|(accepted, _)| *accepted).count();
    assert!((50..950).contains(&accepted), "{accepted} accepted: the test is too one-sided");
    Ok(())
}

/// The smallest object of a kind with a few random fields; the same for the same seed.
fn random_manifest(kind: &str, schema: &Value, random: &mut Rng) -> Value {
    let spec = &schema["properties"]["spec"];
    let name = random.choice(["a", "b-c", "1a", "A", "a.b"]).expect("not empty");
    let mut manifest = smallest_of(kind, name);
    for _ in 0..random.u8(1..6) {
        let mut patch = random_field(spec, random);
        if random.u8(0..4) > 0 {
            // Usually keep `containers`, which must not be empty.
            patch.as_object_mut().map(|fields| fields.remove("containers"));
        }
        merge(&mut manifest["spec"], &patch);
    }
    manifest
}

/// An object with one field, chosen and filled at random.
fn random_field(schema: &Value, random: &mut Rng) -> Value {
    let properties = schema["properties"].as_object().expect("only called for objects with fields");
    let (name, field) = random.choice(properties.iter()).expect("objects here have fields");
    json!({ name.as_str(): random_value(field, random) })
}

fn random_value(schema: &Value, random: &mut Rng) -> Value {
    if random.u8(0..60) == 0 {
        return random
            .choice([json!(null), json!("text"), json!(7), json!([]), json!({})])
            .expect("not empty");
    }
    if let Some(words) = schema["enum"].as_array() {
        let known = random.choice(words).expect("an enum has words").clone();
        return if random.u8(0..8) == 0 { json!("other") } else { known };
    }
    match schema["type"].as_str() {
        Some("boolean") => json!(random.bool()),
        Some("integer") => {
            json!(random.choice([-1, 0, 1, 2, 3, 8, 65_535, 100_001]).expect("not empty"))
        }
        Some("array") => {
            (0..random.usize(0..3)).map(|_| random_value(&schema["items"], random)).collect()
        }
        Some("object") if schema["properties"].is_object() => {
            let mut object = json!({});
            for _ in 0..random.u8(0..4) {
                merge(&mut object, &random_field(schema, random));
            }
            object
        }
        Some("object") => json!({ "a": random_value(&schema["additionalProperties"], random) }),
        _ => json!(
            random
                .choice(["", "a", "web", "A b", "/x", "1", "1Gi", "5s", "kary:2"])
                .expect("not empty")
        ),
    }
}
