//! A MiniCluster that names a queue itself: while it waits it is suspended, and it never has
//! more nodes than it was granted.

use flux_operator_api::MiniCluster;
use flux_operator_api::fluxjob::Admission;

use crate::kubernetes::has_kueue_label;

/// Whether a MiniCluster is in one of our queues.
fn is_queued(minicluster: &MiniCluster) -> bool {
    let spec = &minicluster.spec;
    !spec.queue.is_empty() && !has_kueue_label(&spec.job_labels)
}

/// Whether a MiniCluster waits for quota in its queue, or is being evicted.
pub(crate) fn is_waiting(minicluster: &MiniCluster) -> bool {
    let admission = admission(minicluster);
    is_queued(minicluster) && admission.is_none_or(|admission| !admission.leaving.is_empty())
}

/// The number of nodes that a MiniCluster was granted; none if it is not in a queue.
pub(crate) fn granted_nodes(minicluster: &MiniCluster) -> Option<i32> {
    admission(minicluster).filter(|_| is_queued(minicluster)).map(|admission| admission.size)
}

/// The admission of a MiniCluster.
pub(crate) fn admission(minicluster: &MiniCluster) -> Option<&Admission> {
    minicluster.status.as_ref()?.admission.as_ref()
}

/// The message about an admission: the queue and the number of nodes.
pub(crate) fn grant_message(admission: &Admission) -> String {
    let Admission { queue, size, .. } = admission;
    let nodes = if *size == 1 { "1 node".to_owned() } else { format!("{size} nodes") };
    format!("queue {queue:?} has granted {nodes}")
}
