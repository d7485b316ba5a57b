//! Tokens of Google, for its API and for the API server of a new cluster.
//!
//! With Workload Identity they come from the metadata server. With a key, Google's API accepts a token
//! that is signed with it; an API server of Kubernetes is known to accept OAuth tokens, so an assertion is
//! exchanged for one, as RFC 7523 has it.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use flux_operator_wire::GkeFailure;
use google_cloud_auth::credentials::{AccessTokenCredentials, Credentials, mds, service_account};
use google_cloud_auth::signer::Signer;
use serde::Deserialize;
use serde_json::json;

use crate::settings::{Key, Settings};
use crate::trouble::{Failure, Trouble, chain, short};

/// What a token is good for. What it may do is decided by the rights of the account.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// How long an assertion is valid: the longest that Google accepts.
const ASSERTION_SECONDS: u64 = 3600;

/// Where tokens come from.
pub(crate) enum Tokens {
    /// The metadata server, as with Workload Identity.
    Metadata(AccessTokenCredentials),
    /// The key of a service account.
    Key { credentials: AccessTokenCredentials, signer: Signer, email: String, server: String },
}

/// What is read from a key besides what Google's client reads.
#[derive(Deserialize)]
struct KeyFacts {
    client_email: String,
    token_uri: String,
}

#[derive(Deserialize)]
struct Exchanged {
    access_token: String,
}

impl Tokens {
    /// Where the settings say.
    pub(crate) fn of(settings: &Settings) -> Result<Tokens, Failure> {
        match &settings.credentials {
            None => Tokens::of_metadata(settings.places.metadata.as_deref()),
            Some(key) => Tokens::of_key(key),
        }
    }

    fn of_metadata(endpoint: Option<&str>) -> Result<Tokens, Failure> {
        let mut builder = mds::Builder::default();
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        let credentials = builder.build_access_token_credentials();
        let credentials =
            credentials.map_err(|error| Failure::new(GkeFailure::Credentials, chain(&error)))?;
        Ok(Tokens::Metadata(credentials))
    }

    fn of_key(Key(key): &Key) -> Result<Tokens, Failure> {
        // The parser's message may contain a part of the key.
        let refused = |what: &str| {
            let message = format!("{what}: it must be the key of a service account, as JSON");
            Failure::new(GkeFailure::Credentials, message)
        };
        let facts = KeyFacts::deserialize(key)
            .map_err(|_error| refused("the key has no client_email or no token_uri"))?;
        let builder = || service_account::Builder::new(key.clone());
        let credentials = builder().build_access_token_credentials();
        let signer = builder().build_signer();
        let not_a_key = "the key cannot be read";
        Ok(Tokens::Key {
            credentials: credentials.map_err(|_error| refused(not_a_key))?,
            signer: signer.map_err(|_error| refused(not_a_key))?,
            email: facts.client_email,
            server: facts.token_uri,
        })
    }

    /// For Google's own client.
    pub(crate) fn for_client(&self) -> Credentials {
        match self {
            Tokens::Metadata(credentials) | Tokens::Key { credentials, .. } => {
                credentials.clone().into()
            }
        }
    }

    /// A token for an API server of Kubernetes.
    pub(crate) async fn access_token(&self) -> Result<String, Trouble> {
        match self {
            Tokens::Metadata(credentials) => match credentials.access_token().await {
                Ok(token) => Ok(token.token),
                Err(error) if error.is_transient() => Err(Trouble::Passing(chain(&error))),
                Err(error) => Err(Trouble::fail(GkeFailure::Credentials, short(&chain(&error)))),
            },
            Tokens::Key { signer, email, server, .. } => exchange(signer, email, server).await,
        }
    }
}

/// Exchanges an assertion for a token.
async fn exchange(signer: &Signer, email: &str, server: &str) -> Result<String, Trouble> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(|_| Trouble::Passing("the clock is before 1970".to_owned()))?.as_secs();
    let encode = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(json!({ "alg": "RS256", "typ": "JWT" }));
    let claims = encode(json!({ "iss": email, "scope": SCOPE, "aud": server, "iat": now,
        "exp": now + ASSERTION_SECONDS }));
    let text = format!("{header}.{claims}");
    let signature = signer.sign(text.clone()).await;
    let signature =
        signature.map_err(|error| Trouble::fail(GkeFailure::Credentials, chain(&error)))?;
    let assertion = format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("assertion", assertion.as_str()),
    ];
    let client = reqwest::Client::builder().build();
    let client = client.map_err(|error| Trouble::fail(GkeFailure::Settings, chain(&error)))?;
    let passing = |error: reqwest::Error| {
        Trouble::Passing(format!("failed to get a token: {}", chain(&error.without_url())))
    };
    let answer = client.post(server).form(&form).send().await.map_err(passing)?;
    match answer.status().as_u16() {
        200 => {
            let exchanged = answer.json::<Exchanged>().await;
            // The parser's message may contain a part of the answer.
            let unreadable = "the answer with a token cannot be parsed".to_owned();
            Ok(exchanged.map_err(|_error| Trouble::Passing(unreadable))?.access_token)
        }
        code @ 400..=403 => {
            let said = short(&answer.text().await.unwrap_or_default());
            let message = format!("{email} gets no token, {code}: {said}");
            Err(Trouble::fail(GkeFailure::Credentials, message))
        }
        code => Err(Trouble::Passing(format!("failed to get a token: HTTP status {code}"))),
    }
}
