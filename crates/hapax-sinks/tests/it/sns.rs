//! The SNS sink with a server that responds on request, and with topics that a queue is subscribed
//! to.

use std::{collections::BTreeMap, fmt::Write as _};

use hapax::{
    event::NewEvent,
    key::Tenant,
    sink::{Sink as _, SinkError},
};
use hapax_sinks::sns::Sns;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    moto::Moto,
};
use serde_json::Value;

use crate::{
    events::{again, all_taken, deliver, error_type, ids, offer, offers, postponed, rejected},
    requests::{check_clock, check_order, check_refused, check_size, check_slow, check_spoilt},
    sinks,
};

const TOPIC: &str = "arn:aws:sns:us-east-1:123456789012:events";

#[tokio::test]
async fn a_batch_is_one_request_of_at_most_ten_messages_and_a_single_event_one_without_entries() {
    let (receiver, sink) = topic().await;
    let offers = offers(11, 10);
    all_taken(&sink.deliver(&offers).await);
    let requests = receiver.received();
    assert_eq!(requests.len(), 2);
    for (request, action) in requests.iter().zip(["PublishBatch", "Publish"]) {
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/")
        );
        assert_eq!(
            request.header("content-type"),
            Some("application/x-www-form-urlencoded; charset=utf-8")
        );
        let form = form(request);
        assert_eq!(form["Action"], action);
        assert_eq!(form["TopicArn"], TOPIC);
        assert!(!form.keys().any(|name| name.ends_with("MessageGroupId")));
    }
    let messages: Vec<_> = requests.iter().flat_map(messages).collect();
    let sent_ids = messages.iter().map(|message| {
        let body: Value = serde_json::from_str(&message["Message"]).unwrap();
        let id = attribute(message, "id").unwrap();
        assert_eq!(body["id"], id);
        id
    });
    assert_eq!(sent_ids.collect::<Vec<_>>(), ids(&offers));
}

