//! The SQS sink with a server that responds on request, and with a FIFO queue.

use hapax::{
    event::NewEvent,
    sink::{Sink as _, SinkError},
};
use hapax_sinks::sqs::Sqs;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, Received},
    moto::Moto,
};
use serde_json::{Value, json};

use crate::{
    events::{again, all_taken, deliver, error_type, ids, offer, offers, postponed, rejected},
    requests::{check_clock, check_order, check_refused, check_size, check_slow},
    sinks,
};

const QUEUE: &str = "/123456789012/events";

#[tokio::test]
async fn a_batch_is_one_request_of_at_most_ten_messages() {
    let (receiver, sink) = queue(QUEUE).await;
    let offers = offers(12, 10);
    all_taken(&sink.deliver(&offers).await);
    let requests = receiver.received();
    assert_eq!(requests.len(), 2);
    assert_eq!(
        (entries(&requests[0]).len(), entries(&requests[1]).len()),
        (10, 2)
    );
    let request = &requests[0];
    assert_eq!(
        (request.method.as_str(), request.path.as_str()),
        ("POST", "/")
    );
    assert_eq!(
        request.header("x-amz-target"),
        Some("AmazonSQS.SendMessageBatch")
    );
    assert_eq!(
        request.header("content-type"),
        Some("application/x-amz-json-1.0")
    );
    let sent: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(sent["QueueUrl"], receiver.url(QUEUE));
    let sent_ids = requests.iter().flat_map(entries).map(|entry| {
        let body: Value = serde_json::from_str(entry["MessageBody"].as_str().unwrap()).unwrap();
        let id = &entry["MessageAttributes"]["id"]["StringValue"];
        assert_eq!(body["id"], *id);
        assert_eq!(entry.get("MessageGroupId"), None);
        id.as_str().unwrap().to_owned()
    });
    assert_eq!(sent_ids.collect::<Vec<_>>(), ids(&offers));
}

#[tokio::test]
async fn a_request_has_at_most_256_kib_and_a_larger_message_is_rejected_unsent() {
    let (receiver, sink) = queue(QUEUE).await;
    check_size(&receiver, &sink, |it| entries(it).len()).await;
}

#[tokio::test]
async fn each_message_of_a_batch_has_its_own_outcome() {
    let (receiver, sink) = queue(QUEUE).await;
    let failed = |id: u8, is_sender: bool, code: &str| json!({"Id": id.to_string(), "SenderFault": is_sender, "Code": code, "Message": "hunter2"});
    let response = json!({
        "Successful": [{"Id": "0", "MessageId": "m"}],
        "Failed": [
            failed(1, true, "InvalidMessageContents"),
            failed(2, true, "SomethingElse"),
            failed(3, false, "InternalError"),
            // No message of the request has this id.
            failed(9, true, "InvalidMessageContents"),
        ],
    });
    receiver.reply(HttpReply::status(200).body(response.to_string()));
    let outcomes = sink.deliver(&offers(5, 1)).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    rejected(&outcomes[1], "content");
    let is_declined = matches!(outcomes[2], Err(SinkError::Declined { .. }));
    assert!(is_declined, "{outcomes:?}");
    let chain = postponed(&outcomes[3], "status_5xx");
    assert!(
        chain.contains("InternalError") && !chain.contains("hunter2"),
        "{chain}"
    );
    // The response does not mention the last message.
    postponed(&outcomes[4], "answer");
}

/// Some services refuse a whole batch because of one message.
#[tokio::test]
async fn a_message_that_spoils_its_batch_is_found_and_the_others_are_sent() {
    let (receiver, sink) = queue(QUEUE).await;
    receiver.reply_with(|request| {
        if String::from_utf8_lossy(&request.body).contains("spoilt") {
            let body = r#"{"__type": "com.amazonaws.sqs#InvalidMessageContents"}"#;
            HttpReply::status(400).body(body)
        } else {
            stored(request)
        }
    });
    let mut offers = offers(6, 1);
    offers.insert(4, offer(100, NewEvent::json("order.created", &"spoilt")));
    let outcomes = sink.deliver(&offers).await;
    rejected(&outcomes[4], "content");
    assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 6);
}

#[tokio::test]
async fn a_refused_signature_is_explained_by_the_clock() {
    let (receiver, sink) = queue(QUEUE).await;
    let body = json!({"__type": "SignatureDoesNotMatch", "message": "hunter2"});
    let refusal = HttpReply::status(403).body(body.to_string());
    check_clock(&receiver, &sink, refusal).await;
}

#[tokio::test]
async fn a_queue_that_takes_nothing_is_unavailable_and_asked_once() {
    for (status, kind, expected) in [
        (400, "com.amazonaws.sqs#QueueDoesNotExist", "no_queue"),
        (400, "InvalidClientTokenId", "login"),
        (403, "AccessDeniedException", "login"),
        (400, "ThrottlingException", "throttled"),
        (400, "SomethingElse", "status_4xx"),
        (500, "InternalFailure", "status_5xx"),
    ] {
        let (receiver, sink) = queue(QUEUE).await;
        let body = json!({"__type": kind, "message": "hunter2"}).to_string();
        receiver.reply(HttpReply::status(status).body(body));
        let code = kind.rsplit('#').next().unwrap();
        check_refused(&receiver, &sink, 25, (status, code, expected)).await;
    }
}

#[tokio::test]
async fn a_response_that_is_not_that_of_a_queue_delivers_nothing() {
    for reply in [
        HttpReply::status(200),
        HttpReply::status(200).body("<html>it works</html>"),
        HttpReply::status(200).body("{}"),
        HttpReply::status(200).body("{\"Successful\": [{\"Id\": \"0\"}"),
        HttpReply::status(200).large_body(1 << 30),
    ] {
        let (receiver, sink) = queue(QUEUE).await;
        receiver.reply(reply);
        let outcome = deliver(&sink, offers(1, 1).remove(0)).await;
        assert_eq!(error_type(outcome), "answer");
    }
}

#[tokio::test]
async fn a_slow_queue_costs_the_timeout() {
    check_slow(25, |receiver, destination| {
        sinks::sqs(&receiver.url(QUEUE), destination, |_| {})
    })
    .await;
}

#[tokio::test]
async fn a_fifo_queue_keeps_the_order_of_each_aggregate_and_drops_duplicates() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    let path = moto.create_queue("events.fifo").await;
    let url = format!("http://{}{path}", moto.address());
    let sink = sinks::sqs(&url, sinks::destination(), |_| {});
    let offers = offers(20, 1);
    for batch in [&offers, &again(&offers)] {
        all_taken(&sink.deliver(batch).await);
    }
    check_order(&moto.receive("events.fifo").await, &offers);
}

/// A receiver that stores every message, and a sink for it.
async fn queue(path: &str) -> (HttpReceiver, Sqs) {
    let receiver = HttpReceiver::start().await;
    receiver.reply_with(stored);
    let sink = sinks::sqs(&receiver.url(path), sinks::destination(), |_| {});
    (receiver, sink)
}

fn stored(request: &Received) -> HttpReply {
    let entries = entries(request);
    let stored = entries
        .iter()
        .map(|entry| json!({"Id": entry["Id"], "MessageId": "m"}));
    let body = json!({"Successful": stored.collect::<Vec<_>>(), "Failed": []});
    HttpReply::status(200).body(body.to_string())
}

fn entries(request: &Received) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["Entries"].as_array().unwrap().clone()
}
