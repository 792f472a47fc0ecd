//! Executes one move of a saga.
//!
//! Every commit is a separate transaction that locks the row of the saga under its epoch. If the
//! saga has another owner by now, this worker is fenced, and nothing is written. A conclusion from
//! the absence of a signal is committed only if no signal has arrived since; the next owner handles
//! signals that arrive later.

mod remote;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use tracing::{Instrument as _, Span, debug_span, field::Empty};

use super::{
    Definition, Direction, LocalStep, Move, Owned, Refusal, SagaRecord, SagaStatus, Settings,
    State, Step, StepBody, StepRecord, StepState,
};
use crate::{
    clock::Timestamp,
    limits::{ERROR_BYTES, SAGA_ENDING, SAGA_INPUT_BYTES_MAX},
    sink::BoxError,
    store::{SagaRows, Sagas, StoreError, Transaction},
    telemetry::error_chain,
    trace::{TRACEPARENT, TracePosition},
};

/// A saga that is owned by a worker.
pub(super) struct Execution<'a, S: Sagas<Tx: SagaRows>> {
    pub(super) store: &'a S,
    pub(super) definition: &'a Definition<S::Tx>,
    pub(super) settings: &'a Settings,
    pub(super) owned: Owned,
    pub(super) saga: SagaRecord,
    /// Whether a signal has arrived since the saga was read that the next move depends on.
    pub(super) is_signalled: bool,
}

