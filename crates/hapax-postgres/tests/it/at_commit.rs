//! Messages that are accepted by the commit of their effect: the row of the inbox is sent in the
//! last pipeline, and whichever transaction commits it first wins.

use hapax::{
    event::Headers,
    inbox::{Acceptance, Message},
    store::{Effect, Keys, StoreError, Transaction},
};
use hapax_postgres::{Postgres, Tx};
use hapax_testkit::{
    assert_matches,
    events::{event, message, response},
    proxy::{Deed, Moment, Proxy},
    wait::eventually,
};

use crate::fixture::{Fixture, INSERT, PATIENCE, settings};

const ACCEPTS: &str = "INSERT INTO hapax.inbox_message";
const EVENTS: &str = "SELECT count(*) FROM hapax.outbox_event";
const MESSAGES: &str = "SELECT count(*) FROM hapax.inbox_message";
/// Sessions that wait for a lock.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

fn hello() -> Message {
    message("mailer", "m1", "hello")
}

async fn open(store: &Postgres, message: &Message) -> Tx {
    let opened = store.accept_at_commit(None, Headers::new(), message).await;
    opened.unwrap().expect("the store accepts at the commit")
}

/// A transaction of the message that has written a note and emitted an event.
async fn written(store: &Postgres, message: &Message, note: &str) -> Tx {
    let mut tx = open(store, message).await;
    tx.execute(INSERT, &[&note]).await.unwrap();
    tx.emit(event(note)).unwrap();
    tx
}

/// Accepts the message in the regular way, without an effect.
async fn accept(store: &Postgres, message: &Message) -> Acceptance {
    let mut tx = store.begin(None, Headers::new()).await.unwrap();
    let accepted = tx.accept(message).await.unwrap();
    tx.rollback().await;
    accepted
}

/// A store whose connections go through a proxy.
async fn through_proxy(fixture: &Fixture) -> (Proxy, Postgres) {
    let proxy = Proxy::to_postgres(fixture.database.address());
    let node = Postgres::open(settings(&proxy.url(&fixture.database.url()))).await;
    (proxy, node.unwrap())
}

/// The proxy holds back the result of the statement that accepts the message. The statements that
/// were sent after it are executed all the same.
#[tokio::test(flavor = "multi_thread")]
async fn the_message_is_accepted_in_the_pipeline_of_the_commit() {
    let fixture = Fixture::new().await;
    let (proxy, node) = through_proxy(&fixture).await;
    // Everything is prepared on the connection that is used.
    let before = message("mailer", "m0", "hello");
    written(&node, &before, "before")
        .await
        .commit()
        .await
        .unwrap();
    let accepts = Moment::containing(ACCEPTS);
    let begun = proxy.once(Moment::containing("BEGIN"), Deed::HoldAfter);
    let accepted = proxy.once(accepts, Deed::HoldAfter);
    let running =
        tokio::spawn(async move { written(&node, &hello(), "first").await.commit().await });
    begun.sprung().await;
    let executed = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
         AND state = 'idle in transaction' AND query = '{INSERT}'"
    );
    eventually(PATIENCE, async || fixture.count(&executed).await == 1).await;
    assert_eq!(accepted.count(), 0, "the message was accepted first");
    begun.release();
    accepted.sprung().await;
    eventually(PATIENCE, async || fixture.count(MESSAGES).await == 2).await;
    accepted.release();
    running.await.unwrap().unwrap();
    assert_eq!(fixture.notes().await, ["before", "first"]);
    assert_eq!(fixture.count(EVENTS).await, 2);
    fixture.idle().await;
}

