//! Condition types of a MiniCluster.

/// The conditions of a MiniCluster, all present from the first reconciliation; `Joined` only if
/// it joins another one, `Exposed` only if it has `flux.bursting.expose`.
///
/// The last five have the Go operator's names, kept because tools wait for
/// them. Here each is true only while what its name says is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// The manifest is valid and can be run.
    Accepted,
    /// A queue has granted quota, or the MiniCluster is not in a queue.
    Admitted,
    /// The brokers are part of the Flux instance of another MiniCluster.
    Joined,
    /// Brokers of other Kubernetes clusters can reach it.
    Exposed,
    /// Enough brokers are online to run jobs.
    Ready,
    /// The command is running, or the cluster is interactive and accepts jobs.
    Running,
    /// The command has finished: true with exit code 0, false otherwise. Unknown before that.
    Succeeded,
    /// Alias of the Go operator: the MiniCluster was created.
    JobRequested,
    /// Alias of the Go operator: pods wait for quota or capacity.
    JobWaitingForResources,
    /// Alias of the Go operator: see [`ConditionType::Ready`].
    JobMiniClusterReady,
    /// Alias of the Go operator: see [`ConditionType::Running`].
    JobRunning,
    /// Alias of the Go operator: the command has finished, successfully or not.
    JobFinished,
}

impl ConditionType {
    /// Every condition, in the order they are shown.
    pub const ALL: [ConditionType; 12] = [
        ConditionType::Accepted,
        ConditionType::Admitted,
        ConditionType::Joined,
        ConditionType::Exposed,
        ConditionType::Ready,
        ConditionType::Running,
        ConditionType::Succeeded,
        ConditionType::JobRequested,
        ConditionType::JobWaitingForResources,
        ConditionType::JobMiniClusterReady,
        ConditionType::JobRunning,
        ConditionType::JobFinished,
    ];

    /// The value of `conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionType::Accepted => "Accepted",
            ConditionType::Admitted => "Admitted",
            ConditionType::Joined => "Joined",
            ConditionType::Exposed => "Exposed",
            ConditionType::Ready => "Ready",
            ConditionType::Running => "Running",
            ConditionType::Succeeded => "Succeeded",
            ConditionType::JobRequested => "JobRequested",
            ConditionType::JobWaitingForResources => "JobWaitingForResources",
            ConditionType::JobMiniClusterReady => "JobMiniClusterReady",
            ConditionType::JobRunning => "JobRunning",
            ConditionType::JobFinished => "JobFinished",
        }
    }
}
