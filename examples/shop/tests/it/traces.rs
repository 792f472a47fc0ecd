//! Tests of tracing: one trace from the request to the inbox, across three processes, in a
//! collector.

use std::time::Duration;

use hapax::trace::TraceContext;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    wait::eventually,
};
use http::Method;

use crate::{
    collector::{Collector, Span},
    relay_process::start_relay,
    shop::{Home, JSON, ORDER, PATIENCE, Shop, Store, bought, lasting},
};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";
const SENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PAYMENT: &str = r#"{"amount":500,"currency":"EUR","card":"tok_ok"}"#;
const CART: &str = r#"{"items":[{"sku":"sku_tea","quantity":1}],"card":"tok_ok","address":{"name":"Ann","line1":"Rue 1","city":"Paris","postal_code":"75001","country":"FR"}}"#;

#[tokio::test]
async fn one_trace_leads_from_the_request_through_the_relay_to_the_inbox_of_another() {
    let collector = Collector::start();
    let consumer = start(
        Store::Sqlite,
        &collector,
        "consumer",
        &["--inbox-secret", &format!("shop={SECRET}")],
    )
    .await;
    let shop = start(Store::Postgres, &collector, "shop", &["--no-relay"]).await;
    let refusing = HttpReceiver::start().await;
    refusing.reply(HttpReply::status(503));
    let configuration = format!(
        "[telemetry]\notlp_endpoint = \"{}\"\nservice = \"relay\"\n{}{}",
        collector.url,
        webhook("consumer", &consumer.url("/webhooks/shop")),
        webhook("refusing", &refusing.url("/"))
    );
    let database = shop.home().database().url();
    let relay = start_relay(&database, &configuration, &[]).await;

    let first = order(&shop, "k1", Some(SENT)).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let spans = collector
        .trace(TRACE, |spans| {
            let attempts = spans.iter().filter(|span| span.is("relay", "attempt"));
            spans.iter().any(|span| span.is("consumer", "accept"))
                && spans.iter().any(|span| span.is("shop", "POST /orders"))
                && attempts.count() >= 3
        })
        .await;

    let request = check_request(&spans);
    let delivered = check_delivery(&spans, &request);
    check_acceptance(&spans, &delivered);
    check_refusals(&spans, &request, &refusing).await;
    assert!(spans.iter().all(|span| span.number("nanos") > 0));
    check_retry(&shop, &collector, &first).await;
    relay.stop().await;
    shop.stop().await;
}

#[tokio::test]
async fn the_steps_of_a_saga_hang_below_the_request_that_began_it() {
    let collector = Collector::start();
    let home = Home::with_providers(Store::Sqlite).await;
    let flags = ["--otlp-endpoint", collector.url.as_str()];
    let shop = Shop::start_in(home, &flags);
    let answer = post(&shop, "/checkouts", "c", Some(SENT), CART).await;
    bought(&shop, &answer).await;
    let spans = collector
        .trace(TRACE, |spans| {
            let steps = spans.iter().filter(|span| span.is("shop", "step"));
            steps.count() >= 5 && spans.iter().any(|span| span.is("shop", "POST /checkouts"))
        })
        .await;
    let request = only(&spans, |span| span.is("shop", "POST /checkouts"));
    assert_eq!(request.parent(), CALLER);
    let mut steps = spans.clone();
    steps.retain(|span| span.is("shop", "step"));
    steps.sort_by_key(|span| span.number("started"));
    let names: Vec<_> = steps.iter().map(|step| step.attribute("step")).collect();
    assert_eq!(names, ["reserve", "authorize", "ship", "capture", "notify"]);
    for step in &steps {
        assert_eq!(step.parent(), request.id());
        assert_eq!(step.attribute("outcome"), "done");
        assert_eq!(step.attribute("attempt"), 1);
    }
    shop.stop().await;
}

