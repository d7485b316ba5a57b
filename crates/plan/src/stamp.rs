//! What a Job says of its own making, in annotations: the spec it was made from, the
//! version that made it, and how many hosts its brokers were told of.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;

use crate::fingerprint::Fingerprint;
use crate::kubernetes::Rendering;

const SPEC: &str = "flux-framework.org/spec";
const VERSION: &str = "flux-framework.org/version";
const RANKS: &str = "flux-framework.org/ranks";

/// This program's version.
const THIS_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes the annotations of a Job that is about to be made.
pub(crate) fn stamp(job: &mut Job, rendering: &Rendering<'_>) {
    let fingerprint = Fingerprint::of(&rendering.minicluster.spec);
    let annotations = job.annotations_mut();
    annotations.insert(SPEC.into(), fingerprint.to_text());
    annotations.insert(VERSION.into(), THIS_VERSION.into());
    annotations.insert(RANKS.into(), rendering.cluster.ranks.max_size.to_string());
}

/// Fields of a spec that differ from what the Job was made from.
pub(crate) fn changed_fields(job: &Job, now: &flux_operator_api::MiniClusterSpec) -> Vec<String> {
    let made_from = job.annotations().get(SPEC).and_then(|text| Fingerprint::parse(text));
    made_from.map(|then| then.differences(&Fingerprint::of(now))).unwrap_or_default()
}

/// Whether this version made the Job. What another one's agents read must not be
/// rewritten in our words.
pub(crate) fn is_ours(job: &Job) -> bool {
    job.annotations().get(VERSION).is_some_and(|version| version == THIS_VERSION)
}

/// How many hosts of its own the cluster was started with, or may grow to.
pub(crate) fn ranks(job: &Job) -> Option<i32> {
    job.annotations().get(RANKS)?.parse().ok()
}
