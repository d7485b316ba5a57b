//! Names that the agent and its peers share: headers, paths, variables, options and files.

/// Headers of a request to the operator, and of its response.
pub mod header {
    /// UID of the sender's cluster.
    pub const CLUSTER: &str = "X-Flux-Cluster";
    /// UID of the sender's pod.
    pub const POD: &str = "X-Flux-Pod";
    /// The nonce of the exchange.
    pub const NONCE: &str = "X-Flux-Nonce";
    /// The seal of the message.
    pub const SEAL: &str = "X-Flux-Seal";
    /// Name of the invitation whose key seals the message, instead of the cluster's own.
    pub const INVITATION: &str = "X-Flux-Invitation";
}

/// Paths of HTTP endpoints.
pub mod path {
    /// Where the operator receives reports.
    pub const REPORT: &str = "/v1/report";
    /// Where an agent proves whether it is the lead.
    pub const LEAD: &str = "/v1/lead";
}

/// Environment variables that describe an agent's pod.
pub mod variable {
    /// UID of the pod.
    pub const POD_UID: &str = "FLUX_OPERATOR_POD_UID";
    /// UID of the Job.
    pub const JOB_UID: &str = "FLUX_OPERATOR_JOB_UID";
    /// Number of earlier pods of this index that failed, as counted by the Job.
    pub const INDEX_FAILURES: &str = "FLUX_OPERATOR_INDEX_FAILURES";
    /// Number of further failures, which the Job ignored.
    pub const IGNORED_FAILURES: &str = "FLUX_OPERATOR_IGNORED_FAILURES";
    /// The container's CPU limit, if it has one.
    pub const CPU_LIMIT: &str = "FLUX_OPERATOR_CPU_LIMIT";
    /// The pod's completion index in its Job.
    pub const JOB_INDEX: &str = "JOB_COMPLETION_INDEX";
}

/// Commands of the agent's program.
pub mod command {
    /// Boots one broker of a cluster and supervises it.
    pub const RUN: &str = "run";
    /// Runs the command of a sidecar container.
    pub const SIDECAR: &str = "sidecar";
    /// Copies the program.
    pub const COPY: &str = "copy";
    /// Copies the Flux view.
    pub const COPY_VIEW: &str = "copy-view";
    /// Runs the job of a jobspec, and exits with its exit code.
    pub const RUN_JOB: &str = "run-job";
}

/// Options of the agent's program.
pub mod option {
    /// The file with the boot plan.
    pub const PLAN: &str = "--plan";
    /// The directory with the files of [`file`](super::file).
    pub const SECRETS: &str = "--secrets";
    /// The directory for the broker's own copy of the certificate.
    pub const PRIVATE: &str = "--private";
    /// The directory that the agent may write to.
    pub const ROOT: &str = "--root";
    /// The agent's index in the cluster.
    pub const INDEX: &str = "--index";
    /// The `flux` to use.
    pub const FLUX: &str = "--flux";
    /// The file to write the [`Termination`](crate::Termination) to.
    pub const TERMINATION: &str = "--ending";
    /// The file to write a line to when the program starts; for a worker, when it is online.
    pub const READY: &str = "--ready";
    /// Stop at the end of standard input.
    pub const STOP_ON_EOF: &str = "--stop-on-eof";
    /// The name of a sidecar container.
    pub const NAME: &str = "--name";
}

/// Files with an agent's keys; the Secret has data keys of the same names.
pub mod file {
    /// The CURVE certificate of the brokers.
    pub const CERTIFICATE: &str = "curve.cert";
    /// The key that seals reports.
    pub const REPORT_KEY: &str = "report.key";
    /// The key that seals requests to a lender in another Kubernetes cluster.
    pub const INVITATION_KEY: &str = "invitation.key";
    /// The jobspec of a job that runs in an instance of its own.
    pub const JOBSPEC: &str = "jobspec.json";
}
