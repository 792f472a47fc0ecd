//! A remote step: commits its intent, calls the remote system, and looks the outcome up.
//!
//! The intent is committed before the call and the outcome after it. A crash in between leaves an
//! open row, whose outcome is unknown. If the remote system does not know the key, the call counts
//! as "not happened" only after the settle time, when it cannot arrive any more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::{Execution, PANICKED, Panicked, caught, done, refused, with_attempt};
use crate::{
    Timestamp,
    limits::SAGA_INPUT_BYTES_MAX,
    saga::{
        Call, Direction, Found, Outcome, Refusal, RemoteStep, StepBody, StepRecord,
        decide::is_ahead, decision::RETRIED, provider_key,
    },
    store::{SagaRows, Sagas, StoreError},
    telemetry::error_chain,
};

impl<S: Sagas<Tx: SagaRows>> Execution<'_, S> {
    pub(super) async fn call(
        &mut self,
        index: usize,
        direction: Direction,
    ) -> Result<(), StoreError> {
        let Some(StepBody::Remote(action)) = self.step(index).act(direction) else {
            return Ok(());
        };
        let action = Arc::clone(action);
        let mut row = with_attempt(self.step_row(index, direction));
        if row.provider_key.is_none() {
            let request = catch_unwind(AssertUnwindSafe(|| action.request(&self.saga)));
            match request.unwrap_or_else(|_| Err(PANICKED.into())) {
                Ok(request) if request.len() <= SAGA_INPUT_BYTES_MAX => row.request = request,
                Ok(request) => {
                    let why = format!(
                        "a request of {} bytes, at most {SAGA_INPUT_BYTES_MAX} are allowed",
                        request.len()
                    );
                    return self.write(self.failed(row, "request", why)).await;
                }
                Err(error) => {
                    let why = error_chain(&*error);
                    return self.write(self.failed(row, "request", why)).await;
                }
            }
            row.provider_key = Some(provider_key(&self.saga, &row.name, direction));
            // The window belongs to the remote system: it starts with the first call, not with the
            // intent.
            row.began_at = self.now();
        }
        // The attempt is counted and the key is recorded before any byte is sent.
        row.next_at = self.now();
        self.settings.failpoints.hit("saga.intent.before");
        self.write(row.clone()).await?;
        self.settings.failpoints.hit("saga.intent.after");
        let unknown_code = unknown_code(&row);
        let outcome = self.ask(&*action, &row, index).await;
        self.settings.failpoints.hit("saga.call.after");
        let row = match outcome {
            Outcome::Done(made) if made.len() > SAGA_INPUT_BYTES_MAX => {
                let why = format!(
                    "a response of {} bytes, at most {SAGA_INPUT_BYTES_MAX} are allowed",
                    made.len()
                );
                self.failed(row, unknown_code, why)
            }
            Outcome::Done(made) => done(row, made, self.now()),
            Outcome::Refused(why) => refused(row, why, self.now()),
            Outcome::Unknown(error) => self.failed(row, unknown_code, error_chain(&*error)),
        };
        self.write(row).await?;
        self.settings.failpoints.hit("saga.outcome.after");
        Ok(())
    }

    async fn ask(&self, action: &dyn RemoteStep, row: &StepRecord, index: usize) -> Outcome<Bytes> {
        let call = self.as_call(row);
        let call_max = self.call_max(index);
        self.settings.failpoints.hit("saga.call.before");
        match timeout(call_max, caught(|| action.call(&call))).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(Panicked)) => Outcome::Unknown(PANICKED.into()),
            Err(_) => Outcome::Unknown(format!("no response within {call_max:?}").into()),
        }
    }

    pub(super) async fn look_up(
        &mut self,
        index: usize,
        direction: Direction,
    ) -> Result<(), StoreError> {
        let Some(StepBody::Remote(action)) = self.step(index).act(direction) else {
            return Ok(());
        };
        let action = Arc::clone(action);
        let row = with_attempt(self.step_row(index, direction));
        let asked_at = self.now();
        let call = self.as_call(&row);
        let call_max = self.call_max(index);
        let unknown_code = unknown_code(&row);
        let look_up = catch_unwind(AssertUnwindSafe(|| action.look_up(&call)));
        let panicked = || -> Option<BoxFuture<'_, _>> {
            Some(Box::pin(async { Found::Unknown(PANICKED.into()) }))
        };
        let found = match look_up.unwrap_or_else(|_| panicked()) {
            None if is_retried(&row) => None,
            None => Some(Found::Unknown(
                "the remote system cannot look up a key".into(),
            )),
            Some(look_up) => Some(match timeout(call_max, caught(|| look_up)).await {
                Ok(Ok(found)) => found,
                Ok(Err(Panicked)) => Found::Unknown(PANICKED.into()),
                Err(_) => Found::Unknown(format!("no response within {call_max:?}").into()),
            }),
        };
        let Some(found) = found else {
            // The operator who requested another attempt knows that the outcome cannot be looked
            // up.
            return self.write(self.restarted(row)).await;
        };
        let is_absent = matches!(found, Found::Absent);
        let row = match found {
            Found::Done(made) if made.len() <= SAGA_INPUT_BYTES_MAX => done(row, made, self.now()),
            Found::Done(_) => self.failed(row, unknown_code, "the response is too long".to_owned()),
            Found::Refused(why) => refused(row, why, self.now()),
            Found::Absent => self.absent(row, index, direction, asked_at),
            Found::Unknown(error) => self.failed(row, unknown_code, error_chain(&*error)),
        };
        if is_absent {
            return self.write_unless_signalled(row).await;
        }
        self.write(row).await
    }

    /// The new row of a step for which the remote system did not know the key.
    ///
    /// The response to the look-up may have been delayed for long, and the call may have arrived
    /// meanwhile.
    fn absent(
        &self,
        row: StepRecord,
        index: usize,
        direction: Direction,
        asked_at: Timestamp,
    ) -> StepRecord {
        let retry_policy = self.step(index).retry_policy;
        if is_ahead(row.began_at, asked_at) {
            // The last call may have been made just now: its age is unknown until the clock has
            // reached the recorded time.
            let why =
                "the remote system does not know the key, and the clock was ahead when it was used";
            let code = unknown_code(&row);
            return self.failed(row, code, why.to_owned());
        }
        let settle_time_ends_at = row
            .began_at
            .after(retry_policy.window)
            .after(retry_policy.settle_time);
        if asked_at < settle_time_ends_at {
            // A call that was given up may still arrive.
            let code = if is_retried(&row) { RETRIED } else { "absent" };
            let why = Refusal::new(code, "the remote system does not know the key so far");
            return StepRecord {
                error: Some(why),
                next_at: settle_time_ends_at,
                ..row
            };
        }
        let forgotten_at = row.began_at.after(retry_policy.memory());
        if asked_at >= forgotten_at && !is_retried(&row) {
            let why = "the remote system does not know the key, and may have forgotten it";
            return self.failed(row, "unknown", why.to_owned());
        }
        if direction == Direction::Compensate || self.is_past_pivot(index) || is_retried(&row) {
            return self.restarted(row);
        }
        let why = Refusal::new("absent", "nothing happened under the key");
        refused(row, why, self.now())
    }

    /// The row for a step that has to happen and has not: it starts again as if for the first time.
    fn restarted(&self, row: StepRecord) -> StepRecord {
        StepRecord {
            error: None,
            began_at: self.now(),
            next_at: self.now(),
            ..row
        }
    }

    fn as_call(&self, row: &StepRecord) -> Call {
        let own_key = || provider_key(&self.saga, &row.name, row.direction);
        Call {
            saga: self.saga.id.clone(),
            tenant: self.saga.tenant.clone(),
            key: row.provider_key.clone().unwrap_or_else(own_key),
            request: row.request.clone(),
            attempt: row.attempts,
            headers: self.owned.headers.clone(),
        }
    }

    /// The time limit of a call. It ends well before the lease does, so that only the next owner
    /// calls after that.
    fn call_max(&self, index: usize) -> Duration {
        self.step(index)
            .retry_policy
            .call
            .min(self.settings.lease / 2)
    }
}

/// The code of a row with an unknown outcome. A row that an operator wants to be attempted again
/// keeps that code until the outcome is known.
fn unknown_code(row: &StepRecord) -> &'static str {
    if is_retried(row) { RETRIED } else { "unknown" }
}

/// Whether an operator wants the step to be attempted again, and its outcome is still unknown.
fn is_retried(row: &StepRecord) -> bool {
    row.error.as_ref().is_some_and(|why| why.code == RETRIED)
}
