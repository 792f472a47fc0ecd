//! The settings that operators have made for the destinations of this relay.
//!
//! The store keeps pauses and removals, and an operator may set them in another process. The
//! supervisor reads the changes at its start, before anything is offered, and then every
//! [`OPERATOR_POLL`](crate::limits::OPERATOR_POLL), or when a heartbeat has reported that there are
//! any. If the store cannot be read, what was read last stays in effect.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use tokio::time::{Instant, sleep_until};

use super::Destination;
use crate::{
    delivery::OperatorSetting,
    limits::{OPERATOR_POLL, OPERATOR_POLL_KNOWN},
    store::Partitions,
};

/// The settings that were read, by destination.
#[derive(Debug)]
pub(super) struct OperatorChanges {
    version: i64,
    settings: BTreeMap<String, OperatorSetting>,
    read_at: Option<Instant>,
    /// The newest version, as the last heartbeat has reported it; -1 if it is unknown. For the
    /// relay handle too.
    reported: Arc<AtomicI64>,
}

impl OperatorChanges {
    /// Has read nothing yet. Stores in `reported` what heartbeats report.
    pub(super) fn reported_in(reported: Arc<AtomicI64>) -> Self {
        reported.store(-1, Ordering::Relaxed);
        Self {
            version: 0,
            settings: BTreeMap::new(),
            read_at: None,
            reported,
        }
    }

    /// Notes the newest version, which a heartbeat has reported a moment ago; `None` if it is
    /// unknown, or if the next heartbeat is too far away to rely on it.
    pub(super) fn report(&self, newest: Option<i64>) {
        self.reported.store(newest.unwrap_or(-1), Ordering::Relaxed);
    }

    /// Waits until there are changes since the last read. May be dropped and called again, and is
    /// after each heartbeat.
    pub(super) async fn changed(&mut self, store: &impl Partitions) {
        loop {
            if let Some(at) = self.read_at {
                let newest = self.reported.load(Ordering::Relaxed);
                let is_known = (0..=self.version).contains(&newest);
                let pause = if is_known {
                    OPERATOR_POLL_KNOWN
                } else {
                    OPERATOR_POLL
                };
                sleep_until(at + pause).await;
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
                tracing::warn!(
                    error,
                    "changes by operators cannot be read and have no effect yet"
                );
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
