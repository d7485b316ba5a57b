//! A gateway on 127.0.0.1, whose routes the test sets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::brokers::{Brokers, MAX_BROKERS};
use crate::connection::{Port, Shared, Timeouts};
use crate::lender::{LenderId, Sources};
use crate::metrics::{LeaseMetrics, Metrics};
use crate::places::Places;
use crate::proxy::{lease_name, serve_routes};
use crate::refusal::{RefusalReason, Refusals};
use crate::request::{MAX_FORWARDED, MAX_FORWARDED_PER_PORT};
use crate::route::{Route, Routes};
use crate::untrusted::{MAX_UNTRUSTED, Untrusted};

/// Nothing times out, unless a test sets a shorter time.
pub(crate) const PATIENT: Timeouts = Timeouts {
    opening: super::LIMIT,
    handshake: super::LIMIT,
    initiate: super::LIMIT,
    connect: super::LIMIT,
    request: super::LIMIT,
    linger: super::LIMIT,
    bind_retry: Duration::from_millis(20),
};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The limits of a gateway that is not limited by open files.
pub(crate) const MAXIMUM: Limits =
    Limits { untrusted: MAX_UNTRUSTED, brokers: MAX_BROKERS, forwarded: MAX_FORWARDED };

/// The limits of the whole gateway.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) untrusted: usize,
    pub(crate) brokers: usize,
    pub(crate) forwarded: usize,
}

pub(crate) struct Gateway {
    pub(crate) routes: watch::Sender<Arc<Routes>>,
    pub(crate) shared: Arc<Shared>,
    /// The port of the only route.
    pub(crate) port: u16,
    tasks: JoinSet<()>,
}

impl Gateway {
    /// A gateway with one route to this lead, for this number of brokers.
    pub(crate) fn start(lead: Option<SocketAddr>, limit: usize) -> Gateway {
        Gateway::start_with(PATIENT, None, lead, limit)
    }

    pub(crate) fn start_with(
        timeouts: Timeouts,
        report_address: Option<String>,
        lead: Option<SocketAddr>,
        limit: usize,
    ) -> Gateway {
        Gateway::start_within(MAXIMUM, timeouts, report_address, lead, limit)
    }

    pub(crate) fn start_within(
        limits: Limits,
        timeouts: Timeouts,
        report_address: Option<String>,
        lead: Option<SocketAddr>,
        limit: usize,
    ) -> Gateway {
        let port = free_port();
        let (routes, receiver) = watch::channel(Arc::default());
        let shared = Arc::new(Shared {
            timeouts,
            report_address,
            untrusted: Untrusted::new(limits.untrusted),
            brokers: Brokers::new(limits.brokers),
            requests: Semaphore::new(limits.forwarded),
            refusals: Refusals::default(),
            metrics: Metrics::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_routes(receiver, LOCALHOST, Arc::clone(&shared)));
        let gateway = Gateway { routes, shared, port, tasks };
        gateway.set(|routes| drop(routes.by_port.insert(port, route(lead, limit))));
        gateway
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (LOCALHOST, self.port).into()
    }

    /// Changes the routes.
    pub(crate) fn set(&self, change: impl FnOnce(&mut Routes)) {
        self.routes.send_modify(|routes| change(Arc::make_mut(routes)));
    }

    /// Changes the only route.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Route)) {
        self.set(|routes| change(routes.by_port.get_mut(&self.port).unwrap()));
    }

    /// Removes the only route.
    pub(crate) fn revoke(&self) {
        self.set(|routes| routes.by_port.clear());
    }

    /// The metrics of the only route.
    pub(crate) fn metrics(&self) -> LeaseMetrics {
        self.shared.metrics.add(&lease_name(&route(None, 0)))
    }

    /// The number of refused connections.
    pub(crate) fn refused(&self, reason: RefusalReason) -> u64 {
        self.metrics().refused(reason)
    }

    /// The refused connections, by reason.
    pub(crate) fn all_refused(&self) -> Vec<(RefusalReason, u64)> {
        let all = RefusalReason::ALL.map(|reason| (reason, self.refused(reason)));
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// The number of connected brokers, as the metric has it.
    pub(crate) fn connections(&self) -> u64 {
        let text = self.shared.metrics.render();
        let line = text.lines().find(|line| line.starts_with("flux_operator_gateway_connections{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    /// The only port, as its connections see it, with places of its own.
    pub(crate) fn context(&self) -> Port {
        let route = self.routes.borrow().by_port[&self.port].clone();
        Port {
            number: self.port,
            lease: lease_name(&route),
            places: Places::new(
                self.port,
                route.lender.clone(),
                route.limit,
                Arc::clone(&self.shared.untrusted),
                Arc::clone(&self.shared.brokers),
            ),
            requests: Semaphore::new(MAX_FORWARDED_PER_PORT),
            route: watch::channel(route).1,
            metrics: self.metrics(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// Stops the gateway.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// A route to this lead, for this number of brokers.
pub(crate) fn route(lead: Option<SocketAddr>, limit: usize) -> Route {
    Route {
        lender: LenderId {
            namespace: "default".into(),
            name: "lender".into(),
            uid: "uid-1".into(),
        },
        invitation: "cloud".into(),
        holder: "invitation:cloud:2026-08-02T00:00:00Z".into(),
        limit,
        sources: Sources::Any,
        lead,
        expires: Timestamp::MAX,
    }
}

/// A port that is free, and outside of the range from which the kernel chooses: it stays free.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + (std::process::id() % 200) as u16 * 100;
    loop {
        let port = start + NEXT.fetch_add(1, Ordering::SeqCst);
        if std::net::TcpListener::bind((LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
