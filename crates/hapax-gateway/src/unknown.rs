//! Record of a request that was sent and has no stored response: the recovery point of its key.
//!
//! Operators read the same type, so it belongs to `hapax::admin`.

pub use hapax::admin::{UnknownReason as Reason, UnknownRecord as Unknown};
