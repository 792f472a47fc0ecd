//! The store whose transactions are sqlx's: duplicates and replays, and what a transaction writes.

mod failures;
mod ended;
mod refusals;
mod statements;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use hapax::{
    event::Headers,
    idempotency::{StoredResponse, Taken},
    inbox::Acceptance,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{
    Postgres, Settings,
    adapter::sqlx::{SqlxStore, SqlxTx, store_error},
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, fingerprint, keyring, message, response},
    postgres::Database,
    proxy::Proxy,
    wait::Patience,
};
use sqlx::{PgPool, postgres::PgPoolOptions};

use crate::{
    bad_days::day::hasty,
    fixture::{Fixture, INSERT, PATIENCE},
};

/// A database, and a node that uses sqlx and reaches it through a proxy.
struct Node {
    good: Fixture,
    proxy: Proxy,
    store: SqlxStore,
}

impl Node {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(set: impl FnOnce(&mut Settings)) -> Self {
        let database = Arc::new(Database::fresh().await);
        let good = Fixture::on(Arc::clone(&database), |_| {}).await;
        let proxy = Proxy::to_postgres(database.address());
        let url = proxy.url(&database.url());
        let mut settings = hasty(&url);
        set(&mut settings);
        let postgres = Postgres::open(settings).await.unwrap();
        let store = SqlxStore::new(postgres, pool(&url).await);
        Self { good, proxy, store }
    }

    /// How many notes, events and responses a key has.
    async fn effects(&self, key: &str) -> [i64; 3] {
        const EFFECTS: &str = "SELECT (SELECT count(*) FROM note WHERE text = $1),
            (SELECT count(*) FROM hapax.outbox_event WHERE aggregate_id = $1),
            (SELECT count(*) FROM hapax.idempotency_key WHERE key = $1)";
        let row = self.good.plain.query_one(EFFECTS, &[&key]).await.unwrap();
        [row.get(0), row.get(1), row.get(2)]
    }

    /// Claims a key that must be free.
    async fn open(&self, key: &str) -> SqlxTx {
        opened(&self.store, key).await
    }
}

async fn opened(store: &SqlxStore, key: &str) -> SqlxTx {
    match store.claim(claim(key)).await.unwrap() {
        ClaimOutcome::Open(tx) => tx,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    }
}

async fn pool(url: &str) -> PgPool {
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(5));
    options.connect(url).await.unwrap()
}

/// A store with the same database, and a pool of one connection.
async fn alone(node: &Node) -> (SqlxStore, PgPool) {
    let url = node.proxy.url(&node.good.database.url());
    let options = PgPoolOptions::new().acquire_timeout(Duration::from_secs(5));
    let pool = options.max_connections(1).connect(&url).await.unwrap();
    let store = SqlxStore::new(node.store.postgres().clone(), pool.clone());
    (store, pool)
}

/// The handler of an order: a note, an event and a response.
async fn handle(mut tx: SqlxTx, key: &str) -> Result<StoredResponse, StoreError> {
    insert(&mut tx, key).await?;
    tx.emit(event(key))?;
    let response = response(key);
    tx.complete(&response, Effect::Keep).await?;
    Ok(response)
}

async fn insert(tx: &mut sqlx::PgConnection, text: &str) -> Result<(), StoreError> {
    let insert = sqlx::query(INSERT).bind(text).execute(tx).await;
    insert.map(drop).map_err(store_error)
}

async fn order(store: &SqlxStore, key: &str, text: &str) -> Result<StoredResponse, StoreError> {
    match store.claim(claim(key)).await? {
        ClaimOutcome::Open(tx) => handle(tx, text).await,
        ClaimOutcome::Taken(Taken::Replay { response, .. }) => Ok(response),
        ClaimOutcome::Taken(taken) => Err(StoreError::unavailable(format!("{taken:?}"))),
    }
}

