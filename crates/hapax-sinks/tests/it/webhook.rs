//! The guarantees of the webhook sink, with a receiver that follows or violates HTTP.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;

use hapax::{
    Timestamp,
    event::{NewEvent, Payload},
    limits::{PAYLOAD_BYTES_MAX, RESPONSE_HEAD_BYTES},
    signature::{Received, Verifier, verify},
    sink::{Outcome, Sink as _, SinkError},
};
use hapax_sinks::{
    limits::SHARED_IDLE_CONNECTIONS_MAX,
    webhook::{SharedTls, Webhook, WebhookSettings},
};
use hapax_testkit::{
    http::{End, HttpReceiver, HttpReply, Received as Taken},
    wait::eventually,
};
use http::{Method, Version};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Barrier,
};

use crate::{
    events::{NOW, PATIENCE, any_offer, clock, deliver, offer},
    sinks,
};

const OLD: &str = sinks::SECRET;
const PATH: &str = "/hooks?a=b";
const NEW: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl3s2nWHpEPL9hCjZ1lFE=";
const SHORT: Duration = Duration::from_secs(1);
/// Longer than every timeout in these tests.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_bytes_that_are_sent_are_the_bytes_that_are_signed() {
    let receiver = answering(204).await;
    let payload =
        Payload::Json("{ \"n\":1.0,\n\"n\": 9007199254740993, \"é\":\"\\u00e9\"}".to_owned());
    let event = NewEvent::new("order.created", payload.clone());
    let event = event.header(
        "traceparent",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    );
    let offer = offer(1, event);
    let receipt = deliver(&webhook(&receiver), offer.clone()).await.unwrap();
    assert_eq!(receipt.status, Some(204));

    let taken = one(&receiver);
    assert_eq!((&taken.method, &*taken.path), (&Method::POST, PATH));
    assert_eq!(taken.version, Version::HTTP_11);
    let expected = [
        b"{\"type\":\"order.created\",\"timestamp\":\"2023-11-14T22:13:20.000Z\",\"data\":"
            .as_slice(),
        payload.bytes(),
        b"}",
    ];
    assert_eq!(taken.body, expected.concat());
    assert_eq!(check_signature(&taken, OLD), Ok(()));
    assert_eq!(taken.headers["webhook-id"], offer.event().id.to_string());
    assert_eq!(taken.headers["webhook-timestamp"], "1700000000");
    assert_eq!(taken.headers["content-type"], "application/json");
    let starts = |name, start| taken.header(name).unwrap().starts_with(start);
    assert!(starts("user-agent", "hapax/"));
    assert!(starts("traceparent", "00-0af7"));
}

#[tokio::test]
async fn a_webhook_that_shares_its_certificates_keeps_few_idle_connections() {
    const COUNT: usize = 6;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = WebhookSettings {
        url: format!("http://{}/", listener.local_addr().unwrap()),
        secret: sinks::SECRET.into(),
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        ..WebhookSettings::default()
    };
    let (barrier, closed) = (Arc::new(Barrier::new(COUNT)), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&closed);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (barrier, closed) = (Arc::clone(&barrier), Arc::clone(&counted));
            tokio::spawn(async move {
                answer_together(stream, &barrier).await;
                closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    let tls = SharedTls::new(None).unwrap();
    let shared = Webhook::sharing(&settings, sinks::destination(), clock(), &tls).unwrap();
    let offer = any_offer();
    let delivered = join_all((0..COUNT).map(|_| shared.deliver_one(&offer))).await;
    assert!(delivered.iter().all(|(outcome, _)| outcome.is_ok()));
    let rest = COUNT - SHARED_IDLE_CONNECTIONS_MAX;
    eventually(PATIENCE, async || closed.load(Ordering::SeqCst) == rest).await;
}

/// Responds to one request when as many have arrived as the barrier waits for. Returns when the
/// connection is closed.
async fn answer_together(mut stream: TcpStream, barrier: &Barrier) {
    let mut request = Vec::new();
    while !request.windows(4).any(|it| it == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            return;
        }
    }
    barrier.wait().await;
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    while stream.read_buf(&mut request).await.unwrap_or(0) > 0 {}
}

#[tokio::test]
async fn a_header_that_no_request_can_carry_is_left_out() {
    let receiver = answering(204).await;
    let event = NewEvent::json("a", &1).header("traceparent", "é");
    assert!(deliver(&webhook(&receiver), offer(1, event)).await.is_ok());
    assert!(!one(&receiver).headers.contains_key("traceparent"));
}

#[tokio::test]
async fn the_largest_payload_is_sent_whole() {
    let receiver = answering(200).await;
    let text = "x".repeat(PAYLOAD_BYTES_MAX - 2);
    let offer = offer(1, NewEvent::json("a", &text));
    deliver(&webhook(&receiver), offer).await.unwrap();
    let taken = one(&receiver);
    assert!(taken.body.ends_with(format!("\"{text}\"}}").as_bytes()));
    assert_eq!(check_signature(&taken, OLD), Ok(()));
}

#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    // Nothing listens on port 9, so a delivery through this proxy would fail.
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", "webhook::the_largest_payload_is_sent_whole"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        test.env(name, "http://127.0.0.1:9");
    }
    let output = test
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[tokio::test]
async fn a_rotation_signs_with_both_keys_until_the_old_one_ends() {
    let receiver = answering(200).await;
    let rotated = |until: Timestamp| {
        sinks::webhook(&receiver.url(PATH), sinks::destination(), |it| {
            it.secret = NEW.into();
            it.previous_secret = Some(OLD.into());
            let until = jiff::Timestamp::from_millisecond(until.as_millis());
            it.previous_until = Some(until.unwrap());
        })
    };
    let later = rotated(NOW.after(Duration::from_secs(1)));
    deliver(&later, any_offer()).await.unwrap();
    deliver(&rotated(NOW), any_offer()).await.unwrap();

    let taken = receiver.received();
    assert_eq!(check_signature(&taken[0], NEW), Ok(()));
    assert_eq!(check_signature(&taken[0], OLD), Ok(()));
    assert_eq!(check_signature(&taken[1], NEW), Ok(()));
    assert!(check_signature(&taken[1], OLD).is_err());
}

