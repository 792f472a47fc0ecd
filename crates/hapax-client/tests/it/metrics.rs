//! Metrics of the client.

use hapax::retry::Budget;
use hapax_client::Client;
use hapax_testkit::http::{HttpReceiver, HttpReply};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::stage::{post, settings};

#[tokio::test]
async fn operations_and_attempts_are_counted_by_destination_and_outcome() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _here = metrics::set_default_local_recorder(&recorder);
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503));
    let mut settings = settings();
    settings.policy.budget = Budget::default();
    let client = Client::new(settings).unwrap();
    client.send(post(&receiver)).await.unwrap();
    let page = handle.render();
    let destination = format!("destination=\"http://{}\"", receiver.address());
    for line in [
        format!("hapax_client_attempts_total{{{destination},kind=\"first\",outcome=\"5xx\"}} 1"),
        format!("hapax_client_attempts_total{{{destination},kind=\"retry\",outcome=\"2xx\"}} 1"),
        format!("hapax_client_operations_total{{{destination},outcome=\"answered\"}} 1"),
        format!("hapax_client_retry_delay_seconds_count{{{destination}}} 1"),
    ] {
        assert!(page.contains(&line), "{line}\n{page}");
    }
    // An outage: the budget allows five retries, and an operation needs four.
    receiver.reply_with(|_| HttpReply::status(503));
    for _ in 0..3 {
        let _failed = client.send(post(&receiver)).await;
    }
    let refused = format!("hapax_client_budget_refusals_total{{{destination}}}");
    let page = handle.render();
    assert!(page.contains(&refused), "{page}");
}
