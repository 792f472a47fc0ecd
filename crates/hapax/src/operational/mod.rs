//! Operational events: what a relay reports about itself, as ordinary events in the outbox.
//!
//! An endpoint that is disabled, a delivery that has no attempts left, a destination that lags: each is
//! an event to which destinations, polling endpoints and endpoints of tenants can subscribe. A store
//! emits it in the transaction that changes the row which it reports, so neither exists without the
//! other. [`OperationalEvents`] is part of the settings of a store; by default nothing is emitted.
//!
//! An exhausted delivery of an operational event emits none. The number of events about
//! exhausted deliveries is bounded; those beyond the bound are counted in the next event about the
//! same receiver.

mod kind;
mod occurrence;
mod rate;
mod builder;
mod lag;
mod catalogue;
#[cfg(test)]
mod tests;

pub use builder::OperationalEvents;
pub use catalogue::catalogue;
pub use kind::OperationalKind;
pub use lag::{Lag, LagSettings, OperationalStore, watch_lag};
pub use occurrence::{Occurrence, Receiver};

/// The prefix of the types of operational events, unless another one is configured.
pub const PREFIX: &str = "hapax.";
/// Maximum length of the prefix in bytes. The longest name of a kind is a tenth of what a type may have.
pub const PREFIX_BYTES_MAX: usize = 64;
