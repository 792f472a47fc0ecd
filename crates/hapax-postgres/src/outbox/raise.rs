//! Repair of sequences that are below a number that was already assigned.
//!
//! Within one history this never happens. But logical replication copies rows without sequences,
//! and so does a copy of the tables alone. Then ids are assigned again that every partition has
//! passed, and events with these ids are never read. The reader that notices this raises the
//! sequences and writes such events again, with ids above all others.

use std::time::Duration;

use hapax::{store::StoreError, telemetry};
use metrics::counter;
use tokio::time::sleep;

use crate::{error::unavailable, postgres::Postgres, query};

/// Number of attempts, and the pause between them. After the last one the caller tries again later.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

impl Postgres {
    /// Raises every sequence that is too low, and returns when no event is left below them that may
    /// not have been read.
    pub(crate) async fn raise_sequences(&self) -> Result<(), StoreError> {
        let mut tries = TRIES;
        loop {
            let done = self.purge_step(query!("outbox/raise_sequences"), &[]);
            let done = done.await?.unwrap_or_default();
            let Some(row) = done.first() else {
                // A partition is being opened, a purge runs, or a writer has drawn an id.
                tries -= 1;
                if tries == 0 {
                    return Err(unavailable(
                        "its sequences are too low, and other transactions block raising them",
                    ));
                }
                sleep(PAUSE).await;
                continue;
            };
            let (from, to): (Option<i64>, Option<i64>) =
                (row.get("raised_from"), row.get("raised_to"));
            let (moved, is_all): (i64, bool) = (row.get("moved"), row.get("is_all"));
            if let Some((from, to)) = from.zip(to) {
                counter!(telemetry::OUTBOX_RAISED).increment(1);
                tracing::error!(
                    from,
                    to,
                    "the sequence of events was below an id that was already assigned, and was \
                     raised: a restore or a replication did not copy the sequence"
                );
            }
            if moved > 0 {
                tracing::error!(
                    events = moved,
                    "events whose ids the relays had already passed are written again: some may \
                     be delivered twice"
                );
            }
            if is_all {
                return Ok(());
            }
        }
    }
}
