//! Connections that break at any byte of a batch, and leaders that move. An event whose outcome is
//! `Ok` is stored, and events of a key that are offered one after the other arrive in that order.

use std::{collections::HashSet, time::Duration};

use hapax::{
    event::NewEvent,
    sink::{Offer, Outcome, Sink, SinkError},
};
use hapax_testkit::{
    assert_matches,
    drongo::Drongo,
    moto::Moto,
    proxy::{Direction, Fault, Proxy},
    servers::Server,
    wait::answered,
};
use lapin::options::ExchangeDeleteOptions;
use tokio::sync::Notify;

use crate::{
    amqp_broker::{BROKER, Corner, Taken},
    events::{PATIENCE, deliver, offer},
    kafka_cluster::{Cluster, header},
    redis::{connection, read},
    sinks,
};

const BOUND: Duration = Duration::from_secs(3);
const BATCH: u64 = 40;
/// Where the connection breaks: in the greeting, in a header, between responses and within one.
const BYTES: [usize; 9] = [0, 1, 9, 100, 500, 777, 1_300, 5_000, 12_000];

#[tokio::test]
async fn whatever_redis_was_heard_to_add_is_there_wherever_the_line_breaks() {
    let server = Server::redis(&[]).await;
    let proxy = Proxy::to(server.address());
    let sink = sinks::redis(
        format!("redis://{}", proxy.address()),
        sinks::within(BOUND),
        |_| {},
    );
    let taken = break_anywhere(&sink, &proxy).await;
    let mut direct = connection(&server.address(), 0).await;
    let entries = read(&mut direct, "events").await;
    let there = entries.iter().map(|it| it["id"].clone());
    check(taken, there.map(|id| String::from_utf8(id).unwrap()));
}

#[tokio::test]
async fn whatever_rabbitmq_was_heard_to_confirm_is_there_wherever_the_line_breaks() {
    let corner = Corner::at(BROKER).await;
    let proxy = Proxy::to(BROKER);
    let sink = sinks::amqp(
        format!("amqp://guest:guest@{}", proxy.address()),
        sinks::within(BOUND),
        |it| it.exchange.clone_from(&corner.name),
    );
    let taken = break_anywhere(&sink, &proxy).await;
    let there = corner.taken().await;
    check(taken, there.iter().map(Taken::id));
}

#[tokio::test]
async fn whatever_s3_was_heard_to_store_is_there_wherever_the_line_breaks() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    moto.create_bucket("events").await;
    let proxy = Proxy::to(moto.address());
    let endpoint = format!("http://{}", proxy.address());
    let sink = sinks::s3(&endpoint, sinks::within(BOUND), |_| {});
    let taken = break_anywhere(&sink, &proxy).await;
    let lines = moto.lines("events").await;
    check(taken, lines.iter().map(|line| text(&line["id"])));
}

#[tokio::test]
async fn whatever_sqs_was_heard_to_store_is_there_wherever_the_line_breaks() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    let queue = moto.create_queue("events").await;
    let proxy = Proxy::to(moto.address());
    let url = format!("http://{}{queue}", proxy.address());
    let sink = sinks::sqs(&url, sinks::within(BOUND), |_| {});
    let taken = break_anywhere(&sink, &proxy).await;
    let messages = moto.receive("events").await;
    let ids = messages
        .iter()
        .map(|message| text(&message["MessageAttributes"]["id"]["StringValue"]));
    check(taken, ids);
}

#[tokio::test]
async fn whatever_sns_was_heard_to_store_is_there_wherever_the_line_breaks() {
    let moto = Moto::start(env!("CARGO_TARGET_TMPDIR")).await;
    moto.create_queue("events").await;
    let topic = moto.create_topic("events").await;
    let proxy = Proxy::to(moto.address());
    let endpoint = format!("http://{}", proxy.address());
    let sink = sinks::sns(&endpoint, &topic, sinks::within(BOUND), |_| {});
    let taken = break_anywhere(&sink, &proxy).await;
    let messages = moto.receive("events").await;
    let ids = messages
        .iter()
        .map(|message| text(&message["MessageAttributes"]["id"]["StringValue"]));
    check(taken, ids);
}

#[tokio::test]
async fn whatever_pubsub_was_heard_to_publish_is_there_wherever_the_line_breaks() {
    let drongo = Drongo::start(env!("CARGO_TARGET_TMPDIR")).await;
    let topic = drongo.create_topic("events").await;
    let proxy = Proxy::to(drongo.address());
    let endpoint = format!("http://{}", proxy.address());
    let sink = sinks::pubsub(&endpoint, &topic, sinks::within(BOUND), |_| {});
    let taken = break_anywhere(&sink, &proxy).await;
    let messages = drongo.receive("events").await;
    let ids = messages.iter();
    check(
        taken,
        ids.map(|message| text(&message["attributes"]["ce-id"])),
    );
}

