//! Adapters: what a service writes through its own driver's transaction is identical to what the
//! store writes.

mod services;

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hapax::{
    Timestamp,
    event::{Headers, NewEvent, Payload},
    idempotency::{StoredResponse, Taken},
    inbox::Acceptance,
    key::Tenant,
    store::{ClaimOutcome, Keys, StoreError, Transaction},
};
use hapax_postgres::adapter::{self, Origin};
use hapax_testkit::{
    assert_matches,
    events::{claim, event, fingerprint, message, response},
    postgres::connect,
    wait::Patience,
};
use tokio_postgres::Client;

use self::services::{Deployment, NoteOutcome, Service};
use crate::fixture::{INSERT, PATIENCE};

#[tokio::test]
async fn every_driver_replays_byte_for_byte_what_any_of_them_stored() {
    let deployment = Deployment::new().await;
    for (number, writer) in deployment.services.iter().enumerate() {
        let key = number.to_string();
        let stored = odd_answer(200 + u16::try_from(number).unwrap());
        let ran = writer.note(claim(&key), &key, &stored).await.unwrap();
        assert_eq!(ran, NoteOutcome::Ran(stored.clone()));
        for reader in &deployment.services {
            let outcome = reader
                .note(claim(&key), "again", &response("again"))
                .await
                .unwrap();
            let NoteOutcome::Taken(Taken::Replay {
                response,
                fresh_for,
            }) = outcome
            else {
                panic!("expected a replay, got {outcome:?}")
            };
            assert_eq!(response, stored);
            let hour = Duration::from_hours(1);
            assert!(
                fresh_for <= hour && fresh_for + PATIENCE > hour,
                "{fresh_for:?}"
            );
            let mut other = claim(&key);
            other.fingerprint = fingerprint(2);
            let outcome = reader.note(other, "again", &answer2()).await.unwrap();
            assert_eq!(outcome, NoteOutcome::Taken(Taken::Mismatch));
        }
    }
    assert_eq!(deployment.count("note").await, 3);
    assert_eq!(deployment.count("hapax.outbox_event").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_through_all_drivers_one_runs_and_all_tell_its_answer() {
    let deployment = Deployment::new().await;
    let asked = (0..30).map(|number: usize| {
        let service = deployment.services[number % 3].clone();
        tokio::spawn(async move { service.insist("k", &number.to_string()).await })
    });
    let outcome: Vec<StoredResponse> = join_all(asked)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(
        outcome.iter().all(|response| *response == outcome[0]),
        "{outcome:?}"
    );
    assert_eq!(deployment.count("note").await, 1);
    assert_eq!(deployment.count("hapax.outbox_event").await, 1);
    assert_eq!(deployment.count("hapax.idempotency_key").await, 1);
}

#[tokio::test]
async fn while_one_driver_holds_a_key_the_others_see_it_and_a_rollback_releases_it() {
    let deployment = Deployment::new().await;
    let [store, driver, pool] = &deployment.services;
    let Service::Store(keys) = store else {
        unreachable!("the first service has the store")
    };
    let mut client = connect(deployment.url()).await;

    let ClaimOutcome::Open(held) = keys.claim(claim("k")).await.unwrap() else {
        panic!("expected a free key")
    };
    check_held(&[driver, pool]).await;
    held.rollback().await;

    let mut held = client.transaction().await.unwrap();
    let opened = adapter::tokio_postgres::claim(&mut held, &claim("k"))
        .await
        .unwrap();
    assert!(matches!(opened, ClaimOutcome::Open(())));
    check_held(&[store, pool]).await;
    held.rollback().await.unwrap();

    let mut held = deployment.pool().begin().await.unwrap();
    let opened = adapter::sqlx::claim(&mut held, &claim("k")).await.unwrap();
    assert!(matches!(opened, ClaimOutcome::Open(())));
    check_held(&[store, driver]).await;
    // Dropped without a rollback, as after a panic or a timeout.
    drop(held);
    assert_eq!(store.insist("k", "at last").await, response("at last"));
    assert_eq!(deployment.count("note").await, 1);
}

#[tokio::test]
async fn a_released_key_is_free_after_the_commit_and_the_rows_stay() {
    let deployment = Deployment::new().await;
    let mut client = connect(deployment.url()).await;
    let mut tx = client.transaction().await.unwrap();
    let _open = adapter::tokio_postgres::claim(&mut tx, &claim("k"))
        .await
        .unwrap();
    tx.execute(INSERT, &[&"kept"]).await.unwrap();
    adapter::tokio_postgres::release(&mut tx, &claim("k"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = deployment.pool().begin().await.unwrap();
    let opened = adapter::sqlx::claim(&mut tx, &claim("k")).await.unwrap();
    assert!(matches!(opened, ClaimOutcome::Open(())));
    adapter::sqlx::release(&mut tx, &claim("k")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(deployment.count("note").await, 1);
    assert_eq!(deployment.count("hapax.idempotency_key").await, 0);
}

#[tokio::test]
async fn a_key_is_completed_only_in_the_transaction_that_claimed_it() {
    let deployment = Deployment::new().await;
    let mut client = connect(deployment.url()).await;
    let mut tx = client.transaction().await.unwrap();
    let refused = adapter::tokio_postgres::complete(&mut tx, &claim("k"), &response("")).await;
    check_no_claim(&refused.unwrap_err());
    // Outside a transaction each statement commits on its own, so the claim is already released.
    let mut alone = deployment.pool().acquire().await.unwrap();
    let _open = adapter::sqlx::claim(&mut alone, &claim("k")).await.unwrap();
    let refused = adapter::sqlx::complete(&mut alone, &claim("k"), &response("")).await;
    check_no_claim(&refused.unwrap_err());
    assert_eq!(deployment.count("hapax.idempotency_key").await, 0);
}

#[tokio::test]
async fn an_event_of_any_driver_is_the_stores_event() {
    let deployment = Deployment::new().await;
    let context = Headers::from([
        ("correlation_id".to_owned(), "of the request".to_owned()),
        ("traceparent".to_owned(), "00-1-2-01".to_owned()),
    ]);
    let mut plain = event("1").header("correlation_id", "of the event");
    plain.sequence = Some(7);
    plain.available_at = Some(Timestamp::from_millis(1_767_225_600_123));
    let json = Payload::Json(
        "{ \"n\": 1.0,\n \"n\": 9007199254740993, \"e\": \"\\u00e9\u{1f980}\" }".to_owned(),
    );
    let binary = Payload::Binary {
        content_type: "application/protobuf".to_owned(),
        bytes: (0..=255).collect(),
    };
    let empty = Payload::Binary {
        content_type: "text/plain; charset=utf-8".to_owned(),
        bytes: Bytes::new(),
    };
    let bare = |payload| NewEvent::new("a/b:c.d_e-f", payload);
    let tenant = Tenant::new("alice").unwrap();
    for event in [plain, bare(json), bare(binary), bare(empty)] {
        let mut rows = Vec::new();
        for service in &deployment.services {
            service.emit(event.clone(), &tenant, &context).await;
            rows.push(last_event(&deployment.plain).await);
        }
        assert_eq!(rows[1], rows[0]);
        assert_eq!(rows[2], rows[0]);
    }
}

#[tokio::test]
async fn an_event_of_a_claims_transaction_carries_what_the_stores_would() {
    let deployment = Deployment::new().await;
    let mut rows = Vec::new();
    for (number, service) in deployment.services.iter().enumerate() {
        let mut claim = claim("k");
        claim.scope = hapax_testkit::events::scope("alice", &format!("POST /{number}"), "k");
        service.note(claim, "one", &response("one")).await.unwrap();
        rows.push(last_event(&deployment.plain).await);
    }
    assert!(rows[0].contains("idempotency_key_hash"), "{}", rows[0]);
    assert_eq!(rows[1], rows[0]);
    assert_eq!(rows[2], rows[0]);
}

#[tokio::test]
async fn an_event_that_no_destination_could_carry_is_refused_and_dooms_nothing() {
    let deployment = Deployment::new().await;
    let mut client = connect(deployment.url()).await;
    let mut tx = client.transaction().await.unwrap();
    let bad = || {
        [
            NewEvent::json("a b", &1),
            event("1").header("content-type", "text/html"),
        ]
    };
    for event in bad() {
        let refused = adapter::tokio_postgres::emit(&mut tx, event, Origin::default()).await;
        assert_matches!(refused, Err(StoreError::Event(_)));
    }
    tx.execute(INSERT, &[&"still usable"]).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = deployment.pool().begin().await.unwrap();
    for event in bad() {
        let refused = adapter::sqlx::emit(&mut tx, event, Origin::default()).await;
        assert_matches!(refused, Err(StoreError::Event(_)));
    }
    sqlx::query(INSERT)
        .bind("still usable")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(deployment.count("note").await, 2);
}

#[tokio::test]
async fn every_driver_records_the_result_of_a_message() {
    let deployment = Deployment::new().await;
    for (number, service) in deployment.services.iter().enumerate() {
        let sent = message("orders", &number.to_string(), "{}");
        service.process(&sent, "applied").await;
    }
    let complete = "hapax.inbox_message WHERE result = 'applied' AND processed_at > received_at";
    assert_eq!(deployment.count(complete).await, 3);
}

#[tokio::test]
async fn a_message_that_any_driver_took_is_known_to_all() {
    let deployment = Deployment::new().await;
    for (number, first) in deployment.services.iter().enumerate() {
        let sent = message("orders", &number.to_string(), "{}");
        let other = message("orders", &number.to_string(), "{\"other\":1}");
        assert_eq!(first.accept(&sent, false).await, Acceptance::First);
        // A dropped transaction is rolled back on its connection a moment later.
        let patience = Patience::within(PATIENCE);
        while deployment.count("hapax.inbox_message").await > number.try_into().unwrap() {
            patience.pause().await;
        }
        assert_eq!(first.accept(&sent, true).await, Acceptance::First);
        for service in &deployment.services {
            assert_eq!(service.accept(&sent, true).await, Acceptance::Duplicate);
            assert_eq!(service.accept(&other, true).await, Acceptance::Mismatch);
        }
    }
    assert_eq!(deployment.count("hapax.inbox_message").await, 3);
}

#[tokio::test]
async fn what_a_driver_says_is_sorted_into_again_and_never() {
    let deployment = Deployment::new().await;
    let mut tx = deployment.pool().begin().await.unwrap();
    sqlx::query("SELECT 1 / 0")
        .execute(&mut *tx)
        .await
        .unwrap_err();
    let doomed = adapter::sqlx::claim(&mut tx, &claim("k"))
        .await
        .unwrap_err();
    assert_matches!(doomed, StoreError::Statement { .. });
    drop(tx);
    let mut tx = deployment.pool().begin().await.unwrap();
    sqlx::query("SET LOCAL statement_timeout = 100")
        .execute(&mut *tx)
        .await
        .unwrap();
    deployment
        .plain
        .batch_execute("BEGIN; LOCK TABLE hapax.inbox_message")
        .await
        .unwrap();
    let late = adapter::sqlx::accept(&mut tx, &message("a", "b", "c"))
        .await
        .unwrap_err();
    assert_matches!(late, StoreError::TimedOut);
    drop(tx);
    let mut tx = deployment.pool().begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = 100")
        .execute(&mut *tx)
        .await
        .unwrap();
    let lost = adapter::sqlx::accept(&mut tx, &message("a", "b", "c"))
        .await
        .unwrap_err();
    assert_matches!(lost, StoreError::Conflict { .. });
    drop(tx);
    let mut tx = deployment.pool().begin().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    deployment
        .plain
        .execute("SELECT pg_terminate_backend($1, 5000)", &[&pid])
        .await
        .unwrap();
    let gone = adapter::sqlx::claim(&mut tx, &claim("k"))
        .await
        .unwrap_err();
    assert_matches!(gone, StoreError::Unavailable { .. });
}

#[tokio::test]
async fn database_errors_are_classified_whoever_ran_the_statement() {
    use hapax::store::DatabaseErrorKind as Kind;

    let deployment = Deployment::new().await;
    let tables = "CREATE TABLE parent (id int PRIMARY KEY);
        CREATE TABLE child (
            number int CONSTRAINT child_number_key UNIQUE,
            tenant varchar(5) NOT NULL,
            amount int CONSTRAINT child_amount_check CHECK (amount > 0),
            parent int CONSTRAINT child_parent_fkey REFERENCES parent (id),
            during int4range,
            CONSTRAINT child_during_excl EXCLUDE USING gist (during WITH &&)
        );
        INSERT INTO child VALUES (7, 'alice', 1, NULL, '[1,5]')";
    deployment.plain.batch_execute(tables).await.unwrap();
    for (values, kind, constraint) in [
        ("7, 'bob'", Kind::UniqueViolation, Some("child_number_key")),
        ("8, NULL", Kind::NotNullViolation, None),
        (
            "8, 'bob', -1",
            Kind::CheckViolation,
            Some("child_amount_check"),
        ),
        (
            "8, 'bob', 1, 9",
            Kind::ForeignKeyViolation,
            Some("child_parent_fkey"),
        ),
        (
            "8, 'bob', 1, NULL, '[2,3]'",
            Kind::ExclusionViolation,
            Some("child_during_excl"),
        ),
        ("8, 'robert'", Kind::InvalidInput, None),
        ("8, 'bob', 1 / 0", Kind::InvalidInput, None),
        ("8, bob", Kind::Other, None),
    ] {
        let sql = format!("INSERT INTO child VALUES ({values})");
        let by_sqlx = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .execute(deployment.pool())
            .await;
        let by_sqlx = adapter::sqlx::store_error(by_sqlx.unwrap_err());
        let plain = deployment.plain.execute(sql.as_str(), &[]).await;
        let plain = adapter::tokio_postgres::store_error(plain.unwrap_err());
        for error in [by_sqlx, plain] {
            let outcome = error
                .database_error()
                .unwrap_or_else(|| panic!("{values}: {error:?}"));
            assert_eq!(
                (outcome.kind(), error.constraint()),
                (kind, constraint),
                "{values}"
            );
            assert_eq!(error.is_unique_violation(), kind == Kind::UniqueViolation);
            // The database's detail message repeats the values of the row, and errors are logged:
            // the values must not be in the error.
            let error_chain = error.error_chain();
            assert!(
                kind == Kind::Other || !error_chain.contains("bob"),
                "{error_chain}"
            );
        }
    }
}

/// A response with bytes that careless storage would change.
fn odd_answer(status: u16) -> StoredResponse {
    let value: Bytes = (0x20..=0x7e).chain(0x80..=0xff).collect();
    StoredResponse {
        status,
        headers: vec![
            (
                "content-type".to_owned(),
                Bytes::from_static(b"application/octet-stream"),
            ),
            ("link".to_owned(), Bytes::from_static(b"</a>; rel=\"next\"")),
            ("link".to_owned(), Bytes::from_static(b"")),
            ("x-raw".to_owned(), value),
        ],
        body: (0..=255).collect(),
    }
}

fn answer2() -> StoredResponse {
    response("never stored")
}

/// The columns of the newest event, without its event id, creation time and position.
async fn last_event(plain: &Client) -> String {
    let row = plain.query_one(
        "SELECT (to_jsonb(e) - 'xid' - 'id' - 'event_id' - 'created_at' - 'headers'
                 - CASE WHEN aggregate_id IS NULL THEN 'shard' ELSE '' END
                 || jsonb_build_object('headers', headers::jsonb))::text
         FROM hapax.outbox_event AS e ORDER BY id DESC LIMIT 1",
        &[],
    );
    row.await.unwrap().get(0)
}

async fn check_held(services: &[&Service]) {
    for service in services {
        let outcome = service
            .note(claim("k"), "too early", &response("too early"))
            .await
            .unwrap();
        assert_eq!(outcome, NoteOutcome::Taken(Taken::InProgress));
    }
}

#[track_caller]
fn check_no_claim(error: &StoreError) {
    let error_chain = error.error_chain();
    assert_matches!(error, StoreError::Statement { .. }, "{error_chain}");
    assert!(error_chain.contains("no claim is open"), "{error_chain}");
}
