//! Tests of the metrics, for each outcome.

use std::{collections::BTreeMap, time::Duration};

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::stage::{Stage, post_json, send};

#[test]
fn every_outcome_is_counted_once_under_its_operation() {
    let counted = count(async {
        let gone = |layer: hapax_http::OperationLayer<_>| {
            layer.on_expired(hapax::idempotency::OnExpired::Gone)
        };
        let stage = Stage::with(|it| it.wait = Duration::from_millis(10), gone).await;
        stage.post("k", "{}").await;
        stage.post("k", "{}").await;
        stage.post("k", "{\"answer\":200}").await;
        stage.post("declined", "{\"answer\":402}").await;
        stage.post("mistake", "{\"answer\":400}").await;
        let gated = "{\"act\":\"gate\"}";
        let first = send(stage.router.clone(), post_json("/effects", "slow", gated));
        let first = tokio::spawn(first);
        stage.entered(4).await;
        stage.post("slow", gated).await;
        stage.props.gate.add_permits(1);
        first.await.unwrap();
        stage.pass(Duration::from_hours(24));
        stage.post("k", "{}").await;
        assert_eq!(stage.idempotency.purge().await.unwrap(), 3);
        stage.lose_the_keys().await;
        stage.post("lost", "{}").await;
    });
    let expected = [
        ("created", 3),
        ("replayed", 1),
        ("mismatch", 1),
        ("released", 1),
        ("in_progress", 1),
        ("gone", 1),
        ("store_error", 1),
    ];
    for (outcome, times) in expected {
        let line = format!(
            "hapax_idempotency_requests_total{{operation=\"POST /effects\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(
            counted.get(&line),
            Some(&times.to_string()),
            "{outcome}: {counted:#?}"
        );
    }
    let expired = "hapax_idempotency_expired_total{operation=\"POST /effects\"}";
    assert_eq!(counted.get(expired).map(String::as_str), Some("3"));
    let waits = "hapax_idempotency_wait_seconds_count{operation=\"POST /effects\"}";
    assert_eq!(counted.get(waits).map(String::as_str), Some("1"));
}

/// Runs the future on this thread only, so that only its own metrics are counted.
pub(crate) fn count(run: impl Future<Output = ()>) -> BTreeMap<String, String> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(run));
    let lines = handle.render();
    let pairs = lines.lines().filter_map(|line| line.rsplit_once(' '));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
