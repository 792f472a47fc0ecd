//! The guarantees of the webhook sink, with a receiver that follows or violates HTTP.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use hapax::{
    Timestamp,
    event::{NewEvent, Payload},
    limits::{PAYLOAD_BYTES_MAX, RESPONSE_HEAD_BYTES},
    signature::{Received, Verifier, verify},
    sink::{Outcome, Sink as _, SinkError},
};
use hapax_sinks::webhook::Webhook;

use crate::{
    events::{NOW, any_offer, deliver, offer},
    receiver::{Receiver, Reply, Taken, empty},
    sinks,
};

const OLD: &str = sinks::SECRET;
const NEW: &str = "whsec_plJ3nmyCDGBKInavdOK15jsl3s2nWHpEPL9hCjZ1lFE=";
const SHORT: Duration = Duration::from_secs(1);
/// Longer than every timeout in these tests.
const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_bytes_that_are_sent_are_the_bytes_that_are_signed() {
    let receiver = Receiver::answering("204 No Content").await;
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
    assert_eq!(taken.line, "POST /hooks?a=b HTTP/1.1");
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
    assert!(taken.headers["user-agent"].starts_with("hapax/"));
    assert!(taken.headers["traceparent"].starts_with("00-0af7"));
}

#[tokio::test]
async fn a_header_that_no_request_can_carry_is_left_out() {
    let receiver = Receiver::answering("204 No Content").await;
    let event = NewEvent::json("a", &1).header("traceparent", "é");
    assert!(deliver(&webhook(&receiver), offer(1, event)).await.is_ok());
    assert!(!one(&receiver).headers.contains_key("traceparent"));
}

#[tokio::test]
async fn the_largest_payload_is_sent_whole() {
    let receiver = Receiver::answering("200 OK").await;
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
    let receiver = Receiver::answering("200 OK").await;
    let rotated = |until: Timestamp| {
        sinks::webhook(&receiver.url(), sinks::destination(), |it| {
            it.secret = NEW.into();
            it.previous_secret = Some(OLD.into());
            let until = jiff::Timestamp::from_millisecond(until.as_millis());
            it.previous_until = Some(until.unwrap());
        })
    };
    let later = rotated(NOW.after(Duration::from_secs(1)));
    deliver(&later, any_offer()).await.unwrap();
    deliver(&rotated(NOW), any_offer()).await.unwrap();

    let taken = receiver.taken();
    assert_eq!(check_signature(&taken[0], NEW), Ok(()));
    assert_eq!(check_signature(&taken[0], OLD), Ok(()));
    assert_eq!(check_signature(&taken[1], NEW), Ok(()));
    assert!(check_signature(&taken[1], OLD).is_err());
}

