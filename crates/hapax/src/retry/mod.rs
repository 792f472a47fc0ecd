//! Retry decisions: schedules, backoff, and retry budgets.
//!
//! A [`Schedule`] is the relay's list of waits, over days. A [`Backoff`] is a client's: waits of
//! seconds that double and are random, so that clients that failed together do not retry together.
//! A [`Budget`] limits the load that all retries to one destination add. [`retry_after`] parses the
//! wait that a receiver asks for. Nothing in this module reads a clock, draws a random number or
//! waits.

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
