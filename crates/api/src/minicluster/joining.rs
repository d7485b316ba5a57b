//! Which MiniCluster a joiner names, in one of the three ways to name it.

use kube::ResourceExt;

use super::MiniCluster;

/// The namespace and name of a lender.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LenderName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Why `flux.bootServer` names no lead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not the host of a lead, such as flux-sample-0 or flux-sample-0.flux-service.default.svc.cluster.local"
)]
pub struct BootServerError;

impl LenderName {
    /// The lender that a MiniCluster names; `None` if it is not a joiner, or if its `bootServer`
    /// names none.
    pub fn of(minicluster: &MiniCluster) -> Option<LenderName> {
        let flux = minicluster.spec.flux.as_ref()?;
        let own = minicluster.namespace().unwrap_or_default();
        let named = |namespace: &str, name: &str| {
            let namespace = if namespace.is_empty() { own.clone() } else { namespace.to_owned() };
            LenderName { namespace, name: name.to_owned() }
        };
        if let Some(join) = &flux.join {
            return Some(named(&join.namespace, &join.name));
        }
        if !flux.connection.is_empty() {
            return Some(named("", &flux.connection));
        }
        if flux.boot_server.is_empty() {
            return None;
        }
        let (namespace, name) = parse_boot_server(&flux.boot_server).ok()?;
        Some(named(namespace, name))
    }

    /// Its name as it is shown in `namespace`.
    pub fn shown_in(&self, namespace: &str) -> String {
        name_in(namespace, &self.namespace, &self.name)
    }
}

/// The name of an object as it is shown in `namespace`: with its own namespace if that is another.
pub(super) fn name_in(namespace: &str, own_namespace: &str, name: &str) -> String {
    match own_namespace == namespace {
        true => name.to_owned(),
        false => format!("{own_namespace}/{name}"),
    }
}

/// The namespace, empty for the joiner's own, and the name of the MiniCluster whose lead has this
/// host name: `<name>-0`, alone or as `<name>-0.<service>.<namespace>...`.
pub(crate) fn parse_boot_server(host: &str) -> Result<(&str, &str), BootServerError> {
    let mut labels = host.trim_end_matches('.').split('.');
    let lead = labels.next().unwrap_or_default();
    let name = lead.strip_suffix("-0").filter(|name| !name.is_empty()).ok_or(BootServerError)?;
    let namespace = labels.nth(1).unwrap_or_default();
    let is_label = |text: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
    };
    if !is_label(name) || !is_label(namespace) {
        return Err(BootServerError);
    }
    Ok((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn lender(flux: Value) -> Option<String> {
        let minicluster = json!({ "apiVersion": "flux-framework.org/v1alpha2",
            "kind": "MiniCluster", "metadata": { "name": "b", "namespace": "hpc" },
            "spec": { "containers": [{}], "flux": flux } });
        let minicluster = serde_json::from_value(minicluster).unwrap();
        LenderName::of(&minicluster).map(|it| format!("{}/{}", it.namespace, it.name))
    }

    #[test]
    fn a_lender_is_named_in_three_ways() {
        let by_host = |host: &str| lender(json!({ "bootServer": host, "bootServerSize": 2 }));
        for (found, expected) in [
            (lender(json!({})), None),
            (lender(json!({ "join": { "name": "a" } })), Some("hpc/a")),
            (lender(json!({ "join": { "name": "a", "namespace": "x" } })), Some("x/a")),
            (lender(json!({ "connection": "a", "connectionSize": 2 })), Some("hpc/a")),
            (by_host("flux-sample-1-0"), Some("hpc/flux-sample-1")),
            (by_host("flux-sample-1-0.flux-service"), Some("hpc/flux-sample-1")),
            (
                by_host("flux-sample-1-0.flux-service.flux-operator.svc.cluster.local"),
                Some("flux-operator/flux-sample-1"),
            ),
        ] {
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[test]
    fn a_host_that_is_not_a_leads_is_rejected() {
        for host in ["a-1", "a", "-0", "10.0.0.1", "A-0", "a_b-0", "tcp://a-0:8050"] {
            assert_eq!(parse_boot_server(host), Err(BootServerError), "{host}");
        }
    }
}
