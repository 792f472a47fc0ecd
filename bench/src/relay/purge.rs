//! Deletes events that no destination needs, as a service does regularly, until none is left.

use std::time::{Duration, Instant};

use hapax::store::Outbox as _;

use super::Outbox;

/// Number of successive calls that delete nothing after which the purge ends.
const IDLE: u32 = 3;

/// The outbox.
#[derive(Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    outbox: Outbox,
}

impl Flags {
    /// Deletes all events that every destination has settled, regardless of their age.
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
