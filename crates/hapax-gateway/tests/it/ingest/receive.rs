//! Tests of received webhooks: the event, its duplicates, and what is refused.
//!
//! Each test has its own SQLite store and reads the outbox.

use std::{io, time::Duration};

use axum::body::{Body, Bytes};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{Stream, stream};
use hapax::{
    event::Payload,
    key::{Tenant, hex},
};
use http::{Method, Request, StatusCode};
use metrics_exporter_prometheus::PrometheusBuilder;
use ring::hmac;
use serde_json::{Value, json};

use super::fixture::{BODY_MAX, Fixture, SECRET, TWILIO_URL, adyen_item, send, tag};

const BODY: &str = "{ \"id\": \"evt_1\",\n \"type\": \"invoice.paid\", \"amount\": 1.0 }";

#[tokio::test]
async fn a_verified_webhook_is_one_event_with_its_bytes() {
    let fixture = Fixture::new();
    let sent = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
    assert_eq!(sent.status, StatusCode::OK);
    assert_eq!(
        (sent.body.as_str(), sent.header("idempotency-status")),
        ("", None)
    );
    let events = fixture.events().await;
    assert_eq!(events.len(), 1);
    let event = &events[0];
    assert_eq!(event.kind, "payments.invoice.paid");
    assert_eq!(event.payload, Payload::Json(BODY.to_owned()));
    assert_eq!(event.tenant.as_ref().map(Tenant::as_str), Some("shop"));
    let headers: Vec<_> = event.headers.iter().map(|(a, b)| (&**a, &**b)).collect();
    let content_type = "application/json; charset=utf-8";
    assert_eq!(
        headers,
        [
            ("correlation_id", "c-1"),
            ("ingest_content_type", content_type),
            ("ingest_id", "evt_1"),
            ("ingest_source", "stripe"),
        ]
    );
}

#[tokio::test]
async fn a_repeated_delivery_is_acknowledged_and_is_no_second_event() {
    let mut fixture = Fixture::new();
    fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
    // Providers sign every attempt separately.
    fixture.clock.advance(Duration::from_hours(1));
    for _ in 0..2 {
        let again = fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
        assert_eq!(again.status, StatusCode::OK);
        assert_eq!(again.header("idempotency-status"), Some("replayed"));
        // Another process knows it too.
        fixture.reopen().await;
    }
    assert_eq!(fixture.events().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_one_delivery_is_one_event() {
    let fixture = Fixture::new();
    let storm: Vec<_> = (0..100)
        .map(|_| {
            let (ingest, request) = (fixture.ingest.clone(), fixture.stripe(SECRET, BODY));
            tokio::spawn(async move { send(&ingest, "stripe", request).await })
        })
        .collect();
    let mut new = 0;
    for sent in storm {
        let sent = sent.await.unwrap();
        assert_eq!(sent.status, StatusCode::OK);
        new += usize::from(sent.header("idempotency-status").is_none());
    }
    assert_eq!((new, fixture.events().await.len()), (1, 1));
}

#[test]
fn a_known_id_with_another_body_is_a_duplicate_and_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let run = async {
        let fixture = Fixture::new();
        fixture.send("stripe", fixture.stripe(SECRET, BODY)).await;
        let anew = BODY.replace(' ', "");
        let again = fixture.send("stripe", fixture.stripe(SECRET, &anew)).await;
        assert_eq!(again.status, StatusCode::OK);
        assert_eq!(fixture.events().await.len(), 1);
        fixture.send("stripe", fixture.stripe("other", BODY)).await;
        fixture.send("planted", fixture.stripe(SECRET, BODY)).await;
    };
    metrics::with_local_recorder(&recorder, || runtime.block_on(run));
    let counted = handle.render();
    for (source, outcome) in [
        ("stripe", "accepted"),
        ("stripe", "mismatch"),
        ("stripe", "refused"),
        ("unknown", "refused"),
    ] {
        let labels = [
            format!("source=\"{source}\""),
            format!("outcome=\"{outcome}\""),
        ];
        let is_it = |line: &&str| {
            let is_once = line.starts_with("hapax_ingest_messages_total") && line.ends_with(" 1");
            is_once && labels.iter().all(|label| line.contains(label))
        };
        assert_eq!(
            counted.lines().filter(is_it).count(),
            1,
            "{labels:?} {counted}"
        );
    }
    assert!(!counted.contains("planted"), "{counted}");
}

#[tokio::test]
async fn what_is_not_signed_by_its_source_leaves_nothing() {
    let fixture = Fixture::new();
    let refused = |request| fixture.send("stripe", request);
    let other = refused(fixture.stripe("other", BODY)).await;
    other.check_refused(401, "AUTH.signature");
    let mut altered = fixture.stripe(SECRET, BODY);
    *altered.body_mut() = Body::from(BODY.replace("1.0", "2.0"));
    let altered = refused(altered).await;
    altered.check_refused(401, "AUTH.signature");
    // The responses are the same for every reason.
    assert_eq!(altered.body, other.body);
    let mut old = fixture.stripe(SECRET, BODY);
    let value = old.headers()["stripe-signature"].to_str().unwrap();
    let value = value.replacen("t=1", "t=0", 1).parse().unwrap();
    old.headers_mut().insert("stripe-signature", value);
    refused(old).await.check_refused(401, "AUTH.signature");
    let mut without = fixture.stripe(SECRET, BODY);
    without.headers_mut().remove("stripe-signature");
    refused(without).await.check_refused(401, "AUTH.signature");
    let mut twice = fixture.stripe(SECRET, BODY);
    let value = "t=1,v1=00".parse().unwrap();
    twice.headers_mut().append("stripe-signature", value);
    refused(twice)
        .await
        .check_refused(400, "VALIDATION.request");
    refused(fixture.stripe(SECRET, "{}"))
        .await
        .check_refused(400, "VALIDATION.request");
    assert_eq!(fixture.events().await.len(), 0);
}

#[tokio::test]
async fn an_unknown_source_another_method_and_a_long_body_are_refused() {
    let fixture = Fixture::new();
    for source in ["other", "", "Stripe", "../stripe"] {
        let sent = fixture.send(source, fixture.stripe(SECRET, BODY)).await;
        sent.check_refused(404, "NOT_FOUND");
    }
    let mut get = fixture.stripe(SECRET, BODY);
    *get.method_mut() = Method::GET;
    let sent = fixture.send("stripe", get).await;
    sent.check_refused(405, "VALIDATION.method");
    assert_eq!(sent.header("allow"), Some("POST"));
    let long = "x".repeat(BODY_MAX + 1);
    let sent = fixture.send("stripe", fixture.stripe(SECRET, &long)).await;
    sent.check_refused(413, "VALIDATION.body.too_large");
    let mut streamed = fixture.stripe(SECRET, &long);
    // The length of a stream is not announced.
    *streamed.body_mut() = Body::from_stream(chunks(&long));
    let sent = fixture.send("stripe", streamed).await;
    sent.check_refused(413, "VALIDATION.body.too_large");
    assert_eq!(fixture.events().await.len(), 0);
}

#[tokio::test]
async fn a_body_that_is_no_json_is_kept_byte_for_byte() {
    let fixture = Fixture::new();
    let body = b"MessageSid=SM1&MessageStatus=sent&Body=%FF+%C3";
    let text = [
        TWILIO_URL.as_bytes(),
        b"Body\xff \xc3MessageSidSM1MessageStatussent",
    ]
    .concat();
    let sha1 = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
    let key = hmac::Key::new(sha1, SECRET.as_bytes());
    let request = || {
        Request::post("/in/twilio")
            .header("content-type", "application/x-www-form-urlencoded")
            .header(
                "x-twilio-signature",
                STANDARD.encode(hmac::sign(&key, &text)),
            )
            .body(Body::from(body.to_vec()))
            .unwrap()
    };
    let sent = fixture.send("twilio", request()).await;
    assert_eq!(
        (sent.status, sent.body.as_str()),
        (StatusCode::OK, "<Response/>")
    );
    assert_eq!(sent.header("content-type"), Some("text/xml"));
    fixture.send("twilio", request()).await;
    let events = fixture.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "twilio.message.sent");
    assert_eq!(events[0].payload.bytes(), body);
    let media_type = "application/x-www-form-urlencoded";
    assert_eq!(events[0].payload.content_type(), media_type);
}

