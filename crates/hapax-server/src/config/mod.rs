//! Configuration: flags, environment, file and defaults.
//!
//! Later layers override earlier ones: first `hapax.default.toml`, which is compiled in, then the
//! file of `--config`, then variables `HAPAX__SECTION__NAME` (which override standard variables of
//! OpenTelemetry such as `OTEL_EXPORTER_OTLP_ENDPOINT`), then the flags. An unknown setting is an
//! error that suggests the nearest known one. Errors never contain a value that may be a secret. No
//! other module reads the environment.

mod node;
mod read;
mod span;
mod layers;
mod sources;
mod telemetry;
mod sections;

pub(crate) use hapax_sinks::secret::Secret;
pub(crate) use layers::{DEFAULT, Given, Layers};
pub(crate) use node::Node;
pub(crate) use read::Wrong;
pub(crate) use sections::{Config, Level, Listen, LogFormat, Retention, Role, Schema, Token};
pub(crate) use span::Span;
pub(crate) use telemetry::Telemetry;
