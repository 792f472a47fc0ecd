//! What the shop says about itself: log lines and metrics.

use std::io::IsTerminal as _;

use hapax::telemetry;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{
    Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::Log;

/// From half a millisecond to half a minute: requests wait and events travel in that range.
const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0,
];

/// Writes log lines to stderr: stdout is for the person who started the shop.
pub(crate) fn log(log: &Log) {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = if log.json {
        lines.json().boxed()
    } else {
        lines.with_target(false).boxed()
    };
    let level = LevelFilter::from_level(log.level);
    tracing_subscriber::registry()
        .with(lines.with_filter(level))
        .init();
}

/// Starts to count; the handle writes out what was counted.
pub(crate) fn count() -> Result<PrometheusHandle, BuildError> {
    let timed = |name: &str| Matcher::Full(name.to_owned());
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(timed(telemetry::IDEMPOTENCY_WAIT), &SECONDS)?
        .set_buckets_for_metric(timed(telemetry::RELAY_DELIVERY), &SECONDS)?
        .install_recorder()?;
    telemetry::describe();
    Ok(handle)
}
