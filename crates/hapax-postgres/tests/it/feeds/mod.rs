//! Feeds: logical replication from a real server with `wal_level = logical`.

mod outbox;
mod messages;
mod mapped;
mod partitions;
mod names;
mod crashes;
mod gaps;
mod failover;

use hapax_postgres::{Change, Feed, FeedTable, Feeder, Postgres};
use hapax_testkit::{postgres::Cluster, wait::eventually};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::Client;

use crate::fixture::{PATIENCE, settings};

/// An outbox table that a service has, and its publication.
pub(crate) const OUTBOX: &str = "
    CREATE TABLE outbox (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, owner text,
        payload text);
    CREATE PUBLICATION hapax_orders FOR TABLE outbox";

/// Settings of a source. A server that is gone frees the slot soon, and so does a feeder.
const LOGICAL: [(&str, &str); 2] = [("wal_level", "logical"), ("wal_sender_timeout", "3s")];

/// A server, and a store in the database of the source.
pub(crate) struct Fed {
    pub(crate) cluster: Cluster,
    pub(crate) store: Postgres,
    pub(crate) plain: Client,
}

/// A feeder that runs.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Fed {
    /// A server with these tables.
    pub(crate) async fn new(ddl: &str) -> Self {
        Self::on(Cluster::start_with(&LOGICAL).await, ddl).await
    }

    /// The same on this server.
    async fn on(cluster: Cluster, ddl: &str) -> Self {
        let plain = cluster.client().await;
        plain.batch_execute(ddl).await.unwrap();
        let store = Postgres::open(settings(&cluster.url())).await.unwrap();
        Self {
            cluster,
            store,
            plain,
        }
    }

    /// Runs a feed from the database of the store, and waits until it has a position.
    pub(crate) async fn run(&self, feed: Feed) -> Running {
        let running = self.run_from(&self.cluster.url(), feed);
        self.has_started().await;
        running
    }

    /// Runs a feed from another database.
    pub(crate) fn run_from(&self, url: &str, feed: Feed) -> Running {
        let feeder = Feeder::new(&self.store, settings(url), feed);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(feeder.run(async move {
            let _dropped = stopped.await;
        }));
        Running { stop, task }
    }

    pub(crate) async fn has_started(&self) {
        let started = "SELECT count(*) FROM hapax.feed WHERE confirmed_lsn IS NOT NULL";
        eventually(PATIENCE, async || self.count(started).await == 1).await;
    }

    pub(crate) async fn sql(&self, sql: &str) {
        let ran = self.plain.batch_execute(sql).await;
        ran.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        count(&self.plain, sql).await
    }

    /// Waits until so many events are in the outbox, and returns a column of them, in their order.
    pub(crate) async fn events(&self, at_least: i64, column: &str) -> Vec<String> {
        let all = "SELECT count(*) FROM hapax.outbox_event";
        eventually(PATIENCE, async || self.count(all).await >= at_least).await;
        texts(
            &self.plain,
            &format!("SELECT {column} FROM hapax.outbox_event ORDER BY id"),
        )
        .await
    }
}

impl Running {
    /// Stops the feeder, and waits until it has ended.
    pub(crate) async fn stop(self) {
        let _ended = self.stop.send(());
        self.task.await.unwrap();
    }

    /// Waits until the feeder has panicked.
    pub(crate) async fn died(self) {
        assert!(self.task.await.unwrap_err().is_panic());
    }

    /// Drops the feeder wherever it is.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// The feed of [`OUTBOX`].
pub(crate) fn feed() -> Feed {
    Feed {
        name: "orders".to_owned(),
        slot: "hapax_orders".to_owned(),
        publication: "hapax_orders".to_owned(),
        failover: false,
        tables: vec![FeedTable {
            schema: "public".to_owned(),
            table: "outbox".to_owned(),
            on: vec![Change::Insert],
            kind: Some("topic".to_owned()),
            payload: Some("payload".to_owned()),
            aggregate_type_constant: Some("order".to_owned()),
            aggregate_id: Some("owner".to_owned()),
            ..FeedTable::default()
        }],
        message_prefix: None,
    }
}

/// Inserts rows with the numbers from `first` to `last` as payloads, of three aggregates.
pub(crate) fn insert(first: usize, last: usize) -> String {
    format!(
        "INSERT INTO outbox (topic, owner, payload)
         SELECT 'a', n % 3, n FROM generate_series({first}, {last}) AS n"
    )
}

pub(crate) async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

pub(crate) async fn texts(client: &Client, sql: &str) -> Vec<String> {
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The numbers from 1 to `last`, as texts.
pub(crate) fn numbers(last: usize) -> Vec<String> {
    (1..=last).map(|number| number.to_string()).collect()
}
