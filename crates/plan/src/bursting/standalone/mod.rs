//! Bursts of a Flux instance that is not in Kubernetes.
//!
//! There is no MiniCluster, no operator and no gateway. What they contribute to the life of a Burst
//! follows from the instance's configuration (`instance`) and from the Bursts themselves: a MiniCluster
//! that stands for the instance, with a lease for every Burst (`lender`). So everything else is decided
//! as for other Bursts. Brokers connect to the lead itself, and need no permission (`pool`).

mod config;
mod instance;
mod lender;
mod policy;
mod pool;

pub use config::NewInstance;
pub use instance::{StandaloneError, StandaloneInstance};
pub use lender::{
    InstanceState, has_ranks, leased, ranks_to_drain, standalone_lender, with_claim, with_ranks,
};
pub use policy::standalone_problem;
pub use pool::standalone_pool;
