//! Records that make their whole request fail, and the other records of that request.

use bytes::Bytes;
use hapax::{
    event::{NewEvent, Payload},
    sink::Sink as _,
};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Error};

use crate::{
    events::{deliver, offer, rejected},
    kafka_cluster::{Cluster, header},
};

#[tokio::test]
async fn a_record_that_spoils_its_request_is_found_and_its_neighbours_arrive() {
    let cluster = Cluster::start(&[("a", 1)]);
    // Long enough for the three to share a request.
    let sink = cluster.sink_with("linger.ms", "100");
    deliver(&sink, offer(100, NewEvent::json("a", &0)))
        .await
        .unwrap();
    // The whole request is refused. Then the records are sent alone, and the second one is refused.
    let none = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
    let large = Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.tell(move |broker| {
        broker.request_errors(RDKafkaApiKey::Produce, &[large, none, large, none]);
    });
    let batch: Vec<_> = (1..=3).map(|n| offer(n, NewEvent::json("a", &n))).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    rejected(&outcomes[1], "too_large");
    assert_eq!(cluster.records("a").await.len(), 3);
    // A record that is too large for the client itself is not sent at all.
    let bytes = Bytes::from(vec![0; 1024 * 1024]);
    let content_type = "application/x-thing".to_owned();
    let large = offer(
        9,
        NewEvent::new(
            "a",
            Payload::Binary {
                content_type,
                bytes,
            },
        ),
    );
    let small = cluster.sink_with("message.max.bytes", "100000");
    rejected(&deliver(&small, large).await, "too_large");
}

#[tokio::test]
async fn a_single_event_is_not_rejected_for_a_neighbour_from_another_call() {
    let cluster = Cluster::start(&[("a", 1)]);
    let of = |n: u64| offer(n, NewEvent::json("a", &n));
    // Long enough for two calls to share a request.
    let sink = cluster.sink_with("linger.ms", "100");
    deliver(&sink, of(100)).await.unwrap();
    // Their request is refused. Then one of them is refused, which is sent alone.
    let none = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
    let large = Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    cluster.tell(move |broker| {
        broker.request_errors(RDKafkaApiKey::Produce, &[large, large, none]);
    });
    let outcomes = tokio::join!(deliver(&sink, of(1)), deliver(&sink, of(2)));
    let (innocent, guilty) = match outcomes {
        (one, other) if one.is_ok() => ((1, one), other),
        (one, other) => ((2, other), one),
    };
    rejected(&guilty, "too_large");
    assert!(innocent.1.is_ok(), "{innocent:?}");
    let id = of(innocent.0).event().id.to_string();
    let records = cluster.records("a").await;
    assert_eq!(records.len(), 2);
    assert_eq!(header(&records[1], "ce_id"), Some(id));
}
