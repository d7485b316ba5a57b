//! Volumes of the pods and where they are mounted: ours, and the user's.

use std::collections::BTreeMap;

use flux_operator_api::minicluster::{Container, Volume as UserVolume};
use flux_operator_wire::names::file;
use k8s_openapi::api::core::v1::{
    CSIVolumeSource, ConfigMapVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource,
    ImageVolumeSource, KeyToPath, PersistentVolumeClaimVolumeSource, ProjectedVolumeSource,
    SecretProjection, SecretVolumeSource, Volume, VolumeMount, VolumeProjection,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::Rendering;
use super::config_map::BOOT_PLAN_KEY;
use super::delivery::DeliveryMethod;
use super::secret::{certificate_name, user_secret};
use crate::cluster::non_empty_or;

/// Where the boot plan is mounted, as users of the Go operator know it.
pub(super) const BOOT: &str = "/flux_operator";
/// Where the cluster's keys are mounted, into the runner alone.
pub(super) const KEYS: &str = "/flux_operator_keys";
/// Where the agent keeps its copy of the keys, in memory. Not below a directory
/// of the agent: a mount point is created by root, and the user who runs
/// Flux could not write beside it.
pub(super) const PRIVATE: &str = "/flux_operator_private";
/// Where the agent is mounted.
pub(super) const AGENT: &str = "/flux_operator_agent";
/// Where a view image has its views; Flux is below, at the path it was built for.
pub(super) const VIEWS: &str = "/opt/views";
/// Where a view image has what its views link to.
const SOFTWARE: &str = "/opt/software";
/// Where an empty directory without a path is mounted, as with the Go operator.
const SHARED_MEMORY: &str = "/dev/shm";
/// Where munge expects its key, as with version v1alpha1 of the Go operator.
const MUNGE: &str = "/etc/munge";
/// The key's file, and its name in the user's Secret.
const MUNGE_KEY: &str = "munge.key";

const BOOT_VOLUME: &str = "flux-operator-boot";
pub(super) const KEYS_VOLUME: &str = "flux-operator-keys";
const CERTIFICATE_VOLUME: &str = "flux-operator-certificate";
const AGENT_VOLUME: &str = "flux-operator-agent";
const STATE_VOLUME: &str = "flux-operator-state";
const VIEW_VOLUME: &str = "flux-operator-view";
const MUNGE_VOLUME: &str = "flux-operator-munge";

/// Every volume of the pods.
pub(super) fn volumes(rendering: &Rendering<'_>) -> Vec<Volume> {
    let mut volumes = vec![
        Volume {
            name: BOOT_VOLUME.into(),
            config_map: Some(ConfigMapVolumeSource {
                name: rendering.config_map_name(),
                items: Some(vec![KeyToPath {
                    key: BOOT_PLAN_KEY.into(),
                    path: BOOT_PLAN_KEY.into(),
                    mode: None,
                }]),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        },
        keys(rendering),
        // The agent's copy of the certificate, which Flux requires to be private, is never
        // written to a disk.
        empty(CERTIFICATE_VOLUME, Some("Memory")),
        empty(STATE_VOLUME, None),
    ];
    match rendering.delivery() {
        DeliveryMethod::Init => volumes.push(empty(AGENT_VOLUME, None)),
        DeliveryMethod::ImageVolume => {
            let agent = rendering.settings.agent_image.clone();
            volumes.push(image(AGENT_VOLUME, agent, "IfNotPresent"));
            if rendering.has_view() {
                let policy = rendering.view_pull_policy();
                volumes.push(image(VIEW_VOLUME, rendering.view_image(), policy));
            }
        }
    }
    volumes.extend(munge_secret(rendering).map(|name| Volume {
        name: MUNGE_VOLUME.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(name.to_owned()),
            items: Some(vec![item(MUNGE_KEY)]),
            default_mode: Some(0o400),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }));
    volumes.extend(user_volumes(rendering, &rendering.minicluster.spec.containers));
    volumes
}

/// The keys of a cluster: its own Secret, and the one with the certificate, if that is another.
/// Readable by any user of the image; only the runner mounts it.
fn keys(rendering: &Rendering<'_>) -> Volume {
    const MODE: i32 = 0o444;
    let named = Volume { name: KEYS_VOLUME.into(), ..Volume::default() };
    if !rendering.has_certificate_elsewhere() {
        return Volume {
            secret: Some(SecretVolumeSource {
                secret_name: Some(rendering.secret_name()),
                default_mode: Some(MODE),
                ..SecretVolumeSource::default()
            }),
            ..named
        };
    }
    let source = |name: String, keys: &[&str], optional: Option<bool>| VolumeProjection {
        secret: Some(SecretProjection {
            name,
            items: Some(keys.iter().copied().map(item).collect()),
            optional,
        }),
        ..VolumeProjection::default()
    };
    let joining = rendering.cluster.joining.as_ref();
    let remote = joining.and_then(|joining| joining.remote.as_ref());
    let certificate = match user_secret(rendering.minicluster) {
        Some(name) => name.to_owned(),
        None => certificate_name(
            rendering.name(),
            joining.map(|joining| joining.job.as_str()).unwrap_or_default(),
        ),
    };
    let is_invited = remote.is_some_and(|remote| remote.invitation.is_some());
    let keys: &[&str] = match is_invited {
        true => &[file::CERTIFICATE, file::INVITATION_KEY],
        false => &[file::CERTIFICATE],
    };
    // Without an operator to report to there is no key for reports. Brokers with an invitation may
    // have none: then they ask the lender alone. Those of an instance outside Kubernetes never have
    // one. Other joiners are not started.
    let reports_optional = joining.is_none().then_some(true);
    let reports = source(rendering.secret_name(), &[file::REPORT_KEY], reports_optional);
    let needs_no_operator = is_invited || remote.is_some_and(|it| it.standalone_lead.is_some());
    let has_reports = !needs_no_operator || rendering.settings.report_url.is_some();
    let reports = has_reports.then_some(reports);
    Volume {
        projected: Some(ProjectedVolumeSource {
            sources: Some(reports.into_iter().chain([source(certificate, keys, None)]).collect()),
            default_mode: Some(MODE),
        }),
        ..named
    }
}

fn item(key: &str) -> KeyToPath {
    KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None }
}

fn munge_secret<'a>(rendering: &'a Rendering<'_>) -> Option<&'a str> {
    let name = rendering.flux().map(|flux| flux.munge_secret.as_str());
    name.filter(|name| !name.is_empty())
}

/// What every container that runs under an agent mounts.
pub(super) fn agent_mounts(rendering: &Rendering<'_>) -> Vec<VolumeMount> {
    let mut mounts = vec![
        read_only(BOOT_VOLUME, BOOT, None),
        read_only(AGENT_VOLUME, AGENT, None),
        writable(STATE_VOLUME, &rendering.cluster.mount),
    ];
    if rendering.has_view() {
        let (volume, [views, software]) = match rendering.delivery() {
            DeliveryMethod::ImageVolume => (VIEW_VOLUME, ["opt/views", "opt/software"]),
            DeliveryMethod::Init => (STATE_VOLUME, ["views", "software"]),
        };
        mounts.push(read_only(volume, VIEWS, Some(views)));
        mounts.push(read_only(volume, SOFTWARE, Some(software)));
    }
    mounts
}

/// What the init container that copies the agent mounts.
pub(super) fn agent_copy_mounts() -> Vec<VolumeMount> {
    vec![writable(AGENT_VOLUME, AGENT)]
}

/// What the init container that copies the view mounts.
pub(super) fn view_copy_mounts(rendering: &Rendering<'_>) -> Vec<VolumeMount> {
    vec![read_only(AGENT_VOLUME, AGENT, None), writable(STATE_VOLUME, &rendering.cluster.mount)]
}

/// What only the runner mounts: the keys.
pub(super) fn key_mounts(rendering: &Rendering<'_>) -> Vec<VolumeMount> {
    let munge = munge_secret(rendering)
        .map(|_| read_only(MUNGE_VOLUME, &format!("{MUNGE}/{MUNGE_KEY}"), Some(MUNGE_KEY)));
    [read_only(KEYS_VOLUME, KEYS, None), writable(CERTIFICATE_VOLUME, PRIVATE)]
        .into_iter()
        .chain(munge)
        .collect()
}

/// Mounts of the user's volumes.
pub(super) fn user_mounts(container: &Container) -> Vec<VolumeMount> {
    all(container)
        .map(|(name, volume)| VolumeMount {
            name: name.clone(),
            mount_path: non_empty_or(&volume.path, SHARED_MEMORY),
            read_only: volume.read_only.then_some(true),
            ..VolumeMount::default()
        })
        .collect()
}

/// The volumes of containers by name; if several have the same name, the last counts.
pub(super) fn user_volumes(rendering: &Rendering<'_>, containers: &[Container]) -> Vec<Volume> {
    let spec = &rendering.minicluster.spec;
    let by_name: BTreeMap<&String, &UserVolume> = containers.iter().flat_map(all).collect();
    by_name
        .into_iter()
        .map(|(name, volume)| {
            let storage = spec.volumes.get(name).map(|storage| storage.path.as_str());
            user_volume(name, volume, storage)
        })
        .collect()
}

fn all(container: &Container) -> impl Iterator<Item = (&String, &UserVolume)> {
    container.volumes.iter().chain(&container.existing_volumes)
}

fn user_volume(name: &str, volume: &UserVolume, storage: Option<&str>) -> Volume {
    let named = Volume { name: name.to_owned(), ..Volume::default() };
    let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    if let Some(driver) = text(&volume.csi_driver) {
        let attributes = Some(volume.csi_driver_attributes.clone()).filter(|map| !map.is_empty());
        let csi = CSIVolumeSource { driver, volume_attributes: attributes, ..Default::default() };
        return Volume { csi: Some(csi), ..named };
    }
    if let Some(secret_name) = text(&volume.secret_name) {
        let secret = SecretVolumeSource {
            secret_name: Some(secret_name),
            items: items(volume),
            ..SecretVolumeSource::default()
        };
        return Volume { secret: Some(secret), ..named };
    }
    if let Some(path) = text(&volume.host_path) {
        return Volume { host_path: Some(host_path(path)), ..named };
    }
    if let Some(map) = text(&volume.config_map_name) {
        let config_map = ConfigMapVolumeSource {
            name: map,
            items: items(volume),
            ..ConfigMapVolumeSource::default()
        };
        return Volume { config_map: Some(config_map), ..named };
    }
    if let Some(claim_name) = text(&volume.claim_name) {
        // Mounts say whether they are read-only; here it would apply to every container.
        let claim = PersistentVolumeClaimVolumeSource { claim_name, read_only: None };
        return Volume { persistent_volume_claim: Some(claim), ..named };
    }
    // Storage of v1alpha1 on the node, or an empty directory.
    if let Some(path) = storage.filter(|_| !volume.empty_dir) {
        return Volume { host_path: Some(host_path(path.to_owned())), ..named };
    }
    Volume { empty_dir: Some(empty_dir(volume)), ..named }
}

fn items(volume: &UserVolume) -> Option<Vec<KeyToPath>> {
    let items = volume.items.iter();
    let items =
        items.map(|(key, path)| KeyToPath { key: key.clone(), path: path.clone(), mode: None });
    Some(items.collect::<Vec<_>>()).filter(|items| !items.is_empty())
}

fn host_path(path: String) -> HostPathVolumeSource {
    HostPathVolumeSource { path, type_: Some("Directory".into()) }
}

fn empty_dir(volume: &UserVolume) -> EmptyDirVolumeSource {
    let medium = match volume.empty_dir_medium.as_str() {
        "" => None,
        "memory" => Some("Memory".to_owned()),
        medium => Some(medium.to_owned()),
    };
    let limit = Some(volume.empty_dir_size_limit.clone()).filter(|limit| !limit.is_empty());
    EmptyDirVolumeSource { medium, size_limit: limit.map(Quantity) }
}

fn empty(name: &str, medium: Option<&str>) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(str::to_owned),
            ..EmptyDirVolumeSource::default()
        }),
        ..Volume::default()
    }
}

fn image(name: &str, reference: String, pull_policy: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        image: Some(ImageVolumeSource {
            reference: Some(reference),
            pull_policy: Some(pull_policy.to_owned()),
        }),
        ..Volume::default()
    }
}

fn writable(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() }
}

fn read_only(name: &str, path: &str, sub_path: Option<&str>) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        sub_path: sub_path.map(str::to_owned),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}