#[tokio::test]
async fn every_notification_of_a_batch_is_an_event_once() {
    let fixture = Fixture::new();
    let request = |references: &[&str]| {
        let items: Vec<Value> = references.iter().map(|it| adyen_item(it)).collect();
        let body = json!({ "live": "true", "notificationItems": items }).to_string();
        let request = Request::post("/in/adyen").header("content-type", "application/json");
        request.body(Body::from(body)).unwrap()
    };
    for references in [&["a"][..], &["a", "b"], &["b", "c", "c"], &["c"]] {
        let sent = fixture.send("adyen", request(references)).await;
        assert_eq!(
            (sent.status, sent.body.as_str()),
            (StatusCode::OK, "[accepted]")
        );
    }
    let events = fixture.events().await;
    let ids: Vec<_> = events.iter().map(|it| &*it.headers["ingest_id"]).collect();
    assert_eq!(ids, ["CAPTURE:a:true", "CAPTURE:b:true", "CAPTURE:c:true"]);
    for event in &events {
        let payload: Value = serde_json::from_slice(event.payload.bytes()).unwrap();
        assert_eq!(payload["live"], "true");
        assert_eq!(payload["notificationItems"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_handshake_gets_its_challenge_and_is_no_event() {
    let fixture = Fixture::new();
    let body = r#"{"type":"url_verification","challenge":"3eZbrw1a"}"#;
    let now = fixture.clock.now().as_secs();
    let signature = |secret: &str| {
        let text = format!("v0:{now}:{body}");
        format!(
            "v0={}",
            hex(tag(secret.as_bytes(), text.as_bytes()).as_ref())
        )
    };
    let request = |secret: &str| {
        Request::post("/in/slack")
            .header("content-type", "application/json")
            .header("x-slack-request-timestamp", now)
            .header("x-slack-signature", signature(secret))
            .body(Body::from(body))
            .unwrap()
    };
    let sent = fixture.send("slack", request(SECRET)).await;
    assert_eq!(
        (sent.status, sent.body.as_str()),
        (StatusCode::OK, "3eZbrw1a")
    );
    let refused = fixture.send("slack", request("other")).await;
    refused.check_refused(401, "AUTH.signature");
    assert_eq!(fixture.events().await.len(), 0);
}

/// The text as a stream of chunks.
fn chunks(text: &str) -> impl Stream<Item = io::Result<Bytes>> + use<> {
    let chunks = text.as_bytes().chunks(100);
    let chunks: Vec<_> = chunks.map(|it| Ok(Bytes::copy_from_slice(it))).collect();
    stream::iter(chunks)
}
