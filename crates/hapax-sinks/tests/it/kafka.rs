//! Delivery of events to Kafka: the content of a record, and failures of the cluster.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use bytes::Bytes;
use hapax::{
    event::{NewEvent, Payload},
    sink::{Sink as _, SinkError},
};
use hapax_sinks::format::Format;
use hapax_testkit::{assert_matches, wait::answered};
use rdkafka::{
    Message as _,
    message::OwnedMessage,
    types::{RDKafkaApiKey, RDKafkaRespErr as Error},
};
use tokio::time::Instant;

use crate::{
    consumer::check_effects,
    events::{any_offer, deliver, offer, postponed, rejected, still_open},
    kafka_cluster::{Cluster, header},
    sinks,
};

/// Time limit for the remaining events after the cluster is available again.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_record_carries_the_event_and_its_attributes() {
    let cluster = Cluster::start(&[("shop.order", 1)]);
    let sink = sinks::kafka(&cluster.servers, sinks::destination(), |it| {
        it.topic = "shop.{aggregate_type}".to_owned();
    });
    let new = NewEvent::json("order.created", &1)
        .about("order", "o-1")
        .sequence(7)
        .header("traceparent", "00-aa-bb-01")
        .header("correlation_id", "c-1");
    let offer = offer(1, new);
    deliver(&sink, offer.clone()).await.unwrap();
    let record = only(&cluster, "shop.order").await;
    assert_eq!(
        (record.key(), record.payload()),
        (Some(&b"o-1"[..]), Some(&b"1"[..]))
    );
    assert_eq!(record.timestamp().to_millis(), Some(1_700_000_000_000));
    let id = offer.event().id.to_string();
    for (name, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", id.as_str()),
        ("ce_source", "/test"),
        ("ce_type", "order.created"),
        ("ce_time", "2023-11-14T22:13:20.000Z"),
        ("ce_subject", "order/o-1"),
        ("ce_sequence", "7"),
        ("content-type", "application/json"),
        ("traceparent", "00-aa-bb-01"),
        ("correlation_id", "c-1"),
    ] {
        assert_eq!(header(&record, name).as_deref(), Some(value), "{name}");
    }
}

#[tokio::test]
async fn a_record_is_structured_or_raw_where_that_is_asked_for() {
    let cluster = Cluster::start(&[("s", 1), ("r", 1)]);
    let id = any_offer().event().id.to_string();
    for (topic, format) in [("s", Format::Structured), ("r", Format::Raw)] {
        let sink = sinks::kafka(&cluster.servers, sinks::destination(), |it| {
            it.topic = topic.to_owned();
            it.format = format;
        });
        deliver(&sink, any_offer()).await.unwrap();
        let record = only(&cluster, topic).await;
        assert_eq!(header(&record, "ce_id"), Some(id.clone()));
        assert_eq!(header(&record, "ce_source"), None);
        let document: serde_json::Value =
            serde_json::from_slice(record.payload().unwrap()).unwrap();
        match format {
            Format::Raw => assert_eq!(document["amount"], 500),
            _ => assert_eq!(document["data"]["amount"], 500),
        }
    }
}

#[tokio::test]
async fn a_topic_that_is_not_there_says_so_and_its_neighbours_arrive() {
    let cluster = Cluster::start(&[("there", 1)]);
    let missing = Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.tell(move |broker| broker.topic_error("missing", missing).unwrap());
    let sink = cluster.sink(sinks::within(Duration::from_secs(20)));
    let kinds = ["there", "missing", "there"];
    let batch = (1..)
        .zip(kinds)
        .map(|(n, kind)| offer(n, NewEvent::json(kind, &n)));
    let start = Instant::now();
    let outcomes = sink.deliver(&batch.collect::<Vec<_>>()).await;
    assert!(
        start.elapsed() < Duration::from_secs(19),
        "{:?}",
        start.elapsed()
    );
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error_chain = postponed(&outcomes[1], "topic");
    assert!(
        error_chain.contains("`missing`") && error_chain.contains("create it"),
        "{error_chain}"
    );
    assert_eq!(cluster.records("there").await.len(), 2);
}

