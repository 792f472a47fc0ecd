//! Idempotency keys, a transactional outbox with its relay, an inbox, and sagas.
//!
//! ```text
//! client --Idempotency-Key--> [ http ] -> claim -> handler -> complete      one transaction:
//!   |  retry client                        |  rows, response, events |      all of it or nothing
//!   |                                      +-------- a store --------+
//!   v                                                     | frontier
//! same response, byte for byte                       [ relay ]  lanes, retries, dead letters
//!                                                         | at least once, same event id
//!                                    webhooks, mail, functions, files
//!                                                         v
//!                                                   [ inbox ]  accepted once
//! ```
//!
//! This crate contains the types, the decisions, the traits and the loops. It has no SQL, no HTTP,
//! no environment, no global state and no clock: stores, protocols and sinks are separate crates.
//! The modules are listed in the order in which a request uses them.

pub mod key;
pub mod idempotency;
pub mod purges;
pub mod phases;
pub mod single_flight;
pub mod group;
pub mod event;
mod json;
pub mod filter;
pub mod mapping;
pub mod outbox;
#[cfg(feature = "catalogue")]
pub mod catalogue;
pub mod delivery;
pub mod notify;
pub mod relay;
pub mod retry;
pub mod sink;
#[cfg(feature = "signature")]
pub mod signature;
pub mod dead_letter;
pub mod inbox;
pub mod saga;
pub mod quota;
pub mod buckets;
pub mod places;
pub mod mask;
pub mod keyring;
pub mod store;
pub mod poll;
pub mod endpoint;
pub mod operational;
pub mod admin;
pub mod retention;
pub mod clock;
pub mod failpoint;
pub mod limits;
pub mod trace;
pub mod telemetry;
pub mod request_log;
mod nearest;

pub use clock::{Clock, Random, Stopwatch, Timestamp};
pub use nearest::nearest;
