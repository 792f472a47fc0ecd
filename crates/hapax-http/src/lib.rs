//! `Idempotency-Key` for any axum service: a tower layer in the handler's transaction.

pub mod header;
pub mod request_id;
mod content;
mod body;
mod derived;
mod operation;
mod idempotency;
mod settings;
mod cache;
mod visit;
mod told;
mod tx;
mod planned;
mod stored;
mod inbox;
pub mod extract;
pub mod problem;
mod telemetry;

pub use derived::{Derived, View};
pub use extract::{Json, Path, Query};
pub use hapax::idempotency::Remember;
pub use header::EXPOSED_HEADERS;
pub use idempotency::Idempotency;
pub use inbox::{Verified, WebhookLayer};
pub use operation::{OperationLayer, Protected};
pub use planned::Planned;
pub use problem::{Code, Problem};
pub use request_id::{RequestId, RequestIds};
pub use settings::{Profile, Settings};
pub use tx::Tx;
