//! Lost history: a promoted standby, or a restored backup, does not have everything that was
//! committed. Events read from the lost history are read again from the checkpoint; reading in the
//! new history continues.

mod reading;
mod guide;
mod low;
mod moved;
mod relayed;
mod settling;
mod unsettled;

use hapax::{
    delivery::{Checkpoint, Frontier, Settlement, Shards},
    store::{Batch, Partitions, Settlements, Source},
};
use hapax_postgres::Postgres;
use hapax_testkit::{postgres::Cluster, wait::eventually};
use tokio_postgres::Client;

use crate::fixture::{PATIENCE, settings};

const PARTITION: &str = "hook";
const EMIT: &str = "
    INSERT INTO hapax.outbox_event (event_id, type, payload, headers, created_at)
    VALUES (gen_random_uuid(), 'a', '{}', '{}', now())";

/// Two servers that have diverged: both have the first event and its checkpoint. From then on each
/// draws the same ids and xids as the other.
struct Parted {
    old: Postgres,
    new: Postgres,
    /// Connections that bypass the stores.
    on_old: Client,
    on_new: Client,
    /// The epoch of the owner, which both servers know.
    epoch: i64,
    /// The checkpoint that both servers have.
    stands: Checkpoint,
    servers: [Cluster; 2],
}

impl Parted {
    /// Diverges by promoting a standby.
    async fn by_failover() -> Self {
        let (primary, epoch, stands) = begun().await;
        let standby = primary.standby().await;
        let there = standby.client().await;
        eventually(PATIENCE, async || {
            let outcome = "SELECT count(*) FROM hapax.position WHERE frontier = 1";
            there
                .query_one(outcome, &[])
                .await
                .unwrap()
                .get::<_, i64>(0)
                == 1
        })
        .await;
        standby.promote().await;
        Self::of([primary, standby], epoch, stands).await
    }

    /// Diverges by restoring a dump on another server.
    async fn by_restore() -> Self {
        let (server, epoch, stands) = begun().await;
        let restored = server.restored().await;
        Self::of([server, restored], epoch, stands).await
    }

    async fn of(servers: [Cluster; 2], epoch: i64, stands: Checkpoint) -> Self {
        let [old, new] = &servers;
        Self {
            old: Postgres::open(settings(&old.url())).await.unwrap(),
            new: Postgres::open(settings(&new.url())).await.unwrap(),
            on_old: old.client().await,
            on_new: new.client().await,
            epoch,
            stands,
            servers,
        }
    }

    /// Emits three events on each server, under the same ids, and reads those of the old server.
    async fn lost(&self) -> Batch {
        for _ in 0..3 {
            self.on_old.batch_execute(EMIT).await.unwrap();
            self.on_new.batch_execute(EMIT).await.unwrap();
        }
        let batch = read(&self.old, &self.stands.frontier).await;
        assert_eq!(positions(&batch), [2, 3, 4]);
        batch
    }

    /// Opens the partition on the new server. Requires that its checkpoint is unchanged, and that
    /// the events with the ids of the lost ones are read and can be settled.
    async fn goes_on(&self) {
        let opened = self.new.open(PARTITION).await.unwrap();
        assert_eq!(opened.checkpoint, self.stands);
        let batch = read(&self.new, &opened.checkpoint.frontier).await;
        assert_eq!(positions(&batch), [2, 3, 4]);
        let read_to = batch.frontier.clone();
        let settlement = Settlement {
            read: vec![read_to.clone()],
            ..settlement(opened.epoch, Some(at(&read_to)))
        };
        self.new.settle(settlement).await.unwrap();
        assert_eq!(read(&self.new, &read_to).await.events.len(), 0);
    }
}

/// A server with one settled event.
async fn begun() -> (Cluster, i64, Checkpoint) {
    let server = Cluster::start().await;
    let store = Postgres::open(settings(&server.url())).await.unwrap();
    server.client().await.batch_execute(EMIT).await.unwrap();
    let opened = store.open(PARTITION).await.unwrap();
    let batch = read(&store, &opened.checkpoint.frontier).await;
    assert_eq!(positions(&batch), [1]);
    let stands = at(&batch.frontier);
    let settled = store.settle(settlement(opened.epoch, Some(stands.clone())));
    settled.await.unwrap();
    (server, opened.epoch, stands)
}

async fn read(store: &Postgres, from: &Frontier) -> Batch {
    Source::read(store, from, Shards::ALL, 10).await.unwrap()
}

fn positions(batch: &Batch) -> Vec<i64> {
    batch.events.iter().map(|event| event.position).collect()
}

fn at(frontier: &Frontier) -> Checkpoint {
    Checkpoint {
        frontier: frontier.clone(),
        ..Checkpoint::default()
    }
}

fn settlement(epoch: i64, checkpoint: Option<Checkpoint>) -> Settlement {
    Settlement {
        destination: PARTITION.to_owned(),
        epoch,
        checkpoint,
        ..Settlement::default()
    }
}
