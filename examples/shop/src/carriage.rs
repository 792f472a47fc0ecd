//! The relay as the rest of the shop sees it: running, stopped, or not here.

use std::sync::{Arc, Mutex, PoisonError};

use hapax::relay::RelayHandle;

/// A handle to the relay that can be shared; empty when this shop carries no events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriage(Arc<Mutex<Option<Running>>>);

#[derive(Debug)]
struct Running {
    handle: RelayHandle,
    destinations: Vec<String>,
}

/// How the relay fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was not asked for, or has drained.
    Absent,
    /// It carries what it can.
    Running,
    /// Another instance has a destination, and this one waits to take it over.
    Standby,
    /// It carries or waits, and another process has its name.
    Namesake,
    /// Another process took a destination over.
    Fenced,
}

impl Carriage {
    /// Shares a relay that was just started.
    pub(crate) fn start(&self, handle: RelayHandle, destinations: Vec<String>) {
        *self.lock() = Some(Running {
            handle,
            destinations,
        });
    }

    /// Lets a destination that said it is gone have events again.
    pub(crate) fn enable(&self, destination: &str) {
        if let Some(running) = &*self.lock() {
            running.handle.enable(destination);
        }
    }

    /// How the relay fares now.
    pub(crate) fn standing(&self) -> Standing {
        match &*self.lock() {
            None => Standing::Absent,
            Some(Running {
                handle,
                destinations,
            }) => {
                let mut stopped = destinations.iter().map(|name| handle.stopped(name));
                let all_stand_by = stopped.clone().all(|why| why == Some("standby"));
                if stopped.any(|why| why == Some("fenced")) {
                    Standing::Fenced
                } else if handle.namesakes() > 0 {
                    Standing::Namesake
                } else if all_stand_by && !destinations.is_empty() {
                    Standing::Standby
                } else {
                    Standing::Running
                }
            }
        }
    }

    /// Lets what is on the wire come home, and offers nothing more.
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