#[tokio::test]
async fn the_spans_of_all_retries_have_the_hash_of_their_key() {
    let collector = Collector::start();
    let shop = start(Store::Sqlite, &collector, "shop", &["--wait", "50ms"]).await;
    let slow = PAYMENT.replace("tok_ok", "tok_slow");
    // One of the two leads, and the other one stops waiting for it.
    let both = tokio::join!(
        post(&shop, "/payments", "k", Some(SENT), &slow),
        post(&shop, "/payments", "k", Some(SENT), &slow),
    );
    let mut statuses = [both.0.status, both.1.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
    let headers = [
        JSON,
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", "k"),
        ("traceparent", SENT),
        ("idempotency-attempt", "3"),
    ];
    shop.send(Method::POST, "/payments", &headers, &slow).await;
    post(&shop, "/payments", "k", Some(SENT), PAYMENT).await;
    let spans = collector
        .trace(TRACE, |spans| {
            spans
                .iter()
                .filter(|it| it.is("shop", "POST /payments"))
                .count()
                == 4
        })
        .await;
    let outcome = |name: &str| only(&spans, |it| it.attribute("idempotency.outcome") == name);
    for name in ["created", "in_progress", "replayed", "mismatch"] {
        let hash = hapax::key::short_hash("k");
        assert_eq!(outcome(name).attribute("idempotency.key_hash"), &hash);
        assert_eq!(outcome(name).parent(), CALLER);
    }
    assert_eq!(outcome("replayed").attribute("attempt"), 3);
    shop.stop().await;
}

#[tokio::test]
async fn without_a_collector_what_came_in_travels_on_as_it_is() {
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/");
    let shop = Shop::start(
        Store::Sqlite,
        &["--webhook", &url, "--allow-net", "127.0.0.0/8"],
    )
    .await;
    order(&shop, "k1", Some(SENT)).await;
    let outcome = receiver.received_at_least(1).await;
    assert_eq!(outcome[0].header("traceparent"), Some(SENT));
    order(&shop, "k2", Some("00-what-ever-01")).await;
    let outcome = receiver.received_at_least(2).await;
    assert_eq!(outcome[1].header("traceparent"), None);
}

#[tokio::test]
async fn providers_receive_the_trace_context() {
    let far = HttpReceiver::start().await;
    far.reply_with(|request| {
        let kind = match request.path.rsplit('/').next() {
            Some("charges") => "charge",
            Some("authorizations") => "authorization",
            Some("capture") => "capture",
            _ => "shipment",
        };
        let made = format!(r#"{{"id":"{kind}_1","kind":"{kind}","amount":500,"currency":"EUR"}}"#);
        HttpReply::status(201).body(made)
    });
    let url = far.url("");
    let flags = ["--payment-provider", &url, "--shipping-provider", &url];
    let shop = Shop::start(Store::Sqlite, &flags).await;
    let paid = post(&shop, "/payments", "k", Some(SENT), PAYMENT).await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    let answer = post(&shop, "/checkouts", "k", Some(SENT), CART).await;
    bought(&shop, &answer).await;
    let outcome = far.received();
    assert_eq!(outcome.len(), 4, "{outcome:?}");
    for outcome in &outcome {
        assert_eq!(
            outcome.header("traceparent"),
            Some(SENT),
            "{}",
            outcome.path
        );
    }
    shop.stop().await;
}

#[tokio::test]
async fn a_call_to_a_provider_hangs_below_the_span_of_its_request() {
    let collector = Collector::start();
    let far = HttpReceiver::start().await;
    let charge = r#"{"id":"ch_1","kind":"charge","amount":500,"currency":"EUR"}"#;
    far.reply(HttpReply::status(201).body(charge));
    let url = far.url("");
    let flags = ["--payment-provider", &url];
    let shop = start(Store::Sqlite, &collector, "shop", &flags).await;
    let paid = post(&shop, "/payments", "k", Some(SENT), PAYMENT).await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    let spans = collector.trace(TRACE, |spans| !spans.is_empty()).await;
    let request = only(&spans, |span| span.is("shop", "POST /payments"));
    let outcome = far.received();
    let outcome = outcome.last().unwrap().header("traceparent").unwrap();
    let context = TraceContext::parse(outcome).unwrap();
    assert_eq!(format!("{:016x}", context.span_id()), request.id());
    shop.stop().await;
}

#[tokio::test]
async fn what_is_not_sampled_says_so_and_is_not_told() {
    let collector = Collector::start();
    let receiver = HttpReceiver::start().await;
    let url = receiver.url("/");
    let to = ["--webhook", &url, "--allow-net", "127.0.0.0/8"];
    let flags = [&to[..], &["--trace-sample", "0"]].concat();
    let shop = start(Store::Sqlite, &collector, "shop", &flags).await;
    order(&shop, "k1", None).await;
    let outcome = receiver.received_at_least(1).await;
    let carried = TraceContext::parse(outcome[0].header("traceparent").unwrap()).unwrap();
    assert!(!carried.is_sampled());
    // A request with a sampled trace is always sampled. When its span has arrived, the export of
    // the first request is finished as well.
    order(&shop, "k2", Some(SENT)).await;
    collector.trace(TRACE, |spans| !spans.is_empty()).await;
    let own = format!("{:032x}", carried.trace_id());
    assert!(
        collector
            .spans()
            .iter()
            .all(|span| span.text("trace_id") != own)
    );
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_no_request() {
    let port = hapax_testkit::port::free_port();
    let down = format!("http://127.0.0.1:{port}");
    let shop = Shop::start(Store::Sqlite, &["--log", "json", "--otlp-endpoint", &down]).await;
    for number in 0..20 {
        assert_eq!(
            order(&shop, &format!("k{number}"), Some(SENT)).await.status,
            201
        );
    }
    eventually(PATIENCE, async || {
        shop.log().contains("spans cannot be exported")
    })
    .await;
    let began = std::time::Instant::now();
    shop.stop().await;
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Checks the span of the request, and returns it.
#[track_caller]
fn check_request(spans: &[Span]) -> Span {
    let request = only(spans, |span| span.is("shop", "POST /orders"));
    assert_eq!(request.parent(), CALLER);
    assert_eq!(request.text("kind"), "SPAN_KIND_SERVER");
    assert_eq!(request.attribute("idempotency.outcome"), "created");
    assert_eq!(request.attribute("http.response.status_code"), 201);
    let hash = request.attribute("idempotency.key_hash").as_str().unwrap();
    assert_eq!(hash, hapax::key::short_hash("k1"));
    request
}

/// Checks the span of the only attempt that delivered the event, and returns it.
#[track_caller]
fn check_delivery(spans: &[Span], request: &Span) -> Span {
    let delivered = only(spans, |span| span.attribute("outcome") == "delivered");
    assert_eq!(delivered.parent(), request.id());
    assert_eq!(delivered.text("kind"), "SPAN_KIND_PRODUCER");
    assert_eq!(delivered.attribute("destination"), "consumer");
    assert_eq!(delivered.attribute("attempt"), 1);
    assert_eq!(delivered.text("status"), "STATUS_CODE_UNSET");
    delivered
}

/// Checks the span of the inbox that accepted the event.
#[track_caller]
fn check_acceptance(spans: &[Span], delivered: &Span) {
    let accepted = only(spans, |span| span.is("consumer", "accept"));
    assert_eq!(accepted.parent(), delivered.id());
    assert_eq!(accepted.text("kind"), "SPAN_KIND_CONSUMER");
    assert_eq!(accepted.attribute("outcome"), "accepted");
    assert_eq!(
        accepted.attribute("event_id"),
        delivered.attribute("event_id")
    );
}

/// Checks the spans of the attempts that were refused, and the headers that came with them.
async fn check_refusals(spans: &[Span], request: &Span, refusing: &HttpReceiver) {
    let mut refused = spans.to_vec();
    refused.retain(|span| span.attribute("destination") == "refusing");
    refused.sort_by_key(|span| span.attribute("attempt").as_i64());
    for (span, attempt) in refused.iter().zip(1..) {
        assert_eq!(span.parent(), request.id());
        assert_eq!(span.attribute("attempt"), attempt);
        assert_eq!(span.attribute("error_type"), "status_5xx");
        assert_eq!(span.text("status"), "STATUS_CODE_ERROR");
    }
    // Each attempt sends its own span id to the receiver.
    let outcome = refusing.received_at_least(2).await;
    for (outcome, span) in outcome.iter().zip(&refused) {
        let context = TraceContext::parse(outcome.header("traceparent").unwrap()).unwrap();
        assert_eq!(format!("{:016x}", context.span_id()), span.id());
    }
}

/// A retry with another trace gets the same response, and its span belongs to the trace of the
/// retry.
async fn check_retry(shop: &Shop, collector: &Collector, first: &HttpResponse) {
    let other = SENT.replace("0af7", "1111");
    let again = order(shop, "k1", Some(&other)).await;
    assert_eq!(lasting(&again), lasting(first));
    let other = TRACE.replace("0af7", "1111");
    let replayed = collector.trace(&other, |it| !it.is_empty()).await;
    assert_eq!(replayed.len(), 1);
    assert_eq!(replayed[0].attribute("idempotency.outcome"), "replayed");
    let hash = hapax::key::short_hash("k1");
    assert_eq!(replayed[0].attribute("idempotency.key_hash"), &hash);
}

async fn start(on: Store, collector: &Collector, service: &str, more: &[&str]) -> Shop {
    let flags = ["--otlp-endpoint", &collector.url, "--service", service];
    Shop::start(on, &[&flags[..], more].concat()).await
}

fn webhook(name: &str, url: &str) -> String {
    format!(
        "[destinations.{name}]\nschedule = [\"0s\", \"50ms\", \"1h\"]\n\
         sink.webhook = {{ url = \"{url}\", secret = \"{SECRET}\", allow = [\"127.0.0.0/8\"] }}\n"
    )
}

async fn order(shop: &Shop, key: &str, traceparent: Option<&str>) -> HttpResponse {
    post(shop, "/orders", key, traceparent, ORDER).await
}

async fn post(
    shop: &Shop,
    path: &str,
    key: &str,
    traceparent: Option<&str>,
    body: &str,
) -> HttpResponse {
    let mut headers = vec![
        JSON,
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", key),
    ];
    headers.extend(traceparent.map(|sent| ("traceparent", sent)));
    shop.send(Method::POST, path, &headers, body).await
}

/// Returns the only span for which this holds.
#[track_caller]
fn only(spans: &[Span], is_it: impl Fn(&Span) -> bool) -> Span {
    let mut found = spans.iter().filter(|span| is_it(span));
    let one = found.next().unwrap_or_else(|| panic!("none: {spans:#?}"));
    assert!(found.next().is_none(), "more than one: {spans:#?}");
    one.clone()
}
