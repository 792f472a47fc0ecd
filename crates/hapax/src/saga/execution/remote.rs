//! A remote step: commits its intent, calls the remote system, and looks the outcome up.
//!
//! The intent is committed before the call and the outcome after it. A crash in between leaves an
//! open row, whose outcome is unknown. That the remote system does not know the key counts as "not
//! happened" only when no call can arrive there any more.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::{Execution, PANICKED, Panicked, caught, done, refused, tried};
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
        place: usize,
        direction: Direction,
    ) -> Result<(), StoreError> {
        let Some(StepBody::Remote(act)) = self.step(place).act(direction) else {
            return Ok(());
        };
        let act = Arc::clone(act);
        let mut row = tried(self.meant(place, direction));
        if row.provider_key.is_none() {
            let asked = catch_unwind(AssertUnwindSafe(|| act.request(&self.saga)));
            match asked.unwrap_or_else(|_| Err(PANICKED.into())) {
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
        let unknown = unknown(&row);
        let outcome = self.ask(&*act, &row, place).await;
        self.settings.failpoints.hit("saga.call.after");
        let row = match outcome {
            Outcome::Done(made) if made.len() > SAGA_INPUT_BYTES_MAX => {
                let why = format!(
                    "a response of {} bytes, at most {SAGA_INPUT_BYTES_MAX} are allowed",
                    made.len()
                );
                self.failed(row, unknown, why)
            }
            Outcome::Done(made) => done(row, made, self.now()),
            Outcome::Refused(why) => refused(row, why, self.now()),
            Outcome::Unknown(error) => self.failed(row, unknown, error_chain(&*error)),
        };
        self.write(row).await?;
        self.settings.failpoints.hit("saga.outcome.after");
        Ok(())
    }

    async fn ask(&self, act: &dyn RemoteStep, row: &StepRecord, place: usize) -> Outcome<Bytes> {
        let call = self.as_call(row);
        let longest = self.call_max(place);
        self.settings.failpoints.hit("saga.call.before");
        match timeout(longest, caught(|| act.call(&call))).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(Panicked)) => Outcome::Unknown(PANICKED.into()),
            Err(_) => Outcome::Unknown(format!("no response within {longest:?}").into()),
        }
    }

    pub(super) async fn look_up(
        &mut self,
        place: usize,
        direction: Direction,
    ) -> Result<(), StoreError> {
        let Some(StepBody::Remote(act)) = self.step(place).act(direction) else {
            return Ok(());
        };
        let act = Arc::clone(act);
        let row = tried(self.meant(place, direction));
        let asked_at = self.now();
        let call = self.as_call(&row);
        let longest = self.call_max(place);
        let unknown = unknown(&row);
        let asks = catch_unwind(AssertUnwindSafe(|| act.look_up(&call)));
        let panics = || -> Option<BoxFuture<'_, _>> {
            Some(Box::pin(async { Found::Unknown(PANICKED.into()) }))
        };
        let found = match asks.unwrap_or_else(|_| panics()) {
            None if is_retried(&row) => None,
            None => Some(Found::Unknown(
                "the remote system cannot look up a key".into(),
            )),
            Some(asked) => Some(match timeout(longest, caught(|| asked)).await {
                Ok(Ok(found)) => found,
                Ok(Err(Panicked)) => Found::Unknown(PANICKED.into()),
                Err(_) => Found::Unknown(format!("no response within {longest:?}").into()),
            }),
        };
        let Some(found) = found else {
            // The operator who requested another attempt knows that the outcome cannot be looked
            // up.
            return self.write(self.anew(row)).await;
        };
        let is_silence = matches!(found, Found::Absent);
        let row = match found {
            Found::Done(made) if made.len() <= SAGA_INPUT_BYTES_MAX => done(row, made, self.now()),
            Found::Done(_) => self.failed(row, unknown, "the response is too long".to_owned()),
            Found::Refused(why) => refused(row, why, self.now()),
            Found::Absent => self.absent(row, place, direction, asked_at),
            Found::Unknown(error) => self.failed(row, unknown, error_chain(&*error)),
        };
        if is_silence {
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
        place: usize,
        direction: Direction,
        asked_at: Timestamp,
    ) -> StepRecord {
        let retry_policy = self.step(place).retry_policy;
        if is_ahead(row.began_at, asked_at) {
            // The last call may have been made just now: its age is unknown until the clock has
            // reached the recorded time.
            let why =
                "the remote system does not know the key, and the clock was ahead when it was used";
            let code = unknown(&row);
            return self.failed(row, code, why.to_owned());
        }
        let quiet_at = row
            .began_at
            .after(retry_policy.window)
            .after(retry_policy.settle_time);
        if asked_at < quiet_at {
            // A call that was given up may still arrive.
            let code = if is_retried(&row) { RETRIED } else { "absent" };
            let why = Refusal::new(code, "the remote system does not know the key so far");
            return StepRecord {
                error: Some(why),
                next_at: quiet_at,
                ..row
            };
        }
        let forgotten_at = row.began_at.after(retry_policy.memory());
        if asked_at >= forgotten_at && !is_retried(&row) {
            let why = "the remote system does not know the key, and may have forgotten it";
            return self.failed(row, "unknown", why.to_owned());
        }
        if direction == Direction::Compensate || self.is_past_pivot(place) || is_retried(&row) {
            return self.anew(row);
        }
        let why = Refusal::new("absent", "nothing happened under the key");
        refused(row, why, self.now())
    }

    /// The row for a step that has to happen and has not: it starts again as if for the first time.
    fn anew(&self, row: StepRecord) -> StepRecord {
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
    fn call_max(&self, place: usize) -> Duration {
        self.step(place)
            .retry_policy
            .call
            .min(self.settings.lease / 2)
    }
}

/// The code of a row with an unknown outcome. A row that an operator wants to be attempted again
/// keeps that code until the outcome is known.
fn unknown(row: &StepRecord) -> &'static str {
    if is_retried(row) { RETRIED } else { "unknown" }
}

/// Whether an operator wants the step to be attempted again, and its outcome is still unknown.
fn is_retried(row: &StepRecord) -> bool {
    row.error.as_ref().is_some_and(|why| why.code == RETRIED)
}
