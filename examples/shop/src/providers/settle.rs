//! Asks until it is known what became of an operation, or time is up.
//!
//! The same call goes out again under the same key, a few times, with waits between them that
//! grow and differ. Then the provider is asked what it knows of the key, and before a refusal is
//! believed of which nobody knows whether it speaks for the calls before it. That the provider
//! knows nothing counts only when every call has ended: any other may still arrive.

use std::{future::Future, time::Duration};

use hapax::{
    Random,
    saga::{Outcome, Refusal},
    seeded::{self, Bug},
    sink::BoxError,
};
use tokio::time::{Instant, sleep};

use super::{CallError, Found, KEY_REUSED};

/// The most calls, and the most look-ups.
const ATTEMPTS_MAX: u32 = 4;
/// No further call begins later than this.
const CALLS: Duration = Duration::from_secs(5);
/// No further look-up begins later than this: with the longest call, all of it is within 15 s.
const LOOK_UPS: Duration = Duration::from_secs(9);
/// The longest wait behind the first attempt; it doubles with each.
const BACKOFF: Duration = Duration::from_millis(100);

/// An operation that may be called again under its key, and looked up.
pub(crate) trait Operation<T>: Sync {
    /// Whether somebody had it before and did not finish: a call of theirs may still arrive.
    fn is_resumed(&self) -> bool;

    /// Calls it, once.
    fn call(&self) -> impl Future<Output = Outcome<T>> + Send;

    /// Asks what became of its key.
    fn look_up(&self) -> impl Future<Output = Found<T>> + Send;
}

/// What became of an operation.
#[derive(Debug)]
pub(crate) enum Settled<T> {
    /// It happened, and this is what it made.
    Done(T),
    /// It was refused, and stays so.
    Refused(Refusal),
    /// It did not happen, and nothing that would make it happen is on its way.
    Nothing(BoxError),
    /// Nobody knows yet.
    Unknown(BoxError),
}

/// Calls, and looks up what became of it when the calls do not say.
pub(crate) async fn settle<T>(random: &Random, operation: &impl Operation<T>) -> Settled<T> {
    let began = Instant::now();
    let (mut all_over, mut attempt) = (!operation.is_resumed(), 1);
    let (refusal, unclear) = loop {
        let error = match operation.call().await {
            Outcome::Done(made) => return Settled::Done(made),
            Outcome::Refused(refusal) => {
                let is_first = attempt == 1 && !operation.is_resumed();
                if is_first || refusal.code == KEY_REUSED {
                    return Settled::Refused(refusal);
                }
                break (Some(refusal), CallError::of_this_call_alone().into());
            }
            Outcome::Unknown(error) if seeded::has(Bug::TimeoutIsFailure) => {
                return Settled::Nothing(error);
            }
            Outcome::Unknown(error) => error,
        };
        tracing::info!(error = %error, attempt, "a provider left open what it did");
        all_over &= CallError::is_over(&error);
        if attempt == ATTEMPTS_MAX || began.elapsed() > CALLS {
            break (None, error);
        }
        sleep(backoff(attempt, random)).await;
        attempt += 1;
    };
    match (look_up(random, operation, began).await, refusal) {
        (Found::Done(made), _) => Settled::Done(made),
        (Found::Refused(refusal), _) => Settled::Refused(refusal),
        (Found::Absent, Some(refusal)) if all_over => Settled::Refused(refusal),
        (Found::Absent, None) if all_over => Settled::Nothing(unclear),
        (Found::Absent | Found::Unknown(_), _) => Settled::Unknown(unclear),
    }
}

/// Asks what became of a key until it is told, or time is up.
async fn look_up<T>(random: &Random, operation: &impl Operation<T>, began: Instant) -> Found<T> {
    let mut attempt = 1;
    loop {
        let error = match operation.look_up().await {
            Found::Unknown(error) => error,
            found => return found,
        };
        tracing::info!(error = %error, attempt, "a provider cannot be asked what it did");
        if attempt == ATTEMPTS_MAX || began.elapsed() > LOOK_UPS {
            return Found::Unknown(error);
        }
        sleep(backoff(attempt, random)).await;
        attempt += 1;
    }
}

/// Up to `BACKOFF` behind the first attempt and doubling, and at least half of it.
fn backoff(attempt: u32, random: &Random) -> Duration {
    let most = BACKOFF * 2_u32.pow(attempt.min(ATTEMPTS_MAX) - 1);
    most.mul_f64(f64::midpoint(1.0, random.unit()))
}
