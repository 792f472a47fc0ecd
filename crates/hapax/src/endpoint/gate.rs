//! Gate: how many deliveries to an endpoint are in flight, and whether it is slow or fails.
//!
//! Only endpoints that have a delivery in flight, or that did not accept the last one at once, have
//! an entry. A slow endpoint gets no first attempts: its events go through the queue until one is
//! accepted quickly. An endpoint that failed last or is very slow gets them one at a time. The state
//! belongs to the process and is lost with it; the pauses of an endpoint that keeps failing are in the
//! store.
//!
//! First attempts have a bound for the process, and so have retries. A first attempt that is late gives
//! its place back as long as there are not too many late ones, and its endpoint gets no retry before it
//! is over. Endpoints that fail have half of the places for retries, so that others have the rest.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::settings::EndpointSettings;
use crate::limits::ENDPOINT_SLOW;

/// The deliveries in flight of a process.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    entries: Mutex<HashMap<String, Entry>>,
    sends: Arc<Semaphore>,
    /// First attempts that are late.
    late: Arc<Semaphore>,
    retries: Arc<Semaphore>,
    retries_max: usize,
    concurrency: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Entry {
    sends: usize,
    retries: usize,
    /// Whether the last attempt failed.
    has_failed: bool,
    /// How long the last attempt took that did not fail.
    took: Duration,
    /// Whether a first attempt in flight is late. It is not known yet whether the endpoint is slow: an
    /// attempt may end without a request to it.
    is_late: bool,
}

/// Kind of the attempts that share a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    First,
    Retry,
}

/// A delivery in flight, which takes a place in the bounds of its endpoint and of the process.
#[derive(Debug)]
pub(super) struct InFlight {
    gate: Gate,
    endpoint: String,
    kind: Kind,
    permit: Permit,
}

/// The share of a delivery in a bound of the process. Clones share it, and the last one returns it.
#[derive(Clone, Debug)]
pub(super) struct Permit(Arc<Mutex<OwnedSemaphorePermit>>);

/// Decision about a first attempt at an endpoint.
#[derive(Debug)]
pub(super) enum Entrance {
    /// The attempt may begin.
    Open(InFlight),
    /// The endpoint is slow, failed last, or has no place left.
    Closed,
    /// The process has no place left.
    Full,
}

impl Gate {
    pub(super) fn new(settings: &EndpointSettings) -> Self {
        Self(Arc::new(Inner {
            entries: Mutex::default(),
            sends: Arc::new(Semaphore::new(settings.sends_max.max(1))),
            late: Arc::new(Semaphore::new(settings.sends_max.max(1))),
            retries: Arc::new(Semaphore::new(settings.retries_max.max(1))),
            retries_max: settings.retries_max.max(1),
            concurrency: settings.concurrency.max(1),
            patience: settings.patience,
        }))
    }

    /// A place for a first attempt.
    pub(super) fn enter_first(&self, endpoint: &str) -> Entrance {
        match Arc::clone(&self.0.sends).try_acquire_owned() {
            Ok(permit) => match self.enter_with(endpoint, permit) {
                Some(place) => Entrance::Open(place),
                None => Entrance::Closed,
            },
            Err(_) if self.is_open(endpoint) => Entrance::Full,
            Err(_) => Entrance::Closed,
        }
    }

    /// Waits until the process has a place for a first attempt.
    pub(super) async fn vacancy(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.0.sends).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    /// A place for a first attempt of a process that has one; `None` if the endpoint is slow, failed
    /// last, or has no place left.
    pub(super) fn enter_with(
        &self,
        endpoint: &str,
        permit: OwnedSemaphorePermit,
    ) -> Option<InFlight> {
        let mut entries = self.entries();
        let is_open = entries.get(endpoint).is_none_or(|it| self.accepts(it));
        if is_open {
            entries.entry(endpoint.to_owned()).or_default().sends += 1;
        }
        drop(entries);
        is_open.then(|| self.place(endpoint, Kind::First, permit))
    }

    fn is_open(&self, endpoint: &str) -> bool {
        let entries = self.entries();
        entries.get(endpoint).is_none_or(|it| self.accepts(it))
    }

    /// Whether an endpoint gets first attempts.
    fn accepts(&self, entry: &Entry) -> bool {
        let is_healthy = !self.is_slow(entry) && !entry.has_failed;
        is_healthy && entry.sends < self.0.concurrency
    }

    fn is_slow(&self, entry: &Entry) -> bool {
        entry.is_late || entry.took > self.0.patience
    }

