//! Sweeping: a log has two halves, and one half is emptied while rows are appended to the other.
//!
//! A bit of a row's number determines its half. Some rows after that bit has changed, the process
//! that drew that number empties the other half, and copies what is still needed in the same
//! transaction. If the half cannot be locked, it is left until a later number. Readers see the same
//! result, whether or not a half was swept, and whichever process died while it swept.

use crate::{connection::Link, postgres::Postgres, query, session::QueuedStatement, value::Param};

use super::pipeline_failed;

/// A log: how its numbers choose a half, and what empties one.
struct Log {
    name: &'static str,
    /// The bit of a number that says the half.
    bit: u32,
    /// How often a number says that it is time, as its lowest bits.
    every: i64,
    sweep: &'static str,
}

const CHECKPOINTS: Log = Log {
    name: "checkpoint_log",
    bit: 11,
    every: 512,
    sweep: query!("delivery/sweep_checkpoints"),
};
const SIGNS: Log = Log {
    name: "sign",
    bit: 10,
    every: 256,
    sweep: query!("delivery/sweep_heartbeats"),
};

impl Log {
    /// The half to be swept, when it is time.
    fn is_due(&self, number: i64) -> Option<i16> {
        let half = i16::from((number >> self.bit) & 1 == 0);
        (number % self.every == self.every / 4).then_some(half)
    }
}

/// Sweeps checkpoints, when the one that was just written says so.
pub(crate) async fn checkpoints(store: &Postgres, number: i64) {
    sweep(store, &CHECKPOINTS, number).await;
}

/// Sweeps signs of life, when the one that was just written says so.
pub(super) async fn signs(store: &Postgres, number: i64) {
    sweep(store, &SIGNS, number).await;
}

/// The rows that were written are valid whether or not this succeeds.
async fn sweep(store: &Postgres, log: &Log, number: i64) {
    let Some(half) = log.is_due(number) else {
        return;
    };
    let Ok(mut session) = store.session().await else {
        return;
    };
    let ready = session.run(async |link| link.ready([log.sweep]).await);
    let Ok([ready]) = ready.await else {
        return session.rollback().await;
    };
    let begin = store.begin_read_committed();
    let params: [&dyn Param; 1] = [&half];
    let results = session.pipeline_from(Some(&begin), |link: &Link| -> Vec<QueuedStatement<'_>> {
        vec![
            Box::pin(link.rows(&ready, &params)),
            Box::pin(link.none("COMMIT")),
        ]
    });
    match results.await {
        Ok(_) => session.end(),
        Err(failed) => {
            session.rollback().await;
            let error = pipeline_failed(failed).error_chain();
            tracing::debug!(
                log.name,
                half,
                error,
                "half a log is left to be swept later"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_that_is_swept_is_the_one_that_nothing_goes_to() {
        for log in [CHECKPOINTS, SIGNS] {
            let rows = 1 << log.bit;
            let mut swept = Vec::new();
            for number in 0..4 * rows {
                if let Some(half) = log.is_due(number) {
                    assert_ne!(i64::from(half), (number >> log.bit) & 1);
                    swept.push(number);
                }
            }
            assert_eq!(swept.len(), usize::try_from(4 * rows / log.every).unwrap());
        }
    }
}
