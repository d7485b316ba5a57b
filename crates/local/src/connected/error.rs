//! Why connected MiniClusters cannot be run.

use flux_operator_api::MiniCluster;
use flux_operator_plan::{OfflineJoinError, lender_of};
use kube::ResourceExt;

use super::lender_name;
use crate::home::HomeError;
use crate::instance::InstanceError;
use crate::request::RunRequestError;
use crate::supervisor::SupervisorError;

/// Why connected MiniClusters cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ConnectedError {
    /// One is not valid.
    #[error("MiniCluster {name:?} cannot be run")]
    Invalid {
        /// Its name.
        name: String,
        /// Why.
        source: RunRequestError,
    },
    /// Two have the same name.
    #[error("there are two MiniClusters named {name:?}\nhint: rename one of them")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// One has nothing to do with the others.
    #[error(
        "MiniCluster {name:?} joins no other one, and none joins it\n\
         hint: put it in a file of its own"
    )]
    NotConnected {
        /// Its name.
        name: String,
    },
    /// Two are joined by others.
    #[error(
        "{first:?} and {second:?} are both joined by others\n\
         hint: put {second:?} and the MiniClusters that join it in a file of their own"
    )]
    TwoLenders {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
    },
    /// The lender has a command, but should stay up.
    #[error(
        "{name:?} has a command, and a cluster that stays up has none\n\
         hint: use `flux-operator local run`, or set interactive: true"
    )]
    HasCommand {
        /// The lender.
        name: String,
    },
    /// A joiner of an instance in another Kubernetes cluster.
    #[error(
        "MiniCluster {joiner:?} joins an instance of another Kubernetes cluster, which works only in \
         Kubernetes\nhint: apply it in a cluster, or remove flux.bursting.leadBroker"
    )]
    Elsewhere {
        /// Its name.
        joiner: String,
    },
    /// The lender is neither in the manifest nor running.
    #[error(
        "MiniCluster {joiner:?} joins {lender:?}, which is neither in the file nor running\n\
         hint: {hint}"
    )]
    LenderMissing {
        /// The joiner.
        joiner: String,
        /// The lender.
        lender: String,
        /// What to do.
        hint: String,
    },
    /// The lender is in another namespace.
    #[error(
        "{joiner:?} joins {named}, and {lender:?} is in namespace {namespace:?}\n\
         hint: set flux.join.namespace of {joiner:?} to {namespace:?}"
    )]
    OtherNamespace {
        /// The joiner.
        joiner: String,
        /// Namespace and name that it joins.
        named: String,
        /// The MiniCluster with that name.
        lender: String,
        /// Its namespace.
        namespace: String,
    },
    /// The lender is not in the manifest, but its command should be run.
    #[error(
        "MiniCluster {joiner:?} joins {lender:?}, which is running, but is not in the file\n\
         hint: to join a running cluster, use `flux-operator local up`"
    )]
    LenderNotInFile {
        /// The joiner.
        joiner: String,
        /// The lender.
        lender: String,
    },
    /// The lender has stopped meanwhile, or has not enough brokers online yet.
    #[error(
        "MiniCluster {joiner:?} joins {lender:?}, which is not ready\n\
         hint: `flux-operator local ps` lists the running clusters"
    )]
    LenderNotReady {
        /// The joiner.
        joiner: String,
        /// The lender.
        lender: String,
    },
    /// The lender's ranks cannot be leased.
    #[error(transparent)]
    Join(OfflineJoinError),
    /// Brokers exited before they were online.
    #[error("the brokers of MiniCluster {joiner:?} cannot join: {message}")]
    BrokersFailed {
        /// The joiner.
        joiner: String,
        /// What the first of them reported.
        message: String,
    },
    /// The files of one cannot be used.
    #[error(transparent)]
    Instance(InstanceError),
    /// The running clusters cannot be listed.
    #[error(transparent)]
    Home(HomeError),
    /// A cluster did not start.
    #[error(transparent)]
    Supervisor(SupervisorError),
}

impl ConnectedError {
    pub(crate) fn not_ready(joiner: &MiniCluster) -> ConnectedError {
        let lender = lender_name(joiner);
        ConnectedError::LenderNotReady { joiner: joiner.name_any(), lender }
    }

    pub(super) fn not_in_file(joiner: &MiniCluster) -> ConnectedError {
        let lender = lender_name(joiner);
        ConnectedError::LenderNotInFile { joiner: joiner.name_any(), lender }
    }

    /// The lender is neither in the manifest nor running; these are.
    pub(super) fn missing(joiner: &MiniCluster, known: &[String]) -> ConnectedError {
        let lender = lender_name(joiner);
        let hint = match closest(&lender, known) {
            Some(known) => format!("did you mean {known:?}?"),
            None => {
                format!("add {lender:?} to the file, or start both with `flux-operator local up`")
            }
        };
        ConnectedError::LenderMissing { joiner: joiner.name_any(), lender, hint }
    }

    /// `lender` has the name that `joiner` joins, but not the namespace.
    pub(super) fn other_namespace(joiner: &MiniCluster, lender: &MiniCluster) -> ConnectedError {
        // An empty namespace is never its own, so that the namespace is always shown.
        let named = lender_of(joiner).map(|it| it.shown_in("")).unwrap_or_default();
        ConnectedError::OtherNamespace {
            joiner: joiner.name_any(),
            named,
            lender: lender.name_any(),
            namespace: lender.namespace().unwrap_or_default(),
        }
    }
}

/// The known name that is most similar to a misspelt one, if one is similar enough.
fn closest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    /// A name with a wrong or missing letter is above it, as in `kubectl minicluster`.
    const MIN_SIMILARITY: f64 = 0.75;
    let alike = known.iter().map(|known| (strsim::jaro_winkler(name, known), known));
    let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.filter(|(likeness, _)| *likeness >= MIN_SIMILARITY).map(|(_, known)| known)
}
