//! What was made for Bursts that no longer exist: which objects these are, and how they are removed
//! from a MiniCluster.

use std::collections::{BTreeMap, BTreeSet};

use flux_operator_api::minicluster::Invitation;
use flux_operator_api::{Burst, MiniCluster};
use flux_operator_plan::bursting::{
    BURST_CLUSTER_LABEL, BURST_FINALIZER, BURST_LABEL, BURST_NAME_ANNOTATION, cluster_secret_name,
    is_command_job, is_object_name, object_name,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::kubectl::table::{format_age, table};

/// The Bursts and MiniClusters that exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Existing {
    /// The names of what is made for Bursts.
    objects: BTreeSet<String>,
    /// Namespace and name of MiniClusters that Bursts are for.
    used: BTreeSet<(String, String)>,
    /// Namespace and name of MiniClusters, by their uid.
    clusters: BTreeMap<String, String>,
}

impl Existing {
    /// With these Bursts and MiniClusters.
    pub(super) fn new<'a>(
        bursts: &[Burst],
        clusters: impl IntoIterator<Item = &'a ObjectMeta>,
    ) -> Existing {
        let mut existing = Existing::default();
        for burst in bursts {
            existing.objects.insert(object_name(burst));
            // The record of a Burst of another version of the operator.
            existing.objects.extend(burst.status.as_ref().map(|it| it.object_name.clone()));
            let namespace = burst.namespace().unwrap_or_default();
            existing.used.insert((namespace, burst.spec.cluster.clone()));
        }
        for metadata in clusters {
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            let name = format!("{namespace}/{}", metadata.name.as_deref().unwrap_or_default());
            existing.clusters.insert(metadata.uid.clone().unwrap_or_default(), name);
        }
        existing
    }

    fn is_leftover(&self, object_name: &str) -> bool {
        !self.objects.contains(object_name)
    }
}

/// Where a leftover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the namespace of the MiniClusters.
    Here,
    /// At the target.
    Target,
}

/// The kind of a leftover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A MiniCluster that joins another one, with the brokers of a Burst.
    Joiner,
    /// An invitation of a MiniCluster.
    Invitation,
    /// The finalizer of a MiniCluster, without which it can be deleted.
    Finalizer,
    /// A Cluster of Cluster API.
    Cluster,
    Job,
    ConfigMap,
    Secret,
    Service,
    Pod,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Joiner => "MiniCluster",
            Kind::Invitation => "Invitation",
            Kind::Finalizer => "Finalizer",
            Kind::Cluster => "Cluster",
            Kind::Job => "Job",
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
            Kind::Service => "Service",
            Kind::Pod => "Pod",
        }
    }
}

/// Something that was made for a Burst that no longer exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leftover {
    pub(super) place: Place,
    pub(super) kind: Kind,
    /// The name of the object; for an invitation or a finalizer that of the MiniCluster.
    pub(super) object: String,
    /// The name of the invitation.
    pub(super) invitation: Option<String>,
    /// Namespace and name of the Burst; if they are not known, the name of its objects.
    burst: String,
    /// Namespace and name of the MiniCluster; its uid if there is none with this uid.
    cluster: String,
    /// Whether that MiniCluster is known to be, or to have been, of this Kubernetes cluster.
    pub(super) is_of_known_cluster: bool,
    created: Option<Timestamp>,
}

impl Leftover {
    /// Its name as it is shown.
    pub(super) fn name(&self) -> String {
        match &self.invitation {
            Some(invitation) => format!("{}/{invitation}", self.object),
            None => self.object.clone(),
        }
    }

