//! Reads sagas: the row, its steps and its signals.

use bytes::Bytes;
use hapax::{
    Timestamp,
    key::Tenant,
    saga::{
        Direction, Kind, Refusal, SagaRecord, SagaStatus, Signal, State, StepRecord, StepState,
    },
    store::StoreError,
};
use rusqlite::{Connection, Row, ToSql};

use crate::{
    error::{corrupt, store_error},
    query,
};

/// Reads the saga rows that a statement returns. An unreadable row is an error in its place.
pub(super) fn select(
    conn: &Connection,
    sql: &'static str,
    params: &[&dyn ToSql],
) -> Result<Vec<Result<SagaRecord, StoreError>>, StoreError> {
    read(conn, sql, params, |row| {
        let id = || row.get::<_, String>(0).unwrap_or_default();
        saga(row).map_err(|error| with_saga_id(&id(), error))
    })
}

/// Returns the saga that a statement finds, with its steps and signals.
pub(crate) fn find_one(
    conn: &Connection,
    sql: &'static str,
    params: &[&dyn ToSql],
) -> Result<Option<SagaRecord>, StoreError> {
    let found = select(conn, sql, params)?.into_iter().next();
    found
        .map(|saga| with_steps_and_signals(conn, saga?))
        .transpose()
}

/// Adds the steps and the signals to a saga.
pub(super) fn with_steps_and_signals(
    conn: &Connection,
    mut saga: SagaRecord,
) -> Result<SagaRecord, StoreError> {
    let with_id = |error| with_saga_id(&saga.id, error);
    let steps = read(conn, query!("saga/steps"), &[&saga.id], step)?;
    let signals = read(conn, query!("saga/signals"), &[&saga.id], signal)?;
    let steps: Result<Vec<_>, _> = steps.into_iter().collect();
    let signals: Result<Vec<_>, _> = signals.into_iter().collect();
    let (steps, signals) = (steps.map_err(with_id)?, signals.map_err(with_id)?);
    (saga.steps, saga.signals) = (steps, signals);
    Ok(saga)
}

/// Returns the sagas that can be read. The lease of an unreadable one expires, and it does not keep
/// the runner from the others.
pub(super) fn readable(
    found: impl Iterator<Item = Result<SagaRecord, StoreError>>,
) -> Result<Vec<SagaRecord>, StoreError> {
    let readable = |saga| match saga {
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::error!(error = error.error_chain(), "a saga cannot be read");
            None
        }
        saga => Some(saga),
    };
    found.filter_map(readable).collect()
}

fn read<T>(
    conn: &Connection,
    sql: &'static str,
    params: &[&dyn ToSql],
    row: fn(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<Result<T, StoreError>>, StoreError> {
    let read = || {
        let mut statement = conn.prepare_cached(sql)?;
        let found = statement.query_map(params, |found| Ok(row(found)))?;
        found.collect::<rusqlite::Result<Vec<_>>>()
    };
    read().map_err(store_error)
}

/// Adds the id of the saga to the error.
fn with_saga_id(id: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => corrupt(format!("{id}: {what}")),
        error => error,
    }
}

/// Reads the row of a saga.
pub(crate) fn saga(row: &Row<'_>) -> Result<SagaRecord, StoreError> {
    let headers: String = row.get("headers").map_err(unreadable)?;
    let state: String = row.get("state").map_err(unreadable)?;
    let tenant: Option<String> = row.get("tenant").map_err(unreadable)?;
    let status = SagaStatus {
        state: State::named(&state).ok_or_else(|| corrupt(format!("saga in state {state:?}")))?,
        compensating: row.get("compensating").map_err(unreadable)?,
        reason: refusal(row, ["reason_code", "reason_detail"]).map_err(unreadable)?,
        deadline_at: moment(row, "deadline_at").map_err(unreadable)?,
    };
    Ok(SagaRecord {
        id: row.get("id").map_err(unreadable)?,
        kind: Kind {
            name: row.get("name").map_err(unreadable)?,
            version: row.get("version").map_err(unreadable)?,
        },
        tenant: tenant
            .map(Tenant::new)
            .transpose()
            .map_err(|error| corrupt(format!("tenant of a saga: {error}")))?,
        input: Bytes::from(row.get::<_, Vec<u8>>("input").map_err(unreadable)?),
        headers: serde_json::from_str(&headers)
            .map_err(|error| corrupt(format!("headers of a saga: {error}")))?,
        status,
        epoch: row.get("epoch").map_err(unreadable)?,
        wake_at: optional_moment(row, "wake_at").map_err(unreadable)?,
        waiting_for: row.get("waiting_for").map_err(unreadable)?,
        created_at: moment(row, "created_at").map_err(unreadable)?,
        ended_at: optional_moment(row, "ended_at").map_err(unreadable)?,
        steps: Vec::new(),
        signals: Vec::new(),
    })
}

fn step(row: &Row<'_>) -> Result<StepRecord, StoreError> {
    let direction: String = row.get("direction").map_err(unreadable)?;
    let state: String = row.get("state").map_err(unreadable)?;
    Ok(StepRecord {
        name: row.get("name").map_err(unreadable)?,
        direction: Direction::named(&direction)
            .ok_or_else(|| corrupt(format!("direction of a step {direction:?}")))?,
        state: StepState::named(&state)
            .ok_or_else(|| corrupt(format!("step in state {state:?}")))?,
        provider_key: row.get("provider_key").map_err(unreadable)?,
        request: Bytes::from(row.get::<_, Vec<u8>>("request").map_err(unreadable)?),
        made: Bytes::from(row.get::<_, Vec<u8>>("made").map_err(unreadable)?),
        error: refusal(row, ["error_code", "error_detail"]).map_err(unreadable)?,
        attempts: row.get("attempts").map_err(unreadable)?,
        next_at: moment(row, "next_at").map_err(unreadable)?,
        began_at: moment(row, "began_at").map_err(unreadable)?,
        ended_at: optional_moment(row, "ended_at").map_err(unreadable)?,
    })
}

fn signal(row: &Row<'_>) -> Result<Signal, StoreError> {
    Ok(Signal {
        name: row.get("name").map_err(unreadable)?,
        payload: Bytes::from(row.get::<_, Vec<u8>>("payload").map_err(unreadable)?),
        received_at: moment(row, "received_at").map_err(unreadable)?,
    })
}

fn refusal(row: &Row<'_>, [code, detail]: [&str; 2]) -> rusqlite::Result<Option<Refusal>> {
    let (code, detail): (Option<String>, Option<String>) = (row.get(code)?, row.get(detail)?);
    Ok(code.map(|code| Refusal::new(code, detail.unwrap_or_default())))
}

fn moment(row: &Row<'_>, name: &str) -> rusqlite::Result<Timestamp> {
    row.get(name).map(Timestamp::from_millis)
}

fn optional_moment(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Timestamp>> {
    let millis: Option<i64> = row.get(name)?;
    Ok(millis.map(Timestamp::from_millis))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error by value"
)]
fn unreadable(error: rusqlite::Error) -> StoreError {
    corrupt(format!("saga: {error}"))
}
