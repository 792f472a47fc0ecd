//! Hapax in transactions of [`sqlx`], feature `sqlx`: a store for the layer of `hapax-http`, and the
//! functions for a transaction that the service opens itself.
//!
//! With [`SqlxStore`], the layer opens the transaction, and a handler receives it as [`SqlxTx`]. The
//! functions take the connection on which a transaction is open: `&mut tx`.
//!
//! With a pooler in transaction mode, no statement may be prepared under a name. Set
//! [`Settings::pooled`](crate::Settings::pooled) for the store, and `.persistent(false)` on each
//! statement of your own. The functions follow the connection: as long as it keeps no prepared
//! statement, they prepare none. `statement_cache_capacity(0)` is not enough: sqlx then still
//! prepares each statement under a name, and never closes it.

mod bound;
mod store;
mod transaction;

use std::time::Duration;

use hapax::{
    event::{EventId, NewEvent, Payload},
    idempotency::{Claim, StoredResponse},
    inbox::{Acceptance, Message},
    store::{ClaimOutcome, StoreError},
};
use sqlx::{Connection as _, PgConnection, Row as _};

pub use store::SqlxStore;
pub use transaction::SqlxTx;

use super::{
    ClaimRow, Emission, Origin, WAIT_SECS, acceptance, event_id, headers, retention, stands,
};
use crate::{error::sqlx_error, idempotency::parts, query};

/// Sorts an error of a statement of your own as the errors of these functions are sorted: whether
/// it may be tried again, and what the database refused.
pub fn store_error(error: sqlx::Error) -> StoreError {
    sqlx_error(error)
}

/// Takes a key for the transaction that is open on `tx`, or says what is known about it.
///
/// It waits for a transaction that holds the same key, up to [`WAIT`](hapax::limits::WAIT).
///
/// # Errors
/// Fails when the database does, and when another claim is open in the transaction.
pub async fn claim(tx: &mut PgConnection, claim: &Claim) -> Result<ClaimOutcome<()>, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let row = sqlx::query(query!("contract/claim"))
        .persistent(keeps_statements(tx))
        .bind(tenant)
        .bind(operation)
        .bind(key)
        .bind(&claim.fingerprint.as_bytes()[..])
        .bind(retention(claim))
        .bind(claim.on_expired.name())
        .bind(WAIT_SECS)
        .fetch_one(tx)
        .await
        .map_err(sqlx_error)?;
    let result = ClaimRow {
        outcome: row.try_get("outcome").map_err(sqlx_error)?,
        status: row.try_get("status").map_err(sqlx_error)?,
        headers: row.try_get("headers").map_err(sqlx_error)?,
        body: row.try_get("body").map_err(sqlx_error)?,
        fresh_for: row.try_get("fresh_for").map_err(sqlx_error)?,
    };
    result.read()
}

/// Stores the response under the key that this transaction has claimed. Returns its retention.
///
/// # Errors
/// Fails if the database fails, or if the claim was not made in this transaction.
pub async fn complete(
    tx: &mut PgConnection,
    claim: &Claim,
    response: &StoredResponse,
) -> Result<Duration, StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let stored = sqlx::query_scalar(query!("contract/complete"))
        .persistent(keeps_statements(tx))
        .bind(tenant)
        .bind(operation)
        .bind(key)
        .bind(i32::from(response.status))
        .bind(headers(response))
        .bind(&response.body[..])
        .fetch_one(tx)
        .await;
    stored.map(stands).map_err(sqlx_error)
}

/// Releases the claimed key without a response; it is free when the transaction ends.
///
/// # Errors
/// As [`complete`].
pub async fn release(tx: &mut PgConnection, claim: &Claim) -> Result<(), StoreError> {
    let [tenant, operation, key] = parts(&claim.scope);
    let released = sqlx::query(query!("contract/release"))
        .persistent(keeps_statements(tx))
        .bind(tenant)
        .bind(operation)
        .bind(key)
        .execute(tx)
        .await;
    released.map(drop).map_err(sqlx_error)
}

/// Adds an event to this transaction; it exists exactly when the transaction commits.
///
/// # Errors
/// Fails when the database does, and when the event could not be carried; that is said before the
/// database is asked, and the transaction stays usable.
pub async fn emit<'a>(
    tx: &mut PgConnection,
    event: NewEvent,
    origin: impl Into<Origin<'a>>,
) -> Result<EventId, StoreError> {
    let emission = Emission::of(event, origin.into())?;
    let event = &emission.event;
    let (kind, id) = emission.about();
    let (tenant, at) = (emission.tenant(), emission.available_at());
    let emit = match &event.payload {
        Payload::Json(text) => sqlx::query_scalar(query!("contract/emit"))
            .bind(&event.kind)
            .bind(text),
        Payload::Binary { bytes, .. } => sqlx::query_scalar(query!("contract/emit_bytes"))
            .bind(&event.kind)
            .bind(&bytes[..]),
    };
    let emit = emit
        .persistent(keeps_statements(tx))
        .bind(kind)
        .bind(id)
        .bind(event.sequence)
        .bind(&emission.headers)
        .bind(tenant)
        .bind(at);
    let emit = match emission.content_type() {
        None => emit,
        Some(content_type) => emit.bind(content_type),
    };
    let id: String = emit.fetch_one(tx).await.map_err(sqlx_error)?;
    event_id(&id)
}

/// Takes a message for a consumer, once, in this transaction. The call counts the message, because
/// only the caller knows of the commit.
///
/// # Errors
/// Fails when the database does.
pub async fn accept(tx: &mut PgConnection, message: &Message) -> Result<Acceptance, StoreError> {
    let acceptance = take(tx, message).await?;
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
    tx: &mut PgConnection,
    message: &Message,
    result: Option<&str>,
) -> Result<(), StoreError> {
    let processed = sqlx::query(query!("contract/processed"))
        .persistent(keeps_statements(tx))
        .bind(&message.consumer)
        .bind(&message.message_id)
        .bind(&message.source)
        .bind(result)
        .execute(tx)
        .await;
    processed.map(drop).map_err(sqlx_error)
}

/// Takes a message, and leaves it to the caller to count it.
async fn take(tx: &mut PgConnection, message: &Message) -> Result<Acceptance, StoreError> {
    let accepted = sqlx::query_scalar(query!("contract/accept"))
        .persistent(keeps_statements(tx))
        .bind(&message.consumer)
        .bind(&message.message_id)
        .bind(&message.payload_hash[..])
        .bind(&message.source)
        .fetch_one(tx)
        .await;
    let word: String = accepted.map_err(sqlx_error)?;
    acceptance(&word)
}

/// Whether a statement of these functions is kept prepared: only if the connection keeps another
/// one, because behind a pooler it must keep none.
fn keeps_statements(tx: &PgConnection) -> bool {
    tx.cached_statements_size() > 0
}
