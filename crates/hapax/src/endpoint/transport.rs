//! How a request reaches an endpoint.

use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{excerpt::RequestExcerpt, record::Endpoint};
use crate::sink::{Offer, Outcome};

/// The kind of failure of a delivery that was not made because this relay was busy. It is due again after
/// [`ENDPOINT_BUSY`](crate::limits::ENDPOINT_BUSY). An event has it too whose filters could not begin in time:
/// its destination offers it again.
pub const BUSY: &str = "busy";

/// Sends events to endpoints.
pub trait Transport: Send + Sync + 'static {
    /// Sends an event to an endpoint, once. It neither retries nor stores anything. The request is made within
    /// half of the timeout that the transport was created with, and has all of it then.
    fn send<'a>(&'a self, endpoint: &'a Endpoint, offer: &'a Offer) -> BoxFuture<'a, Exchange>;

    /// Closes what belongs to endpoints that were not used for a while.
    fn sweep(&self);
}

/// A request and its outcome.
#[derive(Debug)]
pub struct Exchange {
    /// The outcome. [`SinkError::Rejected`](crate::sink::SinkError::Rejected) says that this event cannot be
    /// sent to the endpoint, now or later: the delivery has failed, and that is not a failure of the endpoint.
    pub outcome: Outcome,
    /// Whether there was an attempt. There is none without the key of the endpoint's secrets, or if this relay
    /// is [busy](BUSY): that is not a failure of the endpoint, and the delivery waits.
    pub is_made: bool,
    /// The request; empty if none was made.
    pub request: RequestExcerpt,
    /// How long the request was not made yet, for example because its body had to wait for a thread. It does
    /// not count as the duration of the attempt.
    pub prepared_in: Duration,
}
