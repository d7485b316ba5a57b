//! MiniCluster: a Flux cluster in an Indexed Job.
//!
//! A superset of the Go operator's `v1alpha2`: every field it has, the older
//! ones it removed, and ours. Each file contains one part of the spec.
//!
//! Rules about more than one field are on the struct with those
//! fields, as CEL; limits of one field are on the field. The API server
//! enforces both, and [`crate::validate`] gives the same answers offline.
//! Every field that a rule reads has a maximum, because the API server multiplies
//! maxima to estimate the cost of a rule and refuses a CRD whose rules cost too much.

mod bursting;
mod container;
mod expose;
mod flux;
mod joining;
mod lent_instance;
mod logging;
mod network;
mod pod;
mod spec;
mod status;
mod volume;

pub use bursting::{Bursting, BurstingCluster, LeadBroker};
pub use container::{Commands, Container, ContainerSecurity, Lifecycle, PullPolicy, SecretKey};
pub use expose::{
    Expose, ExposeType, External, GATEWAY_PORTS, Invitation, InvitationLease, InvitationRefusal,
    InvitationUser, host_and_port,
};
pub use flux::{Delivery, Flux, FluxContainer, FluxResources, Join, QueuePolicy, Scheduler};
pub(crate) use joining::parse_boot_server;
pub use joining::{BootServerError, LenderName};
pub use lent_instance::{LentHosts, LentInstance, LentLead};
pub use logging::{Archive, Logging};
pub use network::Network;
pub use pod::{DnsPolicy, PodRestartPolicy, PodSpec};
pub use spec::{MiniCluster, MiniClusterSpec, PodSecurity, Restart};
pub use status::{Lease, LeaseState, MiniClusterStatus};
pub use volume::{StorageVolume, Volume};
