//! A relay whose address is switched to a promoted standby while it delivers events that the
//! standby does not have.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    relay::{Destination, Node, Relay, RelayHandle, Settings},
    sink::{Offer, Outcome, Receipt, Sink},
    store::Settlements,
};
use hapax_postgres::Postgres;
use hapax_testkit::{clock::seeded_random, postgres::Cluster, proxy::Proxy, wait::eventually};
use tokio::sync::watch;
use tokio_postgres::Client;

use crate::fixture::{PATIENCE, clock, settings};

const PLACES: [&str; 2] = ["far", "near"];

/// Records the types of the events that it receives, and responds when it is allowed to.
#[derive(Clone)]
struct Slow {
    taken: Arc<Mutex<Vec<String>>>,
    responses: watch::Sender<bool>,
}

impl Slow {
    fn count(&self, kind: &str) -> usize {
        let taken = self.taken.lock().unwrap();
        taken.iter().filter(|taken| *taken == kind).count()
    }
}

impl Sink for Slow {
    fn kind(&self) -> &'static str {
        "slow"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let kinds = offers.iter().map(|offer| offer.event.event.kind.clone());
            self.taken.lock().unwrap().extend(kinds);
            let mut responses = self.responses.subscribe();
            let _told = responses.wait_for(|responses| *responses).await;
            offers.iter().map(|_| Ok(Receipt::default())).collect()
        })
    }

    fn batch_max(&self) -> usize {
        10
    }
}

/// A relay, its sinks, a primary, a standby, and the proxy in between.
struct Led {
    primary: Cluster,
    standby: Cluster,
    proxy: Proxy,
    store: Postgres,
    relay: RelayHandle,
    /// One sink per destination.
    sinks: [Slow; 2],
}

impl Led {
    /// Starts a relay that has delivered one event to each destination; the standby has both
    /// checkpoints.
    async fn begin() -> Self {
        let primary = Cluster::start().await;
        let standby = primary.standby().await;
        let proxy = Proxy::to_postgres(primary.address());
        let mut settings = settings(&proxy.url(&primary.url()));
        settings.connect_max = Duration::from_secs(2);
        let store = Postgres::open(settings).await.unwrap();
        emit(&primary.client().await, "first", 1).await;
        let sinks = PLACES.map(|_| Slow {
            taken: Arc::default(),
            responses: watch::Sender::new(true),
        });
        let relay = spawn(&store, &sinks);
        let there = standby.client().await;
        eventually(PATIENCE, async || {
            // At first the standby may not even have the table.
            let outcome = there.query_one(
                "SELECT count(*) FROM hapax.position WHERE frontier = 1",
                &[],
            );
            outcome.await.is_ok_and(|row| row.get::<_, i64>(0) == 2)
        })
        .await;
        Self {
            primary,
            standby,
            proxy,
            store,
            relay,
            sinks,
        }
    }

    fn response(&self, responses: bool) {
        for sink in &self.sinks {
            sink.responses.send_replace(responses);
        }
    }

    /// How many events of a type each destination has received.
    fn all(&self, kind: &str) -> [usize; 2] {
        [0, 1].map(|place| self.sinks[place].count(kind))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_relay_with_lost_events_on_the_wire_delivers_those_that_got_their_ids() {
    let led = Led::begin().await;
    led.response(false);
    led.standby.promote().await;
    // The standby never receives these events, nor the checkpoints after them.
    emit(&led.primary.client().await, "lost", 3).await;
    led.store.notifier().notify();
    eventually(PATIENCE, async || led.all("lost") == [3, 3]).await;
    let there = led.standby.client().await;
    emit(&there, "kept", 3).await;
    led.proxy.lead_to(led.standby.address());
    led.proxy.reset();
    led.response(true);
    eventually(PATIENCE, async || led.all("kept") == [3, 3]).await;
    for place in PLACES {
        eventually(PATIENCE, async || {
            led.store
                .backlog(place)
                .await
                .is_ok_and(|it| it.events == 0)
        })
        .await;
    }
    emit(&there, "last", 1).await;
    led.store.notifier().notify();
    eventually(PATIENCE, async || led.all("last") == [1, 1]).await;
    assert_eq!((led.all("kept"), led.all("lost")), ([3, 3], [3, 3]));
    // Each partition was taken only once more.
    let epochs = there
        .query("SELECT epoch FROM hapax.lease ORDER BY partition", &[])
        .await
        .unwrap();
    let epochs: Vec<i64> = epochs.iter().map(|row| row.get(0)).collect();
    assert_eq!(epochs, [2, 2]);
    led.relay.drain().await;
}

/// Nothing remains to be settled, so the relay notices the failover at its next read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_idle_relay_whose_last_checkpoint_is_lost_delivers_what_comes_behind_it() {
    let led = Led::begin().await;
    led.standby.promote().await;
    emit(&led.primary.client().await, "lost", 3).await;
    led.store.notifier().notify();
    eventually(PATIENCE, async || led.all("lost") == [3, 3]).await;
    for place in PLACES {
        eventually(PATIENCE, async || {
            led.store.backlog(place).await.unwrap().events == 0
        })
        .await;
    }
    emit(&led.standby.client().await, "kept", 3).await;
    led.proxy.lead_to(led.standby.address());
    led.proxy.reset();
    led.store.notifier().notify();
    eventually(PATIENCE, async || led.all("kept") == [3, 3]).await;
    led.relay.drain().await;
}

async fn emit(client: &Client, kind: &str, count: i64) {
    const EMIT: &str = "
        INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
        SELECT gen_random_uuid(), $1, '{}', '{}', now() FROM generate_series(1, $2)";
    let (kind, count): (&str, i64) = (kind, count);
    client
        .execute(EMIT, &[&kind, &i32::try_from(count).unwrap()])
        .await
        .unwrap();
}

fn spawn(store: &Postgres, sinks: &[Slow; 2]) -> RelayHandle {
    let destinations = PLACES.iter().zip(sinks);
    let destinations =
        destinations.map(|(name, sink)| Destination::new(*name, Arc::new(sink.clone())));
    let mut settings = Settings::new(clock(), seeded_random(2));
    // With a long poll interval, the relay settles the events that it holds before it reads again.
    settings.poll_idle = Duration::from_mins(10);
    settings.node = Some(Node {
        name: "one".to_owned(),
        lease: Duration::from_secs(1),
    });
    Relay::spawn(store, destinations.collect(), &settings, &store.notifier())
}
