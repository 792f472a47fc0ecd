//! The store and SQL callers with the same phased key, in both directions.

use std::{sync::Arc, time::Duration};

use hapax::{
    event::Headers,
    idempotency::Taken,
    phases::{Entry, Ownership},
    store::{ClaimOutcome, Effect, Phases, StoreError, Transaction},
};
use hapax_testkit::{
    assert_matches,
    events::{claim as rust_claim, event, fingerprint, response},
};

use super::{Entered, call, enter, enter_with, give_back};
use crate::{
    contract::{open, state},
    fixture::{Fixture, INSERT},
};

fn entry(lease: Duration) -> Entry {
    Entry {
        claim: rust_claim("k"),
        lease,
        request: None,
        recovery_point: None,
    }
}

/// A fixture whose store does not wait long for a key.
async fn hasty() -> Fixture {
    Fixture::with(|settings| settings.wait = Duration::from_millis(200)).await
}

async fn own(fixture: &Fixture, lease: Duration) -> Ownership {
    match fixture.store.enter(entry(lease)).await.unwrap() {
        ClaimOutcome::Open(owned) => owned,
        ClaimOutcome::Taken(taken) => panic!("expected a free key, got {taken:?}"),
    }
}

/// Commits a phase of the store with a note.
async fn phase(fixture: &Fixture, owned: &Ownership, name: &str) -> Result<(), StoreError> {
    let opened = fixture.store.phase(owned, Some(name), Headers::new()).await;
    let mut tx = opened?;
    tx.execute(INSERT, &[&name]).await?;
    tx.commit().await
}

async fn provider_key(fixture: &Fixture, epoch: i64) -> String {
    let key = call(&fixture.plain, "provider_key", epoch, ", 'charge'").await;
    key.unwrap().expect("there is no provider key")
}

#[tokio::test]
async fn the_store_resumes_and_finishes_what_sql_has_entered() {
    let fixture = hasty().await;
    assert_eq!(enter(&fixture.plain).await, Entered::of("entered", 1));
    let busy = fixture.store.enter(entry(Duration::ZERO)).await.unwrap();
    assert_matches!(busy, ClaimOutcome::Taken(Taken::InProgress));
    let mut other = entry(Duration::ZERO);
    other.claim.fingerprint = fingerprint(2);
    let other = fixture.store.enter(other).await.unwrap();
    assert_matches!(other, ClaimOutcome::Taken(Taken::Mismatch));
    let more = ", 'charged', '{\"charge\": 1}'";
    call(&fixture.plain, "phase", 1, more).await.unwrap();
    let key = provider_key(&fixture, 1).await;
    give_back(&fixture.plain, 1).await;

    let owned = own(&fixture, Duration::from_mins(1)).await;
    assert_eq!((owned.epoch, owned.resumed), (2, true));
    assert_eq!(owned.recovery_point.as_deref(), Some("charged"));
    assert_eq!(owned.provider_key("charge"), key);
    assert_eq!(owned.retention, Duration::from_hours(24));
    let last = fixture.store.phase(&owned, None, Headers::new()).await;
    let mut last = last.unwrap();
    last.execute(INSERT, &[&"last"]).await.unwrap();
    last.complete(&response("rust"), Effect::Keep)
        .await
        .unwrap();
    let replay = enter(&fixture.plain).await;
    assert_eq!((&*replay.outcome, replay.status), ("replay", Some(201)));
    assert_eq!(replay.body.as_deref(), Some(&b"rust"[..]));
    let kept = "SELECT count(coalesce(owner, recovery_data::text)) FROM hapax.idempotency_key";
    assert_eq!(fixture.count(kept).await, 0);
    assert_eq!(fixture.notes().await, ["last"]);
}