    fn of_object(
        place: Place,
        kind: Kind,
        metadata: &ObjectMeta,
        cluster_uid: &str,
        existing: &Existing,
    ) -> Leftover {
        let cluster = existing.clusters.get(cluster_uid);
        let annotations = metadata.annotations.as_ref();
        let named = annotations.and_then(|it| it.get(BURST_NAME_ANNOTATION)).map(String::as_str);
        let burst = named.or_else(|| label(metadata, BURST_LABEL));
        Leftover {
            place,
            kind,
            object: metadata.name.clone().unwrap_or_default(),
            invitation: None,
            burst: burst.unwrap_or_default().to_owned(),
            // A MiniCluster joins one of its own namespace.
            is_of_known_cluster: kind == Kind::Joiner || cluster.is_some(),
            cluster: cluster.cloned().unwrap_or_else(|| cluster_uid.to_owned()),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether an object of this namespace was made to get a Kubernetes cluster for a Burst. Brokers have the
/// same label: if the namespace is a target, there are some of others, and they may be in use.
fn makes_cluster(kind: Kind, metadata: &ObjectMeta) -> bool {
    let name = metadata.name.as_deref().unwrap_or_default();
    let Some(burst) = label(metadata, BURST_LABEL) else { return false };
    match kind {
        Kind::Cluster => name == burst,
        Kind::Job => is_command_job(burst, name),
        Kind::Secret => name == cluster_secret_name(burst),
        Kind::ConfigMap | Kind::Service | Kind::Pod => false,
        Kind::Joiner | Kind::Invitation | Kind::Finalizer => false,
    }
}

/// The leftovers in the namespace of these MiniClusters.
pub(super) fn here(miniclusters: &[MiniCluster], existing: &Existing) -> Vec<Leftover> {
    let mut found = Vec::new();
    for minicluster in miniclusters {
        let metadata = &minicluster.metadata;
        if label(metadata, BURST_LABEL).is_some_and(|name| existing.is_leftover(name)) {
            let uid = label(metadata, BURST_CLUSTER_LABEL).unwrap_or_default();
            found.push(Leftover::of_object(Place::Here, Kind::Joiner, metadata, uid, existing));
        }
        let namespace = minicluster.namespace().unwrap_or_default();
        let of_cluster = |kind: Kind, invitation: Option<&Invitation>| Leftover {
            place: Place::Here,
            kind,
            object: minicluster.name_any(),
            invitation: invitation.map(|it| it.name.clone()),
            burst: invitation.map(|it| it.name.clone()).unwrap_or_default(),
            cluster: format!("{namespace}/{}", minicluster.name_any()),
            is_of_known_cluster: true,
            created: None,
        };
        let (left, _) = invitations(minicluster, existing);
        found.extend(left.into_iter().map(|it| of_cluster(Kind::Invitation, Some(it))));
        if has_unused_finalizer(minicluster, existing) {
            found.push(of_cluster(Kind::Finalizer, None));
        }
    }
    found
}

/// The leftovers among objects of a place, in the order in which they are deleted. Here, they are only
/// what makes clusters. Pods of a Job that is a leftover are left out, because they are deleted with it.
pub(super) fn among(
    place: Place,
    objects: &[(Kind, ObjectMeta)],
    existing: &Existing,
) -> Vec<Leftover> {
    let is_left = |(kind, metadata): &&(Kind, ObjectMeta)| {
        label(metadata, BURST_LABEL).is_some_and(|name| existing.is_leftover(name))
            && (place == Place::Target || makes_cluster(*kind, metadata))
    };
    let left: Vec<&(Kind, ObjectMeta)> = objects.iter().filter(is_left).collect();
    // A program gives its Secret the label of the Burst alone.
    let uid_of = |(_, it): &&(Kind, ObjectMeta)| {
        Some((label(it, BURST_LABEL)?.to_owned(), label(it, BURST_CLUSTER_LABEL)?.to_owned()))
    };
    let uids: BTreeMap<String, String> = left.iter().filter_map(uid_of).collect();
    let jobs: BTreeSet<&str> = left
        .iter()
        .filter(|(kind, _)| *kind == Kind::Job)
        .filter_map(|(_, job)| job.uid.as_deref())
        .collect();
    let is_of_job = |metadata: &ObjectMeta| {
        metadata.owner_references.iter().flatten().any(|owner| jobs.contains(owner.uid.as_str()))
    };
    let shown = left.into_iter().filter(|(kind, it)| *kind != Kind::Pod || !is_of_job(it));
    let leftover = |(kind, it): &(Kind, ObjectMeta)| {
        let of_burst = || uids.get(label(it, BURST_LABEL)?).map(String::as_str);
        let uid = label(it, BURST_CLUSTER_LABEL).or_else(of_burst).unwrap_or_default();
        Leftover::of_object(place, *kind, it, uid, existing)
    };
    shown.map(leftover).collect()
}

/// The patch that removes leftovers from a MiniCluster in this state of it; `None` if it has none.
pub(super) fn removal(minicluster: &MiniCluster, existing: &Existing) -> Option<Value> {
    let (left, kept) = invitations(minicluster, existing);
    let has_finalizer = has_unused_finalizer(minicluster, existing);
    if left.is_empty() && !has_finalizer {
        return None;
    }
    let mut patch = json!({ "metadata": { "resourceVersion": minicluster.resource_version() } });
    if !left.is_empty() {
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        patch["spec"] = json!({ "flux": { "bursting": { "invitations": kept } } });
    }
    if has_finalizer {
        let finalizers = minicluster.finalizers().iter();
        let others: Vec<&String> = finalizers.filter(|it| *it != BURST_FINALIZER).collect();
        patch["metadata"]["finalizers"] = json!(others);
    }
    Some(patch)
}

/// The invitations of a MiniCluster for Bursts that no longer exist, and the others.
fn invitations<'a>(
    minicluster: &'a MiniCluster,
    existing: &Existing,
) -> (Vec<&'a Invitation>, Vec<&'a Invitation>) {
    let bursting = minicluster.spec.flux.as_ref().and_then(|flux| flux.bursting.as_ref());
    let all = bursting.iter().flat_map(|bursting| &bursting.invitations);
    all.partition(|it| is_object_name(&it.name) && existing.is_leftover(&it.name))
}

/// Whether a MiniCluster has the finalizer of Bursts, and none is for it.
fn has_unused_finalizer(minicluster: &MiniCluster, existing: &Existing) -> bool {
    let key = (minicluster.namespace().unwrap_or_default(), minicluster.name_any());
    minicluster.finalizers().iter().any(|it| it == BURST_FINALIZER) && !existing.used.contains(&key)
}

/// The leftovers as a table.
pub(super) fn rows(leftovers: &[Leftover], now: Timestamp) -> String {
    let row = |it: &Leftover| {
        let place = match it.place {
            Place::Here => "here",
            Place::Target => "target",
        };
        let age = it.created.map(|time| format_age(now.as_second() - time.as_second()));
        let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        vec![
            place.to_owned(),
            it.kind.name().to_owned(),
            it.name(),
            or_none(it.burst.clone()),
            or_none(it.cluster.clone()),
            or_none(age.unwrap_or_default()),
        ]
    };
    let rows: Vec<Vec<String>> = leftovers.iter().map(row).collect();
    table(&["PLACE", "KIND", "NAME", "BURST", "CLUSTER", "AGE"], &rows)
}

#[cfg(test)]
mod tests {
    use flux_operator_plan::bursting::{
        isolated_secret_name, remote_config_map_name, remote_secret_name,
    };

    use super::super::testing::{burst, cluster, now};
    use super::*;

    const LEFT: &str = "burst-0123456789ab";

    fn metadata(name: &str, label: &str, cluster_uid: &str) -> ObjectMeta {
        serde_json::from_value(json!({
            "name": name, "namespace": "there", "uid": format!("{name}-uid"),
            "labels": { BURST_LABEL: label, BURST_CLUSTER_LABEL: cluster_uid },
            "annotations": { BURST_NAME_ANNOTATION: "team/fs-gke-1" },
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }))
        .unwrap()
    }

    fn invitation(name: &str) -> Value {
        json!({ "name": name, "ranks": 2, "expires": "2026-01-02T00:00:00Z" })
    }

    #[test]
    fn what_belongs_to_a_burst_that_exists_is_left_alone() {
        let alive = burst("mine", "", json!({}));
        let name = object_name(&alive);
        let mut lender = cluster(json!({ "invitations": [invitation(&name), invitation("a")] }));
        lender.metadata.finalizers = Some(vec![BURST_FINALIZER.to_owned()]);
        let mut joiner = cluster(json!({}));
        joiner.metadata = metadata(&name, &name, "fs-uid");
        let clusters = [lender, joiner];
        let existing = Existing::new(&[alive], clusters.iter().map(|it| &it.metadata));
        assert_eq!(here(&clusters, &existing), []);
        let objects = [(Kind::Job, metadata(&name, &name, "fs-uid"))];
        assert_eq!(among(Place::Target, &objects, &existing), []);
        assert_eq!(removal(&clusters[0], &existing), None);
        // Without the Burst, all but the user's own invitation are leftovers.
        let none = Existing::new(&[], clusters.iter().map(|it| &it.metadata));
        let kinds: Vec<Kind> = here(&clusters, &none).iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [Kind::Invitation, Kind::Finalizer, Kind::Joiner]);
        let without_lender = here(&clusters[1..], &Existing::default());
        assert!(without_lender[0].is_of_known_cluster, "its lender was in this namespace");
        assert_eq!(among(Place::Target, &objects, &none).len(), 1);
    }

    #[test]
    fn leftovers_are_shown_with_their_burst_and_cluster() {
        let lender = cluster(json!({ "invitations": [invitation(LEFT), invitation("burst-0")] }));
        let existing = Existing::new(&[], [&lender.metadata]);
        let secret = format!("{LEFT}-invitation");
        let mut pod = metadata("pod", LEFT, "fs-uid");
        pod.owner_references = serde_json::from_value(json!([{ "apiVersion": "batch/v1",
            "kind": "Job", "name": LEFT, "uid": format!("{LEFT}-uid") }]))
        .unwrap();
        let mut orphan = metadata("orphan", LEFT, "fs-uid");
        orphan.annotations = None;
        let objects = [
            (Kind::Job, metadata(LEFT, LEFT, "fs-uid")),
            (Kind::Secret, metadata(&secret, LEFT, "deleted-uid")),
            (Kind::Pod, pod),
            (Kind::Pod, orphan),
        ];
        let mut found = here(&[lender], &existing);
        found.extend(among(Place::Target, &objects, &existing));
        let expected = "\
PLACE    KIND         NAME                            BURST                CLUSTER       AGE
here     Invitation   fs/burst-0123456789ab           burst-0123456789ab   team/fs       -
target   Job          burst-0123456789ab              team/fs-gke-1        team/fs       30m
target   Secret       burst-0123456789ab-invitation   team/fs-gke-1        deleted-uid   30m
target   Pod          orphan                          burst-0123456789ab   team/fs       30m
";
        assert_eq!(rows(&found, now()), expected);
        let known: Vec<bool> = found.iter().map(|it| it.is_of_known_cluster).collect();
        assert_eq!(known, [true, true, false, true]);
    }

    #[test]
    fn what_made_a_cluster_is_a_leftover_of_this_namespace() {
        let name = |end: &str| format!("{LEFT}-{end}");
        let secret = || {
            let mut secret = metadata(&name("kubeconfig"), LEFT, "");
            secret.labels = Some(BTreeMap::from([(BURST_LABEL.to_owned(), LEFT.to_owned())]));
            (Kind::Secret, secret)
        };
        let objects = [
            (Kind::Cluster, metadata(LEFT, LEFT, "deleted-uid")),
            (Kind::Job, metadata(&name("up-2"), LEFT, "deleted-uid")),
            (Kind::Job, metadata(&name("down"), LEFT, "deleted-uid")),
            secret(),
        ];
        let found = among(Place::Here, &objects, &Existing::default());
        let expected = "\
PLACE   KIND      NAME                            BURST           CLUSTER       AGE
here    Cluster   burst-0123456789ab              team/fs-gke-1   deleted-uid   30m
here    Job       burst-0123456789ab-up-2         team/fs-gke-1   deleted-uid   30m
here    Job       burst-0123456789ab-down         team/fs-gke-1   deleted-uid   30m
here    Secret    burst-0123456789ab-kubeconfig   team/fs-gke-1   deleted-uid   30m
";
        assert_eq!(rows(&found, now()), expected);
        assert!(found.iter().all(|it| !it.is_of_known_cluster), "no MiniCluster has this uid");
        let lender = cluster(json!({}));
        let existing = Existing::new(&[], [&lender.metadata]);
        let job = || (Kind::Job, metadata(&name("down"), LEFT, "fs-uid"));
        let known = |objects: &[(Kind, ObjectMeta)]| -> Vec<bool> {
            let found = among(Place::Here, objects, &existing);
            found.iter().map(|it| it.is_of_known_cluster).collect()
        };
        assert_eq!(known(&[job(), secret()]), [true, true]);
        assert_eq!(known(&[secret()]), [false], "nothing says for which MiniCluster it is");
    }

    /// This namespace may be a target of others, and their brokers have the same label.
    #[test]
    fn brokers_in_this_namespace_are_no_leftovers_of_it() {
        let secret = remote_secret_name(LEFT);
        let config_map = remote_config_map_name(LEFT);
        let run = isolated_secret_name(LEFT, "0f4e2c1d-uid");
        let brokers = [
            (Kind::Job, metadata(LEFT, LEFT, "their-uid")),
            (Kind::Secret, metadata(&secret, LEFT, "their-uid")),
            (Kind::Secret, metadata(&run, LEFT, "their-uid")),
            (Kind::ConfigMap, metadata(&config_map, LEFT, "their-uid")),
            (Kind::Service, metadata(LEFT, LEFT, "their-uid")),
            (Kind::Pod, metadata(LEFT, LEFT, "their-uid")),
        ];
        assert_eq!(among(Place::Here, &brokers, &Existing::default()), []);
        assert_eq!(among(Place::Target, &brokers, &Existing::default()).len(), brokers.len());
    }

    #[test]
    fn a_minicluster_keeps_the_rest_of_its_invitations_and_finalizers() {
        let none = Existing::default();
        let mut lender = cluster(json!({ "invitations": [invitation(LEFT), invitation("a")] }));
        let kept = json!({ "flux": { "bursting": { "invitations": [
            cluster(json!({ "invitations": [invitation("a")] })).spec.flux.unwrap().bursting.unwrap()
                .invitations[0]
        ] } } });
        let version = json!({ "resourceVersion": "7" });
        let expected = json!({ "metadata": version, "spec": kept });
        assert_eq!(removal(&lender, &none), Some(expected));
        lender.spec.flux = None;
        lender.metadata.finalizers = Some(vec!["other".into(), BURST_FINALIZER.into()]);
        let expected = json!({ "metadata": { "resourceVersion": "7", "finalizers": ["other"] } });
        assert_eq!(removal(&lender, &none), Some(expected));
        let only = cluster(json!({ "invitations": [invitation(LEFT)] }));
        assert_eq!(
            removal(&only, &none).unwrap()["spec"]["flux"]["bursting"]["invitations"],
            Value::Null
        );
    }
}
