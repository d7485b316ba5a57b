//! What both sides must spell alike: headers, paths, variables, options and files.

/// Headers of a request to the operator, and of its answer.
pub mod header {
    /// Identity of the cluster that the sender belongs to.
    pub const CLUSTER: &str = "X-Flux-Cluster";
    /// Identity of the sender's pod.
    pub const POD: &str = "X-Flux-Pod";
    /// The nonce of the exchange.
    pub const NONCE: &str = "X-Flux-Nonce";
    /// The seal of the message.
    pub const SEAL: &str = "X-Flux-Seal";
}

/// Where messages are sent to.
pub mod path {
    /// The operator takes reports.
    pub const REPORT: &str = "/v1/report";
    /// An agent answers whether it is the lead.
    pub const LEAD: &str = "/v1/lead";
}

/// Variables in which an agent finds what Kubernetes knows of its pod.
pub mod variable {
    /// Identity of the pod.
    pub const POD_UID: &str = "FLUX_OPERATOR_POD_UID";
    /// Identity of the Job.
    pub const JOB_UID: &str = "FLUX_OPERATOR_JOB_UID";
    /// How many pods of this index have failed before, as the Job counts them.
    pub const INDEX_FAILURES: &str = "FLUX_OPERATOR_INDEX_FAILURES";
    /// How many more have failed that the Job does not count.
    pub const IGNORED_FAILURES: &str = "FLUX_OPERATOR_IGNORED_FAILURES";
    /// How many cores the container may use, if that is limited.
    pub const CPU_LIMIT: &str = "FLUX_OPERATOR_CPU_LIMIT";
    /// The index that the Job gave the pod.
    pub const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";
}

/// Commands of the agent's program.
pub mod command {
    /// Boots one broker of a cluster and stays with it.
    pub const RUN: &str = "run";
    /// Runs the command of a container beside the runner.
    pub const SIDECAR: &str = "sidecar";
    /// Copies the program.
    pub const COPY: &str = "copy";
    /// Copies the view of Flux.
    pub const COPY_VIEW: &str = "copy-view";
}

/// Options of the agent's program.
pub mod option {
    /// The file with the boot plan.
    pub const PLAN: &str = "--plan";
    /// The folder with the files of [`file`](super::file).
    pub const SECRETS: &str = "--secrets";
    /// The folder for the broker's own copy of the certificate.
    pub const PRIVATE: &str = "--private";
    /// The folder that the agent may write to.
    pub const ROOT: &str = "--root";
    /// Which of the cluster's agents it is.
    pub const INDEX: &str = "--index";
    /// The `flux` to use.
    pub const FLUX: &str = "--flux";
    /// The file for the [`Ending`](crate::Ending).
    pub const ENDING: &str = "--ending";
    /// The file to write a line to when the program starts.
    pub const READY: &str = "--ready";
    /// The end of the standard input means: stop.
    pub const STOP_ON_EOF: &str = "--stop-on-eof";
    /// The name of a container beside the runner.
    pub const NAME: &str = "--name";
}

/// Files that an agent finds its keys in, which are also the keys of the Secret.
pub mod file {
    /// The CURVE certificate of the brokers.
    pub const CERTIFICATE: &str = "curve.cert";
    /// The key that seals reports.
    pub const REPORT_KEY: &str = "report.key";
}
