//! Sequences that stand below a number that was given already.
//!
//! In one history none ever does. A logical replication copies rows and no sequences, and so does
//! whoever copies the tables alone: then ids are given again that every part has passed, and events
//! are written that nobody reads. Whoever notices that raises the sequences, and has those events
//! written anew behind all others.

use std::time::Duration;

use hapax::{store::StoreError, telemetry};
use metrics::counter;
use tokio::time::sleep;

use crate::{error::unavailable, postgres::Postgres, query};

/// How often it is tried, and how long it is waited in between: whoever asks tries again later.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

impl Postgres {
    /// Raises every sequence that stands too low, and returns when no event is left below them that
    /// nobody may have read.
    pub(crate) async fn raise_sequences(&self) -> Result<(), StoreError> {
        let mut tries = TRIES;
        loop {
            let done = self.purge_step(query!("outbox/raise_sequences"), &[]);
            let done = done.await?.unwrap_or_default();
            let Some(row) = done.first() else {
                // Another part is being opened, a purge runs, or a writer has drawn an id.
                tries -= 1;
                if tries == 0 {
                    return Err(unavailable(
                        "its sequences are too low, and somebody holds up their raising",
                    ));
                }
                sleep(PAUSE).await;
                continue;
            };
            let (from, to): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
            let (moved, is_all): (i64, bool) = (row.get(2), row.get(3));
            if let Some((from, to)) = from.zip(to) {
                counter!(telemetry::OUTBOX_RAISED).increment(1);
                tracing::error!(
                    from,
                    to,
                    "the sequence of events stood below an id that was given already, and was \
                     raised: a restore or a replication did not bring it along"
                );
            }
            if moved > 0 {
                tracing::error!(
                    events = moved,
                    "events under ids that were passed already are written anew, and delivered: \
                     some may be delivered again"
                );
            }
            if is_all {
                return Ok(());
            }
        }
    }
}
