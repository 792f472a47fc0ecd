//! The store whose transactions are sqlx's: duplicates, lost connections, and lost results of
//! commits.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use hapax::{
    event::Headers,
    idempotency::{StoredResponse, Taken},
    inbox::Acceptance,
    store::{ClaimOutcome, Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{
    Postgres, Settings,
    adapter::{
        self, Origin,
        sqlx::{SqlxStore, SqlxTx, store_error},
    },
};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, fingerprint, keyring, message, response},
    postgres::Database,
    proxy::{Deed, Moment, Proxy},
    wait::Patience,
};
use sqlx::{Acquire as _, Executor as _, PgPool, postgres::PgPoolOptions};

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
async fn a_refusal_is_stored_alone_and_an_expired_key_is_written_again() {
    let node = Node::new().await;
    let mut brief = claim("k");
    brief.retention = Duration::ZERO;
    for _ in 0..2 {
        let ClaimOutcome::Open(mut tx) = node.store.claim(brief.clone()).await.unwrap() else {
            panic!("expected a free key")
        };
        insert(&mut tx, "k").await.unwrap();
        tx.emit(event("k")).unwrap();
        let stands = tx.complete(&response("no"), Effect::Drop).await.unwrap();
        assert_eq!(stands, Duration::ZERO);
        assert_eq!(node.effects("k").await, [0, 0, 1]);
    }
    let ClaimOutcome::Open(tx) = node.store.claim(claim("k")).await.unwrap() else {
        panic!("expected an expired key")
    };
    handle(tx, "k").await.unwrap();
    assert_eq!(node.effects("k").await, [1, 1, 1]);
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("k"));
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
async fn a_killed_connection_leaves_nothing_and_the_retry_runs() {
    let node = Node::new().await;
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    let kill = "SELECT pg_terminate_backend($1, 5000)";
    node.good.plain.execute(kill, &[&pid]).await.unwrap();
    let gone = handle(tx, "k").await;
    assert_matches!(gone, Err(StoreError::Unavailable { .. }));
    assert_eq!(node.effects("k").await, [0, 0, 0]);
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_happened_is_acknowledged_though_its_result_was_lost() {
    let node = Node::new().await;
    for deed in [Deed::CutAfter, Deed::SwallowAfter] {
        let key = format!("{deed:?}");
        let trap = node.proxy.once(Moment::commit(), deed);
        let told = order(&node.store, &key, &key).await.unwrap();
        assert_eq!(trap.count(), 1, "{key}");
        assert_eq!(told, response(&key));
        assert_eq!(node.effects(&key).await, [1, 1, 1], "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_did_not_happen_may_run_again() {
    let node = Node::new().await;
    let trap = node.proxy.once(Moment::commit(), Deed::CutBefore);
    let told = order(&node.store, "k", "k").await;
    assert_eq!(trap.count(), 1);
    assert_matches!(told, Err(StoreError::Conflict { .. }));
    assert_eq!(node.effects("k").await, [0, 0, 0]);
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_without_a_key_is_unavailable_and_whole_or_nothing() {
    let node = Node::new().await;
    for (deed, effects) in [(Deed::CutBefore, 0), (Deed::CutAfter, 1)] {
        let text = format!("{deed:?}");
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        insert(&mut tx, &text).await.unwrap();
        tx.emit(event(&text)).unwrap();
        let trap = node.proxy.once(Moment::commit(), deed);
        let outcome = tx.commit().await;
        assert_matches!(outcome, Err(StoreError::Unavailable { .. }));
        assert_eq!(trap.count(), 1);
        node.good.idle().await;
        assert_eq!(node.effects(&text).await, [effects, effects, 0], "{deed:?}");
    }
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_is_classified_and_leaves_nothing() {
    let node = Node::new().await;
    let unique = "ALTER TABLE note ADD CONSTRAINT note_key UNIQUE (text)
        DEFERRABLE INITIALLY DEFERRED";
    node.good.run(unique).await;
    order(&node.store, "one", "same").await.unwrap();
    let refused = order(&node.store, "two", "same").await.unwrap_err();
    assert_eq!(refused.constraint(), Some("note_key"));
    assert_eq!(node.effects("two").await, [0, 0, 0]);
    // A failed statement that the handler ignored: the COMMIT alone would report success.
    let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
    insert(&mut tx, "ignored").await.unwrap();
    let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    assert!(broken.is_err());
    assert_matches!(tx.commit().await, Err(StoreError::Statement { .. }));
    assert_eq!(node.effects("ignored").await, [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_dropped_while_its_transaction_begins_leaves_none_open() {
    let node = Node::new().await;
    let (store, pool) = alone(&node).await;
    let trap = node
        .proxy
        .once(Moment::containing("BEGIN"), Deed::HoldAfter);
    let claiming = tokio::spawn({
        let store = store.clone();
        async move { store.claim(claim("k")).await.map(drop) }
    });
    trap.sprung().await;
    claiming.abort();
    assert!(claiming.await.unwrap_err().is_cancelled());
    trap.release();
    node.good.idle().await;
    // A statement outside of a transaction is committed: the connection is in none.
    let insert = sqlx::query(INSERT).bind("alone").execute(&pool).await;
    insert.unwrap();
    assert_eq!(node.good.notes().await, ["alone"]);
    assert_eq!(insist(&store, "k", "k").await, response("k"));
    assert_eq!(node.effects("k").await, [1, 1, 1]);
    let begun = store_error(sqlx::Error::BeginFailed);
    assert_matches!(begun, StoreError::Unavailable { .. });
}

#[tokio::test]
async fn a_transaction_has_the_time_limits_of_the_store_and_ends_if_its_node_vanishes() {
    const LIMITS: &str = "SELECT current_setting('statement_timeout') || ' '
        || current_setting('idle_in_transaction_session_timeout')";
    let node = Node::with(|settings| settings.idle_max = Duration::from_millis(500)).await;
    let mut forgotten = node.open("k").await;
    let limits: String = sqlx::query_scalar(LIMITS)
        .fetch_one(&mut *forgotten)
        .await
        .unwrap();
    assert_eq!(limits, "1s 500ms");
    node.good.idle().await;
    assert_eq!(insist(&node.store, "k", "k").await, response("k"));
    assert!(handle(forgotten, "k").await.is_err());
    assert_eq!(node.effects("k").await, [1, 1, 1]);
}

#[tokio::test]
async fn a_transaction_whose_savepoint_did_not_begin_commits_nothing() {
    let node = Node::new().await;
    for is_keyed in [true, false] {
        let mut tx = if is_keyed {
            node.open("k").await
        } else {
            node.store.begin(None, Headers::new()).await.unwrap()
        };
        insert(&mut tx, "k").await.unwrap();
        let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
        assert!(broken.is_err());
        // In a transaction that has failed, no savepoint begins. The handler ignores that too.
        assert!(tx.transaction().begin().await.is_err());
        let accepted = tx.accept(&message("a", "b", "c")).await;
        assert_matches!(accepted, Err(StoreError::Statement { .. }));
        tx.emit(event("k")).unwrap();
        let ended = if is_keyed {
            tx.complete(&response("k"), Effect::Keep).await.map(drop)
        } else {
            tx.commit().await
        };
        assert_matches!(ended, Err(StoreError::Statement { .. }));
        node.good.idle().await;
        assert_eq!(node.effects("k").await, [0, 0, 0]);
    }
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("k"));
}

/// Statements by which a handler ends its transaction, and how many of its notes are committed.
const ENDINGS: [(&str, i64); 7] = [
    ("COMMIT", 1),
    ("END", 1),
    ("COMMIT AND CHAIN", 1),
    ("COMMIT; BEGIN", 1),
    ("ROLLBACK", 0),
    ("ROLLBACK AND CHAIN", 0),
    ("ROLLBACK; BEGIN", 0),
];

#[tokio::test]
async fn a_transaction_that_its_handler_has_ended_stores_nothing_more() {
    let node = Node::new().await;
    // The next request gets the same connection.
    let (store, _pool) = alone(&node).await;
    for (ending, kept) in ENDINGS {
        for events in 0..=2 {
            for is_keyed in [true, false] {
                let key = format!("{ending}, {events} events, with a key: {is_keyed}");
                let key = key.replace([' ', ',', ';', ':'], "-");
                let mut tx = if is_keyed {
                    opened(&store, &key).await
                } else {
                    store.begin(None, Headers::new()).await.unwrap()
                };
                insert(&mut tx, &key).await.unwrap();
                tx.execute(ending).await.unwrap();
                for _ in 0..events {
                    tx.emit(event(&key)).unwrap();
                }
                let ended = if is_keyed {
                    let completed = tx.complete(&response(&key), Effect::Keep).await;
                    completed.map(drop)
                } else {
                    tx.commit().await
                };
                assert_matches!(ended, Err(StoreError::EndedByHandler), "{key}");
                assert_eq!(node.effects(&key).await, [kept, 0, 0], "{key}");
            }
        }
    }
    assert_eq!(order(&store, "k", "k").await.unwrap(), response("k"));
    node.good.idle().await;
}

#[tokio::test]
async fn a_refusal_is_not_stored_if_the_handler_may_have_committed() {
    let node = Node::new().await;
    let (store, _pool) = alone(&node).await;
    for (number, (ending, kept)) in ENDINGS.into_iter().enumerate() {
        let key = number.to_string();
        let mut tx = opened(&store, &key).await;
        insert(&mut tx, &key).await.unwrap();
        tx.execute(ending).await.unwrap();
        let ended = tx.complete(&response("no"), Effect::Drop).await;
        assert_matches!(ended, Err(StoreError::EndedByHandler), "{ending}");
        assert_eq!(node.effects(&key).await, [kept, 0, 0], "{ending}");
    }
    assert_eq!(order(&store, "k", "k").await.unwrap(), response("k"));
    node.good.idle().await;
}

#[tokio::test]
async fn the_row_of_an_expired_key_is_not_replaced_if_the_handler_has_committed() {
    let node = Node::new().await;
    let mut brief = claim("k");
    brief.retention = Duration::ZERO;
    let ClaimOutcome::Open(tx) = node.store.claim(brief).await.unwrap() else {
        panic!("expected a free key")
    };
    tx.complete(&response("old"), Effect::Keep).await.unwrap();
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    tx.execute("COMMIT").await.unwrap();
    let ended = tx.complete(&response("k"), Effect::Keep).await;
    assert_matches!(ended, Err(StoreError::EndedByHandler));
    let epoch = node.good.count("SELECT epoch FROM hapax.idempotency_key");
    assert_eq!(epoch.await, 1);
    assert_eq!(node.effects("k").await, [1, 0, 1]);
}

#[tokio::test]
async fn a_message_whose_handler_has_ended_its_transaction_is_not_reported_as_processed() {
    const PROCESSED: &str =
        "SELECT count(*) FROM hapax.inbox_message WHERE processed_at IS NOT NULL";
    let node = Node::new().await;
    for (number, (ending, kept)) in ENDINGS.into_iter().enumerate() {
        let id = number.to_string();
        let message = message("a", &id, "c");
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        assert_eq!(tx.accept(&message).await.unwrap(), Acceptance::First);
        insert(&mut tx, &id).await.unwrap();
        tx.execute(ending).await.unwrap();
        assert_matches!(
            tx.commit().await,
            Err(StoreError::EndedByHandler),
            "{ending}"
        );
        assert_eq!(node.effects(&id).await, [kept, 0, 0], "{ending}");
        // What was committed with its effect is not executed again.
        let mut tx = node.store.begin(None, Headers::new()).await.unwrap();
        let again = tx.accept(&message).await.unwrap();
        tx.rollback().await;
        assert_eq!(again == Acceptance::Duplicate, kept == 1, "{ending}");
    }
    assert_eq!(node.good.count(PROCESSED).await, 0);
}

#[tokio::test]
async fn savepoints_of_sqlx_are_no_ends_of_a_transaction() {
    let node = Node::new().await;
    for is_kept in [true, false] {
        let key = is_kept.to_string();
        let mut tx = node.open(&key).await;
        let mut part = tx.transaction().begin().await.unwrap();
        insert(&mut part, "part").await.unwrap();
        if is_kept {
            part.commit().await.unwrap();
        } else {
            part.rollback().await.unwrap();
        }
        assert_eq!(handle(tx, &key).await.unwrap(), response(&key));
        assert_eq!(node.effects(&key).await, [1, 1, 1]);
    }
    assert_eq!(node.effects("part").await[0], 1);
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

#[tokio::test]
async fn behind_a_pooler_in_transaction_mode_no_statement_is_prepared_under_a_name() {
    const LEFT: &str = "SELECT count(*) FROM pg_prepared_statements";
    for is_pooled in [true, false] {
        let node = Node::with(|settings| settings.pooled = is_pooled).await;
        let (store, pool) = alone(&node).await;
        for key in ["one", "two"] {
            let ClaimOutcome::Open(mut tx) = store.claim(claim(key)).await.unwrap() else {
                panic!("expected a free key")
            };
            let insert = sqlx::query(INSERT).persistent(false).bind(key);
            insert.execute(&mut *tx).await.unwrap();
            let accepted = tx.accept(&message("a", key, "c")).await;
            assert_eq!(accepted.unwrap(), Acceptance::First);
            tx.emit(event(key)).unwrap();
            tx.complete(&response(key), Effect::Keep).await.unwrap();
            assert_eq!(node.effects(key).await, [1, 1, 1]);
        }
        let left = sqlx::query_scalar(LEFT).persistent(false).fetch_one(&pool);
        let left: i64 = left.await.unwrap();
        assert_eq!(left == 0, is_pooled, "{left} statements");
    }
}

#[tokio::test]
async fn the_functions_keep_their_statements_prepared_if_the_connection_keeps_others() {
    const LEFT: &str =
        "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%hapax.%'";
    let node = Node::new().await;
    let (_, pool) = alone(&node).await;
    for is_kept in [false, true] {
        let mut tx = pool.begin().await.unwrap();
        let insert = sqlx::query(INSERT).persistent(is_kept).bind("note");
        insert.execute(&mut *tx).await.unwrap();
        let (asked, origin) = (claim(&is_kept.to_string()), Origin::default());
        let opened = adapter::sqlx::claim(&mut tx, &asked).await.unwrap();
        assert_matches!(opened, ClaimOutcome::Open(()));
        adapter::sqlx::emit(&mut tx, event("k"), origin)
            .await
            .unwrap();
        adapter::sqlx::complete(&mut tx, &asked, &response("k"))
            .await
            .unwrap();
        let left = sqlx::query_scalar(LEFT)
            .persistent(false)
            .fetch_one(&mut *tx);
        let left: i64 = left.await.unwrap();
        assert_eq!(left, if is_kept { 3 } else { 0 });
        tx.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_refusal_is_stored_on_the_connection_of_its_handler_also_after_a_failed_statement() {
    let node = Node::new().await;
    let (store, pool) = alone(&node).await;
    for key in ["whole", "failed"] {
        let ClaimOutcome::Open(mut tx) = store.claim(claim(key)).await.unwrap() else {
            panic!("expected a free key")
        };
        insert(&mut tx, key).await.unwrap();
        tx.emit(event(key)).unwrap();
        if key == "failed" {
            let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
            assert!(broken.is_err());
        }
        // Another request is the next one to get a connection, and keeps it.
        let mut waiting = Box::pin(pool.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        tx.complete(&response("no"), Effect::Drop).await.unwrap();
        drop(waiting.await.unwrap());
        assert_eq!(node.effects(key).await, [0, 0, 1]);
        let replayed = order(&store, key, key).await.unwrap();
        assert_eq!(replayed, response("no"));
    }
}

#[tokio::test]
async fn a_refusal_is_stored_also_if_a_savepoint_did_not_begin() {
    let node = Node::new().await;
    let mut tx = node.open("k").await;
    insert(&mut tx, "k").await.unwrap();
    let broken = sqlx::query("SELECT 1 / 0").execute(&mut *tx).await;
    assert!(broken.is_err());
    assert!(tx.transaction().begin().await.is_err());
    tx.complete(&response("no"), Effect::Drop).await.unwrap();
    assert_eq!(node.effects("k").await, [0, 0, 1]);
    assert_eq!(order(&node.store, "k", "k").await.unwrap(), response("no"));
    node.good.idle().await;
}

#[tokio::test]
async fn a_migration_beside_a_running_service_costs_a_rerun_with_sqlx_too() {
    const READ: &str = "SELECT * FROM note";
    let node = Node::new().await;
    let (store, _pool) = alone(&node).await;
    let open = async |key: &str| match store.claim(claim(key)).await.unwrap() {
        ClaimOutcome::Open(tx) => tx,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    };
    for change in ["ALTER TABLE note ADD COLUMN more text", "DEALLOCATE ALL"] {
        let before = format!("before {change}");
        let mut tx = open(&before).await;
        sqlx::query(READ).fetch_all(&mut *tx).await.unwrap();
        handle(tx, &before).await.unwrap();
        let mut tx = open(change).await;
        if change == "DEALLOCATE ALL" {
            sqlx::query(change).execute(&mut *tx).await.unwrap();
        } else {
            node.good.run(change).await;
        }
        let outdated = sqlx::query(READ).fetch_all(&mut *tx).await;
        let outdated = outdated.map(drop).map_err(store_error);
        assert_matches!(outdated, Err(StoreError::Conflict { .. }));
        tx.rollback().await;
        // The rerun gets the same connection.
        let mut rerun = open(change).await;
        sqlx::query(READ).fetch_all(&mut *rerun).await.unwrap();
        handle(rerun, change).await.unwrap();
        assert_eq!(node.effects(change).await, [1, 1, 1]);
    }
}
