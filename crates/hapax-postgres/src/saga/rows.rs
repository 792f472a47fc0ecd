//! Rows of sagas: the statements that write them, and the functions that read them.
//!
//! A row that cannot be read is an error that names the saga.

use bytes::Bytes;
use futures_util::future::try_join;
use hapax::{
    Timestamp,
    key::{Scope, Tenant},
    saga::{
        Direction, Kind, NewSaga, Owned, Refusal, SagaRecord, SagaStatus, Signal, State,
        StepRecord, StepState,
    },
    store::StoreError,
};
use tokio_postgres::{Error, Row};

use crate::{
    connection::Link,
    delivery::settle::text,
    error::corrupt,
    idempotency::parts,
    outbox::age,
    query,
    value::{Moment, Param},
};

/// Starts a saga. Returns false if there is one with this id already.
pub(super) async fn start(
    link: &Link,
    saga: &NewSaga,
    headers: &str,
    under: Option<&Scope>,
    time: Option<Moment>,
) -> Result<bool, Error> {
    let [of_tenant, of_operation, of_key] = match under.map(parts) {
        Some(parts) => parts.map(Some),
        None => [None; 3],
    };
    let tenant = saga.tenant.as_ref().map(Tenant::as_str);
    let (version, input): (i64, &[u8]) = (saga.kind.version.into(), &saga.input);
    let deadline = age(saga.deadline);
    let params: [&dyn Param; 11] = [
        &saga.id,
        &saga.kind.name,
        &version,
        &tenant,
        &input,
        &headers,
        &deadline,
        &time,
        &of_tenant,
        &of_operation,
        &of_key,
    ];
    let started = link.ask(query!("saga/start"), &params).await?;
    Ok(!started.is_empty())
}

/// Sends a signal to a saga. Returns false if the saga does not exist or has ended.
///
/// The first statement locks the saga's row, so that the second one sees all signals that other
/// transactions sent before.
pub(super) async fn tell(
    link: &Link,
    id: &str,
    name: &str,
    payload: &[u8],
    time: Option<Moment>,
) -> Result<bool, Error> {
    let [wake, signal] = link
        .ready([query!("saga/wake"), query!("saga/signal")])
        .await?;
    let waking: [&dyn Param; 2] = [&id, &time];
    let telling: [&dyn Param; 4] = [&id, &name, &payload, &time];
    let signalled = try_join(link.rows(&wake, &waking), link.rows(&signal, &telling));
    let (woken, _) = signalled.await?;
    Ok(!woken.is_empty())
}

/// Writes the row of a step.
pub(super) async fn step(link: &Link, saga: &str, step: &StepRecord) -> Result<(), Error> {
    let (direction, state) = (step.direction.as_str(), step.state.as_str());
    let (request, made): (&[u8], &[u8]) = (&step.request, &step.made);
    let (code, detail) = words(step.error.as_ref());
    let attempts = i32::try_from(step.attempts).unwrap_or(i32::MAX);
    let (next_at, began_at) = (Moment(step.next_at), Moment(step.began_at));
    let ended_at = step.ended_at.map(Moment);
    let params: [&dyn Param; 13] = [
        &saga,
        &step.name,
        &direction,
        &state,
        &step.provider_key,
        &request,
        &made,
        &code,
        &detail,
        &attempts,
        &next_at,
        &began_at,
        &ended_at,
    ];
    link.ask(query!("saga/step"), &params).await.map(drop)
}

/// Writes the status of a saga. Returns false if the saga has another owner.
pub(super) async fn stand(
    link: &Link,
    owned: &Owned,
    status: &SagaStatus,
    time: Option<Moment>,
) -> Result<bool, Error> {
    let state = status.state.as_str();
    let (code, detail) = words(status.reason.as_ref());
    let deadline_at = Moment(status.deadline_at);
    let params: [&dyn Param; 8] = [
        &owned.id,
        &owned.epoch,
        &state,
        &status.compensating,
        &code,
        &detail,
        &deadline_at,
        &time,
    ];
    let stood = link.ask(query!("saga/write_status"), &params).await?;
    Ok(!stood.is_empty())
}