#[tokio::test]
async fn sql_resumes_and_finishes_what_the_store_has_entered() {
    let fixture = hasty().await;
    let mut kept = entry(Duration::from_mins(1));
    kept.request = Some("the request".into());
    let ClaimOutcome::Open(owned) = fixture.store.enter(kept).await.unwrap() else {
        panic!("expected a free key");
    };
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    let other = enter_with(&fixture.plain, 2, "").await.unwrap();
    assert_eq!(other, Entered::mismatch());
    phase(&fixture, &owned, "charged").await.unwrap();
    fixture.store.give_back(&owned).await.unwrap();
    let finer = "SELECT count(*) FROM hapax.idempotency_key
        WHERE lease_until <> date_trunc('milliseconds', lease_until)";
    assert_eq!(fixture.count(finer).await, 0);

    let resumed = Entered {
        phase: Some("charged".to_owned()),
        ..Entered::of("resumed", 2)
    };
    assert_eq!(enter(&fixture.plain).await, resumed);
    assert_eq!(
        provider_key(&fixture, 2).await,
        owned.provider_key("charge")
    );
    let more = ", 201, '[[\"content-type\", \"application/json\"]]', 'sql'";
    let stands = call(&fixture.plain, "finish", 2, more).await.unwrap();
    assert_eq!(stands.as_deref(), Some("01:00:00"));
    match fixture.store.enter(entry(Duration::ZERO)).await.unwrap() {
        ClaimOutcome::Taken(Taken::Replay {
            response: stored, ..
        }) => {
            assert_eq!(stored, response("sql"));
        }
        other => panic!("expected a replay, got {other:?}"),
    }
    let requests = "SELECT count(request) FROM hapax.idempotency_key";
    assert_eq!(fixture.count(requests).await, 0);
}

#[tokio::test]
async fn a_phase_of_the_store_replaces_the_data_of_a_phase_of_sql() {
    let fixture = hasty().await;
    enter(&fixture.plain).await;
    call(&fixture.plain, "phase", 1, ", 'sql', '{\"a\": 1}'")
        .await
        .unwrap();
    give_back(&fixture.plain, 1).await;
    let owned = own(&fixture, Duration::from_mins(1)).await;
    phase(&fixture, &owned, "rust").await.unwrap();
    fixture.store.give_back(&owned).await.unwrap();
    let resumed = Entered {
        phase: Some("rust".to_owned()),
        ..Entered::of("resumed", 3)
    };
    assert_eq!(enter(&fixture.plain).await, resumed);
}

#[tokio::test]
async fn the_store_fences_sql_and_sql_fences_the_store() {
    let fixture = hasty().await;
    enter(&fixture.plain).await;
    give_back(&fixture.plain, 1).await;
    let owned = own(&fixture, Duration::ZERO).await;
    for (function, more) in [("phase", ", 'late'"), ("finish", ", 201"), ("renew", "")] {
        let late = call(&fixture.plain, function, 1, more).await;
        assert_eq!(state(late), "HX005", "{function}");
    }
    let taken = call(&fixture.plain, "take_over", owned.epoch, ", '1 hour'").await;
    assert_eq!(taken.unwrap().as_deref(), Some("3"));
    assert_matches!(
        phase(&fixture, &owned, "late").await,
        Err(StoreError::Fenced)
    );
    let renewed = fixture.store.renew(&owned, Duration::from_mins(1)).await;
    assert_matches!(renewed, Err(StoreError::Fenced));
    let released = fixture.store.release(&owned).await;
    assert_matches!(released, Err(StoreError::Fenced));
    call(&fixture.plain, "finish", 3, ", 204").await.unwrap();
    assert!(fixture.notes().await.is_empty());
}

#[tokio::test]
async fn a_key_that_one_of_them_released_is_new_to_the_other() {
    let fixture = hasty().await;
    enter(&fixture.plain).await;
    call(&fixture.plain, "nothing_happened", 1, "")
        .await
        .unwrap();
    let owned = own(&fixture, Duration::from_mins(1)).await;
    assert_eq!((owned.epoch, owned.resumed), (1, false));
    fixture.store.release(&owned).await.unwrap();
    assert_eq!(enter(&fixture.plain).await, Entered::of("entered", 1));
}

