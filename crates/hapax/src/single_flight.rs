//! Single flight: concurrent duplicates on one node share one execution and do not reach the store.
//!
//! The first request with a key becomes the [leader](Leader). Requests that arrive while it runs
//! become followers, which hold only an entry in a queue. When the leader finishes, every follower
//! with the same fingerprint receives its result. When the leader gives up, one follower becomes
//! the leader. Many requests with one key are one transaction.
//!
//! A follower with another fingerprint receives a mismatch as soon as the leader has confirmed that
//! the key belongs to its fingerprint, and never before. Until then another node may get the key.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;

use crate::key::{Fingerprint, Scope};

/// Number of locks of the map: more than the cores that compete for them.
const SHARDS: usize = 64;
/// Number of waiting followers of one key at which those that have left are removed for the first
/// time.
const CLEAR_AT: usize = 64;

/// The keys whose requests are running on this node. `T` is the result of a leader.
pub struct SingleFlight<T>(Arc<Shared<T>>);

/// The role of a request that joins.
#[derive(Debug)]
pub enum Join<T> {
    /// The request is the leader and runs.
    Leader(Leader<T>),
    /// The request is a follower and waits.
    Follower(Follower<T>),
    /// The key is used with another payload.
    Mismatch,
}

/// The result for a follower.
#[derive(Debug)]
pub enum Waited<T> {
    /// The leader's result, for the same fingerprint.
    Finished(T),
    /// The key is used with another payload.
    Mismatch,
    /// The leader gave up. The follower is the leader now.
    Leader(Leader<T>),
}

/// An entry in the queue of followers. Dropping it leaves the queue.
#[derive(Debug)]
pub struct Follower<T>(oneshot::Receiver<Waited<T>>);

/// The right to run under a key. Dropping it makes the next follower the leader.
pub struct Leader<T> {
    shared: Arc<Shared<T>>,
    scope: Scope,
    fingerprint: Fingerprint,
    /// The number of this leader. No other one has it.
    number: u64,
    done: bool,
}

/// Confirms for a leader that the key belongs to its fingerprint, from another place.
pub struct Confirmation<T> {
    shared: Arc<Shared<T>>,
    scope: Scope,
    number: u64,
}

impl<T: Clone> SingleFlight<T> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            hasher: RandomState::new(),
            leaders: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }))
    }

    /// Joins the requests of `scope`.
    pub fn join(&self, scope: &Scope, fingerprint: Fingerprint) -> Join<T> {
        let mut flights = self.0.flights(scope);
        match flights.entry(scope.clone()) {
            Entry::Vacant(vacant) => {
                let number = self.0.next_number();
                vacant.insert(RunningKey::new(fingerprint, number));
                Join::Leader(Leader::new(&self.0, scope, fingerprint, number))
            }
            Entry::Occupied(mut occupied) => occupied.get_mut().join(fingerprint),
        }
    }

    /// The number of keys with a running request.
    pub fn len(&self) -> usize {
        let locked = |shard: &Mutex<_>| -> usize { lock::<T>(shard).len() };
        self.0.shards.iter().map(locked).sum()
    }

    /// Whether no key has a running request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Clone> Default for SingleFlight<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Clone for SingleFlight<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for SingleFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SingleFlight")
    }
}

impl<T> Follower<T> {
    /// Waits for the result of the leader.
    ///
    /// The caller limits the wait: a follower that is dropped leaves the queue.
    pub async fn wait(self) -> Waited<T> {
        // A leader sends a result or hands over even if it panics, because its guard does so when
        // it is dropped.
        self.0.await.unwrap_or(Waited::Mismatch)
    }
}

impl<T> Leader<T> {
    /// Confirms that the key belongs to this leader's fingerprint. Followers with another one
    /// receive a mismatch at once.
    pub fn confirm(&self) {
        self.shared.confirm(&self.scope, self.number);
    }

    /// Confirms later, for example when a pipelined claim has got its key.
    pub fn confirmation(&self) -> Confirmation<T> {
        Confirmation {
            shared: Arc::clone(&self.shared),
            scope: self.scope.clone(),
            number: self.number,
        }
    }

    /// Retracts a confirmation, because the leader has lost the key and claims it again. Followers
    /// with another fingerprint wait again.
    pub fn retract(&self) {
        let mut flights = self.shared.flights(&self.scope);
        if let Some(flight) = flights.get_mut(&self.scope) {
            flight.confirmed = false;
        }
    }

