//! A server, and settings for it.

use std::time::Duration;

use flux_operator_gke::testing::{FakeGoogle, Inside};
use flux_operator_gke::{Failure, Google, Pace, Settings, down, up};
use serde_json::{Value, json};

/// The path of the cluster of [`settings`].
pub const CLUSTER: &str = "projects/science/locations/us-central1-a/clusters/burst-0123456789ab";

/// The path of its Secret.
pub const SECRET: &str = "/home/api/v1/namespaces/team/secrets/burst-0123456789ab-kubeconfig";

/// Tests do not wait.
pub const PACE: Pace = Pace { first: Duration::from_millis(1), longest: Duration::from_millis(2) };

/// The stack of a test. Unoptimized, Google's types with their hundreds of fields need more than the
/// 2 MB that a test has.
const STACK: usize = 16 * 1024 * 1024;

/// Runs a test.
pub fn run_test<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test());
    });
    if let Err(panic) = thread.unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}

/// A server whose operations take two questions.
pub async fn fake() -> FakeGoogle {
    flux_operator_gke::use_ring();
    let fake = FakeGoogle::start("127.0.0.1:0", Inside::Fake).await.unwrap();
    fake.set_slowness(2);
    fake
}

/// The environment of a Job.
pub fn variables(name: &str) -> Option<String> {
    Some(match name {
        "BURST_NAME" => "burst-0123456789ab".into(),
        "BURST_NODES" => "2".into(),
        "BURST_SECRET" => "burst-0123456789ab-kubeconfig".into(),
        "BURST_NAMESPACE" => "team".into(),
        "GKE_SETTINGS" => json!({ "project": "science", "location": "us-central1-a",
            "machineType": "c3-standard-8", "nodeServiceAccount": "nodes@science.example",
            "labels": { "team": "hpc" } })
        .to_string(),
        _ => return None,
    })
}

/// Settings for a server.
pub fn settings(fake: &FakeGoogle) -> Settings {
    Settings { places: fake.places(), ..Settings::of(variables).unwrap() }
}

/// The API server at home.
pub fn home(fake: &FakeGoogle) -> kube::Client {
    let url = format!("{}/home", fake.url()).parse().unwrap();
    kube::Client::try_from(kube::Config::new(url)).unwrap()
}

/// Runs `up`.
pub async fn run_up(fake: &FakeGoogle, settings: &Settings) -> Result<(), Failure> {
    up(&Google::of(settings).await?, &home(fake), settings, PACE).await
}

/// Runs `down`.
pub async fn run_down(settings: &Settings) -> Result<(), Failure> {
    down(&Google::of(settings).await?, settings, PACE).await
}

/// The kubeconfig in the Secret.
pub fn kubeconfig(fake: &FakeGoogle) -> Value {
    let secret = fake.object(SECRET).expect("the Secret is written");
    let text = secret["stringData"]["kubeconfig"].as_str().unwrap().to_owned();
    serde_json::from_str(&text).unwrap()
}

/// Whether everything is as `up` leaves it.
pub fn check_made(fake: &FakeGoogle) {
    assert_eq!(fake.clusters().len(), 1);
    let cluster = fake.cluster(CLUSTER).expect("the cluster has the name of the burst");
    assert_eq!(cluster["status"], 2, "it runs");
    assert_eq!(kubeconfig(fake)["users"][0]["user"]["token"], "inner-token");
}

/// Settings with the key of a service account, whose tokens this server gives.
pub fn with_key(settings: Settings, url: &str) -> Settings {
    let key = json!({ "type": "service_account", "project_id": "science", "private_key_id": "1",
        "private_key": include_str!("../key.pem"), "client_email": "burst@science.example",
        "token_uri": format!("{url}/token") });
    let with_key = Settings::of(|name| match name {
        "GKE_CREDENTIALS" => Some(key.to_string()),
        _ => variables(name),
    });
    Settings { credentials: with_key.unwrap().credentials, ..settings }
}
