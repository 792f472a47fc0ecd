//! Sagas: taken, held for a move, told something, given back.
//!
//! A saga is held by its epoch. A move is a transaction whose first statement holds the saga's row
//! under it: no row means that another owner has come since, and until the transaction ends none
//! comes. What came of a move whose commit was not answered nobody here knows: whoever takes the
//! saga next reads its rows anew. The database's clock says what is due.

mod rows;
mod look;

use std::time::Duration;

use hapax::{
    Timestamp,
    outbox::Draft,
    saga::{Filter, Kind, NewSaga, Owned, SagaRecord, Signal, Standing, State, StepRecord},
    store::{Held, SagaRows, Sagas, StoreError},
};
use tokio_postgres::Row;

use crate::{
    connection::Link,
    error::corrupt,
    idempotency::begin,
    outbox::{age, rows as bound},
    phases::commit,
    postgres::Postgres,
    query,
    session::Session,
    settle::text,
    transaction::Tx,
    value::{Moment, Param},
};

pub(crate) use look::{Listing, Seen, leaf, see};

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
        let taken = commit(self, query!("saga/take"), &params).await?;
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

    async fn turn(&self, owned: &Owned, lease: Duration) -> Result<Held<Tx>, StoreError> {
        let mut session = Session::open(self).await?;
        session.begin(begin(self));
        let params: [&dyn Param; 4] = [&owned.id, &owned.epoch, &age(lease), &self.time()];
        let held = session.run(async |link| link.ask(query!("saga/hold"), &params).await);
        let held = held.await?;
        let Some(row) = held.first() else {
            session.rollback().await;
            return Err(StoreError::Fenced);
        };
        let told = usize::try_from(row.get::<_, i64>(0)).unwrap_or(usize::MAX);
        let draft = Draft::new(owned.tenant.clone(), owned.headers.clone());
        let tx = Tx::new(self, session, draft, None);
        Ok(Held { tx, told })
    }

    async fn give_back_saga(
        &self,
        owned: &Owned,
        pause: Duration,
        waiting_for: &str,
        told: usize,
    ) -> Result<(), StoreError> {
        let (pause, waiting_for, told) = (age(pause), text(waiting_for), bound(told));
        let time = self.time();
        let params: [&dyn Param; 6] = [&owned.id, &owned.epoch, &pause, &waiting_for, &told, &time];
        let given = commit(self, query!("saga/give_back"), &params).await?;
        if given.is_empty() {
            return Err(StoreError::Fenced);
        }
        // Somebody here may be waiting for it to fall due.
        self.notifier().notify();
        Ok(())
    }

    async fn next_saga(&self, kinds: &[Kind]) -> Result<Option<Timestamp>, StoreError> {
        let (names, versions) = columns(kinds);
        let params: [&dyn Param; 3] = [&self.time(), &names, &versions];
        let asked_at = self.clock().now();
        let found = self.ask(query!("saga/next"), &params).await?;
        let Some(row) = found.first() else {
            return Err(corrupt("an answer without a row"));
        };
        let (next, Moment(there)) = (row.get::<_, Option<Moment>>(0), row.get(1));
        self.heard_time(asked_at, there);
        // In our time, however close the two clocks are: a wait that ends too soon is a wait anew.
        let Moment(here) = self.now();
        let ahead = here.as_millis() - there.as_millis();
        Ok(next.map(|Moment(due)| Timestamp::from_millis(due.as_millis() + ahead)))
    }

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

/// Takes one saga, whoever holds it; where an epoch is given, only while it has that one.
pub(crate) async fn seize(
    store: &Postgres,
    id: &str,
    lease: Duration,
    epoch: Option<i64>,
) -> Result<Option<SagaRecord>, StoreError> {
    let params: [&dyn Param; 4] = [&id, &age(lease), &store.time(), &epoch];
    let asked_at = store.clock().now();
    let seized = commit(store, query!("saga/seize"), &params).await?;
    hear(store, asked_at, seized.first());
    let seized: Result<Vec<_>, _> = seized.iter().map(rows::saga).collect();
    look::whole(store, seized?).await?.pop().transpose()
}

impl SagaRows for Tx {
    async fn start_saga(&mut self, saga: &NewSaga) -> Result<bool, StoreError> {
        saga.check().map_err(refused)?;
        let headers = if saga.headers.is_empty() {
            self.context()
        } else {
            &saga.headers
        };
        let headers = serde_json::to_string(headers).map_err(refused)?;
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
        Signal::check(name, payload).map_err(refused)?;
        let time = self.store().time();
        let told = self.ask(async |link| rows::tell(link, id, name, payload, time).await);
        let is_there = told.await?;
        self.notify_after_commit();
        Ok(is_there)
    }

    async fn write_step(&mut self, owned: &Owned, step: &StepRecord) -> Result<(), StoreError> {
        self.ask(async |link| rows::step(link, &owned.id, step).await)
            .await
    }

    async fn write_standing(
        &mut self,
        owned: &Owned,
        standing: &Standing,
    ) -> Result<(), StoreError> {
        let time = self.store().time();
        let stood = self.ask(async |link| rows::stand(link, owned, standing, time).await);
        if stood.await? {
            return Ok(());
        }
        Err(StoreError::Fenced)
    }
}

/// What can be read of sagas that were taken: one that cannot lapses, and keeps nobody from the
/// others.
fn readable(saga: Result<SagaRecord, StoreError>) -> Option<SagaRecord> {
    let tell = |error: &StoreError| tracing::error!(error = error.error_chain(), "a saga lapses");
    saga.inspect_err(tell).ok()
}

/// Notes what time it was in the database when it answered.
fn hear(store: &Postgres, asked_at: Timestamp, row: Option<&Row>) {
    if let Some(Moment(there)) = row.and_then(|row| row.try_get(rows::AT).ok()) {
        store.heard_time(asked_at, there);
    }
}

/// Kinds as two columns.
fn columns(kinds: &[Kind]) -> (Vec<&str>, Vec<i64>) {
    let kinds = kinds.iter();
    kinds
        .map(|kind| (kind.name.as_str(), i64::from(kind.version)))
        .unzip()
}

/// The words for these states; for every one where none is asked for.
fn states(state: Option<State>) -> Vec<&'static str> {
    let asked = state.as_ref().map_or(&State::ALL[..], std::slice::from_ref);
    asked.iter().map(|state| state.as_str()).collect()
}

/// What cannot be written because of what it says.
fn refused(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Statement {
        source: error.into(),
    }
}