#[tokio::test]
async fn a_request_has_at_most_256_kib_and_a_larger_message_is_rejected_unsent() {
    let (receiver, sink) = topic().await;
    check_size(&receiver, &sink, |it| messages(it).len()).await;
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_own_outcome() {
    let (receiver, sink) = topic().await;
    let failed = |id: u8, is_sender: bool, code: &str, text: &str| {
        format!(
            "<member><Id>{id}</Id><Code>{code}</Code><Message>{text} hunter2</Message>\
             <SenderFault>{is_sender}</SenderFault></member>"
        )
    };
    let body = [
        "<PublishBatchResponse><PublishBatchResult><Successful>",
        "<member><Id>0</Id><MessageId>m</MessageId></member></Successful><Failed>",
        &failed(1, true, "InvalidParameter", "Message too long"),
        &failed(2, true, "InvalidParameter", "MessageAttributes"),
        &failed(3, false, "InternalError", ""),
        &failed(4, true, "AuthorizationError", ""),
        // No message of the request has this id.
        &failed(9, true, "InvalidParameter", "Message too long"),
        "</Failed></PublishBatchResult></PublishBatchResponse>",
    ];
    receiver.reply(HttpReply::status(200).body(body.concat()));
    let outcomes = sink.deliver(&offers(6, 1)).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    rejected(&outcomes[1], "too_large");
    let is_declined = matches!(outcomes[2], Err(SinkError::Declined { .. }));
    assert!(is_declined, "{outcomes:?}");
    let chain = postponed(&outcomes[3], "status_5xx");
    assert!(
        chain.contains("InternalError") && !chain.contains("hunter2"),
        "{chain}"
    );
    postponed(&outcomes[4], "login");
    // The response does not mention the last message.
    postponed(&outcomes[5], "answer");
}

/// Some services refuse a whole batch because of one message.
#[tokio::test]
async fn a_message_that_spoils_its_batch_is_found_and_the_others_are_sent() {
    let (receiver, sink) = topic().await;
    receiver.reply_with(|request| {
        let sent = messages(request);
        let contains = |text: &str| sent.iter().any(|it| it["Message"].contains(text));
        if contains("spoilt") {
            refusal(400, "InvalidParameter", "Invalid parameter: Message")
        } else if contains("lengthy") {
            refusal(
                400,
                "InvalidParameter",
                "Invalid parameter: Message too long",
            )
        } else {
            stored(request)
        }
    });
    check_spoilt(&sink).await;
}

#[tokio::test]
async fn a_topic_that_takes_nothing_is_unavailable_and_asked_once() {
    for (status, code, text, expected) in [
        (404, "NotFound", "Topic does not exist", "no_topic"),
        (
            400,
            "InvalidParameter",
            "Invalid parameter: TopicArn",
            "no_topic",
        ),
        (403, "AuthorizationError", "", "login"),
        (403, "InvalidClientTokenId", "", "login"),
        (400, "KMSDisabled", "", "status_4xx"),
        (429, "Throttled", "", "throttled"),
        (400, "Throttling", "", "throttled"),
        (500, "InternalError", "", "status_5xx"),
        (503, "ServiceUnavailable", "", "throttled"),
    ] {
        let (receiver, sink) = topic().await;
        receiver.reply(refusal(status, code, text));
        check_refused(&receiver, &sink, 25, (status, code, expected)).await;
    }
}

#[tokio::test]
async fn a_refused_signature_is_explained_by_the_clock() {
    let (receiver, sink) = topic().await;
    check_clock(&receiver, &sink, refusal(403, "SignatureDoesNotMatch", "")).await;
}

#[tokio::test]
async fn a_response_that_is_not_that_of_a_topic_delivers_nothing() {
    for reply in [
        HttpReply::status(200),
        HttpReply::status(200).body("<html>it works</html>"),
        HttpReply::status(200).body("<PublishResponse><PublishResult><MessageId>m</Mess"),
        HttpReply::status(200).body("<PublishBatchResult><Successful><member><Id>0</Id>"),
        HttpReply::status(200).large_body(1 << 30),
    ] {
        for count in [1, 2] {
            let (receiver, sink) = topic().await;
            receiver.reply(reply.clone());
            for outcome in sink.deliver(&offers(count, 1)).await {
                assert_eq!(error_type(outcome), "answer");
            }
        }
    }
}

#[tokio::test]
async fn a_slow_topic_costs_the_timeout() {
    check_slow(25, |receiver, destination| {
        sinks::sns(&receiver.url(""), TOPIC, destination, |_| {})
    })
    .await;
}

#[tokio::test]
async fn what_a_subscribed_queue_would_refuse_is_rejected_by_name_and_unsent() {
    let (receiver, sink) = topic().await;
    let outcome = deliver(&sink, offer(1, NewEvent::json("a", &"\u{ffff}"))).await;
    let chain = rejected(&outcome, "content");
    assert!(
        chain.contains("payload contains U+FFFE or U+FFFF"),
        "{chain}"
    );
    assert!(receiver.received().is_empty());
}

#[tokio::test]
async fn hostile_tenants_types_and_keys_reach_the_queue_as_they_are() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    let sink = subscribed(&moto, "events.fifo").await;
    let hostile = "a&TopicArn=b&Action=DeleteTopic+%00\"<Id>0</Id>\u{e9}\u{1f980}";
    let new = |number: u64| {
        NewEvent::json("order/created:v1_2-x", &hostile)
            .about("order", format!("{hostile} {number}"))
            .header("correlation_id", hostile)
            .tenant(Tenant::new(hostile).unwrap())
    };
    let offers: Vec<_> = (1..=3).map(|number| offer(number, new(number))).collect();
    all_taken(&sink.deliver(&offers[..1]).await);
    all_taken(&sink.deliver(&offers[1..]).await);
    let received = moto.receive("events.fifo").await;
    assert_eq!(received.len(), 3);
    for (message, offer) in received.iter().zip(&offers) {
        let attribute = |name: &str| message["MessageAttributes"][name]["StringValue"].as_str();
        assert_eq!(attribute("tenant"), Some(hostile));
        assert_eq!(attribute("correlation_id"), Some(hostile));
        assert_eq!(attribute("type"), Some("order/created:v1_2-x"));
        assert_eq!(attribute("id"), Some(offer.event().id.to_string().as_str()));
        let body: Value = serde_json::from_str(message["Body"].as_str().unwrap()).unwrap();
        assert_eq!(body["data"], hostile);
        // The key has characters that a group cannot have.
        let group = message["Attributes"]["MessageGroupId"].as_str().unwrap();
        assert_eq!(group.len(), 64);
    }
}

