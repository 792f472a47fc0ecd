//! Polling: events for customers who cannot be called.
//!
//! A polling [`Endpoint`] is a position in the outbox with a name, a tenant and patterns of event
//! types. A consumer reads pages of events after a cursor and commits the cursor when it has
//! processed them. A cursor is a [`Frontier`](crate::delivery::Frontier): no event is skipped
//! because its transaction committed late, and none is lost if a consumer ends between the fetch and
//! the commit. An endpoint of one tenant returns that tenant's events only.
//!
//! [`Polling`] does this for any [`PollStore`]; `hapax_http::poll` serves it over HTTP. Events are
//! not kept for an endpoint that does not poll: retention deletes them as if it did not exist, and
//! the next poll says so.

mod token;
mod cursor;
mod endpoint;
mod store;
mod error;
mod read;
mod page;
mod rate;
mod wait;
mod lookout;
mod service;

pub use cursor::{CursorError, CursorSecret};
pub use endpoint::{ENDPOINT_NAME_BYTES_MAX, Endpoint, is_endpoint_name};
pub use error::PollError;
pub use page::{Page, event_to_json};
pub use rate::PollRate;
pub use service::{Caller, PollRequest, PollSettings, Polling};
pub use store::PollStore;
pub use token::{Token, TokenHash};
