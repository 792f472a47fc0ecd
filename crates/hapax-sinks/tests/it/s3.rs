//! The S3 sink with a server that responds on request.

use std::time::Duration;

use hapax::{
    event::NewEvent,
    sink::{Sink as _, SinkError},
};
use hapax_sinks::{format::TextFormat, s3::S3};
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    moto::Moto,
};
use serde_json::Value;

use crate::{
    events::{DATE, again, all_taken, any_offer, deliver, error_type, ids, offer, offers},
    requests::{check_clock, check_refused},
    sinks,
    tls::{CA, acceptor, serve_with},
};

#[tokio::test]
async fn a_batch_is_one_object_that_is_named_by_its_events() {
    let (receiver, sink) = bucket(|_| {}).await;
    let offers = offers(3, 10);
    all_taken(&sink.deliver(&offers).await);
    let requests = receiver.received();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.method, "PUT");
    let ids = ids(&offers);
    let beginning = format!("/events/2023/11/14/22/{}-{}-", ids[0], ids[2]);
    assert!(request.path.starts_with(&beginning), "{}", request.path);
    assert_eq!(request.path.rsplit('.').next(), Some("jsonl"));
    assert_eq!(request.header("content-type"), Some("application/x-ndjson"));
    assert_eq!(lines(request).len(), 3);
    let found = lines(request).into_iter().map(|line| {
        assert_eq!(line["source"], "/test");
        line["id"].as_str().unwrap().to_owned()
    });
    assert_eq!(found.collect::<Vec<_>>(), ids);
}

/// Whatever a relay did that died before it recorded the outcome, there is one object.
#[tokio::test]
async fn a_batch_that_is_offered_again_replaces_its_object_with_the_same_bytes() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    moto.create_bucket("events").await;
    let endpoint = format!("http://{}", moto.address());
    let sink = sinks::s3(&endpoint, sinks::destination(), |_| {});
    let offers = offers(20, 100);
    all_taken(&sink.deliver(&offers).await);
    let first = moto.objects("events").await;
    all_taken(&sink.deliver(&again(&offers)).await);
    assert_eq!(first.len(), 1);
    assert_eq!(moto.objects("events").await, first);
    assert_eq!(moto.lines("events").await.len(), 20);
}

#[tokio::test]
async fn a_raw_line_is_the_payload() {
    let (receiver, sink) = bucket(|it| it.format = TextFormat::Raw).await;
    let new = NewEvent::new(
        "order.created",
        hapax::event::Payload::Json("{\"a\": 1.0,\n \"b\": 2}".to_owned()),
    );
    deliver(&sink, offer(1, new)).await.unwrap();
    let body = receiver.received()[0].body.clone();
    assert_eq!(body, &b"{\"a\": 1.0,  \"b\": 2}\n"[..]);
}

#[tokio::test]
async fn a_refusal_is_unavailable_and_shows_the_code() {
    let xml = |code: &str| format!("<Error><Code>{code}</Code><Message>hunter2</Message></Error>");
    for (status, code, expected) in [
        (403, "AccessDenied", "login"),
        (403, "SignatureDoesNotMatch", "login"),
        (403, "RequestTimeTooSkewed", "clock"),
        (404, "NoSuchBucket", "no_bucket"),
        (301, "PermanentRedirect", "redirect"),
        (400, "InvalidRequest", "status_4xx"),
        (500, "InternalError", "status_5xx"),
        (503, "SlowDown", "throttled"),
    ] {
        let (receiver, sink) = bucket(|_| {}).await;
        let reply = HttpReply::status(status).header("date", DATE);
        receiver.reply(reply.body(xml(code)));
        check_refused(&receiver, &sink, 2, (status, code, expected)).await;
    }
}

#[tokio::test]
async fn a_refused_signature_is_explained_by_the_clock() {
    let (receiver, sink) = bucket(|_| {}).await;
    let body = "<Error><Code>SignatureDoesNotMatch</Code></Error>";
    check_clock(&receiver, &sink, HttpReply::status(403).body(body)).await;
}

