//! Errors of the API server, as they are shown.

use std::error::Error;
use std::panic::AssertUnwindSafe;

use flux_operator_api::Reason;
use flux_operator_plan::bursting::TargetFailure;
use flux_operator_service::error_chain;
use flux_operator_service::tasks::panic_message;
use futures::FutureExt;

/// The longest message of an error in a condition.
const MAX_MESSAGE: usize = 512;

/// An error with its causes, in one line, and not longer than a condition should be.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    cut(&error_chain::chain(error))
}

/// A text in one line, and not longer than a condition should be.
pub(crate) fn cut(text: &str) -> String {
    let text = text.replace('\n', " ");
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= MAX_MESSAGE).last();
    match text.len() > MAX_MESSAGE {
        true => text[..end.unwrap_or_default()].to_owned(),
        false => text,
    }
}

/// Whether an object does not exist.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    has_code(error, 404)
}

/// Whether an object that was to be created exists already. Conflicts have the same code: a quota that
/// another request changes at the same time is one.
pub(crate) fn exists_already(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists")
}

/// Whether an object exists already, or has changed since it was read.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    has_code(error, 409)
}

/// Whether a right is missing.
pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    has_code(error, 403)
}

/// Whether the API server has refused a change, so that the same one is refused again.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    [400, 403, 422].iter().any(|code| has_code(error, *code))
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
        // Nothing was sent.
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Reason::KubeconfigRefused,
        _ => Reason::TargetUnreachable,
    };
    let message = match error {
        // Not an answer of an API server. It may be that of any server which the controller can reach
        // and the user cannot.
        kube::Error::Api(status) if status.reason == NOT_A_STATUS => {
            format!("the server responded with HTTP {}, and not as an API server does", status.code)
        }
        // The parser quotes what it has read.
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            "the server responded, and not as an API server does".to_owned()
        }
        // It quotes what a program of the kubeconfig was called with, and what it has printed.
        error if is_about_own_credentials(error) => {
            "the kubeconfig gives no credentials: its program or token file fails".to_owned()
        }
        error => chain(error),
    };
    TargetFailure::new(reason, format!("failed to {doing}: {message}"))
}

/// What a target answers, or a failure if the code that asks it panics, such as a library about an odd
/// kubeconfig: otherwise its Burst would have no status, and its lifetime would not end.
pub(crate) async fn catch_panic<T>(
    asked: impl Future<Output = Result<T, TargetFailure>>,
) -> Result<T, TargetFailure> {
    let panic = match AssertUnwindSafe(asked).catch_unwind().await {
        Ok(result) => return result,
        Err(panic) => panic_message(&*panic),
    };
    // Only the log has its message, which may quote anything.
    tracing::error!(panic, "the code that asks a target has panicked");
    let message = "the burst controller failed while it asked the target, which is a defect, and tries \
                   again: please report it with the controller's log";
    Err(TargetFailure::new(Reason::OperatorError, message))
}

/// The reason that the client library gives an answer which it cannot parse, with its text as message.
const NOT_A_STATUS: &str = "Failed to parse error data";

/// Whether the client could not get its own credentials.
fn is_about_own_credentials(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<kube::client::AuthError>() {
            return true;
        }
        cause = error.source();
    }
    matches!(error, kube::Error::Auth(_))
}

/// A quota refuses with the same code as a missing right.
fn is_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn failure(code: u16, reason: &str, message: &str) -> TargetFailure {
        let status = Status::failure(message, reason).with_code(code);
        target_failure("create the Job", &kube::Error::Api(status.boxed()))
    }

    #[test]
    fn the_code_of_an_answer_says_whose_fault_it_is() {
        for (code, message, reason) in [
            (401, "Unauthorized", Reason::CredentialsRefused),
            (403, "jobs.batch is forbidden", Reason::CredentialsRefused),
            (403, "exceeded quota: cpu", Reason::TargetRefused),
            (422, "invalid", Reason::TargetRefused),
            (429, "too many requests", Reason::TargetUnreachable),
            (503, "unavailable", Reason::TargetUnreachable),
        ] {
            let failure = failure(code, "", message);
            assert_eq!(failure.reason, reason, "{code} {message}");
            assert_eq!(failure.message, format!("failed to create the Job: {message}"));
        }
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_of_the_target_without_its_message() {
        let panicking = async { if true { panic!("secret") } else { Ok(()) } };
        let failure = catch_panic(panicking).await.unwrap_err();
        assert_eq!(failure.reason, Reason::OperatorError);
        assert!(!failure.message.contains("secret"), "{failure}");
        assert_eq!(catch_panic(async { Ok(1) }).await, Ok(1));
    }

    #[test]
    fn a_request_that_cannot_be_built_is_not_an_answer_of_the_target() {
        let request = kube::core::Request::new("/api/v1/namespaces/a b/pods");
        let error = request.get("p", &kube::api::GetParams::default()).unwrap_err();
        let failure = target_failure("get the Job", &kube::Error::BuildRequest(error));
        assert_eq!(failure.reason, Reason::KubeconfigRefused, "{failure}");
    }

    #[test]
    fn a_conflict_of_a_quota_does_not_say_that_an_object_exists() {
        for (code, reason, exists) in
            [(409, "AlreadyExists", true), (409, "Conflict", false), (200, "AlreadyExists", false)]
        {
            let error = kube::Error::Api(Status::failure("", reason).with_code(code).boxed());
            assert_eq!(exists_already(&error), exists, "{code} {reason}");
        }
        assert_eq!(failure(409, "Conflict", "").reason, Reason::TargetRefused);
    }

    /// The user chooses the server, and could have the controller read what only it can reach.
    #[test]
    fn what_a_server_says_that_is_no_api_server_is_not_shown() {
        let failure = failure(200, NOT_A_STATUS, "internal secrets");
        assert!(!failure.message.contains("internal"), "{failure}");
        let error = serde_json::from_str::<u8>("\"internal secrets\"").unwrap_err();
        assert!(error.to_string().contains("internal"), "{error}");
        let failure = target_failure("get the Job", &kube::Error::SerdeError(error));
        assert!(!failure.message.contains("internal"), "{failure}");
    }

    #[test]
    fn a_long_message_is_cut() {
        let failure = failure(422, "", &"ä".repeat(1000));
        assert!(failure.message.len() <= MAX_MESSAGE + 64, "{}", failure.message.len());
    }
}
