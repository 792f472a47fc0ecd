//! What the program says about itself: log lines and metrics.

use std::io::IsTerminal as _;

use hapax::telemetry;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::config::{Level, Log, LogFormat};

/// From half a millisecond to half a minute: requests wait and events travel in that range.
const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0,
];

/// Writes log lines to standard error: standard output is for what a command found.
pub(crate) fn log(log: &Log) {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = if log.format == LogFormat::Json {
        lines.json().boxed()
    } else {
        lines.with_target(false).boxed()
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter(log.level)))
        .init();
}

/// What is logged: what a driver says of a message that came back is not, for it is the payload.
fn filter(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(level)
        .with_target("lapin::returned_messages", LevelFilter::OFF)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_returns_is_logged_at_no_level() {
        for level in [Level::Error, Level::Info, Level::Trace] {
            let filter = filter(level);
            let returned = "lapin::returned_messages";
            assert!(!filter.would_enable(returned, &tracing::Level::ERROR));
            assert!(filter.would_enable("lapin::channel", &tracing::Level::ERROR));
        }
    }
}