/// Reads the row of a saga, without its steps and signals, which have separate rows.
pub(super) fn saga(row: &Row) -> Result<SagaRecord, StoreError> {
    let headers: &str = row.try_get("headers").map_err(unreadable)?;
    let tenant: Option<&str> = row.try_get("tenant").map_err(unreadable)?;
    let version: i64 = row.try_get("version").map_err(unreadable)?;
    let status = SagaStatus {
        state: named(row, "state", State::named)?,
        compensating: row.try_get("compensating").map_err(unreadable)?,
        reason: refusal(row, ["reason_code", "reason_detail"])?,
        deadline_at: moment(row, "deadline_at")?,
    };
    Ok(SagaRecord {
        id: row.try_get("id").map_err(unreadable)?,
        kind: Kind {
            name: row.try_get("name").map_err(unreadable)?,
            version: u32::try_from(version)
                .map_err(|_| corrupt(format!("saga of version {version}")))?,
        },
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| corrupt(format!("tenant of a saga: {error}")))?,
        input: bytes(row, "input")?,
        headers: serde_json::from_str(headers)
            .map_err(|error| corrupt(format!("headers of a saga: {error}")))?,
        status,
        epoch: row.try_get("epoch").map_err(unreadable)?,
        wake_at: perhaps(row, "wake_at")?,
        waiting_for: row.try_get("waiting_for").map_err(unreadable)?,
        created_at: moment(row, "created_at")?,
        ended_at: perhaps(row, "ended_at")?,
        steps: Vec::new(),
        signals: Vec::new(),
    })
}

/// Reads the row of a step.
pub(super) fn begun(row: &Row) -> Result<StepRecord, StoreError> {
    let attempts: i32 = row.try_get("attempts").map_err(unreadable)?;
    Ok(StepRecord {
        name: row.try_get("name").map_err(unreadable)?,
        direction: named(row, "direction", Direction::named)?,
        state: named(row, "state", StepState::named)?,
        provider_key: row.try_get("provider_key").map_err(unreadable)?,
        request: bytes(row, "request")?,
        made: bytes(row, "made")?,
        error: refusal(row, ["error_code", "error_detail"])?,
        attempts: attempts.unsigned_abs(),
        next_at: moment(row, "next_at")?,
        began_at: moment(row, "began_at")?,
        ended_at: perhaps(row, "ended_at")?,
    })
}

/// Reads the row of a signal.
pub(super) fn signal_of(row: &Row) -> Result<Signal, StoreError> {
    Ok(Signal {
        name: row.try_get("name").map_err(unreadable)?,
        payload: bytes(row, "payload")?,
        received_at: moment(row, "received_at")?,
    })
}

/// Adds the id of the saga to the error of an unreadable row.
pub(super) fn of_saga(row: &Row, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => {
            let id: &str = row.try_get(0).unwrap_or_default();
            corrupt(format!("{id}: {what}"))
        }
        error => error,
    }
}

pub(super) fn perhaps(row: &Row, name: &str) -> Result<Option<Timestamp>, StoreError> {
    let at: Option<Moment> = row.try_get(name).map_err(unreadable)?;
    Ok(at.map(|Moment(at)| at))
}

pub(super) fn moment(row: &Row, name: &str) -> Result<Timestamp, StoreError> {
    let Moment(at) = row.try_get(name).map_err(unreadable)?;
    Ok(at)
}

fn bytes(row: &Row, name: &str) -> Result<Bytes, StoreError> {
    let bytes: &[u8] = row.try_get(name).map_err(unreadable)?;
    Ok(Bytes::copy_from_slice(bytes))
}

fn refusal(row: &Row, [code, detail]: [&str; 2]) -> Result<Option<Refusal>, StoreError> {
    let code: Option<String> = row.try_get(code).map_err(unreadable)?;
    let detail: Option<String> = row.try_get(detail).map_err(unreadable)?;
    Ok(code.map(|code| Refusal::new(code, detail.unwrap_or_default())))
}

fn named<T>(row: &Row, column: &str, named: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    let word: &str = row.try_get(column).map_err(unreadable)?;
    named(word).ok_or_else(|| corrupt(format!("saga: {word:?} is not known here")))
}

/// A refusal as two columns. A remote system may have sent any characters, zero bytes included.
fn words(refusal: Option<&Refusal>) -> (Option<String>, Option<String>) {
    let (code, detail) = (
        refusal.map(|it| text(&it.code)),
        refusal.map(|it| text(&it.detail)),
    );
    (code, detail)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error by value"
)]
fn unreadable(error: Error) -> StoreError {
    corrupt(format!("saga: {error}"))
}
