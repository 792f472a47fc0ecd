//! Writers: they emit events with plain SQL, as a service in any language would, and often roll
//! back.
//!
//! Each transaction writes a row for its event. After the commit, the row proves that the event
//! must arrive. The numbers of a key are assigned under the lock of the key's row, and a rollback
//! restores the number. The committed numbers of a key are therefore 1, 2, 3, ... without a gap.

use std::time::Duration;

use hapax_testkit::postgres::{Database, connect};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, MissedTickBehavior, interval},
};
use tokio_postgres::Client;

pub(super) const WRITERS: u32 = 24;
const KEYS: u32 = 60;
/// The time between two transactions of a writer.
const EVERY: Duration = Duration::from_millis(150);
/// The maximum duration of the long transaction.
const LONG: Duration = Duration::from_secs(10);

const TABLES: &str = "
    CREATE TABLE key (name text PRIMARY KEY, number bigint NOT NULL DEFAULT 0);
    CREATE TABLE written (nonce text PRIMARY KEY, key text NOT NULL, number bigint NOT NULL);
    CREATE TABLE effect (consumer text NOT NULL, nonce text NOT NULL);
    CREATE TABLE tried (nonce text NOT NULL)";
const WRITE: &str = "
    WITH drawn AS (
        UPDATE key SET number = number + 1 WHERE name = $1::text RETURNING name, number
    ), written AS (
        INSERT INTO written (nonce, key, number) SELECT $2::text, name, number FROM drawn
        RETURNING nonce, key, number
    )
    SELECT hapax.emit(
        'brokers.written',
        json_build_object('nonce', nonce, 'key', key, 'number', number)::text,
        'thing', key, number
    )
    FROM written";

/// Creates the tables of the business data.
pub(super) async fn prepare(database: &Database) {
    let client = database.client().await;
    client.batch_execute(TABLES).await.unwrap();
    let keys = format!(
        "INSERT INTO key (name) SELECT 'key ' || n FROM generate_series(0, {KEYS}) AS n
         UNION ALL SELECT 'long'"
    );
    client.batch_execute(&keys).await.unwrap();
}

/// Writes for this time.
pub(super) fn start(url: &str, length: Duration) -> JoinHandle<()> {
    let url = url.to_owned();
    let end = Instant::now() + length;
    tokio::spawn(async move {
        let mut writers = JoinSet::new();
        for number in 0..WRITERS {
            let client = connect(&url).await;
            writers.spawn(async move { write(&client, number, end).await });
        }
        let client = connect(&url).await;
        writers.spawn(async move { write_long(&client, end, length).await });
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
    })
}

async fn write(client: &Client, writer: u32, end: Instant) {
    let mut random = fastrand::Rng::with_seed(writer.into());
    let mut pace = interval(EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let write = client.prepare(WRITE).await.unwrap();
    for round in 0_u64.. {
        pace.tick().await;
        if Instant::now() > end {
            return;
        }
        client.batch_execute("BEGIN").await.unwrap();
        // The keys are locked in sorted order, so that two writers never deadlock.
        let mut keys = [random.u32(0..KEYS), random.u32(0..KEYS)];
        keys.sort_unstable();
        let count = random.usize(1..=2);
        for (index, key) in keys.iter().take(count).enumerate() {
            let (key, nonce) = (format!("key {key}"), format!("{writer}-{round}-{index}"));
            client.execute(&write, &[&key, &nonce]).await.unwrap();
        }
        let rolls_back = random.u32(0..5) == 0;
        let end = if rolls_back { "ROLLBACK" } else { "COMMIT" };
        client.batch_execute(end).await.unwrap();
        if rolls_back {
            for index in 0..count {
                note_tried(client, &format!("{writer}-{round}-{index}")).await;
            }
        }
    }
}

/// Repeatedly emits an event in a transaction and holds it open. Every second transaction is rolled
/// back.
async fn write_long(client: &Client, end: Instant, length: Duration) {
    let hold = LONG.min(length / 4);
    for round in 0_u64.. {
        if Instant::now() + hold > end {
            return;
        }
        let nonce = format!("long-{round}");
        client.batch_execute("BEGIN").await.unwrap();
        client.execute(WRITE, &[&"long", &nonce]).await.unwrap();
        let sleep = format!("SELECT pg_sleep({})", hold.as_secs_f64());
        client.batch_execute(&sleep).await.unwrap();
        if round % 2 == 1 {
            client.batch_execute("ROLLBACK").await.unwrap();
            note_tried(client, &nonce).await;
        } else {
            client.batch_execute("COMMIT").await.unwrap();
        }
    }
}

/// Records an event that was rolled back and must never arrive.
async fn note_tried(client: &Client, nonce: &str) {
    let note = "INSERT INTO tried (nonce) VALUES ($1)";
    client.execute(note, &[&nonce]).await.unwrap();
}
