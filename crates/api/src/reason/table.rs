//! Every reason, defined once: what to expect, where it is shown, what it means and what to do.
//!
//! A row that lacks one of these does not compile.

use super::Outlook::{self, *};
use super::Topic::{self, *};

/// Defines the enum and the methods of its variants from the rows of a table.
macro_rules! reasons {
    ($($name:ident: $outlook:ident, [$($topic:ident),+], $meaning:literal, $remedy:literal;)+) => {
        /// Why a condition of a MiniCluster, FluxJob or FluxSetup has the status it has.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)+
        }

        impl Reason {
            /// Every reason, in the order of the troubleshooting page.
            pub const ALL: &[Reason] = &[$(Reason::$name),+];

            /// The value of `conditions[].reason`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Reason::$name => stringify!($name),)+ }
            }

            /// What to expect while a condition has this reason.
            pub const fn outlook(self) -> Outlook {
                match self { $(Reason::$name => $outlook,)+ }
            }

            /// Where it is shown. A condition that depends on another repeats its reason.
            pub const fn topics(self) -> &'static [Topic] {
                match self { $(Reason::$name => &[$($topic),+],)+ }
            }

            /// What it means, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Reason::$name => $meaning,)+ }
            }

            /// What to do about it, in a sentence.
            pub const fn remedy(self) -> &'static str {
                match self { $(Reason::$name => $remedy,)+ }
            }
        }
    };
}