#[tokio::test]
async fn a_redirect_to_the_metadata_address_is_a_failure_and_is_never_followed() {
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 Again",
        "308 Gone There",
    ] {
        let receiver = Receiver::start(move |_, taken| {
            let host = &taken.headers["host"];
            let places = [
                "http://169.254.169.254/latest/",
                &format!("http://{host}/inner"),
            ];
            let place = places[usize::from(status.starts_with("307"))];
            Reply::Send(empty(&format!("{status}\r\nlocation: {place}")))
        })
        .await;
        let failure = failure(deliver(&webhook(&receiver), any_offer()).await);
        assert_eq!(failure, ("redirect", None, status[..3].parse().ok()));
        assert_eq!(receiver.taken().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_endless_body_is_cut_off_at_16_kib_and_a_2xx_stands() {
    let receiver = Receiver::start(|_, taken| {
        let status = if taken.body.ends_with(b"1}") {
            "200 OK"
        } else {
            "500 No"
        };
        Reply::Flood(format!(
            "HTTP/1.1 {status}\r\ncontent-length: 99999999999\r\n\r\n"
        ))
    })
    .await;
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
    let (outcome, took) = timed(Reply::Stall(head.to_owned())).await;
    assert_eq!(outcome.unwrap().head, "abc");
    assert!(took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_2xx_whose_body_is_torn_is_a_success() {
    let head = "HTTP/1.1 201 Created\r\ncontent-length: 10\r\n\r\nabc";
    let (outcome, _) = timed(Reply::Tear(head.to_owned())).await;
    assert_eq!(outcome.unwrap().status, Some(201));
}

#[tokio::test]
async fn a_failure_with_a_slow_body_takes_no_longer_than_the_exchange_may() {
    let head = "HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 10\r\n\r\n";
    let (outcome, took) = timed(Reply::Stall(head.to_owned())).await;
    let asked = Some(Duration::from_secs(7));
    assert_eq!(failure(outcome), ("status_5xx", asked, Some(503)));
    assert!(took < LONG, "{took:?}");
}

#[tokio::test]
async fn a_receiver_that_never_answers_times_out() {
    for begun in ["", "HTTP/1.1 200 OK\r\nx-a: b\r\n"] {
        let (outcome, took) = timed(Reply::Stall(begun.to_owned())).await;
        assert_eq!(failure(outcome), ("timeout", None, None));
        assert!(took >= SHORT && took < LONG, "{took:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_or_has_an_endless_head_is_a_failure() {
    let endless_head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(64 * 1024));
    for text in ["hello\r\n\r\n", "", &endless_head] {
        let (outcome, _) = timed(Reply::Tear(text.to_owned())).await;
        assert_eq!(failure(outcome), ("exchange", None, None));
    }
}

#[tokio::test]
async fn retry_after_in_seconds_and_as_a_date_is_passed_on() {
    check_asked("429 Slow Down\r\nretry-after: 120", "status_4xx", Some(120)).await;
    check_asked("503 Busy\r\nretry-after: 3", "status_5xx", Some(3)).await;
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:50:07 GMT";
    check_asked(&format!("503 Busy\r\n{date}"), "status_5xx", Some(30)).await;
    check_asked("500 No", "status_5xx", None).await;
    check_asked("404 No", "status_4xx", None).await;
    check_asked("999 What", "status_other", None).await;
}

/// An endpoint that objects to the content, size, type or headers of an event may accept other
/// events.
#[tokio::test]
async fn a_status_is_about_the_event_or_about_the_endpoint() {
    for (status, is_of_event) in [
        ("400 No", true),
        ("409 No", true),
        ("413 No", true),
        ("415 No", true),
        ("422 No", true),
        ("431 No", true),
        ("401 No", false),
        ("403 No", false),
        ("404 No", false),
        ("405 No", false),
        ("408 No", false),
        ("429 No", false),
        ("500 No", false),
        ("503 No", false),
    ] {
        let receiver = Receiver::answering(status).await;
        match deliver(&webhook(&receiver), any_offer()).await.unwrap_err() {
            SinkError::Declined { .. } => assert!(is_of_event, "{status}"),
            SinkError::Unavailable { .. } => assert!(!is_of_event, "{status}"),
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_410_says_that_the_endpoint_is_gone() {
    let receiver = Receiver::answering("410 Gone").await;
    let outcome = deliver(&webhook(&receiver), any_offer()).await;
    let Err(SinkError::Gone { receipt, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(receipt.status, Some(410));
}

#[tokio::test]
async fn a_connection_is_used_again_and_a_closed_one_is_replaced() {
    let receiver = Receiver::start(|number, _| match number {
        9 => Reply::Tear(empty("200 OK\r\nconnection: close")),
        _ => Reply::Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned()),
    })
    .await;
    let webhook = webhook(&receiver);
    for number in 0..20 {
        deliver(&webhook, offer(number, NewEvent::json("a", &number)))
            .await
            .unwrap();
    }
    assert_eq!(receiver.taken().len(), 20);
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_batch_is_offered_at_once_and_answered_in_order() {
    let receiver = Receiver::start(|_, taken| {
        let slow = taken.body.ends_with(b":0}");
        let status = if slow { "500 No" } else { "200 OK" };
        if slow {
            Reply::Stall(format!("HTTP/1.1 {status}\r\ncontent-length: 1\r\n\r\n"))
        } else {
            Reply::Send(empty(status))
        }
    })
    .await;
    let webhook = sinks::webhook(&receiver.url(), sinks::within(SHORT), |_| {});
    let offers: Vec<_> = (0..8).map(|n| offer(n, NewEvent::json("a", &n))).collect();
    let outcomes = webhook.deliver(&offers).await;
    assert_eq!(outcomes.len(), 8);
    assert!(outcomes[0].is_err() && outcomes[1..].iter().all(Result::is_ok));
    assert!(webhook.deliver(&[]).await.is_empty());
}

#[tokio::test]
async fn a_place_where_nobody_listens_or_that_has_no_address_is_unavailable() {
    let receiver = Receiver::answering("200 OK").await;
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = closed.local_addr().unwrap();
    drop(closed);
    for (url, error_type) in [
        (format!("http://{address}/"), "connect"),
        ("http://nothing.invalid/".to_owned(), "resolve"),
        (format!("https://{}/", receiver.address), "tls"),
    ] {
        let webhook = sinks::webhook(&url, sinks::destination(), |_| {});
        assert_eq!(
            failure(deliver(&webhook, any_offer()).await).0,
            error_type,
            "{url}"
        );
    }
}

/// Offers once, with a short timeout, to a receiver that reacts with `reply`.
async fn timed(reply: Reply) -> (Outcome, Duration) {
    let reply = std::sync::Mutex::new(Some(reply));
    let receiver = Receiver::start(move |_, _| {
        let reply = reply.lock().unwrap().take();
        reply.unwrap_or(Reply::Tear(String::new()))
    })
    .await;
    let webhook = sinks::webhook(&receiver.url(), sinks::within(SHORT), |_| {});
    let begun = Instant::now();
    let outcome = deliver(&webhook, any_offer()).await;
    (outcome, begun.elapsed())
}

async fn check_asked(head: &str, error_type: &str, asked: Option<u64>) {
    let text = empty(head);
    let receiver = Receiver::start(move |_, _| Reply::Send(text.clone())).await;
    let failure = failure(deliver(&webhook(&receiver), any_offer()).await);
    let asked = asked.map(Duration::from_secs);
    assert_eq!((failure.0, failure.1), (error_type, asked), "{head}");
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
    let received = Received {
        id: &taken.headers["webhook-id"],
        timestamp: &taken.headers["webhook-timestamp"],
        signature: &taken.headers["webhook-signature"],
        body: &taken.body,
    };
    let keys: [Verifier; 1] = [key.parse().unwrap()];
    verify(&received, &keys, NOW, Duration::ZERO)
}

#[track_caller]
fn one(receiver: &Receiver) -> Taken {
    let mut taken = receiver.taken();
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}

fn webhook(receiver: &Receiver) -> Webhook {
    sinks::webhook(&receiver.url(), sinks::destination(), |_| {})
}
