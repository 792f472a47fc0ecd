//! Sagas: their rows, their ownership, and when they are due.
//!
//! A saga is owned by an epoch. Every transaction of an owner first renews the lease. This changes
//! no row if another owner has taken the saga since, and the transaction is fenced. There is only
//! one writer, so no other owner can take the saga before the transaction ends.

pub(crate) mod rows;

use std::time::Duration;

use hapax::{
    Timestamp,
    key::Tenant,
    limits::PURGE_ROWS,
    outbox::Draft,
    saga::{Filter, Kind, NewSaga, Owned, SagaRecord, SagaStatus, Signal, State, StepRecord},
    store::{ClaimOutcome, LockedSaga, SagaRecords, SagaRows, Sagas, StoreError, Transaction},
};
use rusqlite::{Connection, OptionalExtension as _, params};

use self::rows::{find_one, readable, select, with_steps_and_signals};
use crate::{
    error::{corrupt, store_error},
    query,
    sqlite::Sqlite,
    transaction::interactive::TransactionKind,
    transaction::{Tx, interactive},
    value::rows as count,
};

impl Sagas for Sqlite {
    async fn take_sagas(
        &self,
        kinds: &[Kind],
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<SagaRecord>, StoreError> {
        self.heed_clock().await?;
        let kinds = kinds_json(kinds)?;
        self.submit(move |ctx| {
            let now = ctx.now();
            let params = params![
                now.as_millis(),
                now.after(lease).as_millis(),
                kinds,
                count(limit)
            ];
            let taken = select(&ctx.conn, query!("saga/take"), params)?;
            let complete = |saga: Result<_, _>| with_steps_and_signals(&ctx.conn, saga?);
            let mut taken = readable(taken.into_iter().map(complete))?;
            taken.sort_by_key(|saga| saga.wake_at);
            Ok(taken)
        })
        .await
    }

    async fn seize_saga(
        &self,
        id: &str,
        lease: Duration,
    ) -> Result<Option<SagaRecord>, StoreError> {
        let id = id.to_owned();
        self.submit(move |ctx| {
            let until = ctx.now().after(lease).as_millis();
            find_one(&ctx.conn, query!("saga/seize"), params![id, until])
        })
        .await
    }

    async fn lock_saga(
        &self,
        owned: &Owned,
        lease: Duration,
    ) -> Result<LockedSaga<Tx>, StoreError> {
        let draft = Draft::new(owned.tenant.clone(), owned.headers.clone());
        let mut tx = match interactive::open(self, TransactionKind::Nothing, draft).await? {
            ClaimOutcome::Open(tx) => tx,
            ClaimOutcome::Taken(_) => {
                return Err(corrupt("a claim outcome although no claim was made"));
            }
        };
        let (id, epoch) = (owned.id.clone(), owned.epoch);
        let locked = tx.ask(move |ctx| {
            let until = ctx.now().after(lease).as_millis();
            let lock = || {
                let mut statement = ctx.conn.prepare_cached(query!("saga/hold"))?;
                let signals_seen = statement.query_row(params![id, epoch, until], |row| row.get(0));
                signals_seen.optional()
            };
            lock().map_err(store_error)
        });
        let signals_seen: Option<i64> = locked.await?;
        let Some(signals_seen) = signals_seen else {
            tx.rollback().await;
            return Err(StoreError::Fenced);
        };
        let signals_seen = usize::try_from(signals_seen).unwrap_or(usize::MAX);
        Ok(LockedSaga { tx, signals_seen })
    }

    async fn give_back_saga(
        &self,
        owned: &Owned,
        pause: Duration,
        waiting_for: &str,
        signals_seen: usize,
    ) -> Result<(), StoreError> {
        let (owned, waiting_for) = (owned.clone(), waiting_for.to_owned());
        self.submit(move |ctx| {
            // A runner of this process may be waiting for the saga to become due.
            ctx.notify_after_commit();
            let now = ctx.now();
            let due = (now, now.after(pause));
            give_back(&ctx.conn, &owned, due, &waiting_for, signals_seen)
        })
        .await
    }

    async fn next_saga(&self, kinds: &[Kind]) -> Result<Option<Timestamp>, StoreError> {
        self.heed_clock().await?;
        let kinds = kinds_json(kinds)?;
        self.look(move |conn| {
            let next = || {
                let mut statement = conn.prepare_cached(query!("saga/next"))?;
                statement.query_row([kinds], |row| row.get::<_, Option<i64>>(0))
            };
            let next = next().map_err(store_error)?;
            Ok(next.map(Timestamp::from_millis))
        })
        .await
    }
}

impl SagaRecords for Sqlite {
    async fn saga(&self, id: &str) -> Result<Option<SagaRecord>, StoreError> {
        let id = id.to_owned();
        self.look(move |conn| find_one(conn, query!("saga/find"), params![id]))
            .await
    }

    async fn sagas(&self, filter: &Filter, limit: usize) -> Result<Vec<SagaRecord>, StoreError> {
        let filter = filter.clone();
        self.look(move |conn| {
            let state = filter.state.map(State::as_str);
            let params = params![
                filter.name,
                state,
                filter.after,
                count(limit),
                filter.version
            ];
            select(conn, query!("saga/list"), params)?
                .into_iter()
                .collect()
        })
        .await
    }

    async fn sagas_in_attention(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.look(move |conn| {
            let count = || {
                let mut statement = conn.prepare_cached(query!("saga/in_attention"))?;
                let found = statement.query_map([], |row| {
                    let count: i64 = row.get(1)?;
                    Ok((row.get(0)?, count.unsigned_abs()))
                })?;
                found.collect::<rusqlite::Result<Vec<_>>>()
            };
            count().map_err(store_error)
        })
        .await
    }

