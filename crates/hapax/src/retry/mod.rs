//! When to try again: numbers in, a decision out.
//!
//! A [`Schedule`] is the relay's, which has days: a list of waits. A [`Backoff`] is a client's,
//! which has seconds: waits that double and are drawn at random, so that clients that failed
//! together do not come back together. A [`Budget`] bounds what all retries to one destination
//! add to its load. [`retry_after`] is the wait that the far side asks for. Nothing here reads a
//! clock, draws a number or waits.

mod schedule;
mod backoff;
mod budget;
mod asked;
#[cfg(test)]
mod onset;

pub use asked::retry_after;
pub use backoff::{Again, Backoff};
pub use budget::{Balance, Budget};
pub use schedule::{DurationError, Next, Schedule, parse_duration};
