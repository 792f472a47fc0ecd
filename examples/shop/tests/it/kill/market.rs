//! Where customers, shop and receiver meet, and what all of them share.

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

/// Events that the receiver may be behind before customers wait for it.
const BEHIND_MAX: usize = 300;

/// What everybody in a run shares.
#[derive(Debug)]
pub(super) struct Market {
    pub(super) client: Client,
    pub(super) journal: Journal,
    pub(super) receiver: Receiver,
    pub(super) stopwatch: Stopwatch,
    /// Intents with an event whose success was acknowledged.
    promised: Mutex<HashSet<usize>>,
    /// When the last customer stopped wanting more.
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

    /// Notes that the event of the intent at `place` is to arrive.
    pub(super) fn promise(&self, place: usize) {
        self.lock_promised().insert(place);
    }

    /// Whether the receiver is so far behind that more orders would only pile up.
    pub(super) fn is_behind(&self) -> bool {
        self.promised() > self.receiver.events() + BEHIND_MAX
    }

    /// Lets customers want nothing more.
    pub(super) fn close(&self) {
        self.over.get_or_init(|| self.stopwatch.read());
    }

    /// How long customers have wanted nothing more; `None` while they do.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        let over = self.over.get()?;
        Some(self.stopwatch.read().saturating_sub(*over))
    }

    /// How many events the receiver is to get.
    pub(super) fn promised(&self) -> usize {
        self.lock_promised().len()
    }

    fn lock_promised(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
