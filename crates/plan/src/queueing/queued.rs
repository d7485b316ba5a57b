//! A MiniCluster that names a queue itself: it waits like one that is suspended, and has
//! no more nodes than it was given.

use flux_operator_api::MiniCluster;
use flux_operator_api::fluxjob::Admission;

use crate::kubernetes::is_for_kueue;

/// Whether a MiniCluster is in one of our queues.
fn is_queued(minicluster: &MiniCluster) -> bool {
    let spec = &minicluster.spec;
    !spec.queue.is_empty() && !is_for_kueue(&spec.job_labels)
}

/// Whether a MiniCluster waits for room in its queue, or has to give it back.
pub(crate) fn waits(minicluster: &MiniCluster) -> bool {
    let admission = admission(minicluster);
    is_queued(minicluster) && admission.is_none_or(|admission| !admission.leaving.is_empty())
}

/// The nodes that a MiniCluster was given; none if nobody counts them.
pub(crate) fn room(minicluster: &MiniCluster) -> Option<i32> {
    admission(minicluster).filter(|_| is_queued(minicluster)).map(|admission| admission.size)
}

/// The room that a queue has given to a MiniCluster.
pub(crate) fn admission(minicluster: &MiniCluster) -> Option<&Admission> {
    minicluster.status.as_ref()?.admission.as_ref()
}

/// By whom room was given, and how much, in words.
pub(crate) fn given(admission: &Admission) -> String {
    let Admission { queue, size, .. } = admission;
    let nodes = if *size == 1 { "1 node".to_owned() } else { format!("{size} nodes") };
    format!("queue {queue:?} has given it {nodes}")
}
