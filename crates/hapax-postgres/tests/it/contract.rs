//! The SQL contract: what the functions guarantee to callers in any language, and to the store.
//!
//! The callers in these tests are plain sessions, like those of any driver. Where a function does
//! the same as the store, one test calls both with one key.

mod api;
mod crossing;
mod events;
mod grants;
mod inbox;
mod keys;
mod many;
mod page;
mod phased;
mod refusals;
mod snapshots;
mod versions;

use hapax::key::Fingerprint;
use hapax_testkit::events::fingerprint;
use tokio_postgres::{Client, Error, GenericClient, Transaction};

use crate::fixture::Fixture;

/// The scope and the fingerprint of `hapax_testkit::events::claim`, without the key.
const SCOPE: &str = "'alice', 'POST /orders', $1";
const COUNT_KEYS: &str = "SELECT count(*) FROM hapax.idempotency_key";
const COUNT_EVENTS: &str = "SELECT count(*) FROM hapax.outbox_event";

/// The row that `hapax.claim` returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ClaimRow {
    outcome: String,
    status: Option<i32>,
    headers: Option<String>,
    body: Option<Vec<u8>>,
}

impl ClaimRow {
    fn of(outcome: &str) -> Self {
        Self {
            outcome: outcome.to_owned(),
            ..Self::default()
        }
    }
}

/// Claims with arguments besides the usual ones, such as `wait => '0'`.
async fn claim_with(
    session: &impl GenericClient,
    key: &str,
    fingerprint: Fingerprint,
    more: &str,
) -> Result<ClaimRow, Error> {
    let sql =
        format!("SELECT outcome, status, headers::text, body FROM hapax.claim({SCOPE}, $2{more})");
    let print: &[u8] = fingerprint.as_bytes();
    let row = session.query_one(&sql, &[&key, &print]).await?;
    Ok(ClaimRow {
        outcome: row.get(0),
        status: row.get(1),
        headers: row.get(2),
        body: row.get(3),
    })
}

/// Claims without waiting.
async fn claim(session: &impl GenericClient, key: &str) -> Result<ClaimRow, Error> {
    claim_with(session, key, fingerprint(1), ", wait => '0'").await
}

/// Completes the key with `201` and this body; returns for how many seconds the response is kept.
async fn complete(session: &impl GenericClient, key: &str, body: &str) -> Result<f64, Error> {
    let sql = format!(
        "SELECT extract(epoch FROM hapax.complete({SCOPE}, 201,
            '[[\"content-type\", \"application/json\"]]', $2))::float8"
    );
    let row = session.query_one(&sql, &[&key, &body.as_bytes()]).await?;
    Ok(row.get(0))
}

/// Begins a transaction and claims a key that must be free.
async fn open<'a>(client: &'a mut Client, key: &str) -> Transaction<'a> {
    let tx = client
        .transaction()
        .await
        .expect("the transaction did not begin");
    let outcome = claim(&tx, key).await.expect("the claim failed");
    assert_eq!(outcome, ClaimRow::of("open"));
    tx
}

/// Claims, completes and commits.
async fn store_answer(fixture: &Fixture, key: &str, body: &str) {
    let mut client = fixture.database.client().await;
    let tx = open(&mut client, key).await;
    complete(&tx, key, body)
        .await
        .expect("the response was not stored");
    tx.commit().await.expect("the commit failed");
}

/// The SQLSTATE and the message of a rejected call.
#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> (String, String) {
    let error = outcome.expect_err("the call was not rejected");
    let error = error
        .as_db_error()
        .expect("the error is not from the database");
    (error.code().code().to_owned(), error.message().to_owned())
}

/// The SQLSTATE of a rejected call.
#[track_caller]
fn state<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    refused(outcome).0
}
