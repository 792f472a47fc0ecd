//! Tests of the providers as processes, through their HTTP interface and their ledgers.

#![expect(
    clippy::unwrap_used,
    reason = "a panic fails the test, which is what it should do"
)]

mod provider;
mod keys;
mod faults;
mod payments;
mod shipments;
mod crashes;