/// Only an owner whose key was entered as new may declare that nothing happened, even if the store
/// has entered it over an expired row.
#[tokio::test]
async fn sql_knows_whether_a_key_of_the_store_had_an_earlier_owner() {
    let fixture = hasty().await;
    let owned = own(&fixture, Duration::from_mins(1)).await;
    let last = fixture.store.phase(&owned, None, Headers::new()).await;
    let last = last.unwrap();
    last.complete(&response("old"), Effect::Keep).await.unwrap();
    fixture
        .run("UPDATE hapax.idempotency_key SET expires_at = now()")
        .await;
    let owned = own(&fixture, Duration::ZERO).await;
    assert_eq!((owned.epoch, owned.resumed), (2, false));
    let resumed = own(&fixture, Duration::ZERO).await;
    assert_eq!((resumed.epoch, resumed.resumed), (3, true));
    let refused = call(&fixture.plain, "nothing_happened", 3, "").await;
    assert_eq!(state(refused), "HX007");
    fixture.store.release(&resumed).await.unwrap();
    let owned = own(&fixture, Duration::ZERO).await;
    call(&fixture.plain, "nothing_happened", owned.epoch, "")
        .await
        .unwrap();
}

#[tokio::test]
async fn an_entry_of_sql_that_is_not_committed_shows_its_payload_to_the_store() {
    let fixture = hasty().await;
    let mut client = fixture.database.client().await;
    let tx = client.transaction().await.unwrap();
    enter(&tx).await;
    let same = fixture.store.enter(entry(Duration::ZERO)).await.unwrap();
    assert_matches!(same, ClaimOutcome::Taken(Taken::InProgress));
    let mut other = entry(Duration::ZERO);
    other.claim.fingerprint = fingerprint(2);
    let other = fixture.store.enter(other).await.unwrap();
    assert_matches!(other, ClaimOutcome::Taken(Taken::Mismatch));
    tx.rollback().await.unwrap();
    // And the other way round: SQL waits for a claim of the store, and the store for one of SQL.
    let claimed = fixture.claim(rust_claim("k")).await;
    assert_eq!(enter(&fixture.plain).await, Entered::in_progress());
    claimed.rollback().await;
    let tx = open(&mut client, "k").await;
    let busy = fixture.store.enter(entry(Duration::ZERO)).await.unwrap();
    assert_matches!(busy, ClaimOutcome::Taken(Taken::InProgress));
    tx.rollback().await.unwrap();
    fixture.idle().await;
}

#[tokio::test]
async fn events_of_a_phase_are_those_of_the_store() {
    let fixture = hasty().await;
    let owned = own(&fixture, Duration::ZERO).await;
    let opened = fixture
        .store
        .phase(&owned, Some("rust"), Headers::new())
        .await;
    let mut tx = opened.unwrap();
    tx.emit(event("o1")).unwrap();
    tx.commit().await.unwrap();
    let more = r#", 'sql', events => '[{"type": "order.created",
        "payload": "{\"id\":\"o1\"}", "aggregate_type": "order", "aggregate_id": "o1"}]'"#;
    call(&fixture.plain, "phase", 1, more).await.unwrap();
    let rows = "SELECT count(*) FROM hapax.outbox_event";
    assert_eq!(fixture.count(rows).await, 2);
    let different = "SELECT count(DISTINCT (shard, type, tenant, aggregate_type, aggregate_id,
            sequence, payload, headers::jsonb, available_at))
        FROM hapax.outbox_event";
    assert_eq!(fixture.count(different).await, 1);
}

#[tokio::test]
async fn of_stores_and_sessions_that_enter_one_key_one_owns_it() {
    const ROUNDS: i64 = 20;
    let fixture = Arc::new(hasty().await);
    for round in 1..=ROUNDS {
        let mut racers = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let store = fixture.store.clone();
            racers.spawn(async move {
                let entered = store.enter(entry(Duration::from_mins(1))).await.unwrap();
                match entered {
                    ClaimOutcome::Open(owned) => Some(owned.epoch),
                    ClaimOutcome::Taken(_) => None,
                }
            });
            let session = fixture.database.client().await;
            racers.spawn(async move { enter(&session).await.epoch });
        }
        let owners = racers.join_all().await;
        let owners: Vec<i64> = owners.into_iter().flatten().collect();
        assert_eq!(owners, [round]);
        give_back(&fixture.plain, round).await;
    }
}
