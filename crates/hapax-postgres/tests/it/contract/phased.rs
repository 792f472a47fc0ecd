//! `hapax.enter` and the functions of an owner: the life of a phased key in SQL, and what is
//! rejected.

mod fences;
mod store;

use hapax::{key::IdempotencyKey, limits::RECOVERY_POINT_BYTES_MAX};
use hapax_testkit::events::fingerprint;
use tokio_postgres::{Error, GenericClient};

use super::{COUNT_KEYS, ClaimRow, SCOPE, claim, claim_with, open, state};
use crate::fixture::{Fixture, INSERT};

/// The row that `hapax.enter` returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entered {
    outcome: String,
    epoch: Option<i64>,
    phase: Option<String>,
    data: Option<String>,
    status: Option<i32>,
    body: Option<Vec<u8>>,
    retry_after_ms: Option<i32>,
}

impl Entered {
    fn of(outcome: &str, epoch: i64) -> Self {
        Self {
            outcome: outcome.to_owned(),
            epoch: Some(epoch),
            ..Self::default()
        }
    }

    fn in_progress() -> Self {
        Self {
            outcome: "in_progress".to_owned(),
            retry_after_ms: Some(1000),
            ..Self::default()
        }
    }

    fn mismatch() -> Self {
        Self {
            outcome: "mismatch".to_owned(),
            ..Self::default()
        }
    }
}

/// Enters the key `k` with this payload, and with arguments besides the usual ones.
async fn enter_with(
    session: &impl GenericClient,
    payload: u8,
    more: &str,
) -> Result<Entered, Error> {
    let sql = format!(
        "SELECT outcome, epoch, phase, data::text, status, body, retry_after_ms
         FROM hapax.enter({SCOPE}, $2{more})"
    );
    let print = fingerprint(payload);
    let print: &[u8] = print.as_bytes();
    let row = session.query_one(&sql, &[&"k", &print]).await?;
    Ok(Entered {
        outcome: row.get(0),
        epoch: row.get(1),
        phase: row.get(2),
        data: row.get(3),
        status: row.get(4),
        body: row.get(5),
        retry_after_ms: row.get(6),
    })
}

/// Enters the key `k` with a lease of an hour.
async fn enter(session: &impl GenericClient) -> Entered {
    let entered = enter_with(session, 1, ", '1 hour'").await;
    entered.expect("the entry failed")
}

/// Calls a function of the owner of `k`, such as `renew`, and returns its result as text.
async fn call(
    session: &impl GenericClient,
    function: &str,
    epoch: i64,
    more: &str,
) -> Result<Option<String>, Error> {
    let sql = format!("SELECT hapax.{function}({SCOPE}, $2{more})::text");
    let row = session.query_one(&sql, &[&"k", &epoch]).await?;
    Ok(row.get(0))
}

/// Ends the lease of the owner of `k`.
async fn give_back(session: &impl GenericClient, epoch: i64) {
    let given = call(session, "renew", epoch, ", '0'").await;
    given.expect("the lease was not given back");
}

#[tokio::test]
async fn a_phased_request_goes_from_its_entry_through_its_phases_to_its_response() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let entered = enter(&fixture.plain).await;
    assert_eq!(entered, Entered::of("entered", 1));
    for (phase, data) in [("charged", ", '{\"charge\": 1}'"), ("shipped", "")] {
        let tx = client.transaction().await.unwrap();
        tx.execute(INSERT, &[&phase]).await.unwrap();
        let more = format!(", '{phase}'{data}");
        call(&tx, "phase", 1, &more).await.unwrap();
        tx.commit().await.unwrap();
        give_back(&fixture.plain, 1).await;
        let until = "SELECT count(*) FROM hapax.idempotency_key WHERE lease_until <= now()";
        assert_eq!(fixture.count(until).await, 1);
    }
    let tx = client.transaction().await.unwrap();
    tx.execute(INSERT, &[&"last"]).await.unwrap();
    let kept = call(&tx, "finish", 1, ", 201, '[[\"X-A\", \"1\"]]', 'done'").await;
    assert_eq!(kept.unwrap().as_deref(), Some("24:00:00"));
    tx.commit().await.unwrap();
    let replay = enter(&fixture.plain).await;
    assert_eq!((&*replay.outcome, replay.status), ("replay", Some(201)));
    assert_eq!(replay.body.as_deref(), Some(&b"done"[..]));
    let claimed = claim(&fixture.plain, "k").await.unwrap();
    assert_eq!(claimed.headers.as_deref(), Some("[[\"x-a\", \"1\"]]"));
    assert_eq!(fixture.notes().await, ["charged", "last", "shipped"]);
}