#[tokio::test]
async fn a_message_that_was_accepted_before_leaves_neither_effect_nor_event() {
    let here = Fixture::new().await;
    let there = here.beside().await;
    let loser = written(&there.store, &hello(), "second").await;
    let first = written(&here.store, &hello(), "first").await;
    first.commit().await.unwrap();
    assert_matches!(loser.commit().await, Err(StoreError::AcceptedBefore));
    // Whether it is a mismatch is found out by the acceptance that follows.
    let other = message("mailer", "m1", "other");
    let loser = written(&there.store, &other, "other").await;
    assert_matches!(loser.commit().await, Err(StoreError::AcceptedBefore));
    assert_eq!(accept(&there.store, &hello()).await, Acceptance::Duplicate);
    assert_eq!(accept(&there.store, &other).await, Acceptance::Mismatch);
    assert_eq!(here.notes().await, ["first"]);
    assert_eq!(here.count(EVENTS).await, 1);
    here.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_one_that_is_accepting_the_same_message() {
    for first_commits in [true, false] {
        let fixture = Fixture::new().await;
        let (proxy, node) = through_proxy(&fixture).await;
        let held = proxy.once(Moment::commit(), Deed::HoldBefore);
        let first =
            tokio::spawn(async move { written(&node, &hello(), "first").await.commit().await });
        held.sprung().await;
        let store = fixture.store.clone();
        let second =
            tokio::spawn(async move { written(&store, &hello(), "second").await.commit().await });
        eventually(PATIENCE, async || fixture.count(WAITING).await == 1).await;
        let winner = if first_commits {
            held.release();
            first.await.unwrap().unwrap();
            assert_matches!(second.await.unwrap(), Err(StoreError::AcceptedBefore));
            "first"
        } else {
            proxy.reset();
            assert_matches!(first.await.unwrap(), Err(StoreError::Unavailable { .. }));
            second.await.unwrap().unwrap();
            "second"
        };
        assert_eq!(fixture.notes().await, [winner]);
        assert_eq!(fixture.count(EVENTS).await, 1);
        assert_eq!(fixture.count(MESSAGES).await, 1);
        fixture.idle().await;
    }
}

#[tokio::test]
async fn a_commit_waits_for_a_regular_acceptance_of_the_same_message() {
    for first_commits in [true, false] {
        let fixture = Fixture::new().await;
        let beside = fixture.beside().await;
        let mut first = fixture.store.begin(None, Headers::new()).await.unwrap();
        assert_eq!(first.accept(&hello()).await.unwrap(), Acceptance::First);
        let second = tokio::spawn(async move {
            written(&beside.store, &hello(), "second")
                .await
                .commit()
                .await
        });
        eventually(PATIENCE, async || fixture.count(WAITING).await == 1).await;
        if first_commits {
            first.commit().await.unwrap();
            assert_matches!(second.await.unwrap(), Err(StoreError::AcceptedBefore));
        } else {
            first.rollback().await;
            second.await.unwrap().unwrap();
        }
        let effects = usize::from(!first_commits);
        assert_eq!(fixture.notes().await.len(), effects);
        assert_eq!(fixture.count(MESSAGES).await, 1);
        fixture.idle().await;
    }
}

/// Neither a deferred constraint, which is checked by `COMMIT`, nor one that a trigger on the inbox
/// violates, even if it has the same name in another schema.
#[tokio::test]
async fn another_unique_violation_is_not_mistaken_for_a_duplicate() {
    let fixture = Fixture::new().await;
    fixture
        .run(
            "CREATE TABLE entry (id text CONSTRAINT entry_id UNIQUE DEFERRABLE INITIALLY DEFERRED);
             INSERT INTO entry VALUES ('a')",
        )
        .await;
    let mut tx = open(&fixture.store, &hello()).await;
    let entry = "INSERT INTO entry VALUES ($1)";
    tx.execute(entry, &[&"a"]).await.unwrap();
    let refused = tx.commit().await.unwrap_err();
    assert!(refused.is_unique_violation(), "{refused:?}");
    assert_eq!(refused.constraint(), Some("entry_id"));

    let mut tx = open(&fixture.store, &hello()).await;
    let failed = tx.execute("INSERT INTO note VALUES (NULL)", &[]).await;
    assert_matches!(failed, Err(StoreError::Statement { .. }));
    assert_matches!(tx.commit().await, Err(StoreError::Statement { .. }));

    fixture
        .run(
            "CREATE TABLE copy (id text CONSTRAINT inbox_message_pkey PRIMARY KEY);
             INSERT INTO copy VALUES ('m1');
             CREATE FUNCTION copied() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN INSERT INTO public.copy VALUES (NEW.message_id); RETURN NEW; END $$;
             CREATE TRIGGER copied AFTER INSERT ON hapax.inbox_message
                 FOR EACH ROW EXECUTE FUNCTION copied()",
        )
        .await;
    let refused = written(&fixture.store, &hello(), "note").await.commit();
    assert!(refused.await.unwrap_err().is_unique_violation());
    assert_eq!(fixture.notes().await, [""; 0]);
    assert_eq!(fixture.count(MESSAGES).await, 0);
    fixture.idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_leaves_the_message_with_its_effect_or_neither() {
    let fixture = Fixture::new().await;
    let (proxy, node) = through_proxy(&fixture).await;
    for (moment, deed, committed) in [
        (Moment::containing(ACCEPTS), Deed::CutBefore, 0),
        (Moment::commit(), Deed::CutBefore, 0),
        (Moment::commit(), Deed::CutAfter, 1),
    ] {
        let tx = written(&node, &hello(), "note").await;
        let trap = proxy.once(moment, deed);
        assert_matches!(tx.commit().await, Err(StoreError::Unavailable { .. }));
        assert_eq!(trap.count(), 1);
        fixture.idle().await;
        let counts = [fixture.count(MESSAGES).await, fixture.count(EVENTS).await];
        assert_eq!(counts, [committed, committed]);
        assert_eq!(fixture.notes().await.len(), usize::from(committed == 1));
    }
    let again = written(&fixture.store, &hello(), "again").await;
    assert_matches!(again.commit().await, Err(StoreError::AcceptedBefore));
    assert_eq!(
        accept(&fixture.store, &hello()).await,
        Acceptance::Duplicate
    );
}

#[tokio::test]
async fn the_row_of_a_message_has_its_result_and_its_times() {
    let fixture = Fixture::new().await;
    let mut tx = written(&fixture.store, &hello(), "note").await;
    tx.record_result("replaced").unwrap();
    tx.record_result("applied").unwrap();
    tx.commit().await.unwrap();
    // Without a statement, and with a response of which no key is known.
    let silent = message("mailer", "m2", "hello");
    let tx = open(&fixture.store, &silent).await;
    tx.complete(&response("r"), Effect::Keep).await.unwrap();
    // In the same transaction, another message is accepted in the regular way.
    let (outer, inner) = (
        message("mailer", "m3", "hello"),
        message("mailer", "m4", "hello"),
    );
    let mut tx = open(&fixture.store, &outer).await;
    tx.record_result("outer").unwrap();
    assert_eq!(tx.accept(&inner).await.unwrap(), Acceptance::First);
    tx.record_result("inner").unwrap();
    tx.commit().await.unwrap();
    let rows = "SELECT message_id, result, payload_hash, received_at <= processed_at AS in_order
        FROM hapax.inbox_message ORDER BY message_id";
    let rows = fixture.plain.query(rows, &[]).await.unwrap();
    let results: Vec<_> = rows
        .iter()
        .map(|row| {
            assert_eq!(row.get::<_, Option<bool>>("in_order"), Some(true));
            assert_eq!(row.get::<_, &[u8]>("payload_hash"), hello().payload_hash);
            let (id, result): (String, Option<String>) = (row.get(0), row.get(1));
            (id, result)
        })
        .collect();
    let expected = [
        ("m1", Some("applied")),
        ("m2", None),
        ("m3", Some("outer")),
        ("m4", Some("inner")),
    ];
    let expected = expected.map(|(id, result)| (id.to_owned(), result.map(str::to_owned)));
    assert_eq!(results, expected);
    fixture.idle().await;
}

#[tokio::test]
async fn a_message_is_not_accepted_if_its_effect_is_dropped_or_rolled_back() {
    let fixture = Fixture::new().await;
    let dropped = written(&fixture.store, &hello(), "dropped").await;
    dropped
        .complete(&response("no"), Effect::Drop)
        .await
        .unwrap();
    written(&fixture.store, &hello(), "rolled back")
        .await
        .rollback()
        .await;
    drop(written(&fixture.store, &hello(), "dropped too").await);
    drop(open(&fixture.store, &hello()).await);
    fixture.idle().await;
    assert_eq!(fixture.notes().await, [""; 0]);
    assert_eq!(accept(&fixture.store, &hello()).await, Acceptance::First);
}

#[tokio::test]
async fn a_connection_that_was_terminated_before_the_first_statement_costs_a_regular_acceptance() {
    let fixture = Fixture::new().await;
    let mut tx = open(&fixture.store, &hello()).await;
    tx.emit(event("lost")).unwrap();
    fixture.database.terminate_backends("hapax").await;
    // No statement was sent, so nothing was committed.
    assert_matches!(tx.commit().await, Err(StoreError::Conflict { .. }));
    assert_eq!(accept(&fixture.store, &hello()).await, Acceptance::First);
    assert_eq!(fixture.count(EVENTS).await, 0);
    fixture.idle().await;
}
