//! What our long-running programs, the operator, the gateway and the burst controller, have in common:
//! how they supervise their tasks, when they stop, how they lock, how many files they may open, how
//! they ask the API server, parse its objects and quote its errors, and how they are probed.
//!
//! It must not know what these programs do, and nothing of Flux. The operator has an HTTP server and a
//! client of its own: it also serves agents and users, and writes only while it leads.

pub mod api_client;
pub mod error_chain;
pub mod field_sets;
pub mod file_limit;
pub mod guarded;
pub mod lock;
pub mod probe_server;
pub mod stop_signal;
pub mod tasks;
