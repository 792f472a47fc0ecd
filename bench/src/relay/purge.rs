//! Deletes what nobody needs, as a service's timer does, until nothing is left to delete.

use std::time::{Duration, Instant};

use hapax::store::Outbox as _;

use super::Outbox;

/// Deletions that find nothing before it is believed that nothing is left.
const IDLE: u32 = 3;

/// Which outbox.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
}

impl Flags {
    /// Events that every destination has passed go at once, whatever their age.
    pub(super) async fn run(self) -> anyhow::Result<String> {
        let store = self.outbox.open().await?;
        let start = Instant::now();
        let (mut purged, mut idle) = (0, 0);
        while idle < IDLE {
            let went = store.purge_events(Duration::ZERO, Duration::MAX).await?;
            purged += went;
            idle = if went == 0 { idle + 1 } else { 0 };
        }
        store.close();
        Ok(format!("{purged} {}", start.elapsed().as_secs_f64()))
    }
}
