//! The shop's handle to its relay, which may not have been started.

use std::sync::{Arc, Mutex, PoisonError};

use hapax::relay::{Destination, RelayHandle};

/// A handle to the relay that can be cloned; empty if no relay runs in this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelayStatus(Arc<Mutex<Option<Running>>>);

#[derive(Debug)]
struct Running {
    handle: RelayHandle,
    destinations: Vec<String>,
}

/// The status of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RelayState {
    /// The relay was not started, or has drained.
    Absent,
    /// The relay delivers events.
    Running,
    /// Another instance owns all destinations, and this relay waits to take them over.
    Standby,
    /// The relay delivers or waits, and another process has the same node name.
    Namesake,
    /// Another process has taken over a destination of this relay.
    Fenced,
}

impl RelayStatus {
    /// Stores the handle of a relay that was just started.
    pub(crate) fn start(&self, handle: RelayHandle, destinations: &[Destination]) {
        let names = destinations.iter().map(|it| it.name.clone());
        let destinations = names.collect();
        *self.lock() = Some(Running {
            handle,
            destinations,
        });
    }

    /// Enables a destination that was disabled because its receiver responded 410.
    pub(crate) fn enable(&self, destination: &str) {
        if let Some(running) = &*self.lock() {
            running.handle.enable(destination);
        }
    }

    /// Returns the current status of the relay.
    pub(crate) fn state(&self) -> RelayState {
        match &*self.lock() {
            None => RelayState::Absent,
            Some(Running {
                handle,
                destinations,
            }) => {
                let mut stopped = destinations.iter().map(|name| handle.stopped(name));
                let all_stand_by = stopped.clone().all(|why| why == Some("standby"));
                if stopped.any(|why| why == Some("fenced")) {
                    RelayState::Fenced
                } else if handle.namesakes() > 0 {
                    RelayState::Namesake
                } else if all_stand_by && !destinations.is_empty() {
                    RelayState::Standby
                } else {
                    RelayState::Running
                }
            }
        }
    }

    /// Stops offering events, and waits until the outcomes of the current offers are settled.
    pub(crate) async fn drain(&self) {
        let running = self.lock().take();
        if let Some(running) = running {
            running.handle.drain().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