impl<S: Sagas<Tx: SagaRows>> Execution<'_, S> {
    /// Executes a move. An attempt at a step is also recorded in a span and in the log.
    pub(super) async fn make(&mut self, next: Move) -> Result<(), StoreError> {
        let (Move::Run {
            step: index,
            direction,
        }
        | Move::Call {
            step: index,
            direction,
        }
        | Move::LookUp {
            step: index,
            direction,
        }) = next
        else {
            return self.execute(next).await;
        };
        let name = self.step(index).name;
        let span = self.begin_span(name, direction);
        let made = self.execute(next).instrument(span.clone()).await;
        if let Some(row) = self.saga.step(name, direction) {
            self.report(&span, row);
        }
        if !span.is_none() {
            // The context of the saga itself applies again from here.
            self.owned.headers.clone_from(&self.saga.headers);
        }
        made
    }

    /// The span of one attempt at a step, below the request that started the saga. Events and calls
    /// of the step are below this span.
    fn begin_span(&mut self, step: &'static str, direction: Direction) -> Span {
        let span_place = self.settings.traces.below_headers(&self.saga.headers);
        let Some(own) = span_place.context().filter(|_| span_place.is_recorded()) else {
            return Span::none();
        };
        let headers = &mut self.owned.headers;
        headers.insert(TRACEPARENT.to_owned(), own.to_string());
        step_span(&self.saga, step, direction, &span_place)
    }

    /// Logs the state of a step after an attempt, without the provider's message, which may contain
    /// anything.
    fn report(&self, span: &Span, row: &StepRecord) {
        let error_code = row.error.as_ref().map(|why| why.code.as_str());
        span.record("attempt", row.attempts);
        span.record("outcome", row.state.as_str());
        if let Some(code) = error_code {
            span.record("error_type", code);
            span.record("otel.status_code", "error");
        }
        tracing::info!(
            saga = self.saga.id,
            kind = self.saga.kind.name,
            step = row.name,
            direction = row.direction.as_str(),
            attempt = row.attempts,
            correlation_id = self.saga.headers.get("correlation_id"),
            error_code,
            from_state = StepState::Open.as_str(),
            to_state = row.state.as_str(),
            "a step was attempted"
        );
    }

    async fn execute(&mut self, next: Move) -> Result<(), StoreError> {
        match next {
            Move::Run { step, direction } => self.run(step, direction).await,
            Move::Call { step, direction } => self.call(step, direction).await,
            Move::LookUp { step, direction } => self.look_up(step, direction).await,
            Move::Await { step } => {
                let row = self.step_row(step, Direction::Forward);
                let row = StepRecord {
                    began_at: self.now(),
                    // If the clock is wrong now, `next_at` still has the time of the first start.
                    next_at: row.next_at.max(row.began_at),
                    ..row
                };
                self.write(row).await
            }
            Move::Settle { step, signal } => self.settle(step, signal).await,
            Move::TimeOut { step } => {
                let row = self.step_row(step, Direction::Forward);
                let why = Refusal::new("timeout", format!("no signal arrived for {}", row.name));
                self.write_unless_signalled(refused(row, why, self.now()))
                    .await
            }
            Move::StartCompensation(reason) => {
                let status = SagaStatus {
                    compensating: true,
                    reason: Some(reason),
                    ..self.saga.status.clone()
                };
                self.write_status_unless_signalled(status).await
            }
            Move::Complete => self.end(State::Completed).await,
            Move::Fail => self.end(State::Failed).await,
            Move::Ask(reason) => {
                let status = SagaStatus {
                    state: State::NeedsAttention,
                    reason: Some(reason),
                    ..self.saga.status.clone()
                };
                self.write_status_unless_signalled(status).await
            }
            Move::Sleep { .. } => Ok(()),
        }
    }

    async fn run(&mut self, index: usize, direction: Direction) -> Result<(), StoreError> {
        let Some(StepBody::Local(action)) = self.step(index).act(direction) else {
            return Ok(());
        };
        let action = Arc::clone(action);
        let row = with_attempt(self.step_row(index, direction));
        match self.try_locally(&*action, &row).await? {
            Ok(made) => {
                self.replace_row(done(row, made, self.now()));
                Ok(())
            }
            Err(Some(why)) => self.write(refused(row, why, self.now())).await,
            Err(None) => Ok(()),
        }
    }

    /// Attempts a local step in its transaction; `Err(None)` if it failed and the failure is
    /// recorded.
    async fn try_locally(
        &mut self,
        action: &dyn LocalStep<S::Tx>,
        row: &StepRecord,
    ) -> Result<Result<Bytes, Option<Refusal>>, StoreError> {
        let mut tx = self.lock().await?;
        let (tx_of_step, saga) = (&mut tx, &self.saga);
        let result = caught(move || action.run(tx_of_step, saga)).await;
        let why = match result {
            Ok(Ok(Ok(made))) if made.len() <= SAGA_INPUT_BYTES_MAX => {
                let row_done = done(row.clone(), made.clone(), self.now());
                match self.conclude(tx, &row_done).await {
                    Ok(()) => return Ok(Ok(made)),
                    // The database refused what the step wrote, and nothing was written. This is a
                    // failed attempt like any other.
                    Err(error @ StoreError::Statement { .. }) => {
                        let why = error.error_chain();
                        self.write(self.failed(row.clone(), "failed", why)).await?;
                        return Ok(Err(None));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(Ok(Ok(made))) => format!(
                "a result of {} bytes, at most {SAGA_INPUT_BYTES_MAX} are allowed",
                made.len()
            ),
            Ok(Ok(Err(refusal))) => {
                tx.rollback().await;
                return Ok(Err(Some(refusal)));
            }
            Ok(Err(error)) => error_chain(&*error),
            Err(Panicked) => PANICKED.to_owned(),
        };
        tx.rollback().await;
        self.write(self.failed(row.clone(), "failed", why)).await?;
        Ok(Err(None))
    }

    /// Commits what a local step wrote, together with its row.
    async fn conclude(&self, mut tx: S::Tx, row: &StepRecord) -> Result<(), StoreError> {
        if let Err(error) = tx.write_step(&self.owned, row).await {
            tx.rollback().await;
            return Err(error);
        }
        self.settings.failpoints.hit("saga.local.before");
        tx.commit().await?;
        self.settings.failpoints.hit("saga.local.after");
        Ok(())
    }

    async fn settle(
        &mut self,
        index: usize,
        signal: Option<&'static str>,
    ) -> Result<(), StoreError> {
        let signals = self.saga.signals.iter();
        let mut received = signals.filter(|received| Some(received.name.as_str()) == signal);
        let payload = received.next().map(|received| received.payload.clone());
        let row = self.step_row(index, Direction::Forward);
        let row = done(row, payload.unwrap_or_default(), self.now());
        let needs_attention = self.saga.status.state == State::NeedsAttention;
        // The unknown outcome has become known by a signal, and the saga continues.
        let status = needs_attention.then(|| SagaStatus {
            reason: None,
            ..self.saga.running_again(self.now())
        });
        // One commit: if the step were committed as done first, the saga would not know that the
        // signal is handled, and would still need attention.
        let mut tx = self.lock().await?;
        tx.write_step(&self.owned, &row).await?;
        if let Some(status) = &status {
            tx.write_status(&self.owned, status).await?;
        }
        tx.commit().await?;
        self.replace_row(row);
        self.saga.status = status.unwrap_or_else(|| self.saga.status.clone());
        Ok(())
    }

    /// Ends the saga, with the rows and events about its end.
    async fn end(&mut self, state: State) -> Result<(), StoreError> {
        let mut tx = self.lock().await?;
        if let Some(on_end) = self.definition.end_hook() {
            let (tx_of_step, saga) = (&mut tx, &self.saga);
            let written = caught(move || on_end.write(tx_of_step, saga, state)).await;
            let why = match written {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(Panicked) => Some(PANICKED.into()),
            };
            if let Some(source) = why {
                tx.rollback().await;
                return self.cannot_end(source).await;
            }
        }
        let status = SagaStatus {
            state,
            ..self.saga.status.clone()
        };
        tx.write_status(&self.owned, &status).await?;
        self.settings.failpoints.hit("saga.end.before");
        tx.commit().await?;
        self.settings.failpoints.hit("saga.end.after");
        self.saga.status = status;
        Ok(())
    }

    /// Handles an end that cannot be written: it is attempted again until [`SAGA_ENDING`] after the
    /// deadline, and is then left to an operator.
    async fn cannot_end(&mut self, source: BoxError) -> Result<(), StoreError> {
        if self.now() < self.saga.status.deadline_at.after(SAGA_ENDING) {
            return Err(StoreError::Statement { source });
        }
        let status = SagaStatus {
            state: State::NeedsAttention,
            reason: Some(storable(Refusal::new("ending", error_chain(&*source)))),
            ..self.saga.status.clone()
        };
        self.write_status_unless_signalled(status).await
    }

    /// Writes the status of the saga, unless a signal has arrived.
    async fn write_status_unless_signalled(
        &mut self,
        status: SagaStatus,
    ) -> Result<(), StoreError> {
        let Some(mut tx) = self.lock_unless_signalled().await? else {
            return Ok(());
        };
        tx.write_status(&self.owned, &status).await?;
        tx.commit().await?;
        self.saga.status = status;
        Ok(())
    }

    async fn write(&mut self, row: StepRecord) -> Result<(), StoreError> {
        let tx = self.lock().await?;
        self.write_and_commit(tx, row).await
    }

    /// Writes the state of a step, unless a signal has arrived.
    async fn write_unless_signalled(&mut self, row: StepRecord) -> Result<(), StoreError> {
        match self.lock_unless_signalled().await? {
            Some(tx) => self.write_and_commit(tx, row).await,
            None => Ok(()),
        }
    }

    async fn write_and_commit(&mut self, mut tx: S::Tx, row: StepRecord) -> Result<(), StoreError> {
        tx.write_step(&self.owned, &row).await?;
        tx.commit().await?;
        self.replace_row(row);
        Ok(())
    }

    async fn lock(&self) -> Result<S::Tx, StoreError> {
        let locked = self
            .store
            .lock_saga(&self.owned, self.settings.lease)
            .await?;
        Ok(locked.tx)
    }

    /// Opens a transaction for a conclusion from the absence of a signal; none if a signal has
    /// arrived that was not read yet.
    async fn lock_unless_signalled(&mut self) -> Result<Option<S::Tx>, StoreError> {
        let locked = self
            .store
            .lock_saga(&self.owned, self.settings.lease)
            .await?;
        if locked.signals_seen <= self.saga.signals.len() {
            return Ok(Some(locked.tx));
        }
        locked.tx.rollback().await;
        self.is_signalled = true;
        Ok(None)
    }

    /// Replaces a row in memory after its commit, for the next decision.
    fn replace_row(&mut self, row: StepRecord) {
        let steps = &mut self.saga.steps;
        let is_same =
            |other: &&mut StepRecord| other.name == row.name && other.direction == row.direction;
        match steps.iter_mut().find(is_same) {
            Some(old) => *old = row,
            None => steps.push(row),
        }
    }

    /// The row of a step, or the row that the step gets when it starts.
    fn step_row(&self, index: usize, direction: Direction) -> StepRecord {
        let name = self.step(index).name;
        let now = self.now();
        let first = || StepRecord {
            name: name.to_owned(),
            direction,
            state: StepState::Open,
            provider_key: None,
            request: Bytes::new(),
            made: Bytes::new(),
            error: None,
            attempts: 0,
            next_at: now,
            began_at: now,
            ended_at: None,
        };
        self.saga
            .step(name, direction)
            .cloned()
            .unwrap_or_else(first)
    }

    /// A row whose last attempt failed or has an unknown outcome, to be attempted again later.
    fn failed(&self, row: StepRecord, code: &str, why: String) -> StepRecord {
        let step = self
            .definition
            .steps()
            .iter()
            .find(|step| step.name == row.name);
        let retry_policy = step.map(|step| step.retry_policy).unwrap_or_default();
        let pause = retry_policy.after(row.attempts, self.settings.random.unit());
        StepRecord {
            error: Some(storable(Refusal::new(code, why))),
            next_at: self.now().after(pause),
            ..row
        }
    }

    fn is_past_pivot(&self, index: usize) -> bool {
        self.definition.steps()[..index]
            .iter()
            .any(|step| step.is_pivot)
    }

    fn step(&self, index: usize) -> &Step<S::Tx> {
        &self.definition.steps()[index]
    }

    fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }
}

const PANICKED: &str = "the step panicked";

fn step_span(saga: &SagaRecord, step: &str, direction: Direction, place: &TracePosition) -> Span {
    debug_span!(
        "step",
        traceparent = place.own(),
        parent_span_id = place.parent(),
        otel.kind = "internal",
        otel.status_code = Empty,
        saga = saga.id,
        kind = saga.kind.name,
        step,
        direction = direction.as_str(),
        correlation_id = saga.headers.get("correlation_id"),
        attempt = Empty,
        outcome = Empty,
        error_type = Empty,
    )
}

/// The step has panicked. Its transaction is rolled back, or the outcome of its call is unknown.
struct Panicked;

/// Runs code of a definition, which may also panic before it returns a future.
async fn caught<'a, T>(run: impl FnOnce() -> BoxFuture<'a, T> + Send + 'a) -> Result<T, Panicked> {
    let run = catch_unwind(AssertUnwindSafe(run)).map_err(|_| Panicked)?;
    let ran = AssertUnwindSafe(run).catch_unwind().await;
    ran.map_err(|_| Panicked)
}

fn with_attempt(row: StepRecord) -> StepRecord {
    StepRecord {
        attempts: row.attempts.saturating_add(1),
        ..row
    }
}

fn done(row: StepRecord, made: Bytes, now: Timestamp) -> StepRecord {
    StepRecord {
        state: StepState::Done,
        made,
        error: None,
        ended_at: Some(now),
        ..row
    }
}

fn refused(row: StepRecord, why: Refusal, now: Timestamp) -> StepRecord {
    StepRecord {
        state: StepState::Refused,
        error: Some(storable(why)),
        ended_at: Some(now),
        ..row
    }
}

/// A refusal as a store keeps it: a provider's message may have any length, and PostgreSQL cannot
/// store a text with a zero byte.
fn storable(why: Refusal) -> Refusal {
    let shorten = |text: String| {
        let mut text = text.replace('\0', "\u{fffd}");
        text.truncate(text.floor_char_boundary(ERROR_BYTES));
        text
    };
    Refusal::new(shorten(why.code), shorten(why.detail))
}
