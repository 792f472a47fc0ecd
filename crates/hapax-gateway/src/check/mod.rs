//! Checks of a configuration beyond its validity: which operations of a service are protected, and
//! what an operator should look at.
//!
//! The configuration is already valid ([`Settings::check`](crate::config::Settings::check)).
//! Nothing here is an error of the gateway: a finding says what the configuration does not protect,
//! or believes of a service.

mod description;
mod operations;
mod findings;
mod instances;

pub use description::{Description, Operation, Parameter, PathItem, Server};
pub use findings::{Finding, Severity, findings};
pub use instances::unreachable;
pub use operations::{OperationProtection, Protection, operations};
