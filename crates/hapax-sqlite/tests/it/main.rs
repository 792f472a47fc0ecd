//! Tests of the SQLite store: the conformance suite of all stores, and tests of this store only.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod fixture;
mod conformance;
mod sources;
mod groups;
mod transactions;
mod violations;
mod pipelined;
mod failures;
mod log;
mod sagas;
mod encryption;
mod catalogue;
mod retention;
mod reading;
mod opening;
mod queries;
mod operators;
mod large;
mod admin;
mod clock;
