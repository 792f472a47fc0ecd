//! Saying how far behind each destination is.
//!
//! Who carries a part says it, or who would if nobody had stopped it. Whoever hands it over says
//! zero from then on, so that over all processes the greatest value is the one that holds; of a
//! part that is no more, nothing is said.

use metrics::{counter, gauge};
use tokio::time::sleep;

use crate::{clock::Clock, limits, store::Deliveries, telemetry};

/// What is told of how far behind a part is.
const BEHIND: [&str; 4] = [
    telemetry::OUTBOX_LAG,
    telemetry::OUTBOX_BACKLOG,
    telemetry::RELAY_PARKED,
    telemetry::RELAY_DEAD,
];
/// What is told of carrying it.
const CARRYING: [&str; 2] = [telemetry::RELAY_LEASE_EPOCH, telemetry::RELAY_BREAKER_OPEN];

/// Reports how far behind `part` is, for as long as it is polled.
pub(super) async fn report<S: Deliveries>(store: &S, part: &str, clock: &Clock) {
    loop {
        report_once(store, part, clock).await;
        sleep(limits::REPORT).await;
    }
}

/// Says that `part` is not carried here at the moment.
pub(super) fn stopped(part: &str) {
    set(&CARRYING, part, 0.0);
}

/// Says that somebody else is to report `part`.
pub(super) fn handed_over(part: &str) {
    stopped(part);
    set(&BEHIND, part, 0.0);
}

/// Says that there is no such part any more.
pub(super) fn ended(part: &str) {
    set(&CARRYING, part, f64::NAN);
    set(&BEHIND, part, f64::NAN);
}

/// Counts how often the store could not be used for `part`; a zero makes the count known.
pub(super) fn store_failed(part: &str, times: u64) {
    counter!(telemetry::RELAY_STORE_FAILURES, "destination" => part.to_owned()).increment(times);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a double; counts stay far below 2^53"
)]
async fn report_once<S: Deliveries>(store: &S, part: &str, clock: &Clock) {
    let standing = match store.standing(part).await {
        Ok(standing) => standing,
        Err(error) => {
            tracing::debug!(
                destination = part,
                error = error.story(),
                "standing is not known"
            );
            return;
        }
    };
    let lag = standing
        .oldest_at
        .map_or(0.0, |at| clock.now().since(at).as_secs_f64());
    let counted = [standing.backlog, standing.parked, standing.dead].map(|count| count as f64);
    let [backlog, parked, dead] = counted;
    for (name, value) in BEHIND.into_iter().zip([lag, backlog, parked, dead]) {
        set(&[name], part, value);
    }
}

fn set(names: &[&'static str], part: &str, value: f64) {
    for name in names {
        gauge!(*name, "destination" => part.to_owned()).set(value);
    }
}
