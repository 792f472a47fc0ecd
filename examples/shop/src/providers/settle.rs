//! Repeats an operation at a provider until its outcome is known or time is up.
//!
//! The same call is repeated a few times under the same key, with growing, randomized waits. If its
//! outcome is still unknown, the provider is asked for the outcome of the key. A refusal of a
//! repeated call is also looked up, because an earlier call may have succeeded. A key that the
//! provider does not know proves that nothing happened only if every call has ended, because any
//! other call may still arrive.

use std::{future::Future, time::Duration};

use hapax::{
    Random,
    saga::{Outcome, Refusal},
    sink::BoxError,
};
use tokio::time::{Instant, sleep};

use super::{CallError, Found, KEY_REUSED};

/// The most calls of an operation, and the most look-ups of its key.
const ATTEMPTS_MAX: u32 = 4;
/// The time after which no further call starts.
const CALLS: Duration = Duration::from_secs(5);
/// The time after which no further look-up starts; with the longest call, the total is below 15 s.
const LOOK_UPS: Duration = Duration::from_secs(9);
/// The longest wait after the first attempt; it doubles with each attempt.
const BACKOFF: Duration = Duration::from_millis(100);

/// An operation that can be repeated and looked up under its key.
pub(crate) trait Operation<T>: Sync {
    /// Returns whether an earlier owner started the operation, whose call may still arrive.
    fn is_resumed(&self) -> bool;

    /// Calls the provider once.
    fn call(&self) -> impl Future<Output = Outcome<T>> + Send;

    /// Asks the provider for the outcome of the key.
    fn look_up(&self) -> impl Future<Output = Found<T>> + Send;
}

/// The outcome of an operation.
#[derive(Debug)]
pub(crate) enum Settled<T> {
    /// The operation succeeded and created this object.
    Done(T),
    /// The provider refused the operation; a retry would be refused too.
    Refused(Refusal),
    /// The operation did not happen, and no call is running that could still apply it.
    Nothing(BoxError),
    /// The outcome is not known yet.
    Unknown(BoxError),
}

/// Calls the provider, and looks the key up if the calls do not show the outcome.
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
            Outcome::Unknown(error) => error,
        };
        tracing::info!(error = %error, attempt, "the outcome of a call to a provider is unknown");
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

/// Asks the provider for the outcome of the key until it responds or time is up.
async fn look_up<T>(random: &Random, operation: &impl Operation<T>, began: Instant) -> Found<T> {
    let mut attempt = 1;
    loop {
        let error = match operation.look_up().await {
            Found::Unknown(error) => error,
            found => return found,
        };
        tracing::info!(error = %error, attempt, "cannot look up a key at a provider");
        if attempt == ATTEMPTS_MAX || began.elapsed() > LOOK_UPS {
            return Found::Unknown(error);
        }
        sleep(backoff(attempt, random)).await;
        attempt += 1;
    }
}

/// Returns a random wait between half the maximum and the maximum.
///
/// The maximum is `BACKOFF` after the first attempt and doubles with each attempt.
fn backoff(attempt: u32, random: &Random) -> Duration {
    let most = BACKOFF * 2_u32.pow(attempt.min(ATTEMPTS_MAX) - 1);
    most.mul_f64(f64::midpoint(1.0, random.unit()))
}
