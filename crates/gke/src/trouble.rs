//! What can go wrong, sorted by what to do about it: try again, or give up and say why.

use flux_operator_wire::GkeFailure;
use google_cloud_container_v1::Error;
use google_cloud_gax::error::rpc::Code;

/// The longest text of a server that is shown. It is not ours, and may have any length.
const MAX_TEXT: usize = 1024;

/// Why something was not done.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may pass: a lost answer, a server that is busy, a cluster that is being changed.
    Passing(String),
    /// Trying again would not help.
    Final(Failure),
}

/// Why the program gives up, for its log and its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", kind.text())]
pub struct Failure {
    /// The kind.
    pub kind: GkeFailure,
    /// What a server said. It never contains credentials.
    pub message: String,
}

impl Failure {
    pub(crate) fn new(kind: GkeFailure, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Final(failure)
    }
}

impl Trouble {
    /// A failure of this kind.
    pub(crate) fn fail(kind: GkeFailure, message: impl Into<String>) -> Trouble {
        Trouble::Final(Failure::new(kind, message))
    }

    /// An error of Google's API while doing something.
    pub(crate) fn of_google(doing: &str, error: &Error) -> Trouble {
        let said = error.status().map_or_else(|| chain(error), |status| status.message.clone());
        let text = format!("failed to {doing}: {}", short(&said));
        let code = error.status().map(|status| status.code);
        match (error.http_status_code(), code) {
            (Some(401), _) | (_, Some(Code::Unauthenticated)) => {
                Trouble::fail(GkeFailure::Credentials, text)
            }
            _ if is_rate_limit(&said) => Trouble::Passing(text),
            // Google refuses a quota as it refuses a permission: only the text differs.
            (Some(403), _) | (_, Some(Code::PermissionDenied)) if is_about_quota(&said) => {
                Trouble::fail(GkeFailure::Quota, text)
            }
            // Too many requests have the same status as too few machines.
            (_, Some(Code::ResourceExhausted)) if said.contains("nsufficient") => {
                Trouble::fail(GkeFailure::Quota, text)
            }
            (Some(403), _) | (_, Some(Code::PermissionDenied)) => {
                Trouble::fail(GkeFailure::Permission, text)
            }
            // Another operation of the cluster is under way, such as its creation.
            (_, Some(Code::FailedPrecondition | Code::Aborted)) => Trouble::Passing(text),
            (Some(400), _) | (_, Some(Code::InvalidArgument)) => {
                Trouble::fail(GkeFailure::Settings, text)
            }
            _ if error.is_authentication() && !is_transient(error) => {
                Trouble::fail(GkeFailure::Credentials, text)
            }
            // Too many requests, a server that is busy, a lost answer.
            _ => Trouble::Passing(text),
        }
    }

    /// An error of an API server of Kubernetes while doing something.
    pub(crate) fn of_kubernetes(doing: &str, error: &kube::Error) -> Trouble {
        let text = |said: &str| format!("failed to {doing}: {}", short(said));
        match error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Trouble::fail(GkeFailure::Permission, text(&status.message))
            }
            kube::Error::Api(status) if matches!(status.code, 400 | 422) => {
                Trouble::fail(GkeFailure::Settings, text(&status.message))
            }
            kube::Error::Api(status) => Trouble::Passing(text(&status.message)),
            // The parser's message may contain a part of the answer, and that a token.
            kube::Error::SerdeError(_) => Trouble::Passing(text("the answer cannot be parsed")),
            other => Trouble::Passing(text(&chain(other))),
        }
    }
}

/// Whether Google's text is about a quota. The forms that are known: "Insufficient regional quota to satisfy
/// request", and "you must request an increase of your Google Compute Engine quota".
fn is_about_quota(text: &str) -> bool {
    text.to_ascii_lowercase().contains("quota")
}

/// Whether Google's text says that there were too many requests. "Insufficient tokens for quota 'default'
/// and limit 'USER-100s'" has the words of a quota that is too small, and passes.
fn is_rate_limit(text: &str) -> bool {
    text.to_ascii_lowercase().contains("insufficient tokens for quota")
}

/// Whether a token could not be had just now.
fn is_transient(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(it) = source {
        if let Some(it) = it.downcast_ref::<google_cloud_gax::error::CredentialsError>() {
            return it.is_transient();
        }
        source = it.source();
    }
    true
}

/// The text of an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(it) = source {
        let cause = it.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = it.source();
    }
    text
}

/// One line of bounded length.
pub(crate) fn short(text: &str) -> String {
    text.replace(['\n', '\r'], " ").chars().take(MAX_TEXT).collect()
}
