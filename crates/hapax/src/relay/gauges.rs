//! Metrics of the backlog and the owner of each partition.
//!
//! The node that owns a partition reports its backlog; if the destination is paused or disabled,
//! the node that would own it does. A node that releases a partition reports zero from then on, so
//! that the maximum over all processes is the valid value. For a partition that does not exist any
//! more, NaN is reported.
//!
//! The owner also compares the checkpoint in the store with the one that it has written. Otherwise
//! it would notice only with the next event that the store was set back.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{counter, gauge};

use super::lookout::Reporter;
use crate::{
    clock::Clock,
    delivery::{Backlog, CheckpointId},
    telemetry,
};

/// Gauges of the backlog of a partition.
const BEHIND: [&str; 4] = [
    telemetry::OUTBOX_LAG,
    telemetry::OUTBOX_BACKLOG,
    telemetry::RELAY_PARKED,
    telemetry::RELAY_DEAD,
];
/// Gauges of the ownership of a partition.
const CARRYING: [&str; 2] = [telemetry::RELAY_LEASE_EPOCH, telemetry::RELAY_BREAKER_OPEN];

/// Reports the backlog of a partition while it is polled.
pub(super) async fn report(mut reporter: Reporter<'_>, clock: &Clock) {
    loop {
        report_once(&mut reporter, clock).await;
    }
}

/// Like [`report`], until the store contains another checkpoint than `known`. Returns a description
/// of the difference.
pub(super) async fn watch(
    mut reporter: Reporter<'_>,
    clock: &Clock,
    known: &KnownCheckpoint,
) -> String {
    let mut other = None;
    loop {
        let before = known.get();
        let backlog = report_once(&mut reporter, clock).await;
        let newest = backlog.and_then(|backlog| backlog.newest);
        // If `known` is the same before and after the read, no settlement was written in between. A
        // checkpoint of a later owner is ignored here, because the worker is fenced when it
        // settles.
        let found = newest.filter(|newest| {
            let is_ours = before == Some(*newest);
            before.is_some() && known.get() == before && !is_ours && newest.epoch <= known.epoch
        });
        if let (Some(before), Some(newest)) = (before, found)
            && other == found
        {
            return format!("its newest checkpoint is {newest}, and {before} was written");
        }
        // The store may be read while it replaces a checkpoint, so two consecutive reads have to
        // agree.
        if found.is_some() {
            reporter.look_again();
        }
        other = found;
    }
}

/// The checkpoint that the store contains, as far as the owner of the partition knows.
#[derive(Clone, Debug)]
pub(super) struct KnownCheckpoint {
    /// The epoch of the ownership.
    epoch: i64,
    newest: Arc<Mutex<Option<CheckpointId>>>,
}

impl KnownCheckpoint {
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

/// Reports that the store was set back, as found for `partition`.
pub(super) fn set_back(partition: &str, what: &str) {
    counter!(telemetry::RELAY_SET_BACKS, "destination" => partition.to_owned()).increment(1);
    tracing::error!(
        destination = partition,
        what,
        "the store was set back to an earlier state: the destination starts again at the \
         checkpoint that the store contains"
    );
}

/// Reports that `partition` is owned here under `epoch`.
#[expect(clippy::cast_precision_loss, reason = "an epoch stays far below 2^53")]
pub(super) fn opened(partition: &str, epoch: i64) {
    set(&[telemetry::RELAY_LEASE_EPOCH], partition, epoch as f64);
    breaker(partition, false);
}

/// Reports whether the breaker of `partition` is open.
pub(super) fn breaker(partition: &str, is_open: bool) {
    set(
        &[telemetry::RELAY_BREAKER_OPEN],
        partition,
        f64::from(u8::from(is_open)),
    );
}

/// Reports that `partition` is not served here at the moment.
pub(super) fn stopped(partition: &str) {
    set(&CARRYING, partition, 0.0);
}

/// Reports that another node owns `partition`, which sets all its gauges.
pub(super) fn handed_over(partition: &str) {
    stopped(partition);
    set(&BEHIND, partition, 0.0);
}

/// Reports that `partition` does not exist any more.
pub(super) fn ended(partition: &str) {
    set(&CARRYING, partition, f64::NAN);
    set(&BEHIND, partition, f64::NAN);
}

/// Counts failures of the store for `partition`. With zero, the counter exists before the first failure.
pub(super) fn store_failed(partition: &str, times: u64) {
    counter!(telemetry::RELAY_STORE_FAILURES, "destination" => partition.to_owned())
        .increment(times);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a double; counts stay far below 2^53"
)]
async fn report_once(reporter: &mut Reporter<'_>, clock: &Clock) -> Option<Backlog> {
    let backlog = reporter.next().await?;
    let partition = reporter.partition();
    let lag = backlog
        .oldest_at
        .map_or(0.0, |at| clock.now().since(at).as_secs_f64());
    let counted = [backlog.events, backlog.parked, backlog.dead].map(|count| count as f64);
    let [events, parked, dead] = counted;
    for (name, value) in BEHIND.into_iter().zip([lag, events, parked, dead]) {
        set(&[name], partition, value);
    }
    Some(backlog)
}

fn set(names: &[&'static str], partition: &str, value: f64) {
    for name in names {
        gauge!(*name, "destination" => partition.to_owned()).set(value);
    }
}
