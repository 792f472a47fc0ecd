//! Telemetry of the program: logs, metrics and spans.

use std::io::IsTerminal as _;

use hapax::telemetry;
use hapax_otlp::Exporter;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    config::{Config, Level, LogFormat, Wrong},
    environment,
};

/// Starts logging and, if spans are exported, tracing. The exporter runs once it is spawned.
///
/// Logs are written to standard error, because standard output is for the results of commands.
pub(crate) fn start(config: &Config) -> Result<Option<Exporter>, Wrong> {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = if config.log.format == LogFormat::Json {
        lines.json().boxed()
    } else {
        lines.with_target(false).boxed()
    };
    let lines = lines.with_filter(filter(config.log.level));
    let export = config.telemetry.export(environment::time())?;
    let (spans, exporter) = export.map(Exporter::new).unzip();
    let mut layers = vec![lines.boxed()];
    layers.extend(spans.map(|spans| spans.layer().boxed()));
    tracing_subscriber::registry().with(layers).init();
    // A formatted message may contain the data that was processed.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(tracing::field::display);
        let error = telemetry::panic_message(panic.payload());
        tracing::error!(place, error, error_code = "panic", "something panicked");
    }));
    Ok(exporter)
}

/// The log filter. Other crates are logged at `info` at most, because their details may contain
/// what they send. Messages that a broker returns are not logged at all, because they contain the
/// payload.
fn filter(level: Level) -> Targets {
    let level = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(level.min(LevelFilter::INFO))
        .with_target("hapax", level)
        .with_target("lapin::returned_messages", LevelFilter::OFF)
}

/// Starts the metrics. The handle renders them.
pub(crate) fn count() -> Result<PrometheusHandle, BuildError> {
    let mut exporter = PrometheusBuilder::new();
    for name in telemetry::HISTOGRAMS {
        let timed = Matcher::Full(name.to_owned());
        exporter = exporter.set_buckets_for_metric(timed, &telemetry::SECONDS)?;
    }
    let handle = exporter.install_recorder()?;
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

    #[test]
    fn what_others_say_in_detail_is_logged_at_no_level() {
        let filter = filter(Level::Trace);
        let (detail, word) = (tracing::Level::DEBUG, tracing::Level::INFO);
        assert!(filter.would_enable("hapax_sinks::webhook", &detail));
        assert!(filter.would_enable("async_nats::connector", &word));
        assert!(!filter.would_enable("async_nats::connector", &detail));
    }
}
