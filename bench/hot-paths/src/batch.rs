//! One batch of a relay: a hundred events are read from the outbox, decoded and settled.
//!
//! The loop of the relay is left out. Its timers would make the figure depend on how fast the
//! machine is.

use std::{path::Path, time::Duration};

use anyhow::ensure;
use hapax::{
    delivery::{Arrived, Checkpoint, Frontier, Settlement, Shards},
    event::Headers,
    store::{Keys as _, Partitions as _, Settlements as _, Source, Transaction as _},
};

use crate::{service, sources::NOW};

const DESTINATION: &str = "null";
/// Events of a batch.
const EVENTS: usize = 100;

/// Reads and settles the same batch, as a relay whose sink accepts everything.
pub(crate) async fn settle(folder: &Path, count: u32) -> anyhow::Result<()> {
    let store = service::open(folder).await?;
    let mut tx = store.begin(None, Headers::new()).await?;
    for _ in 0..EVENTS {
        tx.emit(service::event())?;
    }
    tx.commit().await?;
    let epoch = store.open(DESTINATION).await?.epoch;
    for number in 0..count {
        let batch = Source::read(&store, &Frontier::default(), Shards::ALL, EVENTS).await?;
        let read = batch.events.len();
        ensure!(read == EVENTS, "expected {EVENTS} events, got {read}");
        let arrived = Arrived {
            positions: batch.events.iter().map(|event| event.position).collect(),
            // The row of another batch.
            started_at: NOW.after(Duration::from_millis(number.into())),
            duration: Duration::ZERO,
            status: None,
        };
        let checkpoint = Checkpoint {
            frontier: batch.frontier,
            ..Checkpoint::default()
        };
        let settlement = Settlement {
            destination: DESTINATION.to_owned(),
            epoch,
            checkpoint: Some(checkpoint),
            arrived: vec![arrived],
            ..Settlement::default()
        };
        store.settle(settlement).await?;
    }
    Ok(())
}
