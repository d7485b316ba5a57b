//! With real sockets, a lead and brokers without cryptography.

mod attacks;
mod brokers;
mod changes;
mod real_flux;
mod refusals;
mod requests;
