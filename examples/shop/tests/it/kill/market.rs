//! Shared state of a run: the client of the shop, the receiver, the journal and the clock.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use super::{
    client::Client,
    journal::{Journal, Stopwatch},
    receiver::Receiver,
};

/// The number of missing events at which the customers wait for the receiver.
const BEHIND_MAX: usize = 300;

/// The shared state of a run.
#[derive(Debug)]
pub(super) struct Market {
    pub(super) client: Client,
    pub(super) journal: Journal,
    pub(super) receiver: Receiver,
    pub(super) stopwatch: Stopwatch,
    /// Intents with an event whose success was acknowledged.
    promised: Mutex<HashSet<usize>>,
    /// The time at which the customers stopped sending new requests.
    over: OnceLock<Duration>,
}

impl Market {
    pub(super) fn new(client: Client, receiver: Receiver, stopwatch: Stopwatch) -> Self {
        Self {
            client,
            journal: Journal::default(),
            receiver,
            stopwatch,
            promised: Mutex::default(),
            over: OnceLock::new(),
        }
    }

    /// Records that the event of the intent at `place` must arrive.
    pub(super) fn promise(&self, place: usize) {
        self.lock_promised().insert(place);
    }

    /// Whether so many events are missing at the receiver that customers should wait.
    pub(super) fn is_behind(&self) -> bool {
        self.promised() > self.receiver.events() + BEHIND_MAX
    }

    /// Stops new requests of the customers.
    pub(super) fn close(&self) {
        self.over.get_or_init(|| self.stopwatch.read());
    }

    /// The time since the market was closed, or `None` while it is open.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        let over = self.over.get()?;
        Some(self.stopwatch.read().saturating_sub(*over))
    }

    /// The number of events that must arrive at the receiver.
    pub(super) fn promised(&self) -> usize {
        self.lock_promised().len()
    }

    fn lock_promised(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
