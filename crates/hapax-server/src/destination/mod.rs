//! Declarations of destinations: in the file, over the admin API, and in the database.
//!
//! All three use one type, [`Spec`]. `sinks` lists the kinds of sinks, whose settings are those of
//! `hapax_sinks`. `wiring` builds destinations from declarations.

pub(crate) mod sinks;
pub(crate) mod spec;
pub(crate) mod build;
mod network_policy;

pub(crate) use network_policy::NetworkPolicy;
pub(crate) use spec::{Spec, SpecError, Written};