    /// A place for a claimed delivery; `None` if there is none left in the process.
    pub(super) fn enter_retry(&self, endpoint: &str) -> Option<InFlight> {
        let permit = Arc::clone(&self.0.retries).try_acquire_owned().ok()?;
        self.entries()
            .entry(endpoint.to_owned())
            .or_default()
            .retries += 1;
        Some(self.place(endpoint, Kind::Retry, permit))
    }

    fn place(&self, endpoint: &str, kind: Kind, permit: OwnedSemaphorePermit) -> InFlight {
        InFlight {
            gate: self.clone(),
            endpoint: endpoint.to_owned(),
            kind,
            permit: Permit(Arc::new(Mutex::new(permit))),
        }
    }

    /// The number of places for retries that are left.
    pub(super) fn room(&self) -> usize {
        self.0.retries.available_permits()
    }

    /// The endpoints of which nothing is to be claimed, and those of which at most one delivery is.
    pub(super) fn held(&self) -> (Vec<String>, Vec<String>) {
        let (mut busy, mut single) = (Vec::new(), Vec::new());
        let entries = self.entries();
        let failing = entries.values().filter(|it| it.has_failed);
        let failing: usize = failing.map(|it| it.retries).sum();
        let is_short = failing >= (self.0.retries_max / 2).max(1);
        for (id, entry) in &*entries {
            let is_late = entry.sends > 0 && self.is_slow(entry);
            let has_to_wait = is_late || (is_short && entry.has_failed);
            if entry.retries > 0 || has_to_wait {
                busy.push(id.clone());
            } else if entry.took > ENDPOINT_SLOW || entry.has_failed {
                single.push(id.clone());
            }
        }
        (busy, single)
    }

    /// Notes that a first attempt is not over in time. Its place is free for another one if there are
    /// not too many late attempts.
    pub(super) fn mark_slow(&self, endpoint: &str, permit: &Permit) {
        if let Ok(late) = Arc::clone(&self.0.late).try_acquire_owned() {
            permit.replace(late);
        }
        if let Some(entry) = self.entries().get_mut(endpoint) {
            entry.is_late = entry.sends > 0;
        }
    }

    /// Notes the end of an attempt that sent a request.
    pub(super) fn ended(&self, endpoint: &str, is_success: bool, took: Duration) {
        let mut entries = self.entries();
        let entry = entries.entry(endpoint.to_owned()).or_default();
        if is_success {
            (entry.has_failed, entry.took, entry.is_late) = (false, took, false);
        } else {
            entry.has_failed = true;
        }
    }

    fn left(&self, endpoint: &str, kind: Kind) {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(endpoint) else {
            return;
        };
        match kind {
            Kind::First => entry.sends = entry.sends.saturating_sub(1),
            Kind::Retry => entry.retries = entry.retries.saturating_sub(1),
        }
        entry.is_late &= entry.sends > 0;
        let is_idle = entry.sends == 0 && entry.retries == 0;
        if is_idle && !entry.has_failed && entry.took <= self.0.patience {
            entries.remove(endpoint);
        }
    }