/// Deleting an exchange while batches are in flight closes their channels.
#[tokio::test]
async fn whatever_was_confirmed_before_its_exchange_went_is_there() {
    let corner = Corner::at(BROKER).await;
    let sink = sinks::amqp(
        format!("amqp://guest:guest@{BROKER}"),
        sinks::destination(),
        |it| it.exchange.clone_from(&corner.name),
    );
    let mut taken = Vec::new();
    let mut number = 0;
    let first = Notify::new();
    let delivering = async {
        loop {
            let batch: Vec<_> = (number..number + 200).map(of).collect();
            number += 200;
            let outcomes = sink.deliver(&batch).await;
            taken.extend(taken_of(&batch, &outcomes));
            first.notify_one();
            if outcomes.iter().any(Result::is_err) {
                return outcomes;
            }
        }
    };
    let deleting = async {
        first.notified().await;
        let options = ExchangeDeleteOptions::default();
        let name = corner.name.as_str().into();
        corner.channel.exchange_delete(name, options).await.unwrap();
    };
    let (last, ()) = answered(PATIENCE, async { tokio::join!(delivering, deleting) }).await;
    for outcome in last.iter().filter(|it| it.is_err()) {
        assert!(
            matches!(
                outcome,
                // The bindings of an exchange are deleted before it is.
                Err(SinkError::Unavailable {
                    error_type: "closed",
                    ..
                } | SinkError::Declined {
                    error_type: "unroutable",
                    ..
                })
            ),
            "{outcome:?}"
        );
    }
    let there = corner.taken().await;
    check(taken, there.iter().map(Taken::id));
}

#[tokio::test]
async fn the_events_of_a_key_arrive_in_order_however_the_leader_of_their_partition_moves() {
    let cluster = Cluster::of(3, &[("a", 1)]);
    let sink = sinks::kafka(&cluster.servers, sinks::within(BOUND / 2), |it| {
        sinks::property("topic.metadata.refresh.fast.interval.ms", "20")(it);
        sinks::property("retry.backoff.ms", "20")(it);
    });
    let (mut offered, mut failures) = (Vec::new(), 0);
    for number in 1..=12_u64 {
        let leader = i32::try_from(number % 3 + 1).unwrap();
        let old = leader % 3 + 1;
        let silence = match number % 4 {
            0 => Duration::from_mins(1),
            _ => Duration::ZERO,
        };
        // The old leader stores the record and its response is delayed, or the leader goes down.
        cluster.tell(move |broker| {
            for id in 1..=3 {
                broker.broker_round_trip_time(id, silence).unwrap();
            }
        });
        let offer = of(number);
        offered.push(offer.event().id.to_string());
        let first = deliver(&sink, offer.clone());
        let moving = async {
            tokio::task::yield_now().await;
            cluster.tell(move |broker| {
                broker.partition_leader("a", 0, Some(leader)).unwrap();
                if number.is_multiple_of(2) {
                    broker.broker_down(old).unwrap();
                }
            });
        };
        let (mut outcome, ()) = tokio::join!(first, moving);
        cluster.tell(|broker| {
            for id in 1..=3 {
                broker.broker_round_trip_time(id, Duration::ZERO).unwrap();
                broker.broker_up(id).unwrap();
            }
        });
        let again = async {
            while let Err(error) = &outcome {
                assert_matches!(error, SinkError::Unavailable { .. });
                failures += 1;
                outcome = deliver(&sink, offer.clone()).await;
            }
        };
        answered(PATIENCE, again).await;
    }
    assert!(
        failures > 0,
        "at least one offer must fail because of the old leader"
    );
    let mut seen = HashSet::new();
    let records = cluster.records("a").await;
    let ids = records.iter().filter_map(|it| header(it, "ce_id"));
    let order: Vec<_> = ids.filter(|id| seen.insert(id.clone())).collect();
    assert_eq!(order, offered);
}

/// Offers batches over connections that break at each of these bytes, in both directions. Returns
/// the ids of the events that were taken.
async fn break_anywhere(sink: &impl Sink, proxy: &Proxy) -> Vec<String> {
    let mut taken = Vec::new();
    let mut number = 0;
    for toward in [Direction::ToClient, Direction::ToServer] {
        for bytes in BYTES {
            // Every other time, an open connection breaks.
            for is_standing in [true, false] {
                if !is_standing {
                    proxy.reset();
                }
                proxy.set(toward, Fault::CutAfter(bytes));
                let batch: Vec<_> = (number..number + BATCH).map(of).collect();
                number += BATCH;
                let outcomes = answered(4 * BOUND, sink.deliver(&batch)).await;
                taken.extend(taken_of(&batch, &outcomes));
                proxy.heal().await;
                let outcome = answered(PATIENCE, async {
                    loop {
                        let outcome = deliver(sink, batch[0].clone()).await;
                        if outcome.is_ok() {
                            break outcome;
                        }
                    }
                });
                taken.extend(taken_of(&batch[..1], &[outcome.await]));
            }
        }
    }
    assert!(proxy.tally().cut > 0, "{:?}", proxy.tally());
    taken
}

#[track_caller]
fn check(taken: Vec<String>, there: impl Iterator<Item = String>) {
    let there: HashSet<_> = there.collect();
    assert!(!taken.is_empty(), "at least one event must be taken");
    for id in taken {
        assert!(there.contains(&id), "{id} was taken and is not stored");
    }
}

/// The ids of the events that were taken. The others may be delivered again.
fn taken_of(batch: &[Offer], outcomes: &[Outcome]) -> Vec<String> {
    assert_eq!(batch.len(), outcomes.len());
    let mut taken = Vec::new();
    for (offer, outcome) in batch.iter().zip(outcomes) {
        match outcome {
            Ok(_) => taken.push(offer.event().id.to_string()),
            // When an exchange is deleted, its bindings are deleted first: for a moment, no queue
            // is bound.
            Err(SinkError::Unavailable { .. } | SinkError::Declined { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    taken
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn of(number: u64) -> Offer {
    offer(number, NewEvent::json("a", &number).about("order", "o-1"))
}
