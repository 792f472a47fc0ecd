//! Failover slots: the primary is killed under writers, its standby is promoted, and the feed
//! continues there. PostgreSQL has such slots from version 17 on.

use std::time::Duration;

use hapax_postgres::{Feed, Postgres};
use hapax_testkit::{
    postgres::{Cluster, Database, connect},
    wait::{eventually, pace},
};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::{Fed, LOGICAL, OUTBOX, Running, count, feed, insert, texts};
use crate::fixture::{PATIENCE, settings};

const STANDBY: &str = "standby";
const WRITERS: usize = 3;
/// While the slots of the primary do not change, a standby looks at them less and less often, down
/// to once in 30 s.
const SYNC_PATIENCE: Duration = Duration::from_mins(2);
/// What the guide requires before a switchover.
const SYNCED: &str = "SELECT count(*) FROM pg_replication_slots
    WHERE slot_name = 'hapax_orders' AND synced AND NOT temporary AND invalidation_reason IS NULL";
/// What was committed, by aggregate, in the order of the commits.
const ROWS: &str = "SELECT owner || '/' || payload FROM outbox ORDER BY owner, id";
const EVENTS: &str =
    "SELECT aggregate_id || '/' || payload FROM hapax.outbox_event ORDER BY aggregate_id, id";
const NUMBER: &str = "SELECT count(*) FROM hapax.outbox_event";

/// Two servers, and a feed that reads from whichever of them is the primary.
struct Pair {
    /// The first primary, with the store of the events.
    fed: Fed,
    standby: Cluster,
    running: Running,
    /// The URL of the store.
    stored: String,
}

impl Pair {
    /// Sets up the servers as the guide says. The tables of Hapax are in the database of the source,
    /// or in another one.
    async fn new(elsewhere: Option<&Database>) -> Self {
        let target_tmp = env!("CARGO_TARGET_TMPDIR");
        let primary = Cluster::start_with_failover_slots(target_tmp, &LOGICAL).await;
        let mut fed = Fed::on(primary, OUTBOX).await;
        let standby = fed.cluster.standby_with_failover_slots(STANDBY).await;
        // The standby has no copy of these settings: once it is promoted, it has no standby.
        let mut waits = vec![("synchronized_standby_slots", STANDBY)];
        if elsewhere.is_none() {
            waits.push(("synchronous_standby_names", STANDBY));
        }
        fed.cluster.settings(&waits).await;
        let url = format!(
            "postgres://postgres@{},{}/postgres?target_session_attrs=read-write",
            fed.cluster.address(),
            standby.address()
        );
        let stored = elsewhere.map_or_else(|| url.clone(), Database::url);
        fed.store = Postgres::open(settings(&stored)).await.unwrap();
        fed.plain = connect(&stored).await;
        let kept = Feed {
            failover: true,
            ..feed()
        };
        let running = fed.run_from(&url, kept);
        fed.has_started().await;
        Self {
            fed,
            standby,
            running,
            stored,
        }
    }

    /// Waits until a promotion would keep the slot. For that, the feed has to pass the transactions
    /// that were open when the standby saw the slot for the first time.
    async fn is_synced(&self) {
        let here = self.fed.cluster.client().await;
        let there = self.standby.client().await;
        let mut written = 0;
        eventually(SYNC_PATIENCE, async || {
            written += 1;
            let snapshot = "SELECT pg_log_standby_snapshot()";
            here.batch_execute(snapshot).await.unwrap();
            here.batch_execute(&insert(written, written)).await.unwrap();
            pace(Duration::from_millis(50)).await;
            count(&there, SYNCED).await == 1
        })
        .await;
    }

    /// Kills the primary while rows are written and read, and promotes the standby. Returns how many
    /// rows of each writer were certainly committed.
    async fn fails_over(&mut self) -> Vec<usize> {
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            writers.push(writer(self.fed.cluster.client().await, number));
        }
        let before = self.fed.count(NUMBER).await;
        eventually(PATIENCE, async || {
            self.fed.count(NUMBER).await > before + 300
        })
        .await;
        self.fed.cluster.kill().await;
        self.standby.promote().await;
        self.fed.plain = connect(&self.stored).await;
        let mut committed = Vec::new();
        for writer in writers {
            committed.push(writer.await.unwrap());
        }
        committed
    }

    /// Requires that the rows of the promoted server are the events, each once, in the order of
    /// their aggregate, and that the feed has reported no gap. Returns the rows.
    async fn holds(&self) -> Vec<String> {
        let rows = texts(&self.standby.client().await, ROWS).await;
        let number = i64::try_from(rows.len()).unwrap();
        let fed = &self.fed;
        eventually(PATIENCE, async || {
            let gaps = "SELECT gap FROM hapax.feed WHERE gap IS NOT NULL";
            let gaps = texts(&fed.plain, gaps).await;
            assert!(gaps.is_empty(), "{gaps:?}");
            fed.count(NUMBER).await >= number
        })
        .await;
        assert_eq!(texts(&fed.plain, EVENTS).await, rows);
        let continues = "SELECT count(*) FROM hapax.feed WHERE gap IS NULL AND timeline = 2";
        assert_eq!(fed.count(continues).await, 1);
        let aside = texts(&fed.plain, "SELECT problem FROM hapax.set_aside").await;
        assert!(aside.is_empty(), "{aside:?}");
        rows
    }
}

/// Inserts rows of one aggregate, one after the other, until the server is gone. Returns how many of
/// them were committed; the next one may have been, too.
fn writer(client: Client, number: usize) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let mut committed = 0;
        while client
            .batch_execute(&row(number, committed + 1))
            .await
            .is_ok()
        {
            committed += 1;
            pace(Duration::from_millis(1)).await;
        }
        committed
    })
}

/// The insert of a row of this writer.
fn row(writer: usize, payload: usize) -> String {
    format!("INSERT INTO outbox (topic, owner, payload) VALUES ('a', 'w{writer}', '{payload}')")
}

/// Requires that a feed continues after a failover. Returns the rows of the promoted server, and how
/// many of each writer the primary has committed.
async fn survives(elsewhere: Option<&Database>) -> (Vec<String>, Vec<usize>) {
    let mut pair = Pair::new(elsewhere).await;
    pair.is_synced().await;
    let committed = pair.fails_over().await;
    let promoted = pair.standby.client().await;
    for (writer, committed) in committed.iter().enumerate() {
        let later = row(writer, committed + 2);
        promoted.batch_execute(&later).await.unwrap();
    }
    let rows = pair.holds().await;
    pair.running.stop().await;
    (rows, committed)
}

/// With a synchronous standby, nothing that was committed is missing.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_failover_slot_a_killed_primary_is_no_gap_and_each_commit_is_one_event_in_order() {
    let (rows, committed) = survives(None).await;
    for (writer, committed) in committed.into_iter().enumerate() {
        let of_writer = format!("w{writer}/");
        let kept = rows.iter().filter(|row| row.starts_with(&of_writer));
        // The row that was in progress may be there; the row after the promotion is.
        let kept = kept.count() - 1;
        assert!(kept == committed || kept == committed + 1, "{kept}");
    }
}

/// The standby is asynchronous, so the feed must not have read what the standby does not have.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_failover_slot_and_a_store_elsewhere_a_killed_primary_is_no_gap() {
    survives(Some(&Database::fresh().await)).await;
}
