//! The functions for a transaction of [`tokio_postgres`], or of a pool that is built on it.
//!
//! No statement is prepared, so the functions also work with a pooler in transaction mode. If a
//! statement fails, PostgreSQL allows only a rollback of the transaction.

use std::time::Duration;

use hapax::{
    event::{EventId, NewEvent, Payload},
    idempotency::{Claim, StoredResponse},
    inbox::{Acceptance, Message},
    store::{ClaimOutcome, StoreError},
};
use tokio_postgres::{Row, Transaction, types::Type};

use super::{
    ClaimRow, Emission, Origin, WAIT_SECS, acceptance, event_id, headers, retention, stands,
};
use crate::{idempotency::parts, query, value::Param};

/// Sorts an error of a statement of your own as the errors of these functions are sorted: whether
/// it may be tried again, and what the database refused.
pub fn store_error(error: tokio_postgres::Error) -> StoreError {
    crate::error::store_error(error)
}

/// Takes a key for this transaction, or says what is known about it.
///
/// It waits for a transaction that holds the same key, up to [`WAIT`](hapax::limits::WAIT).
///
/// # Errors
/// Fails when the database does, and when another claim is open in the transaction.
pub async fn claim(
    tx: &mut Transaction<'_>,
    claim: &Claim,
) -> Result<ClaimOutcome<()>, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let fingerprint: &[u8] = claim.fingerprint.as_bytes();
    let params: [&dyn Param; 7] = [
        &tenant,
        &operation,
        &key,
        &fingerprint,
        &retention(claim),
        &claim.on_expired.name(),
        &WAIT_SECS,
    ];
    let row = one(tx, query!("contract/claim"), &params).await?;
    let result = ClaimRow {
        outcome: row.try_get("outcome").map_err(store_error)?,
        status: row.try_get("status").map_err(store_error)?,
        headers: row.try_get("headers").map_err(store_error)?,
        body: row.try_get("body").map_err(store_error)?,
        fresh_for: row.try_get("fresh_for").map_err(store_error)?,
    };
    result.read()
}

/// Stores the response under the key that this transaction has claimed. Returns its retention.
///
/// # Errors
/// Fails if the database fails, or if the claim was not made in this transaction.
pub async fn complete(
    tx: &mut Transaction<'_>,
    claim: &Claim,
    response: &StoredResponse,
) -> Result<Duration, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let (status, body): (i32, &[u8]) = (response.status.into(), &response.body);
    let params: [&dyn Param; 6] = [
        &tenant,
        &operation,
        &key,
        &status,
        &headers(response),
        &body,
    ];
    let row = one(tx, query!("contract/complete"), &params).await?;
    row.try_get(0).map(stands).map_err(store_error)
}

/// Releases the claimed key without a response; it is free when the transaction ends.
///
/// # Errors
/// As [`complete`].
pub async fn release(tx: &mut Transaction<'_>, claim: &Claim) -> Result<(), StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let params: [&dyn Param; 3] = [&tenant, &operation, &key];
    one(tx, query!("contract/release"), &params).await.map(drop)
}

/// Adds an event to this transaction; it exists exactly when the transaction commits.
///
/// # Errors
/// Fails when the database does, and when the event could not be carried; that is said before the
/// database is asked, and the transaction stays usable.
pub async fn emit<'a>(
    tx: &mut Transaction<'_>,
    event: NewEvent,
    origin: impl Into<Origin<'a>>,
) -> Result<EventId, StoreError> {
    let emission = Emission::of(event, origin.into())?;
    let event = &emission.event;
    let (kind, id) = emission.about();
    let (tenant, at) = (emission.tenant(), emission.available_at());
    let content_type = emission.content_type();
    let (text, bytes): (&str, &[u8]) = match &event.payload {
        Payload::Json(text) => (text, &[]),
        Payload::Binary { bytes, .. } => ("", bytes),
    };
    let payload: &dyn Param = if content_type.is_some() {
        &bytes
    } else {
        &text
    };
    let params: [&dyn Param; 9] = [
        &event.kind,
        payload,
        &kind,
        &id,
        &event.sequence,
        &emission.headers,
        &tenant,
        &at,
        &content_type,
    ];
    let row = match content_type {
        None => one(tx, query!("contract/emit"), &params[..8]).await?,
        Some(_) => one(tx, query!("contract/emit_bytes"), &params).await?,
    };
    event_id(row.try_get(0).map_err(store_error)?)
}

/// Takes a message for a consumer, once, in this transaction. The call counts the message, because
/// only the caller knows of the commit.
///
/// # Errors
/// Fails when the database does.
pub async fn accept(tx: &mut Transaction<'_>, message: &Message) -> Result<Acceptance, StoreError> {
    let hash: &[u8] = &message.payload_hash;
    let params: [&dyn Param; 4] = [
        &message.consumer,
        &message.message_id,
        &hash,
        &message.source,
    ];
    let row = one(tx, query!("contract/accept"), &params).await?;
    let acceptance = acceptance(row.try_get(0).map_err(store_error)?)?;
    acceptance.count(&message.consumer);
    Ok(acceptance)
}

/// Records that the effect of a new message was written, with the result of the consumer.
///
/// # Errors
/// Fails when the database does, if the message was not accepted or is complete already, and if the
/// result is longer than
/// [`MESSAGE_RESULT_BYTES_MAX`](hapax::limits::MESSAGE_RESULT_BYTES_MAX) bytes.
pub async fn processed(
    tx: &mut Transaction<'_>,
    message: &Message,
    result: Option<&str>,
) -> Result<(), StoreError> {
    let params: [&dyn Param; 4] = [
        &message.consumer,
        &message.message_id,
        &message.source,
        &result,
    ];
    one(tx, query!("contract/processed"), &params)
        .await
        .map(drop)
}

async fn one(
    tx: &mut Transaction<'_>,
    sql: &str,
    params: &[&dyn Param],
) -> Result<Row, StoreError> {
    let typed: Vec<_> = params.iter().map(|it| (*it as _, it.of_type())).collect();
    let typed: &[(&(dyn tokio_postgres::types::ToSql + Sync), Type)] = &typed;
    tx.query_typed_one(sql, typed).await.map_err(store_error)
}
