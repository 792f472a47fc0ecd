//! Polls that wait for events: how many there are, and what wakes them.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

/// The polls of a process that wait.
#[derive(Debug)]
pub(super) struct Waits {
    all_max: usize,
    each_max: usize,
    state: Mutex<State>,
    woken: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    all: usize,
    /// Endpoints at which at least one poll waits.
    each: HashMap<String, usize>,
    /// Whether a lookout runs.
    is_looking: bool,
    /// Whether the process stops.
    is_closed: bool,
}

/// The place of a poll that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct WaitPermit<'a> {
    waits: &'a Waits,
    endpoint: &'a str,
}

impl Waits {
    pub(super) fn new(all_max: usize, each_max: usize) -> Self {
        Self {
            all_max,
            each_max,
            state: Mutex::default(),
            woken: watch::Sender::new(()),
        }
    }

    /// A place for a poll of an endpoint; `None` if all are taken.
    pub(super) fn enter<'a>(&'a self, endpoint: &'a str) -> Option<WaitPermit<'a>> {
        let mut state = self.state();
        let here = state.each.get(endpoint).copied().unwrap_or_default();
        if state.all >= self.all_max || here >= self.each_max {
            return None;
        }
        state.all += 1;
        state.each.insert(endpoint.to_owned(), here + 1);
        Some(WaitPermit {
            waits: self,
            endpoint,
        })
    }

    /// A receiver that is changed by every wake-up from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.woken.subscribe()
    }

    /// Wakes all polls that wait.
    pub(super) fn wake(&self) {
        self.woken.send_replace(());
    }

    /// Whether the caller has to start a lookout, because none runs.
    pub(super) fn needs_lookout(&self) -> bool {
        !std::mem::replace(&mut self.state().is_looking, true)
    }

    /// Whether the lookout goes on: it ends when no poll waits.
    pub(super) fn goes_on(&self) -> bool {
        let mut state = self.state();
        state.is_looking = state.all > 0 && !state.is_closed;
        state.is_looking
    }

    /// Ends all waits, now and later.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.waits.state();
        state.all = state.all.saturating_sub(1);
        if let Some(here) = state.each.get_mut(self.endpoint) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                state.each.remove(self.endpoint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polls_of_one_endpoint_and_of_all_are_bounded() {
        let waits = Waits::new(3, 2);
        let first = waits.enter("a");
        let second = waits.enter("a");
        assert!(first.is_some() && second.is_some());
        assert!(waits.enter("a").is_none(), "two wait at this endpoint");
        let third = waits.enter("b");
        assert!(third.is_some());
        assert!(waits.enter("c").is_none(), "three wait in all");
        drop(first);
        assert!(
            waits.enter("c").is_some(),
            "a client that is gone leaves its place"
        );
        drop((second, third));
        assert!(waits.state().each.is_empty());
    }

    #[test]
    fn one_lookout_runs_while_polls_wait() {
        let waits = Waits::new(3, 2);
        let place = waits.enter("a");
        assert!(waits.needs_lookout());
        assert!(!waits.needs_lookout());
        assert!(waits.goes_on());
        drop(place);
        assert!(!waits.goes_on());
        assert!(waits.needs_lookout(), "the next poll starts another one");
    }
}
