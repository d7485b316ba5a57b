//! Volumes of a container, and v1alpha1's storage at the top of the spec.

use std::collections::BTreeMap;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::embedded::QUANTITY_PATTERN;
use crate::unset::is_unset;

/// A volume and where it is mounted. The field that is set determines its kind.
/// With none, it is the storage of that name in spec.volumes, or else an empty
/// directory.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(has(self.path) && self.path != '') || (has(self.emptyDir) && self.emptyDir)")
        .message("a volume needs a path to mount it at")
        .field_path(".path"),
    validation = Rule::new("[has(self.hostPath) && self.hostPath != '', has(self.claimName) && self.claimName != '', has(self.secretName) && self.secretName != '', has(self.configMapName) && self.configMapName != '', has(self.csiDriver) && self.csiDriver != '', has(self.emptyDir) && self.emptyDir].filter(k, k).size() <= 1")
        .message("a volume is of one kind: keep one of hostPath, claimName, secretName, configMapName, csiDriver and emptyDir"),
    validation = Rule::new("!has(self.csiDriverAttributes) || self.csiDriverAttributes.size() == 0 || (has(self.csiDriver) && self.csiDriver != '')")
        .message("csiDriverAttributes needs csiDriver: set it")
        .field_path(".csiDriverAttributes"),
    validation = Rule::new("!has(self.items) || self.items.size() == 0 || (has(self.configMapName) && self.configMapName != '') || (has(self.secretName) && self.secretName != '')")
        .message("items needs configMapName or secretName: set one of them")
        .field_path(".items")
)]
pub struct Volume {
    /// Where the volume is mounted. An empty directory without a path is mounted
    /// at /dev/shm.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096), regex(pattern = r"^$|^[^:]+$"))]
    pub path: String,

    /// Mount it read-only.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub read_only: bool,

    /// A directory of the node, which must exist.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 4096))]
    pub host_path: String,

    /// A PersistentVolumeClaim in the same namespace.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub claim_name: String,

    /// A Secret, each key a file.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub secret_name: String,

    /// A ConfigMap, each key a file.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub config_map_name: String,

    /// Keys of the ConfigMap or Secret to mount, with the file each becomes. Unset:
    /// all of them.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub items: BTreeMap<String, String>,

    /// An empty directory that lives as long as the pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub empty_dir: bool,

    /// The medium of an empty directory: `memory`, or huge pages. Unset: the
    /// node's disk.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = r"^$|^[Mm]emory$|^HugePages(-[0-9]+[KMG]i)?$"))]
    pub empty_dir_medium: String,

    /// Size limit of an empty directory, such as 2Gi.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = quantity_or_empty()))]
    pub empty_dir_size_limit: String,

    /// CSI driver of an ephemeral volume of the pod.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub csi_driver: String,

    /// Attributes for the CSI driver.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub csi_driver_attributes: BTreeMap<String, String>,
}

/// Storage as v1alpha1 declared it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.storageClass) || self.storageClass == '' || self.storageClass == 'hostpath' || (has(self.secret) && self.secret != '')")
        .message("storage of a class other than hostpath needs the secret with its credentials")
        .field_path(".secret")
)]
pub struct StorageVolume {
    /// Path of the storage; for the class hostpath, a directory of the node.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,

    /// Storage class. Unset: hostpath.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub storage_class: String,

    /// Requested size. Unset: 5Gi.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63), regex(pattern = quantity_or_empty()))]
    pub capacity: String,

    /// CSI driver, for classes other than hostpath.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub driver: String,

    /// Handle of the volume for the CSI driver. Unset: the storage class.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 1024))]
    pub volume_handle: String,

    /// Attributes for the CSI driver.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub attributes: BTreeMap<String, String>,

    /// Secret with the storage's credentials.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 253))]
    pub secret: String,

    /// Namespace of that secret. Unset: default.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(length(max = 63))]
    pub secret_namespace: String,

    /// Labels of the persistent volume.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub labels: BTreeMap<String, String>,

    /// Annotations of the persistent volume.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub annotations: BTreeMap<String, String>,

    /// Annotations of the claim.
    #[serde(default, skip_serializing_if = "is_unset")]
    #[schemars(extend("maxProperties" = 256))]
    pub claim_annotations: BTreeMap<String, String>,

    /// Delete the persistent volume with the cluster. Unset: yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete: Option<bool>,
}

fn quantity_or_empty() -> String {
    format!("^$|{QUANTITY_PATTERN}")
}
