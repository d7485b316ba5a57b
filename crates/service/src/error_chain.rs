//! Errors as text for conditions, Events and logs.

use std::error::Error;

/// An error with its causes, on one line. For an error from the API server, only the server's own
/// message is used, without the client's description of the request.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let message = match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            // This variant only wraps its cause.
            Some(kube::Error::Service(cause)) => {
                next = Some(&**cause);
                continue;
            }
            _ => None,
        };
        next = if message.is_some() { None } else { error.source() };
        let part = message.unwrap_or_else(|| error.to_string());
        // Transparent errors repeat their cause.
        if parts.last() != Some(&part) {
            parts.push(part);
        }
    }
    parts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn the_api_server_is_quoted_without_the_clients_description() {
        let status = Status::failure("pods is forbidden", "Forbidden").with_code(403);
        let error = kube::Error::Api(status.boxed());
        assert_eq!(chain(&error), "pods is forbidden");
    }
}
