//! Sagas on PostgreSQL: taking, advancing, signalling and releasing them.
//!
//! A worker owns a saga by its epoch. Each move of a saga is a transaction whose first statement
//! locks the saga's row if it still has that epoch. If the statement finds no row, another owner
//! has taken the saga; otherwise no other owner can take it until the transaction ends. If the
//! response to the commit of a move is lost, its outcome is not known here, and the next owner
//! reads the rows again. The database's clock decides which sagas are due.

mod rows;
mod look;

use std::time::Duration;

use hapax::{
    Timestamp,
    outbox::Draft,
    saga::{Filter, Kind, NewSaga, Owned, SagaRecord, SagaStatus, Signal, State, StepRecord},
    store::{LockedSaga, SagaRecords, SagaRows, Sagas, StoreError},
};
use tokio_postgres::Row;

use crate::{
    connection::Link,
    delivery::settle::text,
    error::corrupt,
    outbox::age,
    postgres::Postgres,
    query,
    transaction::Tx,
    value::{Moment, Param, rows as bound},
};

pub(crate) use look::{Listing, leaf, see};

impl Sagas for Postgres {
    async fn take_sagas(
        &self,
        kinds: &[Kind],
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<SagaRecord>, StoreError> {
        let (names, versions) = columns(kinds);
        let (lease, limit) = (age(lease), bound(limit));
        let params: [&dyn Param; 5] = [&self.time(), &lease, &names, &versions, &limit];
        let asked_at = self.clock().now();
        let taken = self.commit(query!("saga/take"), &params).await?;
        hear(self, asked_at, taken.first());
        let read = |row| rows::saga(row).map_err(|error| rows::of_saga(row, error));
        let seen = taken.iter().map(read).filter_map(readable);
        let whole = look::whole(self, seen.collect()).await?;
        let mut taken: Vec<_> = whole.into_iter().filter_map(readable).collect();
        taken.sort_by_key(|saga| saga.wake_at);
        Ok(taken)
    }

    async fn seize_saga(
        &self,
        id: &str,
        lease: Duration,
    ) -> Result<Option<SagaRecord>, StoreError> {
        seize(self, id, lease, None).await
    }

    async fn lock_saga(
        &self,
        owned: &Owned,
        lease: Duration,
    ) -> Result<LockedSaga<Tx>, StoreError> {
        let mut session = self.session().await?;
        session.begin(self.begin());
        let params: [&dyn Param; 4] = [&owned.id, &owned.epoch, &age(lease), &self.time()];
        let held = session.run(async |link| link.ask(query!("saga/hold"), &params).await);
        let held = held.await?;
        let Some(row) = held.first() else {
            session.rollback().await;
            return Err(StoreError::Fenced);
        };
        let signals_seen = usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX);
        let draft = Draft::new(owned.tenant.clone(), owned.headers.clone());
        let tx = Tx::new(self, session, draft, None);
        Ok(LockedSaga { tx, signals_seen })
    }

    async fn give_back_saga(
        &self,
        owned: &Owned,
        pause: Duration,
        waiting_for: &str,
        signals_seen: usize,
    ) -> Result<(), StoreError> {
        let (pause, waiting_for, signals_seen) =
            (age(pause), text(waiting_for), bound(signals_seen));
        let time = self.time();
        let params: [&dyn Param; 6] = [
            &owned.id,
            &owned.epoch,
            &pause,
            &waiting_for,
            &signals_seen,
            &time,
        ];
        let given = self.commit(query!("saga/give_back"), &params).await?;
        if given.is_empty() {
            return Err(StoreError::Fenced);
        }
        // A worker of this process may be waiting until the saga is due.
        self.notifier().notify();
        Ok(())
    }

    async fn next_saga(&self, kinds: &[Kind]) -> Result<Option<Timestamp>, StoreError> {
        let (names, versions) = columns(kinds);
        let params: [&dyn Param; 3] = [&self.time(), &names, &versions];
        let asked_at = self.clock().now();
        let found = self.ask(query!("saga/next"), &params).await?;
        let Some(row) = found.first() else {
            return Err(corrupt("saga: the query for the next one returned no row"));
        };
        let (next, Moment(there)) = (row.get::<_, Option<Moment>>(0), row.get(1));
        self.observe_time(asked_at, there);
        // Converted to this node's time even if the two clocks differ by little: a wait that ended
        // too early would only have to be repeated.
        let Moment(here) = self.now();
        let ahead = here.as_millis() - there.as_millis();
        Ok(next.map(|Moment(due)| Timestamp::from_millis(due.as_millis() + ahead)))
    }
}

