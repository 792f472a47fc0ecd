//! The fixture of the tests of sagas: it starts sagas and their workers, and waits for their ends
//! with a clock that does or does not advance.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hapax::{
    delivery::{Frontier, Shards},
    event::{Headers, NewEvent},
    saga::{Definition, LocalStep, Refusal, Runner, RunnerHandle, SagaRecord, Settings, State},
    sink::BoxError,
    store::{Keys, SagaRecords, SagaRows, Source, Transaction},
};
use hapax_sqlite::{Sqlite, Tx};
use hapax_testkit::{clock::seeded_random, wait::eventually};

use self::Local::{Nothing, Refuses, Swallows, Writes};
use crate::stage::{PATIENCE, Stage};

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// Starts the saga `s1`, and a worker that runs it.
pub(crate) async fn begin(stage: &Stage, definition: Definition<Tx>) -> RunnerHandle {
    start_as(stage, "s1", &definition).await;
    run(stage, definition)
}

/// Waits for the end of the saga `s1` while time passes, and drains its worker.
pub(crate) async fn ended(stage: &Stage, runner: RunnerHandle) -> SagaRecord {
    let saga = as_time_passes(stage, "s1").await;
    runner.drain().await;
    saga
}

/// Waits for the success of the saga `s1` while time passes, and drains its worker.
pub(crate) async fn completed(stage: &Stage, runner: RunnerHandle) -> SagaRecord {
    let saga = ended(stage, runner).await;
    assert_eq!(saga.status.state, State::Completed, "{saga:?}");
    saga
}

/// Waits for the end of the saga `s1` while the clock stands still, and drains its worker.
pub(crate) async fn ended_at_once(stage: &Stage, runner: RunnerHandle) -> SagaRecord {
    let saga = stage_ended(stage, "s1").await;
    runner.drain().await;
    saga
}

/// The saga `s1`.
pub(crate) async fn read(stage: &Stage) -> SagaRecord {
    stage.store.saga("s1").await.unwrap().unwrap()
}

/// A worker that keeps the sagas that it runs, however much time passes.
pub(crate) fn run(stage: &Stage, definition: Definition<Tx>) -> RunnerHandle {
    run_with(stage, definition, Duration::from_hours(12))
}

pub(crate) fn run_with(stage: &Stage, definition: Definition<Tx>, lease: Duration) -> RunnerHandle {
    let mut settings = Settings::new(stage.clock.clock(), seeded_random(3));
    settings.lease = lease;
    Runner::spawn(
        &stage.store,
        vec![definition],
        settings,
        &stage.store.notifier(),
    )
}

pub(crate) async fn start_as(stage: &Stage, id: &str, definition: &Definition<Tx>) {
    let mut tx = stage.store.begin(None, Headers::new()).await.unwrap();
    let saga = definition.begin(id, None, Bytes::new());
    assert!(tx.start_saga(&saga).await.unwrap());
    tx.commit().await.unwrap();
}

/// Waits for the end of a saga. The clock does not advance.
pub(crate) async fn stage_ended(stage: &Stage, id: &str) -> SagaRecord {
    let has_ended = async || is_at_rest(&stage.store, id).await;
    eventually(PATIENCE, has_ended).await;
    stage.store.saga(id).await.unwrap().unwrap()
}

/// Waits for the end while time passes.
async fn as_time_passes(stage: &Stage, id: &str) -> SagaRecord {
    let has_ended = async || {
        stage.clock.advance(Duration::from_millis(100));
        is_at_rest(&stage.store, id).await
    };
    eventually(PATIENCE, has_ended).await;
    stage.store.saga(id).await.unwrap().unwrap()
}

/// Waits for a state while time passes.
pub(crate) async fn until(stage: &Stage, id: &str, reached: State) -> SagaRecord {
    let stands = async || {
        stage.clock.advance(Duration::from_millis(500));
        let saga = stage.store.saga(id).await.unwrap().unwrap();
        saga.status.state == reached && saga.wake_at.is_none()
    };
    eventually(PATIENCE, stands).await;
    stage.store.saga(id).await.unwrap().unwrap()
}

async fn is_at_rest(store: &Sqlite, id: &str) -> bool {
    let saga = store.saga(id).await.unwrap().unwrap();
    saga.status.state.is_end()
}

/// The types of all events, in order.
pub(crate) async fn kinds(stage: &Stage) -> Vec<String> {
    let frontier = Frontier::default();
    let read = Source::read(&stage.store, &frontier, Shards::ALL, 1_000);
    let events = read.await.unwrap().events;
    events.iter().map(|it| it.event.kind.clone()).collect()
}

/// The effect of a local step.
pub(crate) enum Local {
    Nothing,
    /// Emits an event of this type.
    Writes(&'static str),
    /// Emits an event, and then refuses.
    Refuses,
    /// Ignores the error of a statement.
    Swallows,
}

impl LocalStep<Tx> for Local {
    fn run<'a>(
        &'a self,
        tx: &'a mut Tx,
        saga: &'a SagaRecord,
    ) -> BoxFuture<'a, Result<Result<Bytes, Refusal>, BoxError>> {
        Box::pin(async move {
            match self {
                Nothing => {}
                Writes(kind) => {
                    tx.emit(NewEvent::json(*kind, &saga.id))?;
                }
                Refuses => {
                    tx.emit(NewEvent::json("never", &saga.id))?;
                    return Ok(Err(Refusal::new("no", "not today")));
                }
                Swallows => {
                    let insert = "INSERT INTO nowhere DEFAULT VALUES";
                    let failed = tx.with(|conn| conn.execute(insert, []));
                    assert!(failed.await.is_err());
                }
            }
            Ok(Ok(Bytes::new()))
        })
    }
}
