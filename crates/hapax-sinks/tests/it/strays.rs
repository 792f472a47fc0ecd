//! Events that a receiver does not accept, before events that it accepts, with real brokers and a
//! relay.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::stream;
use hapax::{
    event::{Headers, NewEvent},
    relay::{Destination, Relay},
    sink::Sink,
    store::{Keys as _, Transaction as _},
};
use hapax_testkit::{clock::seeded_random, name::unused, wait::eventually};

use crate::{
    amqp_broker::{BROKER, Corner},
    consumer::store,
    events::clock,
    nats::{context, read},
    sinks,
};

/// More events than one batch contains, so that the others are read when these were declined.
const STRAYS: usize = 1_100;
/// At most one batch of events. A full queue is a failure of the broker, and more events would open
/// the breaker.
const REFUSED: usize = 90;
const OTHERS: usize = 5;
/// The breaker's clock does not move, so a breaker that opens stays open.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn events_that_no_queue_listens_for_hold_up_none_of_those_behind_them() {
    let corner = Corner::empty(BROKER).await;
    corner.queue("all", &[]).await;
    corner.bind("all", "order.#").await;
    let sink = sinks::amqp(
        format!("amqp://guest:guest@{BROKER}"),
        sinks::destination(),
        |it| it.exchange.clone_from(&corner.name),
    );
    check(Arc::new(sink), STRAYS, async || corner.taken().await.len()).await;
}

/// The queue of one type is full and refuses events. That of another type has room.
#[tokio::test]
async fn events_of_a_full_queue_hold_up_none_of_those_behind_them() {
    let corner = Corner::empty(BROKER).await;
    corner.queue("all", &[]).await;
    corner.bind("all", "order.#").await;
    corner.full_queue("full").await;
    corner.bind("full", "seq.next").await;
    let sink = sinks::amqp(
        format!("amqp://guest:guest@{BROKER}"),
        sinks::destination(),
        |it| it.exchange.clone_from(&corner.name),
    );
    check(Arc::new(sink), REFUSED, async || corner.taken().await.len()).await;
}

#[tokio::test]
async fn events_that_no_stream_takes_hold_up_none_of_those_behind_them() {
    let (server, name) = ("127.0.0.1:4222", unused("hapax-strays"));
    let direct = context(server).await;
    let settings = stream::Config {
        name: name.clone(),
        subjects: vec![format!("{name}.order.>")],
        storage: stream::StorageType::Memory,
        ..stream::Config::default()
    };
    direct.create_stream(settings).await.unwrap();
    let sink = sinks::nats(format!("nats://{server}"), sinks::destination(), |it| {
        it.subject = Some(format!("{name}.{{type}}"));
    });
    check(Arc::new(sink), STRAYS, async || {
        read(&direct, &name).await.len()
    })
    .await;
    direct.delete_stream(name).await.unwrap();
}

async fn check(sink: Arc<dyn Sink>, strays: usize, arrived: impl AsyncFn() -> usize) {
    let (store, _directory) = store("").await;
    for (kind, count) in [("seq.next", strays), ("order.created", OTHERS)] {
        let mut numbers = (0..count).peekable();
        while numbers.peek().is_some() {
            let mut tx = store.begin(None, Headers::new()).await.unwrap();
            for number in numbers.by_ref().take(100) {
                tx.emit(NewEvent::json(kind, &number)).unwrap();
            }
            tx.commit().await.unwrap();
        }
    }
    let settings = hapax::relay::Settings::new(clock(), seeded_random(2));
    let destination = Destination::new("broker", sink).concurrency(1);
    let relay = Relay::spawn(&store, vec![destination], &settings, &store.notifier());
    eventually(PATIENCE, async || arrived().await == OTHERS).await;
    relay.drain().await;
}