#[tokio::test]
async fn an_abandoned_key_is_resumed_with_its_last_phase_and_its_data() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    let busy = enter(&fixture.plain).await;
    assert_eq!(busy, Entered::in_progress(), "while the lease lasts");
    let other = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(other, Entered::mismatch());
    let more = ", 'charged', '{\"charge\": 1}'";
    call(&fixture.plain, "phase", 1, more).await.unwrap();
    give_back(&fixture.plain, 1).await;
    let other = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(other, Entered::mismatch(), "after the lease");
    let owner = ", '1 hour', owner => 'node-2'";
    let resumed = Entered {
        phase: Some("charged".to_owned()),
        data: Some("{\"charge\": 1}".to_owned()),
        ..Entered::of("resumed", 2)
    };
    let entered = enter_with(&fixture.plain, 1, owner).await.unwrap();
    assert_eq!(entered, resumed);
    let owners = "SELECT count(*) FROM hapax.idempotency_key WHERE owner = 'node-2'";
    assert_eq!(fixture.count(owners).await, 1);
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    // The next phase replaces the data.
    call(&fixture.plain, "phase", 2, ", 'shipped'")
        .await
        .unwrap();
    give_back(&fixture.plain, 2).await;
    let resumed = Entered {
        phase: Some("shipped".to_owned()),
        ..Entered::of("resumed", 3)
    };
    assert_eq!(enter(&fixture.plain).await, resumed);
    // A finished key keeps neither owner nor data.
    let more = ", 'last', '1'";
    call(&fixture.plain, "phase", 3, more).await.unwrap();
    call(&fixture.plain, "finish", 3, ", 204").await.unwrap();
    let kept = "SELECT count(coalesce(owner, recovery_data::text, lease_until::text))
        FROM hapax.idempotency_key";
    assert_eq!(fixture.count(kept).await, 0);
}

#[tokio::test]
async fn events_of_a_phase_belong_to_its_key() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    let events = r#"events => '[
        {"type": "a", "payload": "1"},
        {"type": "b", "payload_base64": "AA==", "content_type": "x", "tenant": "bob",
         "headers": {"idempotency_key_hash": "mine"}}]'"#;
    let more = format!(", 'charged', {events}");
    call(&fixture.plain, "phase", 1, &more).await.unwrap();
    let more = format!(", 201, {events}");
    call(&fixture.plain, "finish", 1, &more).await.unwrap();
    let hash = IdempotencyKey::new("k").unwrap().short_hash();
    let own = format!(
        "SELECT count(*) FROM hapax.outbox_event
         WHERE type = 'a' AND tenant = 'alice'
           AND headers::jsonb = jsonb_build_object('idempotency_key_hash', '{hash}')"
    );
    assert_eq!(fixture.count(&own).await, 2);
    let others = "SELECT count(*) FROM hapax.outbox_event
        WHERE type = 'b' AND tenant = 'bob' AND headers::jsonb ->> 'idempotency_key_hash' = 'mine'";
    assert_eq!(fixture.count(others).await, 2);
}

#[tokio::test]
async fn a_key_of_which_nothing_happened_is_free_again() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    call(&fixture.plain, "phase", 1, ", 'reserved'")
        .await
        .unwrap();
    call(&fixture.plain, "nothing_happened", 1, "")
        .await
        .unwrap();
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
    // The key is as new: another payload may use it.
    let entered = enter_with(&fixture.plain, 2, ", '0'").await.unwrap();
    assert_eq!(entered, Entered::of("entered", 1));
    let resumed = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(resumed, Entered::of("resumed", 2));
    // A call of the first owner may still arrive.
    let refused = call(&fixture.plain, "nothing_happened", 2, "").await;
    assert_eq!(state(refused), "HX007");
    assert_eq!(fixture.count(COUNT_KEYS).await, 1);
}

