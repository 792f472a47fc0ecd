//! A relay whose database is replaced by an earlier state of itself, under the same name: every
//! event that is committed afterwards is delivered.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use hapax::{
    relay::{Destination, Node, Relay, RelayHandle, Settings},
    sink::{Offer, Outcome, Receipt, Sink},
};
use hapax_postgres::Postgres;
use hapax_testkit::{clock::seeded_random, postgres::Cluster, proxy::Proxy, wait::eventually};
use tokio_postgres::Client;

use crate::fixture::{PATIENCE, clock, settings};

pub(super) const SHOP: &str = "shop";
/// Destinations with their number of partitions.
const PLACES: [(&str, u8); 2] = [("whole", 1), ("halves", 2)];

/// How often each event was received, by type and number.
#[derive(Clone, Debug, Default)]
pub(super) struct Far(Arc<Mutex<BTreeMap<(String, i64), usize>>>);

impl Far {
    /// How many different events of a type were received.
    pub(super) fn count(&self, kind: &str) -> usize {
        let taken = self.0.lock().unwrap();
        taken.keys().filter(|(of, _)| of == kind).count()
    }

    /// Whether an event of a type was received more than once.
    fn has_repeated(&self, kind: &str) -> bool {
        let taken = self.0.lock().unwrap();
        taken
            .iter()
            .any(|((of, _), times)| of == kind && *times > 1)
    }
}

impl Sink for Far {
    fn kind(&self) -> &'static str {
        "far"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async move {
            let mut taken = self.0.lock().unwrap();
            for offer in offers {
                let event = &offer.event.event;
                let number = event.sequence.unwrap_or_default();
                *taken.entry((event.kind.clone(), number)).or_default() += 1;
            }
            offers.iter().map(|_| Ok(Receipt::default())).collect()
        })
    }

    fn batch_max(&self) -> usize {
        10
    }
}

/// A server with the database of a shop, and a relay that connects through a proxy.
pub(super) struct Scene {
    pub(super) cluster: Cluster,
    proxy: Proxy,
    store: Postgres,
    relay: Option<RelayHandle>,
    far: [Far; 2],
}

impl Scene {
    pub(super) async fn begin() -> Self {
        Self::on(Cluster::start().await, Some("one")).await
    }

    pub(super) async fn on(cluster: Cluster, node: Option<&str>) -> Self {
        cluster.create(SHOP).await;
        let proxy = Proxy::to_postgres(cluster.address());
        let mut settings = settings(&proxy.url(&cluster.url_of(SHOP)));
        settings.connect_max = Duration::from_secs(2);
        let store = Postgres::open(settings).await.unwrap();
        let far = [Far::default(), Far::default()];
        let relay = Some(spawn(&store, &far, node));
        Self {
            cluster,
            proxy,
            store,
            relay,
            far,
        }
    }

    /// Commits events, bypassing the proxy.
    pub(super) async fn emit(&self, kind: &str, count: i32) {
        emit(&self.cluster.client_of(SHOP).await, kind, count).await;
        self.store.notifier().notify();
    }

    /// Waits until every destination has received `count` different events of a type.
    pub(super) async fn arrived(&self, kind: &str, count: usize) {
        eventually(PATIENCE, async || {
            self.far.iter().all(|far| far.count(kind) == count)
        })
        .await;
    }

    /// Waits until every partition has settled all events.
    pub(super) async fn settled(&self) {
        let client = self.cluster.client_of(SHOP).await;
        settled(&client).await;
    }

    /// Cuts the relay off from its database.
    fn cut(&self) {
        // Nothing listens on this port.
        self.proxy.lead_to("127.0.0.1:1");
        self.proxy.reset();
    }

    fn lead_to(&self, cluster: &Cluster) {
        self.proxy.lead_to(cluster.address());
        self.proxy.reset();
    }

    /// Ends the relay as a crash would, and starts another one.
    async fn restart(&mut self) {
        drop(self.relay.take());
        self.store = Postgres::open(self.store.settings().clone()).await.unwrap();
        self.relay = Some(spawn(&self.store, &self.far, Some("one")));
    }

