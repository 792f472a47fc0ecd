//! Endpoints: webhooks that belong to a tenant and receive that tenant's events only.
//!
//! One destination reads the outbox for all endpoints. Its sink, [`FanOut`], sends an event to each
//! endpoint of the event's tenant that takes its type, and finds them in an index in memory. If an
//! endpoint does not accept the event at once, the delivery becomes a row of a queue under the
//! endpoint's id, and [`Endpoints::run`] sends it again by the schedule. The destination's checkpoint
//! passes an event only when each endpoint has it or has a row, so a crash repeats deliveries and
//! loses none.
//!
//! An endpoint has no task and no connection while it is idle. The deliveries to one endpoint are
//! bounded, and so are all together. An endpoint that is slow or fails gets its events through the
//! queue alone, so that it does not delay the others. Order is not kept.
//!
//! This module knows neither SQL nor HTTP: a store implements [`EndpointStore`], and a
//! [`Transport`] sends the requests.

mod record;
mod excerpt;
mod store;
mod transport;
mod settings;
mod index;
mod filtering;
mod gate;
mod sent;
mod service;
mod round;
mod search;
mod recovery;
mod dispatcher;
mod upkeep;
mod fan_out;
#[cfg(test)]
mod tests;

pub use excerpt::RequestExcerpt;
pub use fan_out::FanOut;
pub use record::{Endpoint, EndpointChange, EndpointColumns, EndpointState};
pub use service::Endpoints;
pub use settings::EndpointSettings;
pub use store::{
    ClaimedDeliveries, ClaimedDelivery, CountedFailures, DeliveryClaim, EndpointAttempt,
    EndpointBacklog, EndpointRecord, EndpointRecovery, EndpointStore, FailingEndpoint, NextStep,
    QueuedDelivery, Recorded, SettledDelivery, TOO_MANY_WAIT, failures_of,
};
pub use transport::{BUSY, Exchange, Transport};
