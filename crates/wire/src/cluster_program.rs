//! The contract of any program that makes a cluster for a Burst, ours or a user's: its environment, and
//! the Secret that it writes.

/// Environment variables of any program that makes a cluster for a Burst.
pub mod burst_variable {
    /// The name of everything that is made for the Burst.
    pub const NAME: &str = "BURST_NAME";
    /// How many nodes its brokers need.
    pub const NODES: &str = "BURST_NODES";
    /// The name of the Secret for the kubeconfig.
    pub const SECRET: &str = "BURST_SECRET";
    /// The namespace of that Secret.
    pub const NAMESPACE: &str = "BURST_NAMESPACE";
    /// The name of the MiniCluster.
    pub const CLUSTER: &str = "BURST_CLUSTER";
}

/// The label of everything that is made for a Burst. Its value is the name of these objects, so that
/// leftovers are found without the Burst.
pub const BURST_LABEL: &str = "flux-framework.org/burst";

/// The key of the kubeconfig in the Secret that the program writes.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
