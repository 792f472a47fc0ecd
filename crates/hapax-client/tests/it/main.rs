//! The retry client against real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]
#![cfg(all(feature = "reqwest", feature = "tower"))]

mod stage;
mod statuses;
mod connections;
mod keys;
mod journals;
mod hints;
mod times;
mod traces;
mod layer;
mod metrics;