    pub(super) async fn end(mut self) -> Cluster {
        self.relay.take().unwrap().drain().await;
        self.store.close();
        self.cluster
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_dump_that_takes_the_databases_name_every_later_event_arrives() {
    for later in [50, 250] {
        let scene = dumped().await;
        let dump = scene.1;
        let scene = scene.0;
        scene.cluster.create("restored").await;
        scene.cluster.restore(&dump, "restored").await;
        scene.cut();
        scene.cluster.swap("restored", SHOP, "away").await;
        scene.emit("kept", later).await;
        scene.lead_to(&scene.cluster);
        scene.arrived("kept", usize::try_from(later).unwrap()).await;
        assert!(!scene.far[0].has_repeated("first"));
        scene.settled().await;
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_dump_that_takes_the_name_under_a_connected_relay_every_later_event_arrives() {
    let (scene, dump) = dumped().await;
    scene.cluster.create("restored").await;
    scene.cluster.restore(&dump, "restored").await;
    scene.cluster.swap("restored", SHOP, "away").await;
    scene.emit("kept", 50).await;
    scene.arrived("kept", 50).await;
    scene.emit("last", 200).await;
    scene.arrived("last", 200).await;
    scene.settled().await;
    scene.end().await;
}

/// The database and the server are the same, so only the stored data can reveal the restore.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_dump_that_is_restored_over_its_database_every_later_event_arrives() {
    // After the restore, the sequence ends below the highest id that was read, at it, or above it.
    for later in [50, 200, 250] {
        let (scene, dump) = dumped().await;
        scene.cut();
        scene.cluster.restore(&dump, SHOP).await;
        scene.emit("kept", later).await;
        scene.lead_to(&scene.cluster);
        // No later event follows that could reveal the restore.
        scene.arrived("kept", usize::try_from(later).unwrap()).await;
        scene.settled().await;
        scene.end().await;
    }
}

/// A restored file system or virtual machine: cluster, timeline and database are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_disk_that_is_set_back_every_later_event_arrives() {
    for later in [50, 250] {
        let scene = Scene::begin().await;
        scene.emit("first", 20).await;
        scene.arrived("first", 20).await;
        scene.settled().await;
        let image = scene.cluster.after_power_loss(|_, _, _| {}).await.unwrap();
        scene.emit("lost", 200).await;
        scene.arrived("lost", 200).await;
        scene.settled().await;
        scene.cut();
        let there = image.client_of(SHOP).await;
        emit(&there, "kept", later).await;
        scene.lead_to(&image);
        scene.arrived("kept", usize::try_from(later).unwrap()).await;
        settled(&there).await;
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_relay_that_begins_after_a_restore_delivers_every_later_event() {
    for is_in_place in [true, false] {
        let (mut scene, dump) = dumped().await;
        scene.cut();
        if is_in_place {
            scene.cluster.restore(&dump, SHOP).await;
        } else {
            scene.cluster.create("restored").await;
            scene.cluster.restore(&dump, "restored").await;
            scene.cluster.swap("restored", SHOP, "away").await;
        }
        scene.emit("kept", 250).await;
        scene.lead_to(&scene.cluster);
        scene.restart().await;
        scene.arrived("kept", 250).await;
        scene.settled().await;
        scene.end().await;
    }
}

/// A relay without a node name has no membership, which would otherwise reveal that the database
/// was replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_relay_that_is_alone_goes_on_too() {
    let scene = Scene::on(Cluster::start().await, None).await;
    scene.emit("first", 20).await;
    scene.arrived("first", 20).await;
    scene.settled().await;
    let dump = scene.cluster.dump(SHOP).await;
    scene.emit("lost", 200).await;
    scene.arrived("lost", 200).await;
    scene.settled().await;
    scene.cut();
    scene.cluster.restore(&dump, SHOP).await;
    scene.emit("kept", 50).await;
    scene.lead_to(&scene.cluster);
    scene.arrived("kept", 50).await;
    scene.settled().await;
    scene.end().await;
}

/// A relay that has delivered 20 events when its database is dumped, and 200 more since then.
async fn dumped() -> (Scene, hapax_testkit::postgres::Dump) {
    let scene = Scene::begin().await;
    scene.emit("first", 20).await;
    scene.arrived("first", 20).await;
    scene.settled().await;
    let dump = scene.cluster.dump(SHOP).await;
    scene.emit("lost", 200).await;
    scene.arrived("lost", 200).await;
    scene.settled().await;
    (scene, dump)
}

pub(super) async fn emit(client: &Client, kind: &str, count: i32) {
    const EMIT: &str = "
        INSERT INTO hapax.outbox_event
            (event_id, type, sequence, aggregate_type, aggregate_id, shard, payload, headers,
             created_at)
        SELECT id, $1, number, 'order', number::text,
               hapax.shard_of('order', number::text, id), '{}', '{}', now()
        FROM (SELECT gen_random_uuid() AS id, number FROM generate_series(1, $2) AS number) AS event
        ORDER BY event.number";
    client.execute(EMIT, &[&kind, &count]).await.unwrap();
}

/// Waits until every partition has passed every event.
pub(super) async fn settled(client: &Client) {
    const BEHIND: &str = "
        SELECT count(*) FROM hapax.position
        WHERE offered <> '' OR frontier < (SELECT max(id) FROM hapax.outbox_event
            WHERE CASE position('/' IN partition)
                WHEN 0 THEN true
                ELSE shard % 2 = split_part(partition, '/', 2)::integer
            END)";
    eventually(PATIENCE, async || {
        let behind = client.query_one(BEHIND, &[]).await.unwrap();
        behind.get::<_, i64>(0) == 0
    })
    .await;
}

pub(super) fn spawn(store: &Postgres, far: &[Far; 2], node: Option<&str>) -> RelayHandle {
    let destinations = PLACES.iter().zip(far);
    let destinations = destinations.map(|((name, partitions), sink)| {
        let destination = Destination::new(*name, Arc::new(sink.clone()));
        destination.partitions(*partitions).unwrap()
    });
    let mut settings = Settings::new(clock(), seeded_random(2));
    settings.node = node.map(|name| Node {
        name: name.to_owned(),
        lease: Duration::from_secs(1),
    });
    Relay::spawn(store, destinations.collect(), &settings, &store.notifier())
}
