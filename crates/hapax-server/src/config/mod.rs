//! What the program is told: flags, environment, file, defaults.
//!
//! A later layer goes over an earlier one: `hapax.default.toml`, which is compiled
//! in, then the file of `--config`, then `HAPAX__SECTION__NAME` (and below it what
//! OpenTelemetry calls `OTEL_EXPORTER_OTLP_ENDPOINT` and so on), then the flags. A
//! setting that nobody knows is an error that names the nearest one; an error never
//! prints a value that may be a secret. Nothing else here reads the environment.

mod nearest;
mod node;
mod read;
mod secret;
mod span;
mod layers;
mod sources;
mod telemetry;
mod sections;

pub(crate) use layers::{DEFAULT, Given, Layers};
pub(crate) use node::Node;
pub(crate) use read::Wrong;
pub(crate) use secret::Secret;
pub(crate) use sections::{Config, Level, Listen, LogFormat, Retention, Role, Schema, Token};
pub(crate) use span::Span;
pub(crate) use telemetry::Telemetry;
