//! An image takes the database's place between a read and its settlement: nothing that the database
//! holds tells, but the events that were read.

use std::{sync::Arc, time::Duration};

use hapax::relay::{Destination, Relay, RelayHandle, Settings};
use hapax_postgres::Postgres;
use hapax_testkit::{clock::seeded_random, postgres::Cluster, wait::eventually};
use tokio::{sync::watch, time::sleep};

use super::{
    moved::{SHOP, emit},
    relayed::Slow,
};
use crate::fixture::{PATIENCE, clock, settings};

/// Longer than a relay takes to read what it was told of.
const READ_ON: Duration = Duration::from_secs(2);

/// The relay waits for its far side, and has read on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_event_that_got_the_id_of_one_that_was_read_and_not_settled_arrives() {
    // The ids that were read are given again, all of them and more.
    for later in [3, 5] {
        let cluster = Cluster::start().await;
        cluster.create(SHOP).await;
        let mut settings = settings(&cluster.url_of(SHOP));
        settings.connect_max = Duration::from_secs(2);
        let store = Postgres::open(settings).await.unwrap();
        let sink = Slow {
            taken: Arc::default(),
            answers: watch::Sender::new(false),
        };
        let relay = spawn(&store, &sink);
        emit(&cluster.client_of(SHOP).await, "first", 1).await;
        store.wake().ring();
        eventually(PATIENCE, async || sink.count("first") == 1).await;
        // The last settlement says that it was offered.
        let image = cluster.dump(SHOP).await;
        emit(&cluster.client_of(SHOP).await, "lost", 3).await;
        store.wake().ring();
        sleep(READ_ON).await;
        cluster.restore(&image, SHOP).await;
        emit(&cluster.client_of(SHOP).await, "kept", later).await;
        sink.answers.send_replace(true);
        let later = usize::try_from(later).unwrap();
        eventually(PATIENCE, async || sink.count("kept") == later).await;
        // They were in the relay's hands, and were never offered.
        assert_eq!(sink.count("lost"), 0);
        relay.drain().await;
    }
}

/// A relay that has one offer at a time on the wire.
fn spawn(store: &Postgres, sink: &Slow) -> RelayHandle {
    let destination = Destination::new("far", Arc::new(sink.clone())).concurrency(1);
    // A relay that shares its database with others finds its own sign of life set back, and takes
    // its parts anew.
    let settings = Settings::new(clock(), seeded_random(2));
    Relay::spawn(store, vec![destination], &settings, &store.wake())
}
