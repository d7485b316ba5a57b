//! Opens, updates and closes ports as the routes change.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::changes::{RouteChange, changes};
use crate::connection::{Port, Shared};
use crate::listener::serve_port;
use crate::places::Places;
use crate::refusal::LeaseName;
use crate::request::MAX_FORWARDED_PER_PORT;
use crate::route::{Route, Routes};

/// The open ports. Dropping them closes the listeners and cuts all connections.
struct OpenPorts {
    listen: IpAddr,
    shared: Arc<Shared>,
    by_port: HashMap<u16, OpenPort>,
    tasks: JoinSet<()>,
}

struct OpenPort {
    route: watch::Sender<Route>,
    places: Arc<Places>,
    task: AbortHandle,
}

/// Serves the routes until the future is dropped, or their sender is.
pub(crate) async fn serve_routes(
    mut routes: watch::Receiver<Arc<Routes>>,
    listen: IpAddr,
    shared: Arc<Shared>,
) {
    let (by_port, tasks) = (HashMap::new(), JoinSet::new());
    let mut open = OpenPorts { listen, shared: Arc::clone(&shared), by_port, tasks };
    let mut served: Arc<Routes> = Arc::default();
    loop {
        let wanted = Arc::clone(&routes.borrow_and_update());
        for change in changes(&served, &wanted) {
            open.apply(change).await;
        }
        report_conflicts(&served, &wanted);
        shared.metrics.set_ports(wanted.by_port.len(), wanted.conflicts.len());
        shared.refusals.retain(|lease| wanted.by_port.values().any(|it| lease_name(it) == *lease));
        served = wanted;
        tokio::select! {
            changed = routes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            Some(ended) = open.tasks.join_next() => pass_on_panic(ended),
        }
    }
}

impl OpenPorts {
    async fn apply(&mut self, change: RouteChange) {
        match change {
            RouteChange::Close(port, route) => self.close(port, &route).await,
            RouteChange::Update(port, route) => {
                log(port, &route, "changed a port");
                if let Some(open) = self.by_port.get(&port) {
                    open.places.set_ranks(route.limit);
                    open.route.send_replace(route);
                }
            }
            RouteChange::Open(port, route) => self.open(port, route),
        }
    }

    fn open(&mut self, port: u16, route: Route) {
        log(port, &route, "opened a port");
        let lease = lease_name(&route);
        let metrics = self.shared.metrics.add(&lease);
        let (untrusted, brokers) = (&self.shared.untrusted, &self.shared.brokers);
        let places = Places::new(
            port,
            route.lender.clone(),
            route.limit,
            Arc::clone(untrusted),
            Arc::clone(brokers),
        );
        let (sender, route) = watch::channel(route);
        let context = Port {
            number: port,
            lease,
            route,
            places: Arc::clone(&places),
            requests: Semaphore::new(MAX_FORWARDED_PER_PORT),
            metrics,
            shared: Arc::clone(&self.shared),
        };
        let task = self.tasks.spawn(serve_port(Arc::new(context), self.listen));
        self.by_port.insert(port, OpenPort { route: sender, places, task });
    }

    /// Closes a port. It can be opened again once this returns.
    async fn close(&mut self, port: u16, route: &Route) {
        log(port, route, "closed a port");
        if let Some(closed) = self.by_port.remove(&port) {
            closed.task.abort();
            while let Some(ended) = self.tasks.join_next_with_id().await {
                let id = ended.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
                pass_on_panic(ended);
                if id == closed.task.id() {
                    break;
                }
            }
        }
        self.shared.metrics.remove(&lease_name(route));
    }
}

/// Panics if the task did: a gateway that does not serve all of its ports has to be restarted.
fn pass_on_panic<T>(ended: Result<T, JoinError>) {
    if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
        std::panic::resume_unwind(panic);
    }
}

fn report_conflicts(before: &Routes, after: &Routes) {
    for conflict in after.conflicts.iter().filter(|it| !before.conflicts.contains(it)) {
        tracing::error!(
            namespace = conflict.lender.namespace,
            cluster = conflict.lender.name,
            invitation = conflict.invitation,
            port = conflict.port,
            "a lease is not served, because an older one has its port"
        );
    }
}

/// The name of a route's lease.
pub(crate) fn lease_name(route: &Route) -> LeaseName {
    LeaseName { lender: route.lender.clone(), invitation: route.invitation.clone() }
}

fn log(port: u16, route: &Route, what: &'static str) {
    let Route { lender, invitation, limit, lead, expires, .. } = route;
    tracing::info!(
        namespace = lender.namespace,
        cluster = lender.name,
        invitation,
        port,
        limit,
        lead = lead.map(tracing::field::display),
        %expires,
        "{what}"
    );
}

#[cfg(test)]
mod tests;
