//! Retry decisions: schedules, backoff, and retry budgets.
//!
//! A [`Schedule`] is the relay's list of waits, over days. A [`Backoff`] is a client's: waits of
//! seconds that double and are random, so that clients that failed together do not retry together.
//! A [`Budget`] limits the load that all retries to one destination add. [`Delays`] are those of an
//! internal loop that retries or polls. [`retry_after`] parses the wait that a receiver asks for. Nothing in this module reads a clock, draws a random number or
//! waits.
//!
//! ```
//! use std::time::Duration;
//!
//! use hapax::retry::{Next, Schedule};
//!
//! let schedule: Schedule = "0s,5s,1m,1h".parse()?;
//! assert_eq!(schedule.attempts_max(), 4);
//! // After the first attempt the event waits for 5 s, with jitter. The receiver may ask for more.
//! let asked = Some(Duration::from_secs(90));
//! let Next::Retry(wait) = schedule.after(1, 0.5, asked) else { panic!("attempts are left") };
//! assert!(wait >= Duration::from_secs(90));
//! assert_eq!(schedule.after(4, 0.5, None), Next::DeadLetter);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod schedule;
mod delays;
mod backoff;
mod budget;
mod asked;
#[cfg(test)]
mod onset;
#[cfg(test)]
mod vectors;

pub use asked::{http_date, retry_after};
pub use backoff::{Again, Backoff};
pub use budget::{Balance, Budget};
pub use delays::Delays;
pub use schedule::{DurationError, Next, Schedule, parse_duration};
