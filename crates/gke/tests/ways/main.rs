//! The whole way of a cluster, up and down, with a server that answers as Google's do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod errors;
mod killed;
mod program;
mod right_way;
mod support;