    /// Sends the result to every follower with the same fingerprint and ends the flight.
    ///
    /// Followers with another fingerprint continue on their own, unless the key was confirmed.
    pub fn finish(mut self, outcome: &T)
    where
        T: Clone,
    {
        let same: Vec<_> = {
            let mut flights = self.shared.flights(&self.scope);
            flights
                .get_mut(&self.scope)
                .map_or_else(Vec::new, |flight| {
                    flight.take(|waiter| waiter.fingerprint == self.fingerprint)
                })
        };
        for waiter in same {
            let _ = waiter.tell.send(Waited::Finished(outcome.clone()));
        }
        self.hand_over();
    }

    fn new(shared: &Arc<Shared<T>>, scope: &Scope, fingerprint: Fingerprint, number: u64) -> Self {
        Self {
            shared: Arc::clone(shared),
            scope: scope.clone(),
            fingerprint,
            number,
            done: false,
        }
    }

    fn hand_over(&mut self) {
        self.done = true;
        while let Some((next, number)) = self.shared.next(&self.scope) {
            let leader = Self::new(&self.shared, &self.scope, next.fingerprint, number);
            // If the follower has left, the value comes back. Dropping it here must not hand over a
            // second time.
            match next.tell.send(Waited::Leader(leader)) {
                Err(Waited::Leader(mut refused)) => refused.done = true,
                _ => return,
            }
        }
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        if !self.done {
            self.hand_over();
        }
    }
}

impl<T> fmt::Debug for Leader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lead").field(&self.scope).finish()
    }
}

impl<T> Confirmation<T> {
    /// Like [`Leader::confirm`]. It does nothing if the leader has ended.
    pub fn confirm(&self) {
        self.shared.confirm(&self.scope, self.number);
    }
}

impl<T> fmt::Debug for Confirmation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Confirmation").field(&self.scope).finish()
    }
}

type RunningKeys<T> = HashMap<Scope, RunningKey<T>>;

struct Shared<T> {
    hasher: RandomState,
    /// The number of leaders so far.
    leaders: AtomicU64,
    shards: Box<[Mutex<RunningKeys<T>>]>,
}

impl<T> Shared<T> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits choose a shard"
    )]
    fn flights(&self, scope: &Scope) -> MutexGuard<'_, RunningKeys<T>> {
        lock(&self.shards[self.hasher.hash_one(scope) as usize % SHARDS])
    }

    fn next_number(&self) -> u64 {
        self.leaders.fetch_add(1, Ordering::Relaxed)
    }

    /// The next follower, which becomes the leader, with its number as a leader. The flight ends if
    /// there is none.
    fn next(&self, scope: &Scope) -> Option<(Waiter<T>, u64)> {
        let mut flights = self.flights(scope);
        let flight = flights.get_mut(scope)?;
        let Some(next) = flight.waiters.pop_front() else {
            drop(flights.remove(scope));
            return None;
        };
        flight.fingerprint = next.fingerprint;
        flight.leader = self.next_number();
        flight.confirmed = false;
        Some((next, flight.leader))
    }

    /// Confirms that the key belongs to the fingerprint of the leader `number`, if it still leads.
    fn confirm(&self, scope: &Scope, number: u64) {
        let others: Vec<_> = {
            let mut flights = self.flights(scope);
            let flight = flights.get_mut(scope);
            let Some(flight) = flight.filter(|flight| flight.leader == number) else {
                return;
            };
            flight.confirmed = true;
            let fingerprint = flight.fingerprint;
            flight.take(|waiter| waiter.fingerprint != fingerprint)
        };
        for waiter in others {
            let _ = waiter.tell.send(Waited::Mismatch);
        }
    }
}

struct RunningKey<T> {
    fingerprint: Fingerprint,
    /// The number of the leader.
    leader: u64,
    confirmed: bool,
    waiters: VecDeque<Waiter<T>>,
    clear_at: usize,
}

struct Waiter<T> {
    fingerprint: Fingerprint,
    tell: oneshot::Sender<Waited<T>>,
}

impl<T> RunningKey<T> {
    fn new(fingerprint: Fingerprint, leader: u64) -> Self {
        Self {
            fingerprint,
            leader,
            confirmed: false,
            waiters: VecDeque::new(),
            clear_at: CLEAR_AT,
        }
    }

    fn join(&mut self, fingerprint: Fingerprint) -> Join<T> {
        if self.confirmed && fingerprint != self.fingerprint {
            return Join::Mismatch;
        }
        if self.waiters.len() >= self.clear_at {
            self.waiters.retain(|waiter| !waiter.tell.is_closed());
            self.clear_at = CLEAR_AT.max(self.waiters.len() * 2);
        }
        let (tell, wait) = oneshot::channel();
        self.waiters.push_back(Waiter { fingerprint, tell });
        Join::Follower(Follower(wait))
    }

