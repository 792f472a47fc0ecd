//! Exporter of Hapax's spans to an OpenTelemetry collector: OTLP over HTTP, in protobuf.
//!
//! The libraries use `tracing` only, and a span of traced work contains its own ids
//! (`hapax::trace`). A [`Spans`] layer collects only these spans, and only their known fields, so
//! nothing else reaches a collector. An [`Exporter`] sends them in batches. The queue is bounded;
//! if a collector is down, spans are lost, and requests are never delayed.
//!
//! ```no_run
//! use hapax_otlp::{Endpoint, Exporter, Settings};
//! use tracing_subscriber::{layer::SubscriberExt as _, util::SubscriberInitExt as _};
//!
//! # #[expect(clippy::disallowed_methods, reason = "this is where time is passed in from")]
//! # async fn traced() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint: Endpoint = "http://127.0.0.1:4318".parse()?;
//! let settings = Settings::new(endpoint, "shop", std::time::SystemTime::now);
//! let (spans, exporter) = Exporter::new(settings);
//! tracing_subscriber::registry().with(spans.layer()).init();
//! let exporting = exporter.spawn();
//! // ... serve, with `hapax::trace::Traces::sampled` in the settings of what is to be traced ...
//! exporting.end().await;
//! # Ok(())
//! # }
//! ```

mod endpoint;
mod layer;
mod span;
mod encode;
mod response;
mod export;
mod limits;

pub use endpoint::{Endpoint, EndpointError, Headers, headers_of};
pub use export::{Exporter, Exporting, Settings};
pub use layer::Spans;
