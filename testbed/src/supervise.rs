//! The life of the supervisor: prepare, start all components in order, serve, stop.
//!
//! Components are started as early as possible: those that do not depend on each other start in
//! parallel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::command::chain;
use crate::component::Settings;
use crate::layout::{Layout, TestbedDirectory};
use crate::node::{containerd, coredns, kube_proxy, kubelet};
use crate::slot::Slot;
use crate::state::{Level, Requirements};
use crate::supervisor::{StopReason, Supervisor};
use crate::{cgroup, control_plane, import, isolation, kubeconfig, network, node, pki};

/// The arguments that `up` passes to the supervisor.
#[derive(Debug, clap::Args)]
pub struct SupervisorArguments {
    /// Directory of all testbeds
    #[arg(long)]
    pub(crate) base: PathBuf,
    /// Directory of this testbed
    #[arg(long)]
    pub(crate) home: PathBuf,
    /// Directory of its sockets
    #[arg(long)]
    pub(crate) sockets: PathBuf,
    /// Its slot
    #[arg(long, value_parser = |text: &str| text.parse().ok().and_then(Slot::new).ok_or("no slot"))]
    pub(crate) slot: Slot,
    /// Which parts of Kubernetes it runs
    #[arg(long)]
    pub(crate) level: Level,
    /// Whether the API server writes an audit log
    #[arg(long)]
    pub(crate) audit: bool,
    /// Whether this process is the first in its own pid and mount namespaces
    #[arg(long)]
    pub(crate) contained: bool,
}

/// Runs a testbed until it is asked to stop or something fails.
pub fn supervise(arguments: SupervisorArguments) -> ExitCode {
    let SupervisorArguments { base, home, sockets, slot, level, audit, contained } = arguments;
    // A contained supervisor changes mounts and kills processes; it must never do so on the
    // machine.
    let is_first = std::process::id() == 1;
    if contained != is_first || (level == Level::Node && !contained) {
        eprintln!("this command is only for `testbed up`, which runs it in its own namespaces");
        return ExitCode::FAILURE;
    }
    let layout = Layout::at(&base);
    let settings = Settings {
        home: TestbedDirectory::at(home),
        bin: layout.bin(),
        images: layout.images(),
        sockets,
        slot,
        wanted: Requirements { level, audit },
    };
    let mut supervisor = match Supervisor::new(settings, contained) {
        Ok(supervisor) => supervisor,
        Err(reason) => {
            eprintln!("{}", chain(&reason));
            return ExitCode::FAILURE;
        }
    };
    let Err(end) = start(&mut supervisor, &base).and_then(|()| supervisor.serve());
    eprintln!("stopping everything: {}", chain(&end));
    supervisor.kill_everything(&end);
    match end {
        StopReason::Requested => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn start(supervisor: &mut Supervisor, base: &Path) -> Result<(), StopReason> {
    let settings = supervisor.settings.clone();
    let has_node = settings.wanted.level == Level::Node;
    let has_controllers = settings.wanted.level >= Level::ControlPlane;

    pki::create(&settings.home, settings.slot).map_err(StopReason::Pki)?;
    kubeconfig::write_all(&settings.home, settings.api_server()).map_err(StopReason::File)?;
    control_plane::configure(&settings).map_err(StopReason::File)?;
    if has_node {
        node::configure(&settings).map_err(StopReason::File)?;
        supervisor.record_step("certificates and configuration")?;
        isolation::set_up(&settings, base).map_err(StopReason::File)?;
        cgroup::create(settings.slot).map_err(StopReason::File)?;
        network::create(settings.slot).map_err(StopReason::Network)?;
        supervisor.record_step("mounts, cgroups and network")?;
    } else {
        supervisor.record_step("certificates and configuration")?;
    }

    supervisor.start(control_plane::etcd(&settings))?;
    if has_node {
        supervisor.start(containerd::component(&settings))?;
    }
    supervisor.wait_ready("etcd")?;
    supervisor.start(control_plane::api_server(&settings))?;
    if has_node {
        supervisor.wait_ready("containerd")?;
        import::import_node_images(&settings).map_err(StopReason::Image)?;
        supervisor.record_step("images")?;
    }
    supervisor.wait_ready("kube-apiserver")?;
    if has_controllers {
        supervisor.start(control_plane::controller_manager(&settings))?;
        supervisor.start(control_plane::scheduler(&settings))?;
    }
    if has_node {
        supervisor.start(kubelet::component(&settings))?;
        supervisor.start(kube_proxy::component(&settings))?;
        supervisor.start(coredns::component(&settings))?;
    }
    if has_controllers {
        supervisor.wait_ready("kube-scheduler")?;
        supervisor.wait_ready("kube-controller-manager")?;
    }
    if has_node {
        supervisor.wait_ready("coredns")?;
        supervisor.wait_ready("kube-proxy")?;
        supervisor.wait_ready("kubelet")?;
    }
    Ok(())
}
