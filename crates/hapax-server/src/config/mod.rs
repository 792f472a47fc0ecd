//! Configuration: flags, environment, file and defaults.
//!
//! `hapax_runtime::config` merges the layers: `hapax.default.toml`, which is compiled in, the file of
//! `--config`, the environment, and the flags. This module converts them into types. An unknown
//! setting is an error that suggests the nearest known one. Errors never contain a value that may be
//! a secret. No other module reads the environment.

mod database_location;
mod layers;
mod sources;
mod feeds;
mod telemetry;
mod endpoints;
mod portal;
mod operational_events;
mod sections;

pub(crate) use database_location::DatabaseLocation;
pub(crate) use endpoints::{CatchUp, EndpointLog, Endpoints};
pub(crate) use feeds::Feed;
pub(crate) use hapax_runtime::config::{Given, Layers, Node, Span, Wrong};
pub(crate) use hapax_sinks::{secret::Secret, settings::networks};
pub(crate) use layers::{DEFAULT, read_layers};
pub(crate) use operational_events::OperationalEvents;
pub(crate) use portal::{NO_PORTAL, Portal, wrong as wrong_portal};
pub(crate) use sections::{Config, Database, Listen, Retention, Role, Schema, Token};
pub(crate) use telemetry::Telemetry;
