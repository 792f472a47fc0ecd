//! The shop's logs, metrics and spans.

use std::{io::IsTerminal as _, time::SystemTime};

use hapax::telemetry;
use hapax_otlp::Exporter;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::Level;
use tracing_subscriber::{
    Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::config::Config;

/// Starts logging, and tracing if a collector is configured.
///
/// The returned exporter sends spans once it is spawned. Log lines go to stderr, because stdout has
/// the announcement at start.
pub(crate) fn start(config: &Config) -> Option<Exporter> {
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = if config.log.json {
        lines.json().boxed()
    } else {
        lines.with_target(false).boxed()
    };
    let lines = lines.with_filter(filter(config.log.level));
    let export = config.telemetry.export(now());
    let (spans, exporter) = export.map(Exporter::new).unzip();
    let mut layers = vec![lines.boxed()];
    layers.extend(spans.map(|spans| spans.layer().boxed()));
    tracing_subscriber::registry().with(layers).init();
    // A formatted panic message may contain data of a request, so it is not logged.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(tracing::field::display);
        let error = telemetry::panic_message(panic.payload());
        tracing::error!(place, error, error_code = "panic", "something panicked");
    }));
    exporter
}

/// Returns the filter of the log.
///
/// Other libraries are logged at most at level info, because their debug output may contain the
/// data that they send.
fn filter(level: Level) -> Targets {
    Targets::new()
        .with_default(level.min(Level::INFO))
        .with_targets(["hapax", "providers", "shop"].map(|target| (target, level)))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of the process is read only here"
)]
fn now() -> fn() -> SystemTime {
    SystemTime::now
}

/// Installs the metrics recorder; the handle renders the metrics.
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
    fn what_others_say_in_detail_is_logged_at_no_level() {
        let filter = filter(Level::TRACE);
        assert!(filter.would_enable("hapax_http::visit", &Level::TRACE));
        assert!(filter.would_enable("hyper_util::client", &Level::INFO));
        assert!(!filter.would_enable("hyper_util::client", &Level::DEBUG));
        let quiet = super::filter(Level::ERROR);
        assert!(!quiet.would_enable("hyper_util::client", &Level::WARN));
    }
}
