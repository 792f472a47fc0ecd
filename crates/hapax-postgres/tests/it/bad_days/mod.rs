//! Fault tests: networks that lose data, servers that crash, and transactions that conflict.
//!
//! After every fault, each key has at most one effect, acknowledged requests are stored, requests
//! that certainly failed have left nothing, and the next retry gets the right response.

pub(crate) mod day;
mod network;
mod begins;
mod commits;
mod connections;
mod conflicts;
mod leaving;
mod servers;
mod schema;
mod operators;
mod settlements;
