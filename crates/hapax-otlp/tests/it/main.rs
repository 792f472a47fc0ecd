//! The exporter against a collector that misbehaves.
//!
//! The tests of the shop decode the exported spans with the official OpenTelemetry classes.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use hapax::{Random, trace::Traces};
use hapax_otlp::{Exporter, Settings};
use hapax_testkit::http::{HttpReceiver, HttpReply};
use tracing::{
    Dispatch, Event, Level, Subscriber, debug_span, dispatcher,
    field::{Empty, Field},
};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _};

#[tokio::test]
async fn spans_arrive_in_one_request_with_what_is_known_of_them_and_no_more() {
    let receiver = HttpReceiver::start().await;
    let (subscriber, exporter) = exporter(&receiver.url(""));
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..3 {
            tell("planted-payload");
        }
        // A span outside a trace is not exported.
        let _other = debug_span!("other", operation = "untraced").entered();
        tracing::info!(operation = "a line");
    });
    exporter.spawn().end().await;
    let requests = receiver.received();
    assert_eq!(requests.len(), 1);
    let body = String::from_utf8_lossy(&requests[0].body).into_owned();
    assert_eq!(requests[0].path, "/v1/traces");
    assert_eq!(requests[0].header("x-api-key"), Some("planted-token"));
    assert_eq!(body.matches("POST /orders").count(), 3);
    assert_eq!(body.matches("idempotency.outcome").count(), 3);
    assert!(body.contains("created") && !body.contains("running"));
    for absent in ["planted", "payload", "untraced", "a line"] {
        assert!(!body.contains(absent), "{absent}");
    }
}

#[tokio::test]
async fn a_batch_is_sent_again_while_the_collector_cannot_take_it() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::status(503));
    receiver.reply_next(HttpReply::closed());
    let (subscriber, exporter) = exporter(&receiver.url(""));
    tracing::subscriber::with_default(subscriber, || tell("x"));
    let exporting = exporter.spawn();
    let requests = receiver.received_at_least(3).await;
    assert!(requests.iter().all(|it| it.body == requests[0].body));
    exporting.end().await;
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test]
async fn what_the_collector_refuses_is_not_sent_again() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(400));
    let (subscriber, exporter) = exporter(&receiver.url(""));
    tracing::subscriber::with_default(subscriber, || tell("x"));
    exporter.spawn().end().await;
    assert_eq!(receiver.received().len(), 1);
}

/// The body of a response decides nothing: once the status is here, the collector has the spans.
#[tokio::test]
async fn an_answer_without_end_has_nothing_sent_again() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).endless_body(Duration::from_millis(50)));
    let (subscriber, exporter) = exporter(&receiver.url(""));
    let subscriber = Dispatch::new(subscriber);
    dispatcher::with_default(&subscriber, || tell("first"));
    let exporting = exporter.spawn();
    receiver.received_at_least(1).await;
    dispatcher::with_default(&subscriber, || tell("second"));
    let requests = receiver.received_at_least(2).await;
    assert_ne!(requests[0].body, requests[1].body);
    exporting.end().await;
    assert_eq!(receiver.received().len(), 2);
}

#[tokio::test]
async fn spans_that_a_collector_rejects_are_logged() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).body(&b"\x0a\x02\x08\x01"[..]));
    let (subscriber, exporter) = exporter(&receiver.url(""));
    tracing::subscriber::with_default(subscriber, || tell("x"));
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    exporter.spawn().end().await;
    let log = log.0.lock().unwrap().clone();
    assert!(log.contains("rejected 1 spans"), "{log}");
    assert_eq!(receiver.received().len(), 1, "the batch is not sent again");
}

#[tokio::test]
async fn a_flood_keeps_what_fits_and_an_end_waits_for_nobody_long() {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(200).after(Duration::from_mins(1)));
    let (subscriber, exporter) = exporter(&receiver.url(""));
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..10_000 {
            tell("x");
        }
    });
    let began = Instant::now();
    exporter.spawn().end().await;
    assert!(began.elapsed() < Duration::from_secs(10));
    let body = receiver.received()[0].body.len();
    assert!(body < 1024 * 1024, "{body}");
}

/// Collects the fields of log events, one line each.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut log = self.0.lock().unwrap();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            let line = format!("{field}={value:?}\n");
            log.push_str(&line);
        });
    }
}

/// Opens and closes the span of a request, with one unknown field.
fn tell(payload: &str) {
    let count = AtomicU64::new(1);
    let random = Random::new(move || count.fetch_add(1, Ordering::Relaxed));
    let place = Traces::sampled(random, 1.0).below(None);
    let span = debug_span!(
        "request",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.name = "POST /orders",
        idempotency.outcome = "running",
        payload,
        attempt = 1,
        http.response.status_code = Empty,
    );
    span.record("idempotency.outcome", "created");
    span.record("http.response.status_code", 201);
    assert_eq!(span.metadata().map(|it| *it.level()), Some(Level::DEBUG));
}

fn exporter(url: &str) -> (impl Subscriber + Send + Sync, Exporter) {
    #[expect(clippy::disallowed_methods, reason = "the tests pass the time in")]
    let now: fn() -> SystemTime = SystemTime::now;
    let mut settings = Settings::new(url.parse().unwrap(), "test", now);
    assert!(settings.headers.add("x-api-key", "planted-token"));
    let (spans, exporter) = Exporter::new(settings);
    let subscriber = tracing_subscriber::registry().with(spans.layer());
    (subscriber, exporter)
}