#[tokio::test]
async fn an_expired_key_is_entered_under_the_next_epoch_and_had_no_owner_before() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    call(&fixture.plain, "phase", 1, ", 'charged', '1'")
        .await
        .unwrap();
    call(&fixture.plain, "finish", 1, ", 201").await.unwrap();
    fixture
        .run("UPDATE hapax.idempotency_key SET expires_at = now()")
        .await;
    let gone = enter_with(&fixture.plain, 2, ", on_expired => 'gone'").await;
    assert_eq!(gone.unwrap().outcome, "gone");
    let entered = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(entered, Entered::of("entered", 2));
    call(&fixture.plain, "nothing_happened", 2, "")
        .await
        .unwrap();
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
}

#[tokio::test]
async fn a_key_is_taken_over_only_after_its_lease() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    let early = call(&fixture.plain, "take_over", 1, ", '1 hour'").await;
    assert_eq!(early.unwrap(), None);
    give_back(&fixture.plain, 1).await;
    let taken = call(&fixture.plain, "take_over", 1, ", '1 hour', 'operator'").await;
    assert_eq!(taken.unwrap().as_deref(), Some("2"));
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    call(&fixture.plain, "finish", 2, ", 201").await.unwrap();
}

#[tokio::test]
async fn an_entry_and_a_claim_keep_each_other_out() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, "k").await;
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    let other = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(other, Entered::mismatch());
    let nested = enter_with(&tx, 1, "").await;
    assert_eq!(state(nested), "HX003");
    tx.rollback().await.unwrap();
    // The same while an entry is not committed.
    let tx = client.transaction().await.unwrap();
    assert_eq!(enter(&tx).await, Entered::of("entered", 1));
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    let other = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(other, Entered::mismatch());
    let claimed = claim(&fixture.plain, "k").await.unwrap();
    assert_eq!(claimed, ClaimRow::of("in_progress"));
    let other = claim_with(&fixture.plain, "k", fingerprint(2), "").await;
    assert_eq!(other.unwrap(), ClaimRow::of("mismatch"));
    tx.rollback().await.unwrap();
    assert_eq!(fixture.count(COUNT_KEYS).await, 0);
    assert_eq!(enter(&fixture.plain).await, Entered::of("entered", 1));
    let claimed = claim(&fixture.plain, "k").await.unwrap();
    assert_eq!(claimed, ClaimRow::of("in_progress"));
    fixture.idle().await;
}

#[tokio::test]
async fn arguments_that_the_store_could_not_read_are_refused() {
    let fixture = Fixture::new().await;
    enter(&fixture.plain).await;
    let long = RECOVERY_POINT_BYTES_MAX + 1;
    let owned = "'alice', 'POST /orders', 'k'";
    for arguments in [
        "enter('', 'o', 'k', sha256('x'))".to_owned(),
        "enter('t', 'o', '', sha256('x'))".to_owned(),
        "enter('t', 'o', 'k', 'x')".to_owned(),
        "enter('t', 'o', 'k', NULL)".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), '-1 second')".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), '25 hours')".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), NULL)".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), retention => '-1 second')".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), retention => NULL)".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), on_expired => 'old')".to_owned(),
        "enter('t', 'o', 'k', sha256('x'), owner => '')".to_owned(),
        format!("phase({owned}, NULL, 'a')"),
        format!("phase({owned}, 1, NULL)"),
        format!("phase({owned}, 1, '')"),
        format!("phase({owned}, 1, repeat('x', {long}))"),
        format!("phase({owned}, 1, 'a', to_jsonb(repeat('x', 1048576)))"),
        format!("finish({owned}, NULL, 201)"),
        format!("finish({owned}, 1, NULL)"),
        format!("finish({owned}, 1, 199)"),
        format!("finish({owned}, 1, 201, '{{}}')"),
        format!("finish({owned}, 1, 201, '[]', decode(repeat('00', 4194305), 'hex'))"),
        format!("renew({owned}, NULL)"),
        format!("renew({owned}, 1, NULL)"),
        format!("renew({owned}, 1, '25 hours')"),
        format!("take_over({owned}, NULL)"),
        format!("take_over({owned}, 1, owner => repeat('x', 256))"),
        format!("nothing_happened({owned}, NULL)"),
        format!("provider_key({owned}, NULL, 'charge')"),
        format!("provider_key({owned}, 1, NULL)"),
    ] {
        let sql = format!("SELECT hapax.{arguments}");
        let outcome = fixture.plain.query(&sql, &[]).await;
        assert_eq!(state(outcome), "HX001", "{arguments}");
    }
    let longest = format!("SELECT hapax.phase({owned}, 1, repeat('x', {}))", long - 1);
    fixture.plain.query(&longest, &[]).await.unwrap();
}
