//! Flux's formats as types: host lists, idsets, resource sets, broker configurations,
//! certificates, job IDs, states, events and lists, jobspecs, versions.
//!
//! Everything that the operator writes for Flux or reads from it goes through these types, which
//! parse and print Flux's formats. They follow the Flux RFCs and, where those are silent, flux-core
//! 0.88. Texts come from users and from other programs, so every parser is bounded in time and
//! memory, and none of them panics.
//!
//! This crate must never know Kubernetes, clients, an async runtime, the clock or files. The same
//! arguments give the same results; the only exception is [`SecretKey::from_os`]. Secrets are never
//! printed by `Debug`, in an error or by serde.
//!
//! ```
//! use flux_operator_flux::{HostList, ResourceSet};
//!
//! let hosts: HostList = "flux-sample-[0-3],gffw-compute-a-[001-003]".parse()?;
//! assert_eq!(hosts.len(), 7);
//! assert_eq!(hosts.find("gffw-compute-a-001"), Some(4));
//!
//! let resources = ResourceSet::new(&hosts, std::num::NonZeroU32::MIN, 0)?;
//! assert_eq!(resources.core_count(), 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bootstrap;
pub mod broker_config;
mod broker_state;
pub mod certificate;
pub mod endpoint;
mod eventlog;
pub mod hostlist;
pub mod idset;
pub mod job_id;
mod job_result;
mod job_state;
mod jobspec;
mod json_size;
mod listed_job;
mod names;
mod overlay;
mod rank_list;
mod resource_state;
pub mod resources;
pub mod secret_key;
mod topology;
mod version;
mod z85;

pub use bootstrap::{Bootstrap, BootstrapError, HostEntry, RankHost};
pub use broker_config::BrokerConfig;
pub use broker_state::{BrokerState, OverlayStatus};
pub use certificate::{Certificate, CertificateError, Metadata};
pub use eventlog::{JobEvent, JobException};
pub use hostlist::{HostList, HostListError};
pub use idset::{IdSet, IdSetError};
pub use job_id::{JobId, JobIdError};
pub use job_result::{JobResult, JobStatus};
pub use job_state::{JobState, JobStateGroup};
pub use jobspec::{
    Environment, JobRun, JobRunError, Jobspec, JobspecBatch, JobspecUpdate, ResourceRequest,
    TaskCount, update_jobspec,
};
pub use json_size::count_values;
pub use listed_job::ListedJob;
pub use names::UnknownName;
pub use overlay::OverlayNode;
pub use rank_list::{RankList, RankListError};
pub use resource_state::{NodeStatus, ResourceState};
pub use resources::{ResourceSet, ResourceSetError};
pub use secret_key::{PublicKey, SecretKey};
pub use topology::{Topology, TopologyError};
pub use version::{Version, VersionError, VersionTooOld};
