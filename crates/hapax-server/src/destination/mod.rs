//! Declarations of destinations: in the file, over the admin API, and in the database.
//!
//! All three use one type, [`Spec`]. `sinks` lists the kinds of sinks, whose settings are those of
//! `hapax_sinks`. `wiring` builds destinations from declarations.

pub(crate) mod sinks;
pub(crate) mod spec;
mod filter;
mod distinct;
pub(crate) mod build;
mod network_policy;
mod warnings;

pub(crate) use distinct::DistinctNames;
pub(crate) use filter::FilterSetting;
pub(crate) use network_policy::NetworkPolicy;
pub(crate) use spec::{Spec, SpecError, Written};
pub(crate) use warnings::warnings;
