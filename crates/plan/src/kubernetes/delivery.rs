//! How the agent and Flux are delivered to the pods.
//!
//! With image volumes nothing is copied. If a cluster cannot mount images, two init
//! containers copy: the first copies the agent, and in the second the agent copies the view.
//! Either way everything is at the paths it was built for, and no image needs a shell.

use flux_operator_api::minicluster::Delivery;
use flux_operator_wire::names::command;
use k8s_openapi::api::core::v1::Container;

use super::volume::{AGENT, agent_copy_mounts, view_copy_mounts};
use super::{DEFAULT_VIEW_IMAGE, Rendering};
use crate::cluster::non_empty_or;

/// The agent's name in its image and in its copy.
pub(super) const AGENT_NAME: &str = "flux-operator-agent";

/// The view's init container, as users of the Go operator know it.
const VIEW_NAME: &str = "flux-view";

/// How the agent and Flux are delivered to the pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMethod {
    /// Their images are mounted.
    ImageVolume,
    /// Init containers copy them.
    Init,
}

/// The versions of a node's components.
#[derive(Clone, Copy, Debug)]
pub struct NodeVersions<'a> {
    /// The kubelet's version, such as `v1.35.2`.
    pub kubelet: &'a str,
    /// The container runtime's, such as `containerd://2.1.4`.
    pub runtime: &'a str,
}

/// The method for `auto`: images are mounted if the API server and all kubelets
/// are 1.35 or later, where the feature is enabled by default, and all runtimes support
/// it (containerd 2.1, CRI-O 1.31). Unknown versions do not support it.
pub fn decide(server: &str, nodes: &[NodeVersions<'_>]) -> DeliveryMethod {
    let kubernetes = |version: &str| at_least(version.trim_start_matches('v'), (1, 35));
    let node = |node: &NodeVersions<'_>| {
        let runtime = match node.runtime.split_once("://") {
            Some(("containerd", version)) => at_least(version, (2, 1)),
            Some(("cri-o", version)) => at_least(version, (1, 31)),
            _ => false,
        };
        runtime && kubernetes(node.kubelet)
    };
    match kubernetes(server) && !nodes.is_empty() && nodes.iter().all(node) {
        true => DeliveryMethod::ImageVolume,
        false => DeliveryMethod::Init,
    }
}

fn at_least(version: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = version.split(|character: char| !character.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse::<u32>().ok());
    number().zip(number()).is_some_and(|version| version >= wanted)
}

impl Rendering<'_> {
    /// How the agent and Flux are delivered to the pods of this cluster.
    pub(super) fn delivery(&self) -> DeliveryMethod {
        match self.flux_container().map(|container| container.delivery).unwrap_or_default() {
            Delivery::Unset | Delivery::Auto => self.settings.delivery,
            Delivery::ImageVolume => DeliveryMethod::ImageVolume,
            Delivery::Init => DeliveryMethod::Init,
        }
    }

    /// The view's image.
    pub(super) fn view_image(&self) -> String {
        let given = self.flux_container().map(|container| container.image.as_str());
        non_empty_or(given.unwrap_or_default(), DEFAULT_VIEW_IMAGE)
    }

    /// When the view's image is pulled.
    pub(super) fn view_pull_policy(&self) -> &'static str {
        match self.flux_container().is_some_and(|container| container.pull_always) {
            true => "Always",
            false => "IfNotPresent",
        }
    }
}

/// The init containers that copy; none if images are mounted.
pub(super) fn init_containers(rendering: &Rendering<'_>) -> Vec<Container> {
    if rendering.delivery() == DeliveryMethod::ImageVolume {
        return Vec::new();
    }
    let given = rendering.flux_container().cloned().unwrap_or_default();
    let agent = Container {
        name: AGENT_NAME.into(),
        image: Some(rendering.settings.agent_image.clone()),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(vec![format!("/{AGENT_NAME}"), command::COPY.into(), AGENT.into()]),
        volume_mounts: Some(agent_copy_mounts()),
        // A pod has the QoS class Guaranteed only if the requests of each of its containers are
        // equal to its limits.
        resources: given.resources.clone(),
        security_context: given.security_context.clone(),
        ..Container::default()
    };
    let view = || Container {
        name: non_empty_or(&given.name, VIEW_NAME),
        image: Some(rendering.view_image()),
        image_pull_policy: Some(rendering.view_pull_policy().into()),
        command: Some(vec![
            format!("{AGENT}/{AGENT_NAME}"),
            command::COPY_VIEW.into(),
            rendering.cluster.mount.clone(),
        ]),
        working_dir: Some(given.working_dir.clone()).filter(|path| !path.is_empty()),
        volume_mounts: Some(view_copy_mounts(rendering)),
        resources: given.resources.clone(),
        security_context: given.security_context.clone(),
        ..Container::default()
    };
    std::iter::once(agent).chain(rendering.has_view().then(view)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_mounted_only_if_everything_supports_it() {
        let new = NodeVersions { kubelet: "v1.36.3", runtime: "containerd://2.1.4" };
        let crio = NodeVersions { kubelet: "v1.35.0+k3s1", runtime: "cri-o://1.31.0" };
        for (server, nodes, method) in [
            ("v1.35.0", vec![new, crio], DeliveryMethod::ImageVolume),
            ("v1.35.0-gke.1", vec![new], DeliveryMethod::ImageVolume),
            ("v2.0.0", vec![new], DeliveryMethod::ImageVolume),
            ("v1.34.9", vec![new], DeliveryMethod::Init),
            ("", vec![new], DeliveryMethod::Init),
            ("v1.36.0", vec![], DeliveryMethod::Init),
        ] {
            assert_eq!(decide(server, &nodes), method, "{server} {nodes:?}");
        }
        for (kubelet, runtime) in [
            ("v1.36.3", "containerd://2.0.9"),
            ("v1.36.3", "containerd://1.7.28"),
            ("v1.36.3", "cri-o://1.30.4"),
            ("v1.36.3", "docker://29.1.0"),
            ("v1.36.3", "containerd://"),
            ("v1.36.3", ""),
            ("v1.33.1", "containerd://2.1.4"),
        ] {
            let old = NodeVersions { kubelet, runtime };
            assert_eq!(decide("v1.36.0", &[new, old]), DeliveryMethod::Init, "{old:?}");
        }
    }
}
