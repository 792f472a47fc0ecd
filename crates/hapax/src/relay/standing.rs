//! Saying how far behind each destination is.
//!
//! Who carries a part says it, or who would if nobody had stopped it. Whoever hands it over says
//! zero from then on, so that over all processes the greatest value is the one that holds; of a
//! part that is no more, nothing is said.
//!
//! Who carries a part also compares what the store holds with what it knows to have written there: a
//! store that was set back would otherwise be noticed only with the next event.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{counter, gauge};
use tokio::time::sleep;

use crate::{
    clock::Clock,
    delivery::{CheckpointId, Standing},
    limits,
    store::Deliveries,
    telemetry,
};

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

/// As [`report`], until the store holds another checkpoint than the one that is `known`; says which.
pub(super) async fn watch<S: Deliveries>(
    store: &S,
    part: &str,
    clock: &Clock,
    known: &Known,
) -> String {
    let mut other = None;
    loop {
        let before = known.get();
        let standing = report_once(store, part, clock).await;
        let newest = standing.and_then(|standing| standing.newest);
        // Where both looks are alike, no settlement was on its way in between. A later owner's is
        // what the worker is told when it settles.
        let found = newest.filter(|newest| {
            let is_ours = before == Some(*newest);
            before.is_some() && known.get() == before && !is_ours && newest.epoch <= known.epoch
        });
        if let (Some(before), Some(newest)) = (before, found)
            && other == found
        {
            return format!("its newest checkpoint is {newest}, and {before} was written");
        }
        // A store may be read while it clears up behind its checkpoints: two looks have to agree.
        other = found;
        sleep(limits::REPORT).await;
    }
}

/// Which checkpoint the store holds, as far as whoever carries the part knows.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// The ownership under which the part is carried.
    epoch: i64,
    newest: Arc<Mutex<Option<CheckpointId>>>,
}

impl Known {
    pub(super) fn of(epoch: i64, newest: CheckpointId) -> Self {
        let newest = Arc::new(Mutex::new(Some(newest)));
        Self { epoch, newest }
    }

    pub(super) fn set(&self, newest: Option<CheckpointId>) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = newest;
    }

    fn get(&self) -> Option<CheckpointId> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says that the store was set back under `part`.
pub(super) fn set_back(part: &str, what: &str) {
    counter!(telemetry::RELAY_SET_BACKS, "destination" => part.to_owned()).increment(1);
    tracing::error!(
        destination = part,
        what,
        "the store was set back to an earlier state: the destination begins again at the \
         checkpoint that the store holds"
    );
}

/// Says that `part` is carried here, under which epoch.
#[expect(clippy::cast_precision_loss, reason = "an epoch counts owners")]
pub(super) fn opened(part: &str, epoch: i64) {
    set(&[telemetry::RELAY_LEASE_EPOCH], part, epoch as f64);
    breaker(part, false);
}

/// Says whether the breaker of `part` is open.
pub(super) fn breaker(part: &str, is_open: bool) {
    set(
        &[telemetry::RELAY_BREAKER_OPEN],
        part,
        f64::from(u8::from(is_open)),
    );
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
async fn report_once<S: Deliveries>(store: &S, part: &str, clock: &Clock) -> Option<Standing> {
    let standing = match store.standing(part).await {
        Ok(standing) => standing,
        Err(error) => {
            tracing::debug!(
                destination = part,
                error = error.error_chain(),
                "standing is not known"
            );
            return None;
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
    Some(standing)
}

fn set(names: &[&'static str], part: &str, value: f64) {
    for name in names {
        gauge!(*name, "destination" => part.to_owned()).set(value);
    }
}
