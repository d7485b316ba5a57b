//! Bursts: nodes elsewhere for jobs that wait, and back. Two testbeds are linked for it, as two
//! clusters of a user may be.

mod crashes;
mod failures;
mod life;
mod made_clusters;
mod rights;
mod steps;