reasons! {
    // The manifest.
    Accepted: Progress, [Manifest],
        "The manifest is valid.",
        "Nothing.";
    Invalid: NeedsUser, [Manifest, Queue],
        "A field of the manifest is wrong, or the object does not fit the schema.",
        "Change the field that the message names.";
    NotYetSupported: NeedsUser, [Manifest, Queue],
        "The manifest is valid, but this version of the operator cannot do what a field asks for.",
        "Remove the field that the message names.";
    Unreadable: NeedsUser, [Manifest, Queue, Bursting],
        "The stored object cannot be decoded, so the operator ignores it.",
        "Apply a manifest that is valid under the installed CRD.";
    TwoQueues: NeedsUser, [Manifest],
        "The manifest names a FluxSetup and a queue of Kueue.",
        "Remove `spec.queue`, or Kueue's label from `jobLabels`.";
    InvalidTemplate: NeedsUser, [Manifest],
        "The MiniCluster that the FluxJob describes is not valid.",
        "Change the field that the message names.";
    UnknownPriorityClass: NeedsUser, [Manifest],
        "The operator finds no PriorityClass of the name in `spec.priorityClassName`.",
        "Create the PriorityClass, or use `spec.priority`.";
    NameTaken: NeedsUser, [Manifest, Admission],
        "A MiniCluster with the name of the FluxJob exists and has another owner.",
        "Create the FluxJob under another name, or delete that MiniCluster.";
    NotOurs: NeedsUser, [Manifest, Exposure],
        "An object with a name that the MiniCluster needs exists and has another owner.",
        "Delete the object that the message names, or create the MiniCluster under another name.";
    Immutable: NeedsUser, [Manifest],
        "A field was changed that is fixed once the cluster has started; the cluster keeps the old value.",
        "Change the field back, or delete the object and create it again.";
    TooLarge: NeedsUser, [Manifest, Admission],
        "The size is above a limit: the number of hosts the MiniCluster was started with, or `maxSize` of the FluxSetup.",
        "Lower the size. To grow a MiniCluster later, set `spec.maxSize` before it starts.";
    NoRoom: NeedsUser, [Manifest, Admission],
        "The MiniCluster asks for more nodes than its queue has granted, and keeps those it has. Or a FluxJob has finished without quota.",
        "Suspend the MiniCluster and resume it, so that it waits for quota for all of its nodes.";
    ApplyFailed: Retried, [Manifest, Exposure],
        "The API server did not accept a change to an object of the MiniCluster.",
        "Wait: the operator tries again, at growing intervals. If it stays, correct what the message names.";
    OperatorError: Retried, [Manifest, Queue, Bursting],
        "The operator, or the burst controller, failed while it read or reconciled the object: a defect.",
        "Report it with the log of the one that the message names. It is tried again, at growing intervals or when the object changes.";

    // The quota.
    NotQueued: Progress, [Admission],
        "The MiniCluster is in no queue and needs no quota.",
        "Nothing.";
    Admitted: Progress, [Admission],
        "The queue has granted quota.",
        "Nothing.";
    Suspended: Progress, [Admission],
        "`spec.suspend` is true.",
        "Set `spec.suspend` to false, or run `kubectl minicluster resume NAME`.";
    Pending: WaitsForQuota, [Admission],
        "The scheduler has not considered it yet.",
        "Nothing: it is considered in the next cycle.";
    WaitingForQueue: WaitsForQuota, [Admission],
        "The MiniCluster waits in its queue.",
        "Wait, or ask what it waits for: `kubectl minicluster why mc/NAME`.";
    WaitingForQuota: WaitsForQuota, [Admission],
        "Other jobs use the quota that it needs.",
        "Wait for them to finish. `kubectl minicluster why NAME` lists them.";
    BehindOthers: WaitsForQuota, [Admission],
        "It would fit, but the quota is reserved for a job that has waited longer or has a higher priority.",
        "Wait, or raise `spec.priority`.";
    NamespaceQuota: WaitsForQuota, [Admission],
        "A ResourceQuota of its namespace leaves too little.",
        "Wait for other pods of the namespace to finish, or raise the ResourceQuota.";
    BackingOff: WaitsForQuota, [Admission],
        "It lost its quota and stays out of the queue for a back-off.",
        "Nothing: it waits in its queue again after the back-off.";
    OverQuota: WaitsForQuota, [Admission],
        "The quota of its queue was lowered, and its nodes are released.",
        "Nothing: it waits in its queue again. Its command starts from the beginning.";
    QueueStopped: WaitsForQuota, [Admission],
        "Its queue was stopped and drained, and its nodes are released.",
        "Resume the queue: `kubectl minicluster resume fs/QUEUE`. It then waits for quota again.";
    NotReady: WaitsForQuota, [Admission],
        "Too few brokers were online within `readyTimeoutSeconds`, and its nodes are released.",
        "Nothing: it waits in its queue again. If it repeats, read why its pods did not start, or raise the limit.";
    Changed: WaitsForQuota, [Admission],
        "The FluxJob was changed after it was admitted and now asks for more than it was granted.",
        "Nothing: it keeps its place and waits for quota for what it asks for now.";
    NoQueue: NeedsUser, [Admission],
        "No FluxSetup serves the namespace.",
        "Create a FluxSetup in the namespace, or let one in the operator's namespace select it.";
    UnknownQueue: NeedsUser, [Admission],
        "The FluxSetup that `spec.queue` names does not exist.",
        "Name an existing FluxSetup in `spec.queue`, or create it. `kubectl minicluster queue` lists them.";
    NotServed: NeedsUser, [Admission],
        "The FluxSetup that `spec.queue` names does not serve the namespace.",
        "Name another FluxSetup in `spec.queue`, or let its `namespaceSelector` select the namespace.";
    AmbiguousQueue: NeedsUser, [Admission],
        "Several FluxSetups serve the namespace, and `spec.queue` names none.",
        "Name one of them in `spec.queue`.";
    ExceedsMaxQuota: NeedsUser, [Admission],
        "It asks for more than the whole quota of its queue.",
        "Lower the size or the resources, or raise the quota of the FluxSetup.";

    // Brokers of other Kubernetes clusters.
    Exposed: Progress, [Exposure],
        "Brokers of other Kubernetes clusters can reach the MiniCluster, through the gateway.",
        "Nothing.";
    ExposedDirectly: Progress, [Exposure],
        "Brokers of other Kubernetes clusters can reach the lead itself, and only a new certificate revokes an invitation.",
        "Remove `flux.bursting.expose.direct` to use the gateway.";
    GatewayMissing: NeedsUser, [Exposure],
        "No gateway is running.",
        "Install it with `flux-operator manifests`.";
    AddressPending: Retried, [Exposure],
        "It is not known yet where others reach the MiniCluster.",
        "Wait for the address of the load balancer, or set `flux.bursting.expose.hostname`.";

    // Joining another MiniCluster.
    Joined: Progress, [Joining, Readiness],
        "All brokers are online in the lender's Flux instance.",
        "Nothing.";
    Joining: Progress, [Joining, Readiness],
        "Ranks are being leased, or the brokers are starting.",
        "Nothing.";
    Leaving: Progress, [Joining, Readiness],
        "Its ranks are drained: no new job starts there, and running jobs are waited for.",
        "Wait, or cancel the jobs that the message names.";
    LenderMissing: Retried, [Joining, Readiness],
        "There is no MiniCluster of the lender's name, or it is being deleted.",
        "Create the lender, or correct the name. An operator of one namespace does not see lenders in others.";
    LenderNotReady: Retried, [Joining, Readiness],
        "The lender's lead is not up yet, or does not report.",
        "Wait: the lender's own conditions say what it waits for. If the message names --report-url, start the operator with it.";
    LenderFinished: Retried, [Joining, Readiness],
        "The lender has finished, so there is no instance to join.",
        "Delete the MiniCluster. It joins a new MiniCluster of the lender's name by itself.";
    NoFreeRanks: Retried, [Joining, Readiness],
        "The lender has too few ranks that are not in use.",
        "Wait for another joiner to leave, or start the lender with more `flux.bursting.spareRanks` or a larger `maxSize`.";
    NotAllowed: NeedsUser, [Joining, Readiness],
        "The lender is in another namespace and does not allow this one to join.",
        "Add this namespace to `flux.bursting.allowedNamespaces` of the lender.";
    LenderIsJoiner: NeedsUser, [Joining, Readiness],
        "The lender joins another MiniCluster itself, so it has no instance of its own.",
        "Join the MiniCluster that the message names instead.";
    StaleTable: Progress, [Joining, Readiness],
        "The pods were started for an earlier rank table of the lender.",
        "Nothing: they are replaced.";
    VersionMismatch: NeedsUser, [Joining, Readiness],
        "The brokers have another release of Flux than the lender, and Flux would not accept them.",
        "Use the same Flux (image, or `flux.container.image`) in both MiniClusters.";
    UidMismatch: NeedsUser, [Joining, Readiness],
        "The brokers run as another user than the lender's, so jobs submitted from them would fail.",
        "Run both as the same user: `securityContext.runAsUser`, `podSecurity`, or the same image.";
    LenderUnreachable: Retried, [Joining, Readiness],
        "None of the addresses in `flux.bursting.leadBroker` answers.",
        "Check that the nodes of this cluster reach them. The port of an invitation that was revoked or has expired is closed: ask for another.";
    WrongKey: NeedsUser, [Joining, Readiness],
        "The lender does not accept the key in the Secret of the invitation.",
        "Apply the whole file of the invitation again, or ask for another. Of a Burst: delete it, and request another.";
    InvitationUsed: NeedsUser, [Joining, Readiness],
        "Another MiniCluster uses the invitation.",
        "Delete one of the two, or ask for another invitation.";
    InvitationRevoked: NeedsUser, [Joining, Readiness],
        "The lender has revoked the invitation.",
        "Ask for another, and delete this MiniCluster.";
    InvitationExpired: NeedsUser, [Joining, Readiness],
        "The invitation has expired.",
        "Ask for another, and delete this MiniCluster.";
    InvitationOutdated: NeedsUser, [Joining, Readiness],
        "The lender was started with other ranks since the invitation was written.",
        "Ask for another, and delete this MiniCluster.";
    FewerCores: NeedsUser, [Joining, Readiness],
        "The pods have fewer cores or GPUs than the lender's instance expects of their ranks.",
        "Declare them in the lender as a pool with `cores` and `gpus` (`flux.bursting.clusters`), or set its `flux.resources`.";
    RanksLeased: NeedsUser, [Manifest],
        "The cluster cannot grow, because the next hosts are leased to another MiniCluster.",
        "Lower the size, or delete the MiniCluster that the message names.";
    BlockedByJob: NeedsUser, [Readiness],
        "A pending job needs ranks that no MiniCluster has leased, and Flux's simple scheduler starts nothing behind it.",
        "Join more brokers, cancel the job, or use Fluxion (an image that has it, without `flux.scheduler.simple`).";

    // The brokers.
    Quorum: Progress, [Readiness],
        "Enough brokers are online to run jobs.",
        "Nothing.";
    Draining: Progress, [Readiness, Bursting],
        "The cluster is to shrink, or a Burst is given back, and jobs on the ranks that leave may finish.",
        "Nothing: they have 300 seconds, or `graceSeconds` of a Burst; with `drain`, these begin when its lifetime ends.";
    DrainTimeout: Retried, [Readiness],
        "The cluster has shrunk although jobs still ran on the ranks that left.",
        "Submit the lost jobs again.";
    NotCreated: Progress, [Readiness],
        "The Job does not exist yet.",
        "Nothing: the operator is about to create it.";
    PodsPending: Progress, [Readiness],
        "No pod has started yet.",
        "Nothing: the pods are being created.";
    Starting: Progress, [Readiness],
        "The MiniCluster of the FluxJob is being started.",
        "Nothing. The conditions of the MiniCluster show each step.";
    BrokersStarting: Progress, [Readiness],
        "Pods run, and too few brokers are online.",
        "Nothing. If it stays, read the log of the lead: `kubectl minicluster logs NAME`.";
    LeadNotReady: Progress, [Readiness],
        "The command was started, and the lead is finishing or slow to answer.",
        "Nothing: the operator soon reports that it has finished or is ready again.";
    CreateFailed: Retried, [Readiness],
        "The MiniCluster of the FluxJob could not be created.",
        "Wait: the operator tries again. If it stays, correct what the message names.";
    Unschedulable: WaitsForCapacity, [Readiness],
        "No node has capacity for a pod.",
        "Wait for nodes, or lower the size or the resources. The message is the scheduler's.";
    QuotaExceeded: WaitsForCapacity, [Readiness],
        "A ResourceQuota of the namespace is used up, and pods are refused.",
        "Wait for other pods of the namespace to finish, or raise the ResourceQuota.";
    ReadyTimeout: WaitsForCapacity, [Readiness],
        "Too few brokers were online within `spec.readyTimeoutSeconds`, and the nodes were released.",
        "Nothing: it tries again after 10 to 30 seconds. If it repeats, raise the limit or lower the size.";
    SchedulingGated: Retried, [Readiness],
        "A scheduling gate of another program keeps a pod from being scheduled.",
        "Find the program that has set the gate: the pod's `spec.schedulingGates` has the gate's name.";
    ErrImagePull: Retried, [Readiness],
        "An image cannot be pulled.",
        "Check the name of the image and `imagePullSecret`. The node tries again.";
    InvalidImageName: NeedsUser, [Readiness],
        "The name of an image is not valid.",
        "Correct the name of the image.";
    CreateContainerConfigError: Retried, [Readiness],
        "A container refers to a Secret or ConfigMap that does not exist, or its settings contradict each other.",
        "Create the object that the message names. The node tries again.";
    CreateContainerError: Retried, [Readiness],
        "The container runtime cannot create a container.",
        "Correct what the message names. The node tries again.";
    RunContainerError: Retried, [Readiness],
        "The container runtime cannot start a container.",
        "Correct what the message names. The node tries again.";
    CrashLoopBackOff: Retried, [Readiness],
        "A container exits again and again.",
        "Read its log; the message has the command. The node starts it again, at growing intervals.";
    PodSecurity: NeedsUser, [Readiness],
        "The Pod Security level of the namespace forbids the pods.",
        "Set the `securityContext` that the message asks for, or change the label of the namespace.";
    PodsRefused: Retried, [Readiness],
        "An admission plugin or webhook, such as a LimitRange, refuses the pods.",
        "Change what the message names. Kubernetes tries again.";
    FailedMount: Retried, [Readiness],
        "A volume cannot be mounted.",
        "Create the Secret, ConfigMap or claim that the message names. The node tries again.";
    FailedAttachVolume: Retried, [Readiness],
        "A volume cannot be attached to the node.",
        "Check the PersistentVolume and its driver. Kubernetes tries again.";
    FailedCreatePodSandBox: Retried, [Readiness],
        "The node cannot set up a pod, most often its network.",
        "Check the network plugin of the node. The node tries again.";
    KeysLost: NeedsUser, [Readiness],
        "The Secret with the keys of the cluster was deleted, so no pod can be started.",
        "Delete the MiniCluster and create it again. If you made the Secret, create it again with the same content.";
    NodeLost: Retried, [Readiness],
        "A node with a pod of the cluster does not answer.",
        "Repair the node, or delete its Node object; only then is the pod replaced.";
    OOMKilled: Retried, [Readiness, Finish],
        "A container used more memory than its limit and was killed.",
        "Raise `resources.limits.memory`.";
    Evicted: Retried, [Readiness, Finish],
        "Kubernetes has evicted a pod: the node is drained, a limit was exceeded, or a pod of higher priority needed the node.",
        "Nothing if the node is drained: the pod is replaced. Else raise the limit that the message names.";

    // The command.
    Created: Progress, [Command],
        "The object was created.",
        "Nothing.";
    NotStarted: Progress, [Command],
        "The command has not been started. `Ready` says what it waits for.",
        "Nothing.";
    CommandStarted: Progress, [Command],
        "The command runs.",
        "Nothing.";
    Interactive: Progress, [Command],
        "The cluster has no command of its own. It is up and takes jobs.",
        "Nothing. `kubectl minicluster submit NAME -- COMMAND` runs a job.";
    NotWaiting: Progress, [Command],
        "It does not wait for nodes or quota.",
        "Nothing.";

    // The result.
    NotFinished: Progress, [Finish],
        "The command has not finished.",
        "Nothing.";
    Completed: Final, [Finish],
        "The command finished with exit code 0.",
        "Nothing.";
    CommandFailed: Final, [Finish],
        "The command finished with an exit code other than 0.",
        "Read its output: `kubectl minicluster logs NAME`.";
    HookFailed: Final, [Finish],
        "A hook in `commands` failed under strict logging, or could not be run.",
        "Correct the hook. Its output is in the log of the pod.";
    FluxMissing: Final, [Finish],
        "The program `flux` was not found.",
        "Use an image that has Flux, or set `spec.flux.container.image`.";
    FluxTooOld: Final, [Finish, Joining],
        "The Flux in the image is older than the oldest supported version.",
        "Use an image with the version that the message names, or a newer one.";
    BrokerFailed: Final, [Finish],
        "The broker exited before the command could start, or while it ran.",
        "Read the log of the lead: `kubectl minicluster logs NAME`.";
    BadCertificate: Final, [Finish],
        "The certificate in the Secret with the keys cannot be read.",
        "Store a certificate made by `flux keygen` in the Secret that `curveCertSecret` names.";
    BadPlan: Final, [Finish],
        "The agent could not read its boot plan, or write the files that it describes.",
        "Use an agent of the operator's own version, and check that the pod's disk is not full.";
    RestartLimit: Final, [Finish],
        "The lead was lost more often than `restart.limit` allows.",
        "Find out why it was lost. Raise `restart.limit` if the command may run more than once.";
    StartError: Final, [Readiness, Finish],
        "The container runtime could not start the runner.",
        "Correct what the message names, such as the command or the image.";
    DeadlineExceeded: Final, [Finish],
        "The cluster did not finish within `spec.deadlineSeconds`.",
        "Raise `spec.deadlineSeconds` (for a FluxJob, `spec.maxRuntimeSeconds`), or give the command less to do.";
    JobFailed: Final, [Finish],
        "The Job failed, and Kubernetes gives no reason.",
        "Read its events: `kubectl describe job NAME`.";
    BackoffLimitExceeded: Final, [Finish],
        "Pods of the Job failed more often than `restart.limit` allows, and the reason is no longer known.",
        "Read the events of the Job: `kubectl describe job NAME`.";
    PodFailurePolicy: Final, [Finish],
        "A pod failed with an exit code that fails the Job, and the reason is no longer known.",
        "Read the events of the Job: `kubectl describe job NAME`.";
    MaxFailedIndexesExceeded: Final, [Finish],
        "Too many ranks of the Job failed.",
        "Read the events of the Job: `kubectl describe job NAME`.";
    FailedIndexes: Final, [Finish],
        "Ranks of the Job failed.",
        "Read the events of the Job: `kubectl describe job NAME`.";
    ClusterLost: Final, [Finish],
        "The MiniCluster of the FluxJob was deleted after the command had been started.",
        "Create the FluxJob again to run its command a second time.";
    RequeueLimit: Final, [Finish],
        "The FluxJob lost its quota more often than `requeue.limit` of its FluxSetup allows.",
        "Correct what the message names and create the FluxJob again, or raise the limit.";

    // The queue.
    Active: Progress, [Queue],
        "The FluxSetup admits jobs.",
        "Nothing.";
    Stopped: NeedsUser, [Queue, Finish],
        "The FluxSetup is stopped. For a MiniCluster: its agent was stopped before the command finished.",
        "Set `stopPolicy` to None, or run `kubectl minicluster resume fs/QUEUE`. For a MiniCluster: delete it and create it again.";
    Terminating: NeedsUser, [Queue],
        "The FluxSetup is being deleted and admits no more jobs. It is deleted when no job has quota from it.",
        "Name another FluxSetup in `spec.queue` of jobs that wait.";
    Replaced: Progress, [Queue],
        "Another FluxSetup has replaced it and taken over its jobs.",
        "Nothing: it is deleted when it is no longer needed.";
    Conflict: NeedsUser, [Queue],
        "`spec.replaces` conflicts with that of another FluxSetup.",
        "Remove a name from `spec.replaces` of one of them.";
    BadQuota: NeedsUser, [Queue],
        "An amount in `spec.quota` is not valid.",
        "Write a resource with a number, such as `nodes: 4` or `memory: 16Gi`.";
    BadSelector: NeedsUser, [Queue, Bursting],
        "`spec.namespaceSelector` of a FluxSetup, or `spec.selector` of a BurstPolicy, is not valid.",
        "Correct the selector.";
    SelectorNotHere: NeedsUser, [Queue],
        "`spec.namespaceSelector` is set outside the operator's namespace, where it has no effect.",
        "Remove it, or create the FluxSetup in the operator's namespace.";
    NodesUnknown: Retried, [Queue],
        "The quota is taken from the nodes, and the operator does not know them.",
        "Allow the operator to list nodes and pods, or set `spec.quota` instead of `spec.quotaFromNodes`.";

    // Bursts.
    TargetReachable: Progress, [Bursting],
        "The target responds.",
        "Nothing.";
    NoClusters: Progress, [Bursting],
        "The selector of the policy matches no MiniCluster of its namespace.",
        "Nothing, if one is created later. Otherwise correct the selector, or add the labels to the MiniCluster.";
    TargetChanged: NeedsUser, [Bursting],
        "The kubeconfig of the target names another server or namespace than when the Burst was started.",
        "Write the former server and namespace into the Secret again. For the new ones, add a target with a Secret of its own.";
    TargetUnreachable: Retried, [Bursting],
        "The target does not respond. It is tried again, less and less often.",
        "Check the address in the kubeconfig, and the network between the two clusters.";
    CredentialsAccepted: Progress, [Bursting],
        "The target accepts the credentials.",
        "Nothing.";
    CredentialsMissing: NeedsUser, [Bursting],
        "There is no Secret with the credentials, or it lacks the key.",
        "Create the Secret that the message names, in the namespace of the policy.";
    CredentialsRefused: NeedsUser, [Bursting],
        "The target does not accept the credentials, or they do not allow what is needed there.",
        "Replace the kubeconfig in the Secret, or give its account the rights that the message names.";
    KubeconfigRefused: NeedsUser, [Bursting],
        "The kubeconfig would run a program or read a file of the controller, send credentials in the clear, or is not complete or not valid, such as with a line break in its token.",
        "Write a kubeconfig with an https server, a current-context, and a token, or certificate and key as data.";
    NamespaceNotListed: NeedsUser, [Bursting],
        "The administrator has not allowed the burst controller to serve this namespace.",
        "Ask the administrator to add it to `--burst-namespace` of `flux-operator manifests`.";
    TooManyPolicies: NeedsUser, [Bursting],
        "The namespace has 64 BurstPolicies that are older. No more are applied.",
        "Delete policies of the namespace, or put targets of several policies into one.";
    NotExposed: NeedsUser, [Bursting],
        "Brokers of other Kubernetes clusters cannot reach the MiniCluster.",
        "Set `flux.bursting.expose` of the MiniCluster.";
    NotAsked: Progress, [Bursting],
        "The target has not been asked yet.",
        "Nothing.";
    NotPortable: NeedsUser, [Bursting],
        "The job cannot run in an instance of its own elsewhere.",
        "Read the message and submit the job as it says. It waits at home; delete the Burst to have it tried again.";
    Preparing: Progress, [Bursting],
        "Ranks are leased, and objects are created at the target.",
        "Wait.";
    Prepared: Progress, [Bursting],
        "Everything that brokers need exists at the target.",
        "Nothing.";
    ClusterComing: Progress, [Bursting],
        "A Kubernetes cluster is being made for the Burst.",
        "Wait; clouds take some minutes.";
    ClusterFailed: NeedsUser, [Bursting],
        "The Kubernetes cluster for the Burst could not be made.",
        "Read the message and correct the cause. A Burst of a policy is given back, and the target is tried again later; delete one of your own.";
    ClusterRefused: NeedsUser, [Bursting],
        "The Kubernetes cluster for the Burst cannot be requested, for example because its template is not valid.",
        "Read the message and correct the cause; the controller tries again.";
    ClusterNotAllowed: NeedsUser, [Bursting],
        "The administrator has not allowed the burst controller to have Kubernetes clusters made in this way.",
        "Ask the administrator for `--burst-cluster-api`, `--burst-commands` or `--burst-gke` of `flux-operator manifests`.";
    TargetRefused: Retried, [Bursting],
        "The target has refused an object, for example because of a quota.",
        "Read the message; the controller tries again.";
    OutOfCapacity: WaitsForCapacity, [Bursting],
        "The target has no nodes for the pods.",
        "Wait for nodes, or choose another target.";
    JobsUnknown: Retried, [Bursting],
        "The operator does not list the jobs of a MiniCluster that the policy serves.",
        "Check that the MiniCluster is ready, and that the burst controller can reach the operator.";
    RequestRefused: Retried, [Bursting],
        "The API server refuses the Bursts that the policy requests; the message says why.",
        "If a ResourceQuota is exceeded, delete Bursts or raise it. Otherwise correct what the message names.";
    InUse: Progress, [Bursting],
        "The burst is not being given back.",
        "Nothing.";
    GivingBack: Progress, [Bursting],
        "The nodes are drained and given back.",
        "Wait.";
}
