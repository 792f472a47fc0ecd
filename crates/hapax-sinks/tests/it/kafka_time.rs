//! Records whose timeout is over, and failures from which a producer recovers.

use std::{collections::HashSet, time::Duration};

use hapax::{
    event::NewEvent,
    sink::{Offer, Outcome, Sink as _, SinkError},
};
use hapax_testkit::{
    assert_matches,
    wait::{answered, eventually},
};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Error};

use crate::{
    events::{PATIENCE, deliver, offer},
    kafka_cluster::{Cluster, header},
    sinks,
};

const TOO_LARGE: Error = Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;

/// A request with many records is refused, and the cluster is too slow to send all of them alone.
#[tokio::test]
async fn a_record_that_nobody_waits_for_any_more_is_not_sent() {
    let cluster = Cluster::start(&[("a", 1)]);
    let sink = sinks::kafka(
        &cluster.servers,
        sinks::within(Duration::from_secs(2)),
        sinks::property("linger.ms", "100"),
    );
    // Now both clients are connected.
    cluster.refuse(TOO_LARGE, 1);
    eventually(PATIENCE, async || deliver(&sink, of(100)).await.is_ok()).await;
    let before = cluster.records("a").await.len();
    cluster.tell(|broker| {
        broker
            .broker_round_trip_time(1, Duration::from_millis(250))
            .unwrap();
    });
    cluster.refuse(TOO_LARGE, 1);
    let batch: Vec<_> = (1..=30).map(of).collect();
    let outcomes = sink.deliver(&batch).await;
    let taken = outcomes.iter().filter(|it| it.is_ok()).count();
    assert!((1..29).contains(&taken), "{outcomes:?}");
    // This record is sent alone, after all records that the client may still send for the batch.
    cluster.heal();
    cluster.refuse(TOO_LARGE, 1);
    answered(PATIENCE, deliver(&sink, of(101))).await.unwrap();
    // One record was in flight when its timeout was over.
    let records = cluster.records("a").await.len() - before;
    assert!(records <= taken + 2, "{records} records, {taken} taken");
    // The last record was never judged by the broker, and the cluster is available.
    let last = outcomes[29].as_ref().unwrap_err();
    assert_eq!(last.error_type(), "cut_off", "{last:?}");
    assert_matches!(last, SinkError::Declined { .. });
}

#[tokio::test]
async fn a_topic_that_is_made_later_is_found() {
    let cluster = Cluster::start(&[("there", 1)]);
    let missing = Error::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
    cluster.tell(move |broker| broker.topic_error("a", missing).unwrap());
    let sink = cluster.sink(sinks::within(Duration::from_secs(4)));
    let outcome = deliver(&sink, of(1)).await;
    assert_eq!(outcome.unwrap_err().error_type(), "topic");
    let none = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
    cluster.tell(move |broker| broker.topic_error("a", none).unwrap());
    eventually(PATIENCE, async || deliver(&sink, of(1)).await.is_ok()).await;
    assert_eq!(cluster.records("a").await.len(), 1);
}

/// A broker refuses a whole request because of one record with an invalid timestamp.
#[tokio::test]
async fn a_time_that_the_broker_refuses_is_that_records_own() {
    let cluster = Cluster::start(&[("a", 1)]);
    let sink = cluster.sink_with("linger.ms", "100");
    deliver(&sink, of(100)).await.unwrap();
    let none = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
    let time = Error::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;
    cluster.tell(move |broker| {
        broker.request_errors(RDKafkaApiKey::Produce, &[time, none, time, none]);
    });
    let batch: Vec<_> = (1..=3).map(of).collect();
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!(error.error_type(), "timestamp", "{error:?}");
    // The clocks may agree later.
    assert_matches!(error, SinkError::Declined { .. });
}

/// If a broker refuses the sequence numbers of the producer, the events of a key still arrive in
/// order.
#[tokio::test]
async fn a_producer_whose_numbers_are_refused_recovers_and_order_is_kept() {
    let cluster = Cluster::start(&[("a", 1)]);
    let sink = cluster.sink(sinks::within(Duration::from_secs(4)));
    let errors = [
        Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
        Error::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
        Error::RD_KAFKA_RESP_ERR_PRODUCER_FENCED,
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
    ];
    let mut first = Vec::new();
    for (number, error) in (1..).zip(errors.into_iter().cycle().take(2 * errors.len())) {
        cluster.refuse(error, 1);
        first.push(id(&of(number)));
        let mut last: Option<Outcome> = None;
        eventually(PATIENCE, async || {
            last = Some(deliver(&sink, of(number)).await);
            matches!(last, Some(Ok(_)))
        })
        .await;
    }
    let mut seen = HashSet::new();
    let records = cluster.records("a").await;
    let ids = records.iter().filter_map(|it| header(it, "ce_id"));
    let order: Vec<_> = ids.filter(|id| seen.insert(id.clone())).collect();
    assert_eq!(order, first);
}

fn of(number: u64) -> Offer {
    offer(number, NewEvent::json("a", &number).about("order", "o-1"))
}

fn id(offer: &Offer) -> String {
    offer.event().id.to_string()
}