    async fn purge_sagas(&self, retention: Duration) -> Result<u64, StoreError> {
        self.submit(move |ctx| {
            let before = ctx.now().as_millis() - millis(retention);
            purge(&ctx.conn, before).map_err(store_error)
        })
        .await
    }
}

impl SagaRows for Tx {
    async fn start_saga(&mut self, saga: &NewSaga) -> Result<bool, StoreError> {
        saga.check().map_err(StoreError::statement)?;
        let headers = if saga.headers.is_empty() {
            self.context()
        } else {
            &saga.headers
        };
        let headers = serde_json::to_string(headers).map_err(StoreError::statement)?;
        let (saga, key) = (saga.clone(), self.scope().cloned());
        self.ask(move |ctx| {
            let now = ctx.now();
            let key = key.as_ref();
            let row = params![
                saga.id,
                saga.kind.name,
                saga.kind.version,
                saga.tenant.as_ref().map(Tenant::as_str),
                &saga.input[..],
                headers,
                now.after(saga.deadline).as_millis(),
                now.as_millis(),
                key.map(|key| key.tenant.as_str()),
                key.map(|key| key.operation.as_str()),
                key.map(|key| key.key.as_str()),
            ];
            ctx.notify_after_commit();
            Ok(change(&ctx.conn, query!("saga/start"), row)? == 1)
        })
        .await
    }

    async fn signal_saga(
        &mut self,
        id: &str,
        name: &str,
        payload: &[u8],
    ) -> Result<bool, StoreError> {
        Signal::check(name, payload).map_err(StoreError::statement)?;
        let (id, name, payload) = (id.to_owned(), name.to_owned(), payload.to_vec());
        self.ask(move |ctx| {
            let now = ctx.now().as_millis();
            if change(&ctx.conn, query!("saga/wake"), params![id, now])? == 0 {
                return Ok(false);
            }
            ctx.notify_after_commit();
            let signal = params![id, name, payload, now];
            change(&ctx.conn, query!("saga/signal"), signal)?;
            Ok(true)
        })
        .await
    }

    async fn write_step(&mut self, owned: &Owned, step: &StepRecord) -> Result<(), StoreError> {
        let (id, step) = (owned.id.clone(), step.clone());
        self.ask(move |ctx| write_step(&ctx.conn, &id, &step)).await
    }

    async fn write_status(&mut self, owned: &Owned, status: &SagaStatus) -> Result<(), StoreError> {
        let (owned, status) = (owned.clone(), status.clone());
        self.ask(move |ctx| write_status(&ctx.conn, &owned, &status, ctx.now()))
            .await
    }
}

/// Writes the row of a step or of its compensation.
pub(crate) fn write_step(
    conn: &Connection,
    saga: &str,
    step: &StepRecord,
) -> Result<(), StoreError> {
    let error = step.error.as_ref();
    let row = params![
        saga,
        step.name,
        step.direction.as_str(),
        step.state.as_str(),
        step.provider_key,
        &step.request[..],
        &step.made[..],
        error.map(|error| &error.code),
        error.map(|error| &error.detail),
        step.attempts,
        step.next_at.as_millis(),
        step.began_at.as_millis(),
        step.ended_at.map(Timestamp::as_millis),
    ];
    change(conn, query!("saga/step"), row).map(drop)
}

/// Writes the state of a saga, if this epoch still owns it.
pub(crate) fn write_status(
    conn: &Connection,
    owned: &Owned,
    status: &SagaStatus,
    now: Timestamp,
) -> Result<(), StoreError> {
    let reason = status.reason.as_ref();
    let row = params![
        owned.id,
        owned.epoch,
        status.state.as_str(),
        status.compensating,
        reason.map(|reason| &reason.code),
        reason.map(|reason| &reason.detail),
        status.deadline_at.as_millis(),
        now.as_millis(),
    ];
    match change(conn, query!("saga/write_status"), row)? {
        0 => Err(StoreError::Fenced),
        _ => Ok(()),
    }
}

/// Releases a saga now until it is due again, if this epoch still owns it.
pub(crate) fn give_back(
    conn: &Connection,
    owned: &Owned,
    (now, due_at): (Timestamp, Timestamp),
    waiting_for: &str,
    signals_seen: usize,
) -> Result<(), StoreError> {
    let row = params![
        owned.id,
        owned.epoch,
        now.as_millis(),
        due_at.as_millis(),
        waiting_for,
        count(signals_seen),
    ];
    match change(conn, query!("saga/give_back"), row)? {
        0 => Err(StoreError::Fenced),
        _ => Ok(()),
    }
}

/// Encodes the kinds as JSON, for a statement that takes any number of them.
fn kinds_json(kinds: &[Kind]) -> Result<String, StoreError> {
    let kinds: Vec<_> = kinds
        .iter()
        .map(|kind| (&kind.name, kind.version))
        .collect();
    serde_json::to_string(&kinds).map_err(StoreError::statement)
}

fn purge(conn: &Connection, before: i64) -> rusqlite::Result<u64> {
    let mut statement = conn.prepare_cached(query!("saga/purge"))?;
    let purged = statement.query_map(params![before, count(PURGE_ROWS)], |row| row.get(0))?;
    let purged = purged.collect::<rusqlite::Result<Vec<String>>>()?;
    for id in &purged {
        for sql in [query!("saga/purge_steps"), query!("saga/purge_signals")] {
            conn.prepare_cached(sql)?.execute([id])?;
        }
    }
    Ok(purged.len() as u64)
}

fn change(
    conn: &Connection,
    sql: &'static str,
    params: &[&dyn rusqlite::ToSql],
) -> Result<usize, StoreError> {
    let run = || conn.prepare_cached(sql)?.execute(params);
    run().map_err(store_error)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
