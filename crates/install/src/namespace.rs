//! The operator's namespace and its ServiceAccount.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{InstallSettings, OPERATOR, cluster_scoped_metadata, selector};

/// The namespace. It enforces the restricted Pod Security Standard, which the operator's pods meet.
pub(crate) fn namespace(settings: &InstallSettings) -> Namespace {
    let mut metadata = cluster_scoped_metadata(settings.namespace.clone());
    let labels = metadata.labels.get_or_insert_default();
    labels.extend(selector());
    labels.insert("pod-security.kubernetes.io/enforce".into(), "restricted".into());
    Namespace { metadata, ..Namespace::default() }
}

/// The ServiceAccount. Only the operator's own pods mount its token.
pub(crate) fn service_account(settings: &InstallSettings) -> ServiceAccount {
    let metadata: ObjectMeta = settings.metadata(OPERATOR);
    ServiceAccount {
        metadata,
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}
