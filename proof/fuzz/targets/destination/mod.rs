//! Parser of destinations of the `hapax` binary, without the sinks.
#![allow(dead_code, unused_imports, reason = "the binary uses the rest")]

#[path = "../../../../crates/hapax-server/src/destination/filter.rs"]
mod filter;
#[path = "../../../../crates/hapax-server/src/destination/network_policy.rs"]
mod network_policy;
#[path = "../../../../crates/hapax-server/src/destination/sinks.rs"]
pub(crate) mod sinks;
#[path = "../../../../crates/hapax-server/src/destination/spec/mod.rs"]
pub(crate) mod spec;

pub(crate) use network_policy::NetworkPolicy;
pub(crate) use spec::{Spec, SpecError, Written};