#[tokio::test]
async fn a_redirect_to_the_metadata_address_is_a_failure_and_is_never_followed() {
    for status in [301, 302, 303, 307, 308] {
        let receiver = HttpReceiver::start().await;
        let place = match status {
            307 => receiver.url("/inner"),
            _ => "http://169.254.169.254/latest/".to_owned(),
        };
        receiver.reply(HttpReply::status(status).header("location", &place));
        let failure = failure(deliver(&webhook(&receiver), any_offer()).await);
        assert_eq!(failure, ("redirect", None, Some(status)));
        assert_eq!(receiver.received().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_at_16_kib_and_a_2xx_stands() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(|taken| {
        let is_first = taken.body.ends_with(b"1}");
        let status = if is_first { "200 OK" } else { "500 No" };
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: 99999999999\r\n\r\n");
        HttpReply::raw(head, End::Flood)
    });
    let webhook = webhook(&receiver);
    let receipt = deliver(&webhook, offer(1, NewEvent::json("a", &1)))
        .await
        .unwrap();
    assert_eq!(receipt.head.len(), RESPONSE_HEAD_BYTES);
    let error = deliver(&webhook, offer(2, NewEvent::json("a", &2)))
        .await
        .unwrap_err();
    assert_eq!(error.error_type(), "status_5xx");
    assert_eq!(error.receipt().head.len(), RESPONSE_HEAD_BYTES);
}

#[tokio::test]
async fn a_2xx_with_a_slow_body_is_a_success_when_the_time_is_up() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc";
    let (outcome, took) = timed(head, End::Stall).await;
    assert_eq!(outcome.unwrap().head, "abc");
    assert!(took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_2xx_whose_body_is_torn_is_a_success() {
    let head = "HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nabc";
    let (outcome, _) = timed(head, End::Close).await;
    assert_eq!(outcome.unwrap().status, Some(201));
}

#[tokio::test]
async fn a_failure_with_a_slow_body_takes_no_longer_than_the_exchange_may() {
    let head = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 10\r\n\r\n";
    let (outcome, took) = timed(head, End::Stall).await;
    let asked = Some(Duration::from_secs(7));
    assert_eq!(failure(outcome), ("status_5xx", asked, Some(503)));
    assert!(took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_receiver_that_never_answers_times_out() {
    for begun in ["", "HTTP/1.1 200 OK\r\nx-a: b\r\n"] {
        let (outcome, took) = timed(begun, End::Stall).await;
        assert_eq!(failure(outcome), ("timeout", None, None));
        assert!(took >= SHORT && took < LONG, "{took:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_or_has_an_endless_head_is_a_failure() {
    let endless_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    for text in ["hello\r\n\r\n", "", &endless_head] {
        let (outcome, _) = timed(text, End::Close).await;
        assert_eq!(failure(outcome), ("exchange", None, None));
    }
}

#[tokio::test]
async fn retry_after_in_seconds_and_as_a_date_is_passed_on() {
    let after = |status, asked| HttpReply::status(status).header("retry-after", asked);
    check_asked(after(429, "120"), "status_4xx", Some(120)).await;
    check_asked(after(503, "3"), "status_5xx", Some(3)).await;
    let later = after(503, "Sun, 06 Nov 1994 08:50:07 GMT");
    let dated = later.header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    check_asked(dated, "status_5xx", Some(30)).await;
    check_asked(HttpReply::status(500), "status_5xx", None).await;
    check_asked(HttpReply::status(404), "status_4xx", None).await;
    check_asked(HttpReply::status(999), "status_other", None).await;
}

/// An endpoint that objects to the content, size, type or headers of an event may accept other
/// events.
#[tokio::test]
async fn a_status_is_about_the_event_or_about_the_endpoint() {
    let of_event = [400, 409, 413, 415, 422, 431].map(|status| (status, true));
    let of_endpoint = [401, 403, 404, 405, 408, 429, 500, 503].map(|status| (status, false));
    for (status, is_of_event) in of_event.into_iter().chain(of_endpoint) {
        let receiver = answering(status).await;
        match deliver(&webhook(&receiver), any_offer()).await.unwrap_err() {
            SinkError::Declined { .. } => assert!(is_of_event, "{status}"),
            SinkError::Unavailable { .. } => assert!(!is_of_event, "{status}"),
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_410_says_that_the_endpoint_is_gone() {
    let receiver = answering(410).await;
    let outcome = deliver(&webhook(&receiver), any_offer()).await;
    let Err(SinkError::Gone { receipt, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(receipt.status, Some(410));
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_replaced() {
    let receiver = HttpReceiver::start().await;
    for _ in 0..9 {
        receiver.reply_next(HttpReply::status(200).body("ok"));
    }
    receiver.reply_next(HttpReply::status(200).header("connection", "close"));
    receiver.reply(HttpReply::status(200).body("ok"));
    let webhook = webhook(&receiver);
    for number in 0..20 {
        deliver(&webhook, offer(number, NewEvent::json("a", &number)))
            .await
            .unwrap();
    }
    assert_eq!(receiver.received().len(), 20);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_batch_is_offered_at_once_and_answered_in_order() {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(|taken| {
        if taken.body.ends_with(b":0}") {
            let slow = "HTTP/1.1 500 No\r\ncontent-length: 1\r\n\r\n";
            return HttpReply::raw(slow, End::Stall);
        }
        HttpReply::status(200)
    });
    let webhook = impatient(&receiver);
    let offers: Vec<_> = (0..8).map(|n| offer(n, NewEvent::json("a", &n))).collect();
    let outcomes = webhook.deliver(&offers).await;
    assert_eq!(outcomes.len(), 8);
    assert!(outcomes[0].is_err() && outcomes[1..].iter().all(Result::is_ok));
    assert!(webhook.deliver(&[]).await.is_empty());
}

#[tokio::test]
async fn a_place_where_nobody_listens_or_that_has_no_address_is_unavailable() {
    let receiver = answering(200).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    for (url, error_type) in [
        (format!("http://{address}/"), "connect"),
        ("http://nothing.invalid/".to_owned(), "resolve"),
        (format!("https://{}/", receiver.address()), "tls"),
    ] {
        let webhook = sinks::webhook(&url, sinks::destination(), |_| {});
        assert_eq!(
            failure(deliver(&webhook, any_offer()).await).0,
            error_type,
            "{url}"
        );
    }
}

/// Offers once, with a short timeout, to a receiver that sends these bytes and ends the connection.
async fn timed(bytes: &str, end: End) -> (Outcome, Duration) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_next(HttpReply::raw(bytes.to_owned(), end));
    receiver.reply(HttpReply::closed());
    let webhook = impatient(&receiver);
    let begun = Instant::now();
    let outcome = deliver(&webhook, any_offer()).await;
    (outcome, begun.elapsed())
}

async fn check_asked(reply: HttpReply, error_type: &str, asked: Option<u64>) {
    let receiver = HttpReceiver::start().await;
    receiver.reply(reply.clone());
    let failure = failure(deliver(&webhook(&receiver), any_offer()).await);
    let asked = asked.map(Duration::from_secs);
    assert_eq!((failure.0, failure.1), (error_type, asked), "{reply:?}");
}

/// A receiver that responds with this status to every request.
async fn answering(status: u16) -> HttpReceiver {
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(status));
    receiver
}

#[track_caller]
fn failure(outcome: Outcome) -> (&'static str, Option<Duration>, Option<u16>) {
    match outcome {
        Err(SinkError::Unavailable {
            retry_after,
            error_type,
            receipt,
            ..
        }) => (error_type, retry_after, receipt.status),
        other => panic!("{other:?}"),
    }
}

fn check_signature(taken: &Taken, key: &str) -> Result<(), hapax::signature::VerifyError> {
    let header = |name| taken.header(name).unwrap();
    let received = Received {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
        body: &taken.body,
    };
    let keys: [Verifier; 1] = [key.parse().unwrap()];
    verify(&received, &keys, NOW, Duration::ZERO)
}

#[track_caller]
fn one(receiver: &HttpReceiver) -> Taken {
    let mut taken = receiver.received();
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}

fn webhook(receiver: &HttpReceiver) -> Webhook {
    sinks::webhook(&receiver.url(PATH), sinks::destination(), |_| {})
}

/// A sink with a short timeout.
fn impatient(receiver: &HttpReceiver) -> Webhook {
    sinks::webhook(&receiver.url(PATH), sinks::within(SHORT), |_| {})
}
