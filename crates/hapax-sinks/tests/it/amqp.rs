//! Delivery of events to RabbitMQ: the content of a message, and failures of the broker.

use std::time::Duration;

use bytes::Bytes;
use hapax::{
    event::{NewEvent, Payload},
    sink::{Sink as _, SinkError},
};
use hapax_sinks::{
    amqp::{Amqp, AmqpSettings},
    format::Format,
};
use hapax_testkit::{assert_matches, name::unused, proxy::Proxy};
use tokio::time::{Instant, timeout};

use crate::{
    amqp_broker::{BROKER, Corner, Taken},
    consumer::check_effects,
    events::{PATIENCE, any_offer, deliver, offer, postponed, rejected, still_open},
    sinks,
};

#[tokio::test]
async fn a_message_carries_the_event_and_its_attributes() {
    let corner = Corner::at(BROKER).await;
    let new = NewEvent::json("order.created", &1)
        .about("order", "o-1")
        .sequence(7)
        .header("traceparent", "00-aa-bb-01")
        .header("correlation_id", "c-1");
    let sink = with(&corner, |it| {
        it.routing_key = Some("{aggregate_type}.{type}.{tenant}".to_owned());
    });
    let offer = offer(1, new);
    deliver(&sink, offer.clone()).await.unwrap();
    let message = only(&corner).await;
    assert_eq!(message.routing_key, "order.order.created._");
    assert_eq!(message.body, b"1");
    let properties = &message.properties;
    assert_eq!(message.id(), offer.event().id.to_string());
    assert_eq!(*properties.delivery_mode(), Some(2));
    assert_eq!(*properties.timestamp(), Some(1_700_000_000));
    let text = |text: &Option<lapin::types::ShortString>| text.clone().unwrap().as_str().to_owned();
    assert_eq!(text(properties.content_type()), "application/json");
    assert_eq!(text(properties.kind()), "order.created");
    let id = offer.event().id.to_string();
    for (name, value) in [
        ("cloudEvents:specversion", "1.0"),
        ("cloudEvents:id", id.as_str()),
        ("cloudEvents:source", "/test"),
        ("cloudEvents:type", "order.created"),
        ("cloudEvents:time", "2023-11-14T22:13:20.000Z"),
        ("cloudEvents:subject", "order/o-1"),
        ("cloudEvents:sequence", "7"),
        ("cloudEvents:correlationid", "c-1"),
        ("traceparent", "00-aa-bb-01"),
        ("correlation_id", "c-1"),
    ] {
        assert_eq!(message.header(name).as_deref(), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_message_is_structured_or_raw_where_that_is_asked_for() {
    let corner = Corner::at(BROKER).await;
    let sink = with(&corner, |it| it.format = Format::Structured);
    deliver(&sink, any_offer()).await.unwrap();
    let message = only(&corner).await;
    let document: serde_json::Value = serde_json::from_slice(&message.body).unwrap();
    assert_eq!(document["id"], message.id());
    assert_eq!(document["data"]["amount"], 500);
    let content_type = message.properties.content_type().clone().unwrap();
    assert_eq!(content_type.as_str(), "application/cloudevents+json");
    let sink = with(&corner, |it| it.format = Format::Raw);
    deliver(&sink, any_offer()).await.unwrap();
    let message = corner.taken().await.remove(1);
    assert_eq!(message.body, br#"{"amount":500}"#);
    assert_eq!(message.header("cloudEvents:id"), None);
    assert_eq!(message.id(), any_offer().event().id.to_string());
}

#[tokio::test]
async fn an_event_that_no_queue_listens_for_says_so_and_its_neighbours_arrive() {
    let corner = Corner::empty(BROKER).await;
    corner.queue("all", &[]).await;
    corner.bind("all", "heard").await;
    let sink = to(&corner);
    let heard = |number: u64| !number.is_multiple_of(3);
    let batch: Vec<_> = (1..=200)
        .map(|number| {
            let kind = if heard(number) { "heard" } else { "unheard" };
            offer(number, NewEvent::json(kind, &number))
        })
        .collect();
    for (outcome, number) in sink.deliver(&batch).await.iter().zip(1..) {
        if heard(number) {
            assert!(outcome.is_ok(), "{number}: {outcome:?}");
        } else {
            let error_chain = postponed(outcome, "unroutable");
            assert!(
                error_chain.contains(&corner.name) && error_chain.contains("`unheard`"),
                "{error_chain}"
            );
            let receipt = outcome.as_ref().unwrap_err().receipt();
            assert_eq!(receipt.status, Some(312));
        }
    }
    let ids: Vec<_> = corner.taken().await.iter().map(Taken::id).collect();
    let expected = batch.iter().zip(1..).filter(|(_, number)| heard(*number));
    let expected: Vec<_> = expected
        .map(|(offer, _)| offer.event().id.to_string())
        .collect();
    assert_eq!(ids, expected);
}

/// If all events go to one queue, a missing queue is not the fault of a single event.
#[tokio::test]
async fn a_queue_of_all_events_that_is_missing_is_no_events_own_trouble() {
    let queue = unused("hapax_missing");
    let outcome = deliver(
        &sinks::amqp(url(BROKER), sinks::destination(), |it| {
            it.routing_key = Some(queue.clone());
        }),
        any_offer(),
    )
    .await;
    postponed(&outcome, "unroutable");
    assert_matches!(outcome, Err(SinkError::Unavailable { .. }));
    let sink = sinks::amqp(url(BROKER), sinks::destination(), |it| {
        it.routing_key = Some(format!("{queue}.{{type}}"));
    });
    let outcome = deliver(&sink, any_offer()).await;
    assert_matches!(outcome, Err(SinkError::Declined { .. }));
}

#[tokio::test]
async fn a_full_queue_refuses_and_its_neighbours_arrive() {
    let corner = Corner::empty(BROKER).await;
    corner.queue("all", &[]).await;
    corner.bind("all", "good").await;
    corner.full_queue("full").await;
    corner.bind("full", "full").await;
    let sink = to(&corner);
    let kinds = ["good", "full", "good", "full", "good"];
    let batch = (1..)
        .zip(kinds)
        .map(|(n, kind)| offer(n, NewEvent::json(kind, &n)));
    let outcomes = sink.deliver(&batch.collect::<Vec<_>>()).await;
    for (outcome, kind) in outcomes.iter().zip(kinds) {
        match kind {
            "good" => assert!(outcome.is_ok(), "{outcome:?}"),
            _ => drop(postponed(outcome, "nack")),
        }
    }
    assert_eq!(corner.taken().await.len(), 3);
}

#[tokio::test]
async fn a_missing_exchange_is_reported_in_the_brokers_words_and_found_when_it_exists() {
    let name = unused("hapax_missing");
    let sink = sinks::amqp(url(BROKER), sinks::destination(), |it| {
        it.exchange.clone_from(&name);
    });
    let batch: Vec<_> = (1..=50)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    for outcome in sink.deliver(&batch).await {
        let error_chain = postponed(&outcome, "closed");
        assert!(
            error_chain.contains("no exchange") && error_chain.contains(&name),
            "{error_chain}"
        );
        assert_eq!(outcome.unwrap_err().receipt().status, Some(404));
    }
    let corner = Corner::at(BROKER).await;
    let there = to(&corner);
    assert!(there.deliver(&batch).await.iter().all(Result::is_ok));
    // The sink that lost its channel continues with another one, on the same connection.
    postponed(&deliver(&sink, any_offer()).await, "closed");
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_virtual_host_are_reported_without_the_password() {
    for (url, word) in [
        ("amqp://guest:s3cret@127.0.0.1", "ACCESS_REFUSED"),
        (
            "amqp://guest:guest@127.0.0.1/nowhere_at_all",
            "nowhere_at_all",
        ),
    ] {
        let sink = sinks::amqp(url, sinks::destination(), |_| {});
        let outcome = deliver(&sink, any_offer()).await;
        let error_chain = postponed(&outcome, "refused");
        assert!(
            error_chain.contains(word) && !error_chain.contains("s3cret"),
            "{error_chain}"
        );
        assert!(!format!("{sink:?}").contains("s3cret"));
    }
}

#[tokio::test]
async fn a_broker_that_is_down_from_the_start_is_found_when_it_is_up() {
    let corner = Corner::at(BROKER).await;
    let proxy = Proxy::to(BROKER);
    proxy.refuse(true).await;
    let sink = sinks::amqp(
        url(&proxy.address().to_string()),
        sinks::destination(),
        |it| it.exchange.clone_from(&corner.name),
    );
    for _ in 0..3 {
        postponed(&deliver(&sink, any_offer()).await, "connect");
    }
    proxy.heal().await;
    deliver(&sink, any_offer()).await.unwrap();
    assert_eq!(corner.taken().await.len(), 1);
}

#[tokio::test]
async fn a_listener_that_never_speaks_costs_the_timeout_and_leaves_no_thread() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let bound = Duration::from_millis(300);
    let sink = sinks::amqp(url(&address), sinks::within(bound), |_| {});
    let start = Instant::now();
    postponed(&deliver(&sink, any_offer()).await, "connect");
    assert!(start.elapsed() < bound + Duration::from_secs(20));
    // The sink closed the connection itself and did not leave it to the driver.
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut heard = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut heard);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    assert_eq!(heard, b"AMQP\x00\x00\x09\x01");
}

#[tokio::test]
async fn large_events_and_5000_in_order_arrive() {
    let corner = Corner::at(BROKER).await;
    let sink = to(&corner);
    let bytes: Bytes = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[1]).collect();
    let content_type = "application/x-thing".to_owned();
    let large = offer(
        1,
        NewEvent::new(
            "large",
            Payload::Binary {
                content_type,
                bytes: bytes.clone(),
            },
        ),
    );
    deliver(&sink, large).await.unwrap();
    assert!(
        corner.taken().await[0].body == bytes,
        "a large event changed"
    );

    let all: Vec<_> = (2..5_002)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    for batch in all.chunks(sink.batch_max()) {
        assert!(sink.deliver(batch).await.iter().all(Result::is_ok));
    }
    let bodies: Vec<u64> = corner.taken().await[1..]
        .iter()
        .map(|message| serde_json::from_slice(&message.body).unwrap())
        .collect();
    assert!(
        bodies.iter().copied().eq(2..5_002),
        "the order was not kept"
    );
}

#[tokio::test]
async fn attributes_that_no_frame_holds_are_rejected_and_harm_no_neighbour() {
    let corner = Corner::at(BROKER).await;
    let sink = to(&corner);
    let mut new = NewEvent::json("a", &2);
    for number in 0..60 {
        new = new.header(format!("h{number}"), "x".repeat(4_000));
    }
    let small = |number: u64| offer(number, NewEvent::json("a", &number));
    let batch = [small(1), offer(2, new), small(3)];
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error_chain = rejected(&outcomes[1], "headers");
    assert!(error_chain.contains("structured"), "{error_chain}");
    let sink = with(&corner, |it| it.format = Format::Structured);
    assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
    assert_eq!(corner.taken().await.len(), 5);
}

#[tokio::test]
async fn an_inbox_sees_each_event_once_however_often_the_line_is_cut() {
    let corner = Corner::at(BROKER).await;
    let proxy = Proxy::to(BROKER);
    let sink = sinks::amqp(
        url(&proxy.address().to_string()),
        sinks::within(Duration::from_secs(5)),
        |it| it.exchange.clone_from(&corner.name),
    );
    let all: Vec<_> = (1..=600)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    let mut open = all.clone();
    let mut cuts = 0;
    let began = Instant::now();
    while !open.is_empty() {
        assert!(began.elapsed() < 4 * PATIENCE, "{} are open", open.len());
        if cuts < 4 {
            let (toward, bytes) = match cuts % 2 {
                0 => (hapax_testkit::proxy::Direction::ToClient, 700),
                _ => (hapax_testkit::proxy::Direction::ToServer, 40_000),
            };
            proxy.set(toward, hapax_testkit::proxy::Fault::CutAfter(bytes));
        } else {
            proxy.heal().await;
        }
        cuts += 1;
        open = still_open(open.clone(), &sink.deliver(&open).await);
        proxy.heal().await;
    }
    assert!(proxy.tally().cut > 0, "{:?}", proxy.tally());
    let taken = corner.taken().await.into_iter();
    let messages: Vec<_> = taken.map(|taken| (taken.id(), taken.body)).collect();
    check_effects(&messages, all.len()).await;
}

async fn only(corner: &Corner) -> Taken {
    let mut taken = corner.taken().await;
    assert_eq!(taken.len(), 1);
    taken.remove(0)
}

fn to(corner: &Corner) -> Amqp {
    with(corner, |_| {})
}

fn with(corner: &Corner, change: impl FnOnce(&mut AmqpSettings)) -> Amqp {
    sinks::amqp(url(BROKER), sinks::destination(), |settings| {
        settings.exchange.clone_from(&corner.name);
        change(settings);
    })
}

pub(crate) fn url(broker: &str) -> String {
    format!("amqp://guest:guest@{broker}")
}
