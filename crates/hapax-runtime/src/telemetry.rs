//! Telemetry of a process: logs, metrics and spans.

use std::io::IsTerminal as _;

use hapax::telemetry;
use hapax_otlp::{Exporter, Settings};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::Level;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// The format and level of the log.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Whether a line is a JSON object.
    pub json: bool,
    /// The level of the program's own messages.
    pub level: Level,
}

/// Starts logging and, if spans are exported, tracing. The exporter runs once it is spawned.
///
/// `programs` are the targets of the program's own messages, besides those of Hapax. Logs are
/// written to standard error, because standard output is for the results of commands.
pub fn start(log: Log, programs: &[&str], export: Option<Settings>) -> Option<Exporter> {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = if log.json {
        lines.json().boxed()
    } else {
        lines.with_target(false).boxed()
    };
    let lines = lines.with_filter(filter(log.level, programs));
    let (spans, exporter) = export.map(Exporter::new).unzip();
    let mut layers = vec![lines.boxed()];
    layers.extend(spans.map(|spans| spans.layer().boxed()));
    tracing_subscriber::registry().with(layers).init();
    // A formatted message may contain the data that was processed.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(tracing::field::display);
        let error = telemetry::panic_message(panic.payload());
        tracing::error!(place, error, error_code = "panic", "a thread panicked");
    }));
    exporter
}

/// The log filter. Other crates are logged at `info` at most, because their details may contain
/// what they send. Messages that a broker returns are not logged at all, because they contain the
/// payload.
fn filter(level: Level, programs: &[&str]) -> Targets {
    Targets::new()
        .with_default(level.min(Level::INFO))
        .with_target("hapax", level)
        .with_targets(programs.iter().map(|target| (*target, level)))
        .with_target("lapin::returned_messages", LevelFilter::OFF)
}

/// Starts the metrics. The handle renders them.
///
/// # Errors
/// The process already has a recorder.
pub fn count() -> Result<PrometheusHandle, BuildError> {
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
        for level in [Level::ERROR, Level::INFO, Level::TRACE] {
            let filter = filter(level, &[]);
            let returned = "lapin::returned_messages";
            assert!(!filter.would_enable(returned, &Level::ERROR));
            assert!(filter.would_enable("lapin::channel", &Level::ERROR));
        }
    }

    #[test]
    fn what_others_say_in_detail_is_logged_at_no_level() {
        let loud = filter(Level::TRACE, &["shop"]);
        for own in ["hapax_sinks::webhook", "shop::routes"] {
            assert!(loud.would_enable(own, &Level::TRACE));
        }
        assert!(loud.would_enable("async_nats::connector", &Level::INFO));
        assert!(!loud.would_enable("async_nats::connector", &Level::DEBUG));
        let quiet = filter(Level::ERROR, &[]);
        assert!(!quiet.would_enable("hyper_util::client", &Level::WARN));
    }
}
