//! An HTTP client whose retries are safe.
//!
//! An operation has one idempotency key, which is generated before the first attempt, and every
//! attempt sends the same bytes under it. The waits between attempts have full jitter and end before
//! one deadline. A `Retry-After` of the server is a minimum. A retry budget per destination limits the
//! load that all retries add. All attempts belong to one trace. A journal preserves the key over a
//! crash of the client.
//!
//! The client retries after network errors, 408, 425, 429, 500, 502, 503, 504, and 409 with
//! `Retry-After`, unless `Idempotency-Status` says that the response is stored under the key: every
//! attempt would receive it again. A POST or PATCH without a key is not retried after any byte of it
//! was sent.
//!
//! ```no_run
//! # #[cfg(feature = "reqwest")]
//! # async fn order() -> Result<(), Box<dyn std::error::Error>> {
//! use hapax::{Clock, Random};
//! use hapax_client::{Client, Request, Settings};
//!
//! let client = Client::new(Settings::new(Clock::system(), Random::system()))?;
//! let order = Request::post("https://shop.example/orders")?.json(r#"{"amount":500}"#);
//! let answer = client.send(order).await?;
//! println!("{}\n{}", answer.status, answer.attempts);
//! # Ok(()) }
//! ```
//!
//! There are two ways to use it. `Client` (feature `reqwest`, on by default) has its own connections,
//! reads responses to their end and can keep a journal. `RetryLayer` (feature `tower`) adds the same
//! policy to any client that is a `tower` service.

#![cfg_attr(
    not(feature = "reqwest"),
    expect(dead_code, reason = "the layer needs less than the client does")
)]

mod policy;
mod attempt;
mod destination;
mod shared;
mod operation;
mod stopped;
mod telemetry;
mod trace;
mod journal;
#[cfg(feature = "reqwest")]
mod client;
#[cfg(feature = "tower")]
mod layer;

pub use attempt::{Attempt, Attempts};
#[cfg(feature = "reqwest")]
pub use client::{
    Client, ClientError, Request, RequestError, Response, SendError, Settings, Watch,
};
pub use hapax::retry::{Backoff, Budget};
pub use journal::{Begun, FileJournal, Intent, Journal};
#[cfg(feature = "tower")]
pub use layer::{LayerError, Retried, Retry, RetryLayer};
pub use policy::Policy;
pub use stopped::Stopped;