impl SagaRecords for Postgres {
    async fn saga(&self, id: &str) -> Result<Option<SagaRecord>, StoreError> {
        Ok(see(self, id).await?.map(|seen| seen.saga))
    }

    async fn sagas(&self, filter: &Filter, limit: usize) -> Result<Vec<SagaRecord>, StoreError> {
        look::list(self, filter, limit).await
    }

    async fn sagas_in_attention(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let counted = self.ask(query!("saga/in_attention"), &[]).await?;
        let count = |row: &Row| (row.get(0), row.get::<_, i64>(1).unsigned_abs());
        Ok(counted.iter().map(count).collect())
    }

    async fn purge_sagas(&self, retention: Duration) -> Result<u64, StoreError> {
        let rows = bound(hapax::limits::PURGE_ROWS);
        let params: [&dyn Param; 3] = [&self.time(), &age(retention), &rows];
        let gone = self.ask(query!("saga/purge"), &params).await?;
        let count = gone.first().map_or(0, |row| row.get::<_, i64>(0));
        Ok(count.unsigned_abs())
    }
}

/// Takes one saga even if it has an owner. If an epoch is given, the saga must still have it.
pub(crate) async fn seize(
    store: &Postgres,
    id: &str,
    lease: Duration,
    epoch: Option<i64>,
) -> Result<Option<SagaRecord>, StoreError> {
    let params: [&dyn Param; 4] = [&id, &age(lease), &store.time(), &epoch];
    let asked_at = store.clock().now();
    let seized = store.commit(query!("saga/seize"), &params).await?;
    hear(store, asked_at, seized.first());
    let seized: Result<Vec<_>, _> = seized.iter().map(rows::saga).collect();
    look::whole(store, seized?).await?.pop().transpose()
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
        let time = self.store().time();
        let under = self.scope().cloned();
        let start =
            async |link: &Link| rows::start(link, saga, &headers, under.as_ref(), time).await;
        let started = self.ask(start);
        let is_new = started.await?;
        self.notify_after_commit();
        Ok(is_new)
    }

    async fn signal_saga(
        &mut self,
        id: &str,
        name: &str,
        payload: &[u8],
    ) -> Result<bool, StoreError> {
        Signal::check(name, payload).map_err(StoreError::statement)?;
        let time = self.store().time();
        let signalled = self.ask(async |link| rows::tell(link, id, name, payload, time).await);
        let is_there = signalled.await?;
        self.notify_after_commit();
        Ok(is_there)
    }

    async fn write_step(&mut self, owned: &Owned, step: &StepRecord) -> Result<(), StoreError> {
        self.ask(async |link| rows::step(link, &owned.id, step).await)
            .await
    }

    async fn write_status(&mut self, owned: &Owned, status: &SagaStatus) -> Result<(), StoreError> {
        let time = self.store().time();
        let stood = self.ask(async |link| rows::stand(link, owned, status, time).await);
        if stood.await? {
            return Ok(());
        }
        Err(StoreError::Fenced)
    }
}

/// The saga, if it could be read. An unreadable saga is logged and skipped until its lease expires,
/// so that it does not block the others.
fn readable(saga: Result<SagaRecord, StoreError>) -> Option<SagaRecord> {
    let tell = |error: &StoreError| {
        tracing::error!(
            error = error.error_chain(),
            "a saga cannot be read and is skipped until its lease expires"
        );
    };
    saga.inspect_err(tell).ok()
}

/// Records the database's time from the row of a response.
fn hear(store: &Postgres, asked_at: Timestamp, row: Option<&Row>) {
    if let Some(Moment(there)) = row.and_then(|row| row.try_get("at").ok()) {
        store.observe_time(asked_at, there);
    }
}

/// The kinds as two columns: names and versions.
fn columns(kinds: &[Kind]) -> (Vec<&str>, Vec<i64>) {
    let kinds = kinds.iter();
    kinds
        .map(|kind| (kind.name.as_str(), i64::from(kind.version)))
        .unzip()
}

/// The names of the states that a filter selects: one, or all of them.
fn states(state: Option<State>) -> Vec<&'static str> {
    let asked = state.as_ref().map_or(&State::ALL[..], std::slice::from_ref);
    asked.iter().map(|state| state.as_str()).collect()
}
