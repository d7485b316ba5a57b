//! A real Kubernetes on one machine, without a container engine and without a registry.
//!
//! The testbed builds Kubernetes, etcd, containerd and CoreDNS from source, and runs them under one
//! supervisor: at level `control-plane` without nodes (no root needed), at level `node` also with
//! one node that runs pods, in its own namespaces. When the supervisor exits, for whatever reason,
//! everything else stops.
//!
//! [`up`] claims a slot of the machine (`slot.rs`, `claim.rs`) and starts a supervisor, which
//! starts components in the order in `supervise.rs`. Tests use a running [`Testbed`] and import
//! [`Image`]s. [`link()`] connects the nodes of two testbeds.
//!
//! This crate must not depend on the operator: the operator is tested on it.

mod cgroup;
mod claim;
mod command;
mod component;
mod control;
mod control_plane;
mod down;
mod files;
mod image;
mod import;
mod isolation;
mod kubeconfig;
mod layout;
mod link;
mod network;
mod node;
mod pki;
mod prerequisites;
mod probe;
mod process;
mod program_files;
mod programs;
mod run;
mod slot;
mod state;
mod status;
mod supervise;
mod supervisor;
mod testbed;
mod up;

pub use claim::ClaimError;
pub use command::CommandError;
pub use control::ControlError;
pub use down::{DownError, down};
pub use files::FileError;
pub use image::{Image, ImageError};
pub use import::ImportError;
pub use layout::{Layout, TestbedDirectory, TestbedName, TestbedNameError};
pub use link::{LinkError, link};
pub use node::BUSYBOX_IMAGE;
pub use pki::PkiError;
pub use prerequisites::PrerequisiteError;
pub use programs::{Addition, BuildError, build};
pub use run::{RunWithTestbedError, run_with};
pub use slot::Slot;
pub use state::{ComponentState, Level, Phase, Requirements, StartStep, TestbedState};
pub use status::status;
pub use supervise::{SupervisorArguments, supervise};
pub use testbed::Testbed;
pub use up::{UpError, up};