#[tokio::test]
async fn a_service_that_is_overloaded_says_how_long_to_wait() {
    let (receiver, sink) = bucket(|_| {}).await;
    receiver.reply(HttpReply::status(503).header("retry-after", "7"));
    let outcome = deliver(&sink, any_offer()).await;
    let Err(SinkError::Unavailable { retry_after, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_response_without_end_is_cut() {
    let (receiver, sink) = bucket(|_| {}).await;
    for status in [200, 500] {
        receiver.reply(HttpReply::status(status).large_body(1 << 30));
        for outcome in sink.deliver(&offers(2, 1)).await {
            let head = match &outcome {
                Ok(receipt) => &receipt.head,
                Err(error) => &error.receipt().head,
            };
            assert_eq!(outcome.is_ok(), status == 200);
            assert!(head.len() <= 1_024, "{}", head.len());
        }
    }
}

/// A proxy in front of the service may accept less than the service.
#[tokio::test]
async fn an_object_that_is_too_large_is_divided_and_a_single_event_is_declined() {
    let (receiver, sink) = bucket(|_| {}).await;
    receiver.reply_with(|request| {
        let is_large = request.body.len() > 3_000;
        HttpReply::status(if is_large { 413 } else { 200 })
    });
    let mut offers = offers(7, 800);
    let large = NewEvent::json("order.created", &"x".repeat(5_000));
    offers.insert(3, offer(100, large));
    let outcomes = sink.deliver(&offers).await;
    for (index, outcome) in outcomes.iter().enumerate() {
        if index == 3 {
            let is_declined = matches!(outcome, Err(SinkError::Declined { error_type, .. })
                if *error_type == "too_large");
            assert!(is_declined, "{outcome:?}");
        } else {
            assert!(outcome.is_ok(), "{index}: {outcome:?}");
        }
    }
    let taken = receiver.received().into_iter();
    let taken = taken.filter(|request| request.answered == Some(200));
    let stored: Vec<_> = taken.flat_map(|request| lines(&request)).collect();
    assert_eq!(stored.len(), 7);
}

#[tokio::test]
async fn a_batch_of_many_bytes_is_several_objects() {
    let (receiver, sink) = bucket(|_| {}).await;
    let offers = offers(12, 1_000_000);
    all_taken(&sink.deliver(&offers).await);
    let requests = receiver.received();
    let counts: Vec<_> = requests.iter().map(|it| lines(it).len()).collect();
    assert_eq!(counts, [8, 4]);
    assert!(requests.iter().all(|it| it.body.len() <= 8 * 1024 * 1024));
}

/// S3 repeats a session token that it does not accept.
#[tokio::test]
async fn a_session_token_that_is_sent_back_is_masked() {
    let (receiver, sink) = bucket(|it| it.session_token = Some("hunter2-token".into())).await;
    receiver.reply_with(|request| {
        let token = request.header("x-amz-security-token").unwrap();
        let code = "<Code>InvalidToken</Code>";
        HttpReply::status(400).body(format!("<Error>{code}<Token-0>{token}</Token-0></Error>"))
    });
    let error = deliver(&sink, any_offer()).await.unwrap_err();
    let head = String::from_utf8(error.receipt().head.to_vec()).unwrap();
    assert!(head.contains("<Token-0>***</Token-0>"), "{head}");
    assert!(!error.error_chain().contains("hunter2"));
    assert_eq!(error.error_type(), "login");
}

#[tokio::test]
async fn an_endpoint_of_the_own_network_is_reached_only_where_that_is_permitted() {
    let (receiver, sink) = bucket(|it| it.allow.clear()).await;
    assert!(sink.refusal().is_some());
    let outcome = deliver(&sink, any_offer()).await;
    assert_eq!(error_type(outcome), "blocked");
    assert!(receiver.received().is_empty());
    // A name is checked when it is resolved.
    let port = receiver.address().port();
    let endpoint = format!("http://localhost:{port}");
    let sink = sinks::s3(&endpoint, sinks::destination(), |it| it.allow.clear());
    assert_eq!(error_type(deliver(&sink, any_offer()).await), "blocked");
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn a_bucket_is_reached_over_tls_with_an_authority_of_ones_own() {
    for protocols in [&["http/1.1"][..], &["h2"]] {
        let (port, seen) = serve_with(acceptor(protocols)).await;
        let endpoint = format!("https://localhost:{port}");
        let sink = sinks::s3(&endpoint, sinks::destination(), |it| {
            it.ca = Some(CA.into());
        });
        deliver(&sink, any_offer()).await.unwrap();
        let stranger = sinks::s3(&endpoint, sinks::destination(), |_| {});
        assert_eq!(error_type(deliver(&stranger, any_offer()).await), "tls");
        assert_eq!(seen.lock().unwrap().len(), 1);
    }
}

/// A receiver that stores everything, and a sink for it.
async fn bucket(change: impl FnOnce(&mut hapax_sinks::s3::S3Settings)) -> (HttpReceiver, S3) {
    let receiver = HttpReceiver::start().await;
    let sink = sinks::s3(&receiver.url(""), sinks::destination(), change);
    (receiver, sink)
}

fn lines(request: &Received) -> Vec<Value> {
    let text = std::str::from_utf8(&request.body).unwrap();
    let lines = text.lines().map(serde_json::from_str);
    lines.map(Result::unwrap).collect()
}
