//! Counts requests to the API server in the one place that all of them go through.

use axum::http::{Method, Request, header};
use kube::client::Body;

use super::Metrics;

impl Metrics {
    /// Counts a request by its resource and verb.
    pub(crate) fn observe_request(&self, request: &Request<Body>) {
        if let Some(resource) = resource(request.uri().path()) {
            self.count_request(resource, verb(request));
        }
    }
}

/// The RBAC verb of a request, except that server-side apply is `apply` and not `patch`.
pub(crate) fn verb(request: &Request<Body>) -> &'static str {
    let has_name = || has_name(request.uri().path());
    let query = request.uri().query().unwrap_or_default();
    match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => {
            let kind = request.headers().get(header::CONTENT_TYPE);
            let apply = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply"));
            if apply { "apply" } else { "patch" }
        }
        Method::DELETE => "delete",
        _ if query.contains("watch=true") => "watch",
        _ if has_name() => "get",
        _ => "list",
    }
}

/// The resource in an API path, with its subresource: `jobs`, `miniclusters/status`. None for other
/// paths, such as `/version`.
fn resource(path: &str) -> Option<String> {
    let parts = resource_path(path)?;
    match parts.as_slice() {
        [resource, _, subresource, ..] => Some(format!("{resource}/{subresource}")),
        [resource, ..] => Some((*resource).to_owned()),
        [] => None,
    }
}

fn has_name(path: &str) -> bool {
    resource_path(path).is_some_and(|parts| parts.len() > 1)
}

/// The part after group, version and namespace: resource, name, subresource.
fn resource_path(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = match parts.as_slice() {
        ["api", _version, rest @ ..] | ["apis", _, _version, rest @ ..] => rest,
        _ => return None,
    };
    match parts {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => Some(rest.to_vec()),
        rest => Some(rest.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, content_type: &str) -> Request<Body> {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .body(Body::empty())
            .unwrap()
    }

    #[test]
    fn paths_name_their_resource() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/secrets/b", Some("secrets")),
            ("/api/v1/pods", Some("pods")),
            ("/api/v1/namespaces/a", Some("namespaces")),
            ("/apis/batch/v1/namespaces/a/jobs", Some("jobs")),
            (
                "/apis/flux-framework.org/v1alpha2/namespaces/a/miniclusters/b/status",
                Some("miniclusters/status"),
            ),
            ("/version", None),
            ("/api", None),
        ] {
            assert_eq!(resource(path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn methods_map_to_verbs() {
        let jobs = "/apis/batch/v1/namespaces/a/jobs";
        let job = "/apis/batch/v1/namespaces/a/jobs/b";
        for (method, path, kind, expected) in [
            (Method::POST, jobs, "application/json", "create"),
            (Method::PUT, job, "application/json", "update"),
            (Method::PATCH, job, "application/apply-patch+yaml", "apply"),
            (Method::PATCH, job, "application/merge-patch+json", "patch"),
            (Method::DELETE, job, "", "delete"),
            (Method::GET, job, "", "get"),
            (Method::GET, jobs, "", "list"),
            (Method::GET, &format!("{jobs}?labelSelector=x&watch=true"), "", "watch"),
        ] {
            assert_eq!(verb(&request(method, path, kind)), expected, "{path}");
        }
    }
}
