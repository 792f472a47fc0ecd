//! One batch: handed to the producer in order, then acknowledged.
//!
//! A full queue of the producer is no failure: it is waited for, as long as
//! there is time.
//!
//! A broker refuses a request, not a record, and the client makes requests of
//! whatever it has, of this call or another: only the client that sends each
//! record by itself can tell which one is meant.

use std::time::Duration;

use hapax::sink::{Outcome, Receipt, SinkError};
use rdkafka::{
    error::KafkaError as ClientError,
    producer::{DeliveryFuture, FutureRecord},
    types::RDKafkaErrorCode as Code,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Client, Record, failure::Failure};

/// How long a full queue is left alone.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Produces these records; returns those that a neighbour may have spoilt, of this call or of
/// another, which stay open.
pub(super) async fn fly(
    client: &Client,
    records: &[Option<Record>],
    open: &[usize],
    outcomes: &mut [Option<Outcome>],
    deadline: Instant,
) -> Vec<usize> {
    let mut legs = Vec::with_capacity(open.len());
    for index in open {
        let Some(record) = &records[*index] else {
            continue;
        };
        match hand_over(client, record, deadline).await {
            Ok(acknowledgement) => legs.push((*index, record, acknowledgement)),
            Err(failure) => outcomes[*index] = Some(Err(blamed(failure, record))),
        }
    }
    let mut suspects = Vec::new();
    for (index, record, acknowledgement) in legs {
        let failure = match timeout_at(deadline, acknowledgement).await {
            Ok(Ok(Ok(_))) => {
                outcomes[index] = Some(Ok(Receipt::default()));
                continue;
            }
            Ok(Ok(Err((error, _)))) => failure(client, &error, record),
            // The client went away, or says nothing: whether it arrived is not known.
            Ok(Err(_)) | Err(_) => {
                Failure::of(Code::MessageTimedOut, &record.topic, client.last_words())
            }
        };
        if failure.concerns_one() && !client.is_alone {
            suspects.push(index);
        } else {
            outcomes[index] = Some(Err(blamed(failure, record)));
        }
    }
    suspects
}

/// What an event failed for: where topics differ, one that is missing is no fault of the cluster.
fn blamed(failure: Failure, record: &Record) -> SinkError {
    if record.has_own_topic {
        failure.of_event()
    } else {
        failure.into()
    }
}

/// Hands a record to the producer's queue, behind those before it.
async fn hand_over(
    client: &Client,
    record: &Record,
    deadline: Instant,
) -> Result<DeliveryFuture, Failure> {
    let mut handed = FutureRecord::to(&record.topic)
        .payload(&record.body[..])
        .headers(record.headers.clone())
        .timestamp(record.timestamp);
    if let Some(key) = &record.key {
        handed = handed.key(key.as_str());
    }
    loop {
        if Instant::now() >= deadline {
            // It would be sent with nobody there for its acknowledgement.
            return Err(Failure::Full);
        }
        match client.producer.send_result(handed) {
            Ok(acknowledgement) => return Ok(acknowledgement),
            Err((ClientError::MessageProduction(Code::QueueFull), again)) => {
                handed = again;
                sleep(QUEUE_PAUSE).await;
            }
            Err((error, _)) => return Err(failure(client, &error, record)),
        }
    }
}

fn failure(client: &Client, error: &ClientError, record: &Record) -> Failure {
    let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
    if code == Code::TopicAuthorizationFailed {
        client.replace();
    }
    Failure::of(code, &record.topic, client.last_words())
}