/// Sends an order until it gets a response, as a client does that retries.
async fn insist(store: &SqlxStore, key: &str, text: &str) -> StoredResponse {
    let patience = Patience::within(PATIENCE);
    loop {
        match order(store, key, text).await {
            Ok(response) => return response,
            Err(StoreError::Unavailable { .. } | StoreError::Conflict { .. }) => {
                patience.pause().await;
            }
            Err(error) => panic!("{key}: {error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_duplicates_at_once_one_runs_whichever_driver_its_node_uses() {
    let node = Node::new().await;
    let asked = (0..30).map(|number: usize| {
        let (store, postgres) = (node.store.clone(), node.good.store.clone());
        let text = number.to_string();
        tokio::spawn(async move {
            if number.is_multiple_of(2) {
                return insist(&store, "k", &text).await;
            }
            let patience = Patience::within(PATIENCE);
            loop {
                match postgres.claim(claim("k")).await.unwrap() {
                    ClaimOutcome::Open(mut tx) => {
                        tx.execute(INSERT, &[&text]).await.unwrap();
                        tx.emit(event(&text)).unwrap();
                        let response = response(&text);
                        tx.complete(&response, Effect::Keep).await.unwrap();
                        return response;
                    }
                    ClaimOutcome::Taken(Taken::Replay { response, .. }) => return response,
                    ClaimOutcome::Taken(_) => patience.pause().await,
                }
            }
        })
    });
    let told: Vec<StoredResponse> = join_all(asked)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    let count = |table: &str| format!("SELECT count(*) FROM {table}");
    for table in ["note", "hapax.outbox_event", "hapax.idempotency_key"] {
        assert_eq!(node.good.count(&count(table)).await, 1, "{table}");
    }
}

#[tokio::test]
async fn a_transaction_that_is_rolled_back_or_dropped_leaves_nothing() {
    let node = Node::new().await;
    for is_dropped in [false, true] {
        let mut tx = node.open("k").await;
        insert(&mut tx, "k").await.unwrap();
        tx.emit(event("k")).unwrap();
        if is_dropped {
            drop(tx);
        } else {
            tx.rollback().await;
        }
        node.good.idle().await;
        assert_eq!(node.effects("k").await, [0, 0, 0]);
    }
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test]
async fn a_replay_a_mismatch_and_a_key_in_progress_are_those_of_the_store() {
    let node = Node::new().await;
    let held = node.open("k").await;
    let waiting = node.good.store.claim(claim("k")).await.unwrap();
    assert_matches!(waiting, ClaimOutcome::Taken(Taken::InProgress));
    let waiting = node.store.claim(claim("k")).await.unwrap();
    assert_matches!(waiting, ClaimOutcome::Taken(Taken::InProgress));
    handle(held, "k").await.unwrap();
    let mut other = claim("k");
    other.fingerprint = fingerprint(2);
    for taken in [
        node.store.claim(other.clone()).await.unwrap(),
        node.good.store.claim(other).await.map(taken).unwrap(),
    ] {
        assert_matches!(taken, ClaimOutcome::Taken(Taken::Mismatch));
    }
    for taken in [
        node.store.claim(claim("k")).await.unwrap(),
        node.good.store.claim(claim("k")).await.map(taken).unwrap(),
    ] {
        let ClaimOutcome::Taken(Taken::Replay { response: told, .. }) = taken else {
            panic!("expected a replay, got {taken:?}")
        };
        assert_eq!(told, response("k"));
    }
}

/// The outcome of a key that must be taken, for another type of transaction.
fn taken(outcome: ClaimOutcome<hapax_postgres::Tx>) -> ClaimOutcome<SqlxTx> {
    match outcome {
        ClaimOutcome::Taken(taken) => ClaimOutcome::Taken(taken),
        ClaimOutcome::Open(_) => panic!("the key should be taken"),
    }
}

#[tokio::test]
async fn several_events_of_a_transaction_are_committed_in_order_with_and_without_a_key() {
    let node = Node::new().await;
    let mut keyed = node.open("k").await;
    let mut bare = node.store.begin(None, Headers::new()).await.unwrap();
    for tx in [&mut keyed, &mut bare] {
        for number in 0..3 {
            tx.emit(event(&number.to_string())).unwrap();
        }
    }
    keyed.complete(&response("k"), Effect::Keep).await.unwrap();
    bare.commit().await.unwrap();
    let ids = "SELECT aggregate_id FROM hapax.outbox_event ORDER BY id";
    let rows = node.good.plain.query(ids, &[]).await.unwrap();
    let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(ids, ["0", "1", "2", "0", "1", "2"]);
}

#[tokio::test]
async fn a_response_is_encrypted_and_replayed_with_the_stores_keyring() {
    let node = Node::with(|settings| settings.keyring = keyring(&[1])).await;
    let stored = order(&node.store, "k", "secret").await.unwrap();
    assert_eq!(order(&node.store, "k", "again").await.unwrap(), stored);
    let plain = "SELECT count(*) FROM hapax.idempotency_key
        WHERE position('secret'::bytea IN response_body) > 0";
    assert_eq!(node.good.count(plain).await, 0);
}

#[tokio::test]
async fn a_message_keeps_its_result_and_the_time_of_its_effect() {
    const KEPT: &str = "SELECT coalesce(result, '-') || ' ' || (processed_at IS NOT NULL)::text
        FROM hapax.inbox_message ORDER BY message_id";
    let node = Node::new().await;
    for (id, result) in [("m1", Some("applied")), ("m2", None)] {
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        let accepted = tx.accept(&message("a", id, "c")).await;
        assert_eq!(accepted.unwrap(), Acceptance::First);
        if let Some(result) = result {
            tx.record_result(result).unwrap();
        }
        tx.commit().await.unwrap();
    }
    let kept = node.good.plain.query(KEPT, &[]).await.unwrap();
    let kept: Vec<&str> = kept.iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, ["applied true", "- true"]);
}
