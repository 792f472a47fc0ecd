//! Destinations as people declare them: in the file, over the admin API, in the database.
//!
//! One type serves all three, [`Spec`]. `sinks` holds the settings of each kind of sink. What
//! is made of them is the business of `wiring`.

pub(crate) mod sinks;
pub(crate) mod spec;
pub(crate) mod build;
mod reach;

pub(crate) use reach::Reach;
pub(crate) use spec::{Spec, SpecError, Written};
