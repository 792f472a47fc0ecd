//! What operators have set for the destinations of this relay.
//!
//! The store keeps pauses and removals, and an operator may set them in another process. The
//! supervisor reads the changes at its start, before anything is offered, and then every
//! [`OPERATOR_POLL`](crate::limits::OPERATOR_POLL). If the store cannot be read, what was read last
//! stays in effect.

use std::collections::BTreeMap;

use tokio::time::{Instant, sleep_until};

use super::Destination;
use crate::{delivery::OperatorSetting, limits::OPERATOR_POLL, store::Partitions};

/// The settings that were read, by destination.
#[derive(Debug, Default)]
pub(super) struct OperatorChanges {
    version: i64,
    settings: BTreeMap<String, OperatorSetting>,
    read_at: Option<Instant>,
}

impl OperatorChanges {
    /// Waits until there are changes since the last read. May be dropped and called again.
    pub(super) async fn changed(&mut self, store: &impl Partitions) {
        loop {
            if let Some(at) = self.read_at {
                sleep_until(at + OPERATOR_POLL).await;
            }
            if self.read(store).await {
                return;
            }
        }
    }

    /// Reads the changes since the last read. Returns whether there are any.
    pub(super) async fn read(&mut self, store: &impl Partitions) -> bool {
        let changes = store.operator_settings(self.version).await;
        self.read_at = Some(Instant::now());
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) => {
                let error = error.error_chain();
                tracing::warn!(error, "what operators have set cannot be read");
                return false;
            }
        };
        let is_changed = !changes.is_empty();
        for setting in changes {
            self.version = self.version.max(setting.version);
            self.settings.insert(setting.destination.clone(), setting);
        }
        is_changed
    }

    /// The destinations as operators have set them.
    pub(super) fn apply(&self, destinations: &[Destination]) -> Vec<Destination> {
        let set = |destination: &Destination| {
            let mut destination = destination.clone();
            if let Some(setting) = self.settings.get(&destination.name) {
                destination.paused |= setting.is_paused;
                destination.turn = destination.turn.max(setting.version);
                if setting.is_removed {
                    return None;
                }
            }
            Some(destination)
        };
        destinations.iter().filter_map(set).collect()
    }
}
