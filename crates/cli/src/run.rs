//! `flux-operator run`: run the controllers.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use anyhow::{Context, Result};
use flux_operator_install::LEASE;
use flux_operator_operator::queue::WriteRate;
use flux_operator_operator::{Election, GatewayLocation, Identity, Options};

use crate::render::RenderSettings;
use crate::service::{client, listen, run_to_end, start_log};

/// Run the controllers until SIGTERM or SIGINT.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Watch only this namespace.
    #[arg(long)]
    namespace: Option<String>,

    /// Address on which to serve reports, metrics and health.
    #[arg(long, default_value = "[::]:8080")]
    bind: SocketAddr,

    /// URL at which pods reach this operator, as http://host:port. Without it pods find each other
    /// only by name and send no reports.
    #[arg(long, value_name = "URL")]
    report_url: Option<String>,

    /// Use leader election, with the Lease `flux-operator` in the operator's namespace, so that
    /// several replicas can run.
    #[arg(long)]
    leader_elect: bool,

    /// Address of this replica. Other replicas redirect agents to it while this one is the leader.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<IpAddr>,

    /// Maximum writes per second by the queues; admissions come first. Default: unlimited.
    #[arg(long, value_name = "PER_SECOND", value_parser = rate)]
    admission_rate: Option<f64>,

    /// Maximum burst of writes by the queues after a pause, with --admission-rate.
    #[arg(long, value_name = "WRITES", default_value_t = 100, requires = "admission_rate")]
    admission_burst: u32,

    /// Service of the gateway, in the operator's namespace. Without a gateway MiniClusters cannot
    /// have invitations.
    #[arg(long, value_name = "NAME", conflicts_with = "gateway_address")]
    gateway_service: Option<String>,

    /// Address of a gateway that does not run in a pod.
    #[arg(long, value_name = "ADDRESS")]
    gateway_address: Option<IpAddr>,

    #[command(flatten)]
    settings: RenderSettings,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    start_log();
    flux_operator_operator::report_panics_where_caught();
    // Checked before connecting to a cluster.
    let settings = arguments.settings.with_reports(arguments.report_url.clone())?;
    run_to_end(async {
        let client = client().await?;
        let mut options = Options {
            namespace: arguments.namespace.clone(),
            settings,
            election: arguments.leader_elect.then(|| arguments.election(&client)),
            rate: arguments
                .admission_rate
                .map(|per_second| WriteRate { per_second, burst: arguments.admission_burst }),
            gateway: arguments.gateway(&client),
        };
        options.settings.delivery = flux_operator_operator::detect_delivery(&client).await;
        let address = arguments.bind;
        let listener = listen(address).await?;
        tracing::info!(%address, "serving reports");
        let finished = flux_operator_operator::run(client, listener, options).await;
        finished.context("the operator stopped")
    })
}

impl Arguments {
    fn gateway(&self, client: &kube::Client) -> Option<GatewayLocation> {
        let service = self.gateway_service.clone().map(|name| GatewayLocation::Service {
            namespace: client.default_namespace().to_owned(),
            name,
        });
        service.or(self.gateway_address.map(GatewayLocation::Address))
    }

    fn election(&self, client: &kube::Client) -> Election {
        // In a pod this is the pod's name.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let address = self.advertise.map(|address| SocketAddr::new(address, self.bind.port()));
        let name = match address {
            Some(_) => host.trim().to_owned(),
            // Several replicas may run on one machine.
            None => format!("{}_{}", host.trim(), std::process::id()),
        };
        Election {
            namespace: client.default_namespace().to_owned(),
            lease: LEASE.to_owned(),
            identity: Identity { name, address },
        }
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().map_err(|error| format!("{error}"))?;
    if rate > 0.0 { Ok(rate) } else { Err("a rate must be above 0; omit it for no limit".into()) }
}