    fn take(&mut self, wanted: impl Fn(&Waiter<T>) -> bool) -> Vec<Waiter<T>> {
        let (taken, kept) = self.waiters.drain(..).partition(wanted);
        self.waiters = kept;
        VecDeque::into(taken)
    }
}

/// No code that can panic runs under these locks, so a poisoned lock is still consistent.
fn lock<T>(shard: &Mutex<RunningKeys<T>>) -> MutexGuard<'_, RunningKeys<T>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{IdempotencyKey, Operation, Tenant};

    #[tokio::test]
    async fn followers_get_what_the_leader_found() {
        let flights = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        let followers: Vec<_> = (0..1_000).map(|_| check_follows(&flights, 1)).collect();
        leader.finish(&"answer");
        for follower in followers {
            assert!(matches!(follower.wait().await, Waited::Finished("answer")));
        }
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn another_payload_is_a_mismatch_once_the_key_is_confirmed_and_not_before() {
        let flights = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        let early = check_follows(&flights, 2);
        leader.confirm();
        assert!(matches!(early.wait().await, Waited::Mismatch));
        assert!(matches!(
            flights.join(&scope(), fingerprint(2)),
            Join::Mismatch
        ));
        leader.finish(&"answer");
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn a_confirmation_is_good_for_its_leader_only_and_until_it_is_retracted() {
        let flights = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        let confirmation = leader.confirmation();
        let early = check_follows(&flights, 2);
        confirmation.confirm();
        assert!(matches!(early.wait().await, Waited::Mismatch));
        leader.retract();
        let other = check_follows(&flights, 2);
        leader.finish(&"answer");
        let Waited::Leader(next) = other.wait().await else {
            panic!("the follower must become the leader");
        };
        // The leader of this confirmation has ended.
        confirmation.confirm();
        let third = check_follows(&flights, 1);
        next.confirm();
        assert!(matches!(third.wait().await, Waited::Mismatch));
        next.finish(&"other");
        let last = check_leads(&flights, 1);
        confirmation.confirm();
        drop(check_follows(&flights, 2));
        drop(last);
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn another_payload_leads_when_the_first_ends_unconfirmed() {
        let flights = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        let (same, other) = (check_follows(&flights, 1), check_follows(&flights, 2));
        leader.finish(&"mismatch");
        assert!(matches!(same.wait().await, Waited::Finished("mismatch")));
        assert!(matches!(other.wait().await, Waited::Leader(_)));
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn one_follower_leads_when_the_leader_lets_go_and_those_that_left_are_passed_over() {
        let flights = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        drop(check_follows(&flights, 1));
        let (second, third) = (check_follows(&flights, 1), check_follows(&flights, 1));
        drop(leader);
        let Waited::Leader(leader) = second.wait().await else {
            panic!("the first follower that stayed must become the leader");
        };
        leader.finish(&"answer");
        assert!(matches!(third.wait().await, Waited::Finished("answer")));
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn a_follower_that_leaves_with_the_lead_in_its_hands_passes_it_on() {
        let flights: SingleFlight<()> = SingleFlight::new();
        let leader = check_leads(&flights, 1);
        let (second, third) = (check_follows(&flights, 1), check_follows(&flights, 1));
        drop(leader);
        drop(second);
        assert!(matches!(third.wait().await, Waited::Leader(_)));
        assert!(flights.is_empty());
    }

    #[test]
    fn a_queue_does_not_keep_those_that_left() {
        let flights: SingleFlight<()> = SingleFlight::new();
        let _lead = check_leads(&flights, 1);
        for _ in 0..10_000 {
            drop(check_follows(&flights, 1));
        }
        let waiting = flights.0.flights(&scope())[&scope()].waiters.len();
        assert!(waiting <= CLEAR_AT, "{waiting} followers are kept");
    }

    #[track_caller]
    fn check_leads<T: Clone>(flights: &SingleFlight<T>, asked: u8) -> Leader<T> {
        match flights.join(&scope(), fingerprint(asked)) {
            Join::Leader(leader) => leader,
            _ => panic!("a request with a free key must become the leader"),
        }
    }

    #[track_caller]
    fn check_follows<T: Clone>(flights: &SingleFlight<T>, asked: u8) -> Follower<T> {
        match flights.join(&scope(), fingerprint(asked)) {
            Join::Follower(follower) => follower,
            _ => panic!("a request with a taken key must become a follower"),
        }
    }

    fn scope() -> Scope {
        Scope {
            tenant: Tenant::new("alice").unwrap(),
            operation: Operation::new("POST /orders").unwrap(),
            key: IdempotencyKey::new("k").unwrap(),
        }
    }

    fn fingerprint(asked: u8) -> Fingerprint {
        Fingerprint::from_bytes([asked; 32])
    }
}
