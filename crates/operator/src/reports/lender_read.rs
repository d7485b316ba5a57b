//! Reads a lender from the API server before a broker gets permission.
//!
//! Who has an invitation can ask at any rate. So requests that wait for the same lender share one read,
//! and each lender is read a few times per second at most, however many ask.

use std::sync::Arc;
use std::time::Duration;

use flux_operator_api::MiniCluster;
use flux_operator_plan::LenderView;
use kube::{Api, ResourceExt};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Reports;
use crate::http::ServerState;

/// The time between the begin of two reads of one lender. An agent asks before every start of a broker,
/// which takes longer.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// A lender as the API server has it; `None` if it has none of this name.
type ReadResult = Result<Option<Arc<MiniCluster>>, Arc<kube::Error>>;

/// The last read of a lender. It is locked while the lender is read.
pub(super) type LenderRead = Arc<Mutex<LastRead>>;

#[derive(Default)]
pub(super) struct LastRead {
    /// When it began.
    began: Option<Instant>,
    /// `None` if the client that waited for it has disconnected.
    result: Option<ReadResult>,
}

impl ServerState {
    /// A lender as the API server has it, read after this was called; `None` if it does not exist any
    /// more, or is another one of that name.
    pub(super) async fn read_lender(
        &self,
        cached: LenderView,
    ) -> Result<Option<LenderView>, Arc<kube::Error>> {
        let uid = cached.minicluster.uid();
        let stored = self.share_read(&cached.minicluster).await?;
        let fresh = stored.filter(|stored| stored.uid() == uid);
        Ok(fresh.map(|minicluster| LenderView { minicluster, ..cached }))
    }

    async fn share_read(&self, lender: &MiniCluster) -> ReadResult {
        let asked = Instant::now();
        let last = self.reports.lender_read(&lender.uid().unwrap_or_default());
        let mut last = last.lock().await;
        match &last.result {
            // It shows all that was written before this request.
            Some(result) if last.began >= Some(asked) => return result.clone(),
            _ => {}
        }
        if let Some(began) = last.began {
            tokio::time::sleep_until(began + READ_INTERVAL).await;
        }
        // Before the read: a client that disconnects must not cause another one at once.
        *last = LastRead { began: Some(Instant::now()), result: None };
        let namespace = lender.namespace().unwrap_or_default();
        let lenders: Api<MiniCluster> = Api::namespaced(self.client.clone(), &namespace);
        let read = lenders.get_opt(&lender.name_any()).await;
        let result: ReadResult = read.map(|found| found.map(Arc::new)).map_err(Arc::new);
        last.result = Some(result.clone());
        result
    }
}

impl Reports {
    fn lender_read(&self, uid: &str) -> LenderRead {
        self.lock().entry(uid.to_owned()).or_default().lender_read.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Leadership;
    use crate::reports::fixture::{minicluster, server};
    use axum::http::{Request, Response};
    use kube::client::Body;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A replica, and how often it has read the lender. Every response takes a second.
    fn counting_server() -> (ServerState, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let api = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let body = serde_json::to_vec(&minicluster()).unwrap();
                Response::builder().status(200).body(Body::from(body))
            }
        });
        (server(Leadership::always(), kube::Client::new(api, "default")), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_one_read() {
        let (server, requests) = counting_server();
        let lender = minicluster();
        let reads = (0..100).map(|_| server.share_read(&lender));
        let read = futures::future::join_all(reads).await;
        assert!(read.iter().all(|it| it.as_ref().is_ok_and(Option::is_some)));
        assert_eq!(requests.load(Ordering::Relaxed), 1);
    }

    /// The lease may have been taken back after the read began.
    #[tokio::test(start_paused = true)]
    async fn a_read_that_began_before_a_request_does_not_answer_it() {
        let (server, requests) = counting_server();
        let lender = minicluster();
        let later = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            server.share_read(&lender).await
        };
        let (first, later) = tokio::join!(server.share_read(&lender), later);
        assert!(first.is_ok() && later.is_ok());
        assert_eq!(requests.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_disconnect_do_not_cause_more_reads() {
        let (server, requests) = counting_server();
        let lender = minicluster();
        for _ in 0..100 {
            let impatient = server.share_read(&lender);
            assert!(tokio::time::timeout(Duration::from_millis(10), impatient).await.is_err());
        }
        let most = 1000 / READ_INTERVAL.as_millis();
        let reads = requests.load(Ordering::Relaxed);
        assert!(u128::try_from(reads).unwrap() <= most, "{reads} reads within a second");
    }
}
