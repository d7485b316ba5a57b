//! What our long-running programs, the operator and the gateway, have in common: how they supervise
//! their tasks, when they stop, how they lock, and how many files they may open.
//!
//! It must not know what these programs do: neither Kubernetes nor Flux, no sockets and no HTTP. Their
//! servers have different limits, because they have different clients, so each has its own.

pub mod file_limit;
pub mod lock;
pub mod stop_signal;
pub mod tasks;
