//! The key of a cluster: cached, or read from its Secret.
//!
//! The key is needed to check a seal, so any client that knows a cluster's uid can make the
//! operator read it. Only one task at a time does, and after a failure none for a while.

use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::kubernetes::secret_name;
use flux_operator_wire::names::file::REPORT_KEY;
use flux_operator_wire::seal::SealKey;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::http::ServerState;

/// After a failed lookup the Secret is not read again for this long. Meanwhile agents retry every
/// 0.1 to 1 s and get status 503.
const FAILED_LOOKUP_DELAY: Duration = Duration::from_secs(2);

impl ServerState {
    /// The cluster's key.
    pub(super) async fn key(&self, minicluster: &MiniCluster, uid: &str) -> Option<SealKey> {
        if let Some(key) = self.reports.cached_key(uid) {
            return Some(key);
        }
        // A client that disconnects must not cancel the lookup that others wait for.
        let (server, minicluster, uid) = (self.clone(), minicluster.clone(), uid.to_owned());
        let found = tokio::spawn(async move { server.look_up_key(&minicluster, &uid).await });
        match found.await.map_err(JoinError::try_into_panic) {
            Ok(key) => key,
            // The caller reports the panic.
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            Err(Err(_cancelled)) => None,
        }
    }

    async fn look_up_key(&self, minicluster: &MiniCluster, uid: &str) -> Option<SealKey> {
        let failed = self.reports.key_lookup(uid);
        let mut failed = failed.lock().await;
        if let Some(key) = self.reports.cached_key(uid) {
            return Some(key);
        }
        if failed.is_some_and(|at| at.elapsed() < FAILED_LOOKUP_DELAY) {
            return None;
        }
        let key = self.read_key(minicluster, uid).await;
        *failed = key.is_none().then(Instant::now);
        key
    }

    async fn read_key(&self, minicluster: &MiniCluster, uid: &str) -> Option<SealKey> {
        let namespace = minicluster.namespace()?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let name = secret_name(minicluster, self.stores.job_of(minicluster).as_deref());
        let found = secrets.get_opt(&name).await;
        if let Err(error) = &found {
            tracing::warn!(%error, namespace, secret = name, "the key of a cluster cannot be read");
        }
        let Some(secret) = found.ok()? else {
            self.reports.mark_key_lost(minicluster, uid);
            return None;
        };
        let data = secret.data?;
        let text = std::str::from_utf8(&data.get(REPORT_KEY)?.0).ok()?.to_owned();
        let key = SealKey::parse(&text).ok()?;
        self.reports.cache_key(uid, key.clone(), &self.stores.uids());
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::{key, minicluster, server};
    use axum::http::{Request, Response};
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A replica, and the number of times it has queried the API server for the key, which exists
    /// from the second query on. Every response takes a second.
    fn counting_server() -> (ServerState, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let api = tower::service_fn(move |_: Request<Body>| {
            let before = count.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let (status, body) = if before == 0 {
                    let body = serde_json::json!({ "kind": "Status", "apiVersion": "v1",
                        "status": "Failure", "reason": "NotFound", "code": 404 });
                    (404, body)
                } else {
                    let text = key().to_secret_text();
                    let data = k8s_openapi::ByteString(text.as_bytes().to_vec());
                    let body = serde_json::json!({ "kind": "Secret", "apiVersion": "v1",
                        "metadata": { "name": "a" }, "data": { REPORT_KEY: data } });
                    (200, body)
                };
                let body = Body::from(body.to_string().into_bytes());
                Response::builder().status(status).body(body)
            }
        });
        (server(Leadership::always(), kube::Client::new(api, "default")), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_one_lookup_and_a_failure_is_cached_briefly() {
        let (server, requested) = counting_server();
        let minicluster = minicluster();
        let ask_often = async || {
            let asks = (0..100).map(|_| server.key(&minicluster, "uid"));
            futures::future::join_all(asks).await.iter().flatten().count()
        };
        assert_eq!((ask_often().await, requested.load(Ordering::Relaxed)), (0, 1));
        assert_eq!((ask_often().await, requested.load(Ordering::Relaxed)), (0, 1));
        tokio::time::advance(FAILED_LOOKUP_DELAY).await;
        assert_eq!((ask_often().await, requested.load(Ordering::Relaxed)), (100, 2));
        assert_eq!((ask_often().await, requested.load(Ordering::Relaxed)), (100, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_does_not_fit_is_read_again_but_not_often() {
        let (server, requested) = counting_server();
        let minicluster = minicluster();
        let lookups = async || {
            server.key(&minicluster, "uid").await;
            requested.load(Ordering::Relaxed)
        };
        assert_eq!(lookups().await, 1);
        tokio::time::advance(FAILED_LOOKUP_DELAY).await;
        assert_eq!(lookups().await, 2);
        server.reports.doubt_key("uid");
        assert_eq!(lookups().await, 2, "it was read a moment ago");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(lookups().await, 2, "nothing was sealed with another one");
        server.reports.doubt_key("uid");
        assert_eq!(lookups().await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_disconnects_does_not_cause_another_lookup() {
        let (server, requested) = counting_server();
        let minicluster = minicluster();
        for _ in 0..100 {
            let impatient = server.key(&minicluster, "uid");
            assert!(tokio::time::timeout(Duration::from_millis(1), impatient).await.is_err());
        }
        assert_eq!(requested.load(Ordering::Relaxed), 1);
    }
}
