//! Pipeline of one batch: passes the records to the producer in order and awaits the
//! acknowledgements.
//!
//! If the producer's queue is full, the pipeline waits for it as long as there is time.
//!
//! A broker refuses requests, not records, and the client combines the records of all calls into
//! requests. Only a client that sends each record in its own request can tell which record is
//! refused.

use std::time::Duration;

use hapax::sink::{Outcome, Receipt, SinkError};
use rdkafka::{
    error::KafkaError as ClientError,
    producer::{DeliveryFuture, FutureRecord},
    types::RDKafkaErrorCode as Code,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Client, Record, failure::Failure};

/// Wait before a full queue is tried again.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Produces these records. Returns those that may have been refused because of another record, of
/// this call or of another one. They have no outcome yet.
pub(super) async fn send(
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
            // The client ended or reports nothing: whether the record arrived is unknown.
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

/// The failure of a record. If topics differ between events, a missing topic is not a failure of
/// the cluster.
fn blamed(failure: Failure, record: &Record) -> SinkError {
    if record.has_own_topic {
        failure.of_event()
    } else {
        failure.into()
    }
}

/// Passes a record to the producer's queue, after the previous ones.
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
            // The record would be sent without anything waiting for its acknowledgement.
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
