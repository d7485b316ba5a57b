//! Brokers of another Kubernetes cluster: invited here, started there, and jobs over both. Two
//! testbeds are linked for it, as two clusters of a user may be.

mod again;
mod crashes;
mod go_way;
mod joiner;
mod life;
mod refusals;
mod secrets;
