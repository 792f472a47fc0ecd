//! Ingest: webhooks of providers, for a service that has no inbox.
//!
//! `POST /in/{source}` verifies a request, and in one transaction accepts the provider's id of the
//! event and emits the event with the bytes of the request. Only then does the provider receive a
//! 2xx. A repeated delivery receives the same, and adds no event. The relay delivers the events
//! to the service, at its own pace, as those of any other outbox.
//!
//! If the store cannot be used, the response is 503 and the provider sends the request again. No
//! byte of a request is stored before its signature is verified.

pub mod signature;
mod settings;
mod source;
mod event;
mod receive;

pub use event::{CONTENT_TYPE_HEADER, ID_HEADER, SOURCE_HEADER};
pub use receive::Ingest;
pub use settings::{IngestSettings, SchemeName, SourceSettings};
pub use source::Source;
