//! Errors of the API server, as they are shown.

use std::error::Error;

use flux_operator_api::Reason;
use flux_operator_plan::bursting::TargetFailure;

/// The longest message of an error in a condition.
const MAX_MESSAGE: usize = 512;

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Some errors repeat their cause.
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_MESSAGE).last();
    text.truncate(end.filter(|_| text.len() > MAX_MESSAGE).unwrap_or(text.len()));
    text.replace('\n', " ")
}

/// Whether an object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether an object exists already, or has changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

fn has_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// What an error of a target's API server means.
pub(crate) fn target_failure(doing: &str, error: &kube::Error) -> TargetFailure {
    let reason = match error {
        kube::Error::Api(status)
            if matches!(status.code, 401 | 403) && !is_quota(&status.message) =>
        {
            Reason::CredentialsRefused
        }
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
            Reason::TargetRefused
        }
        _ => Reason::TargetUnreachable,
    };
    let message = match error {
        // Not an answer of an API server. It may be that of any server which the controller can reach
        // and the user cannot.
        kube::Error::Api(status) if status.reason == NOT_A_STATUS => {
            format!("the server responded with HTTP {}, and not as an API server does", status.code)
        }
        error => chain(error),
    };
    TargetFailure::new(reason, format!("failed to {doing}: {message}"))
}

/// The reason that the client library gives an answer which it cannot parse, with its text as message.
const NOT_A_STATUS: &str = "Failed to parse error data";

/// A quota refuses with the same code as a missing right.
fn is_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}