    /// Forgets an endpoint that was changed, enabled, disabled or deleted, except for what is in
    /// flight.
    pub(super) fn forget(&self, endpoint: &str) {
        let mut entries = self.entries();
        if let Some(entry) = entries.get_mut(endpoint) {
            (entry.has_failed, entry.took, entry.is_late) = (false, Duration::ZERO, false);
            if entry.sends == 0 && entry.retries == 0 {
                entries.remove(endpoint);
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight {
    /// Its share in the bound of the process.
    pub(super) fn permit(&self) -> Permit {
        self.permit.clone()
    }
}

impl Permit {
    fn replace(&self, other: OwnedSemaphorePermit) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = other;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.gate.left(&self.endpoint, self.kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_mins(1);

    fn gate(concurrency: usize) -> Gate {
        Gate::new(&EndpointSettings {
            concurrency,
            sends_max: 3,
            retries_max: 2,
            ..EndpointSettings::default()
        })
    }

    fn place(gate: &Gate, endpoint: &str) -> InFlight {
        match gate.enter_first(endpoint) {
            Entrance::Open(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn is_closed(gate: &Gate, endpoint: &str) -> bool {
        matches!(gate.enter_first(endpoint), Entrance::Closed)
    }

    #[tokio::test]
    async fn an_endpoint_has_a_bounded_number_of_first_attempts() {
        let gate = gate(2);
        let one = place(&gate, "a");
        let _two = place(&gate, "a");
        assert!(is_closed(&gate, "a"));
        drop(place(&gate, "b"));
        drop(one);
        drop(place(&gate, "a"));
    }

    #[tokio::test]
    async fn a_late_attempt_gives_its_place_back_while_there_are_few() {
        let gate = gate(4);
        let late = [place(&gate, "a"), place(&gate, "a"), place(&gate, "a")];
        assert!(matches!(gate.enter_first("b"), Entrance::Full));
        for one in &late {
            gate.mark_slow("a", &one.permit());
        }
        // The process has no place left for another late one.
        let more = [place(&gate, "b"), place(&gate, "b"), place(&gate, "b")];
        gate.mark_slow("b", &more[0].permit());
        assert!(matches!(gate.enter_first("c"), Entrance::Full));
        assert!(is_closed(&gate, "a") && is_closed(&gate, "b"));
        drop(late);
        gate.mark_slow("b", &more[0].permit());
        let permit = gate.vacancy().await;
        assert!(gate.enter_with("c", permit).is_some());
    }

    #[tokio::test]
    async fn endpoints_that_fail_leave_half_of_the_places_for_retries_to_others() {
        let gate = Gate::new(&EndpointSettings {
            retries_max: 4,
            ..EndpointSettings::default()
        });
        for endpoint in ["a", "b", "c"] {
            gate.ended(endpoint, false, QUICK);
        }
        let _healthy = gate.enter_retry("d").unwrap();
        let one = gate.enter_retry("a").unwrap();
        assert_eq!(gate.held().1.len(), 2);
        let _two = gate.enter_retry("b").unwrap();
        assert!(gate.held().1.is_empty());
        assert!(gate.held().0.contains(&"c".to_owned()));
        drop(one);
        assert_eq!(gate.held().1.len(), 2);
    }

    #[tokio::test]
    async fn an_endpoint_gets_no_retry_while_a_first_attempt_is_late() {
        let gate = gate(2);
        let late = place(&gate, "a");
        assert!(gate.held().0.is_empty());
        gate.mark_slow("a", &late.permit());
        assert_eq!(gate.held().0, ["a"]);
        drop(late);
        assert!(gate.held().0.is_empty());
    }

    #[tokio::test]
    async fn a_late_attempt_that_sends_nothing_does_not_make_its_endpoint_slow() {
        let gate = gate(2);
        let late = place(&gate, "a");
        gate.mark_slow("a", &late.permit());
        assert!(is_closed(&gate, "a"));
        drop(late);
        drop(place(&gate, "a"));
        assert!(gate.entries().is_empty());
    }

    #[tokio::test]
    async fn a_slow_endpoint_gets_its_events_through_the_queue_until_it_is_quick() {
        let gate = gate(2);
        let late = place(&gate, "a");
        gate.mark_slow("a", &late.permit());
        gate.ended("a", true, gate.0.patience + QUICK);
        drop(late);
        assert!(is_closed(&gate, "a"));
        assert_eq!(gate.held(), (vec![], vec![]));
        let retry = gate.enter_retry("a").unwrap();
        assert_eq!(gate.held(), (vec!["a".to_owned()], vec![]));
        gate.ended("a", true, LONG);
        drop(retry);
        assert!(is_closed(&gate, "a"));
        assert_eq!(gate.held(), (vec![], vec!["a".to_owned()]));
        gate.ended("a", true, QUICK);
        drop(place(&gate, "a"));
    }

    #[tokio::test]
    async fn an_endpoint_that_failed_gets_one_delivery_at_a_time_until_a_success() {
        let gate = gate(2);
        gate.ended("a", false, QUICK);
        assert!(is_closed(&gate, "a"));
        assert_eq!(gate.held(), (vec![], vec!["a".to_owned()]));
        gate.forget("a");
        drop(place(&gate, "a"));
        gate.ended("a", false, QUICK);
        let retry = gate.enter_retry("a").unwrap();
        gate.ended("a", true, QUICK);
        drop(retry);
        assert_eq!(gate.held(), (vec![], vec![]));
        drop(place(&gate, "a"));
    }

    #[tokio::test]
    async fn what_is_idle_and_healthy_has_no_entry() {
        let gate = gate(2);
        let places = (place(&gate, "a"), gate.enter_retry("a"));
        gate.ended("a", true, QUICK);
        drop(places);
        assert!(gate.entries().is_empty());
        let _all = [gate.enter_retry("a"), gate.enter_retry("b")];
        assert_eq!(gate.room(), 0);
        assert!(gate.enter_retry("c").is_none());
    }
}