#[tokio::test]
async fn a_type_that_no_topic_can_be_called_is_spelt_and_a_long_one_rejected() {
    let cluster = Cluster::start(&[("a_b_c", 1)]);
    let sink = cluster.sink(sinks::destination());
    let odd = offer(1, NewEvent::json("a/b:c", &1));
    let long = offer(2, NewEvent::json("x".repeat(250), &2));
    let outcomes = sink.deliver(&[odd, long]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    rejected(&outcomes[1], "topic");
    assert_eq!(cluster.records("a_b_c").await.len(), 1);
}

#[tokio::test]
async fn large_events_and_5000_in_order_arrive() {
    let cluster = Cluster::start(&[("large", 1), ("a", 4)]);
    let sink = cluster.sink(sinks::destination());
    let bytes: Bytes = (0..1024 * 1024).map(|n: u32| n.to_le_bytes()[1]).collect();
    let content_type = "application/x-thing".to_owned();
    let payload = Payload::Binary {
        content_type,
        bytes: bytes.clone(),
    };
    deliver(&sink, offer(1, NewEvent::new("large", payload)))
        .await
        .unwrap();
    let record = only(&cluster, "large").await;
    assert!(
        record.payload() == Some(&bytes[..]),
        "a large event changed"
    );

    let of = |n: u64| NewEvent::json("a", &n).about("order", format!("o-{}", n % 7));
    let all: Vec<_> = (1..=5_000).map(|n| offer(n, of(n))).collect();
    for batch in all.chunks(sink.batch_max()) {
        assert!(sink.deliver(batch).await.iter().all(Result::is_ok));
    }
    let mut last: HashMap<Vec<u8>, (u64, i32)> = HashMap::new();
    let records = cluster.records("a").await;
    assert_eq!(records.len(), all.len());
    for record in records {
        let number: u64 = serde_json::from_slice(record.payload().unwrap()).unwrap();
        let key = record.key().unwrap().to_vec();
        if let Some((before, partition)) = last.insert(key, (number, record.partition())) {
            assert!(before < number, "the order was not kept");
            assert_eq!(partition, record.partition(), "a key is in two partitions");
        }
    }
}

#[tokio::test]
async fn a_full_queue_of_the_client_is_waited_for() {
    let cluster = Cluster::start(&[("a", 1)]);
    let sink = cluster.sink_with("queue.buffering.max.messages", "10");
    let batch: Vec<_> = (1..=500)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    for outcome in sink.deliver(&batch).await {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    assert_eq!(cluster.records("a").await.len(), batch.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_goes_down_in_mid_batch_loses_nothing() {
    let cluster = Cluster::start(&[("a", 1)]);
    let sink = cluster.sink(sinks::within(Duration::from_secs(3)));
    let all: Vec<_> = (1..=3_000)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    let mut outcomes = sink.deliver(&all[..1_000]).await;
    assert!(outcomes.iter().all(Result::is_ok));
    // The broker does not respond in time, so that the batch is in flight when it goes down.
    cluster.tell(|broker| {
        broker
            .broker_round_trip_time(1, Duration::from_mins(1))
            .unwrap();
    });
    let (more, ()) = tokio::join!(sink.deliver(&all[1_000..]), async {
        tokio::task::yield_now().await;
        cluster.tell(|broker| broker.broker_down(1).unwrap());
    });
    outcomes.extend(more);
    let mut open = still_open(all.clone(), &outcomes);
    assert!(!open.is_empty(), "the broker was not down");
    for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
        postponed(outcome, "timeout");
    }
    cluster.heal();
    let all_taken = async {
        while !open.is_empty() {
            open = still_open(open.clone(), &sink.deliver(&open).await);
        }
    };
    answered(PATIENCE, all_taken).await;
    let records = cluster.records("a").await;
    let distinct: HashSet<_> = records.iter().map(|it| header(it, "ce_id")).collect();
    assert_eq!(distinct.len(), all.len());
}

#[tokio::test]
async fn a_cluster_that_is_down_from_the_start_is_found_when_it_is_up() {
    let cluster = Cluster::start(&[("order.created", 1)]);
    cluster.tell(|broker| broker.broker_down(1).unwrap());
    let sink = cluster.sink(sinks::within(Duration::from_secs(3)));
    let error_chain = postponed(&deliver(&sink, any_offer()).await, "timeout");
    assert!(error_chain.contains("client: "), "{error_chain}");
    cluster.heal();
    deliver(&sink, any_offer()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_failed_permanently_is_replaced() {
    let cluster = Cluster::start(&[("order.created", 1)]);
    let sink = cluster.sink(sinks::within(Duration::from_secs(3)));
    let fatal = Error::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.tell(move |broker| broker.request_errors(RDKafkaApiKey::InitProducerId, &[fatal; 50]));
    for _ in 0..2 {
        let outcome = deliver(&sink, any_offer()).await;
        assert_matches!(outcome, Err(SinkError::Unavailable { .. }));
    }
    cluster.tell(|broker| broker.clear_request_errors(RDKafkaApiKey::InitProducerId));
    deliver(&sink, any_offer()).await.unwrap();
    assert_eq!(cluster.records("order.created").await.len(), 1);
}

#[tokio::test]
async fn an_inbox_sees_each_event_once_whatever_the_broker_answers() {
    let cluster = Cluster::start(&[("a", 2)]);
    let sink = cluster.sink(sinks::within(Duration::from_secs(4)));
    let all: Vec<_> = (1..=600)
        .map(|n| offer(n, NewEvent::json("a", &n)))
        .collect();
    let mut open = all.clone();
    for error in [
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT,
    ] {
        cluster.refuse(error, 1);
        for outcome in sink.deliver(&open).await {
            assert!(
                !matches!(outcome, Err(SinkError::Rejected { .. })),
                "{outcome:?}"
            );
        }
    }
    let all_taken = async {
        while !open.is_empty() {
            open = still_open(open.clone(), &sink.deliver(&open).await);
        }
    };
    answered(PATIENCE, all_taken).await;
    let records = cluster.records("a").await;
    let message = |record| {
        (
            header(record, "ce_id").unwrap(),
            record.payload().unwrap().to_vec(),
        )
    };
    let messages: Vec<_> = records.iter().map(message).collect();
    check_effects(&messages, all.len()).await;
}

async fn only(cluster: &Cluster, topic: &str) -> OwnedMessage {
    let mut records = cluster.records(topic).await;
    assert_eq!(records.len(), 1);
    records.remove(0)
}