#[tokio::test]
async fn a_fifo_topic_keeps_the_order_of_each_aggregate_and_drops_duplicates() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    let sink = subscribed(&moto, "events.fifo").await;
    let offers = offers(20, 1);
    for batch in [&offers, &again(&offers)] {
        all_taken(&sink.deliver(batch).await);
    }
    check_order(&moto.receive("events.fifo").await, &offers);
}

/// A receiver that stores every message, and a sink for it.
async fn topic() -> (HttpReceiver, Sns) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(stored);
    let sink = sinks::sns(&receiver.url(""), TOPIC, sinks::destination(), |_| {});
    (receiver, sink)
}

/// The sink of a topic of moto with a subscribed queue of the same name.
async fn subscribed(moto: &Moto, name: &str) -> Sns {
    moto.create_queue(name).await;
    let topic = moto.create_topic(name).await;
    let endpoint = format!("http://{}", moto.address());
    sinks::sns(&endpoint, &topic, sinks::destination(), |_| {})
}

fn stored(request: &Received) -> HttpReply {
    let mut body = String::new();
    if form(request)["Action"] == "Publish" {
        body.push_str("<PublishResponse><PublishResult><MessageId>m</MessageId></PublishResult>");
        body.push_str("</PublishResponse>");
    } else {
        body.push_str("<PublishBatchResponse><PublishBatchResult><Failed/><Successful>");
        for message in messages(request) {
            let id = &message["Id"];
            write!(
                body,
                "<member><Id>{id}</Id><MessageId>m</MessageId></member>"
            )
            .unwrap();
        }
        body.push_str("</Successful></PublishBatchResult></PublishBatchResponse>");
    }
    HttpReply::status(200).body(body)
}

fn refusal(status: u16, code: &str, text: &str) -> HttpReply {
    let body = format!(
        "<ErrorResponse xmlns=\"http://sns.amazonaws.com/doc/2010-03-31/\"><Error>\
         <Type>Sender</Type><Code>{code}</Code><Message>{text} hunter2</Message></Error>\
         </ErrorResponse>"
    );
    HttpReply::status(status).body(body)
}

/// The messages of a request: the parameters of each by their names without the prefix.
fn messages(request: &Received) -> Vec<BTreeMap<String, String>> {
    let form = form(request);
    if form["Action"] == "Publish" {
        return vec![form];
    }
    let of = |number: usize| {
        let prefix = format!("PublishBatchRequestEntries.member.{number}.");
        let of_message = form.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(&prefix)?;
            Some((name.to_owned(), value.clone()))
        });
        of_message.collect::<BTreeMap<_, _>>()
    };
    // A batch has at most ten.
    (1..=10).map(of).take_while(|it| !it.is_empty()).collect()
}

/// The value of an attribute of a message.
fn attribute(message: &BTreeMap<String, String>, name: &str) -> Option<String> {
    let (entry, _) = message.iter().find(|(_, value)| *value == name)?;
    let entry = entry.strip_suffix("Name")?;
    message.get(&format!("{entry}Value.StringValue")).cloned()
}

/// The parameters of a request.
fn form(request: &Received) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(&request.body).unwrap();
    let pairs = text.split('&').map(|pair| {
        let (name, value) = pair.split_once('=').unwrap();
        let value = percent_encoding::percent_decode_str(value).decode_utf8();
        (name.to_owned(), value.unwrap().into_owned())
    });
    pairs.collect()
}
