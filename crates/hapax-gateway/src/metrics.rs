//! Metrics of the gateway. `hapax::telemetry` names and describes them; the keys themselves are
//! counted by `hapax-http`.

use std::time::Duration;

use hapax::telemetry::{
    GATEWAY_CONNECTIONS, GATEWAY_FULL, GATEWAY_INSTANCE_UP, GATEWAY_LIMITED, GATEWAY_REQUEST,
    GATEWAY_REQUESTS, GATEWAY_RESENT, GATEWAY_RESUMED, GATEWAY_UNKNOWN,
};
use metrics::{counter, gauge, histogram};

pub(crate) fn request(route: &str, kind: &'static str, status: u16, took: Duration) {
    let class = match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    let route = route.to_owned();
    counter!(GATEWAY_REQUESTS, "route" => route.clone(), "kind" => kind, "class" => class)
        .increment(1);
    histogram!(GATEWAY_REQUEST, "route" => route, "kind" => kind).record(took.as_secs_f64());
}

pub(crate) fn unknown(route: &str, reason: &'static str) {
    counter!(GATEWAY_UNKNOWN, "route" => route.to_owned(), "reason" => reason).increment(1);
}

pub(crate) fn resumed(route: &str, result: &'static str) {
    counter!(GATEWAY_RESUMED, "route" => route.to_owned(), "result" => result).increment(1);
}

pub(crate) fn resent(upstream: &str) {
    counter!(GATEWAY_RESENT, "upstream" => upstream.to_owned()).increment(1);
}

pub(crate) fn full(upstream: &str, bound: &'static str) {
    counter!(GATEWAY_FULL, "upstream" => upstream.to_owned(), "bound" => bound).increment(1);
}

pub(crate) fn limited(upstream: &str, rate: &'static str) {
    counter!(GATEWAY_LIMITED, "upstream" => upstream.to_owned(), "rate" => rate).increment(1);
}

pub(crate) fn instance_up(upstream: &str, instance: &str, is_up: bool) {
    let (upstream, instance) = (upstream.to_owned(), instance.to_owned());
    let value = if is_up { 1.0 } else { 0.0 };
    gauge!(GATEWAY_INSTANCE_UP, "upstream" => upstream, "upstream_instance" => instance).set(value);
}

/// Reports that an instance is not configured any more. Otherwise the gauge would keep its last value.
pub(crate) fn instance_removed(upstream: &str, instance: &str) {
    let (upstream, instance) = (upstream.to_owned(), instance.to_owned());
    gauge!(GATEWAY_INSTANCE_UP, "upstream" => upstream, "upstream_instance" => instance)
        .set(f64::NAN);
}

pub(crate) fn connection(listener: &str, change: f64) {
    gauge!(GATEWAY_CONNECTIONS, "listener" => listener.to_owned()).increment(change);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn the_label_of_an_instance_differs_from_that_of_the_gateway() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || instance_up("orders", "http://a:1", true));
        let page = recorder.handle().render();
        assert!(page.contains("upstream_instance=\"http://a:1\""), "{page}");
    }
}
