//! The relay: delivers events from the outbox to their destinations.
//!
//! Each iteration of the loop has four steps, each in a separate file: `tail_cache` reads events,
//! `route` selects those of the destination, `lane` decides which one is next, and `settle` records
//! the outcomes. `worker` is the loop. There is one for each partition of each destination, so that
//! a destination that is down does not affect the others. A `partition_task` takes the partition,
//! runs the loop, and waits while another node owns the partition. The `supervisor` runs a task for
//! every partition and decides which partitions belong to this node: several nodes share the
//! partitions by `lease`. The `lookout` polls the store for all workers that have nothing to do.
//!
//! If the process crashes after an event was offered and before the outcome is recorded, the event
//! is delivered again. The relay delivers at least once, and the inbox of the receiver makes the
//! effect happen once.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hapax::{
//!     Clock, Random,
//!     notify::Notifier,
//!     relay::{Destination, Order, Relay, RelayHandle, Settings},
//!     sink::Sink,
//!     store::{Deliveries, Source},
//! };
//!
//! /// Delivers orders to a sink, in the order of each aggregate.
//! fn deliver<S: Source + Deliveries>(
//!     store: &S,
//!     notifier: &Notifier,
//!     sink: Arc<dyn Sink>,
//!     clock: Clock,
//!     random: Random,
//! ) -> RelayHandle {
//!     let orders = Destination::new("orders", sink).only(["order.*"]).order(Order::Key);
//!     Relay::spawn(store, vec![orders], &Settings::new(clock, random), notifier)
//! }
//! ```

mod supervisor;
mod lease;
mod operator_changes;
mod namesake;
mod partition_task;
mod worker;
pub mod destination;
mod tail_cache;
mod lookout;
pub mod route;
mod delivery_queue;
mod blocked;
mod lane;
mod breaker;
mod rate;
mod offer;
mod settle;
mod direct;
mod checkpoint_tracker;
mod gauges;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    clock::{Clock, Random},
    delivery::partition,
    failpoint::Failpoints,
    limits,
    store::{Deliveries, Source},
    trace::Traces,
};

use crate::notify::Notifier;
pub use destination::{Destination, Order};
pub use direct::offer_once;
use namesake::Namesakes;
use operator_changes::OperatorChanges;
use partition_task::{DISABLED, PartitionState, PartitionStates, locked};
pub use route::Pattern;
use supervisor::Supervisor;

/// The settings of a relay, besides its store and its destinations.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The source of time.
    pub clock: Clock,
    /// The source of randomness for jitter.
    pub random: Random,
    /// Failpoints that are reached at each commit and each send.
    pub failpoints: Failpoints,
    /// The longest interval between two polls of the outbox for destinations that are not notified,
    /// unless the source wakes the relay ([`Source::fall_asleep`]): then it polls every
    /// [`limits::POLL_ASLEEP`].
    pub poll_idle: Duration,
    /// The identity of this relay among others that share its store.
    ///
    /// `None` if no other process can open the store. Then every destination is served here, and a
    /// relay that was fenced stops. Either all relays of a store have an identity, or there is only
    /// one relay.
    pub node: Option<Node>,
    /// Whether attempts are traced. The trace context of an event is passed on in any case.
    pub traces: Traces,
}

/// The identity of one relay among several on one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name, for lists and logs. The store identifies a process by its name and a number that
    /// is drawn when the process starts, so that two processes with the same name are two nodes.
    ///
    /// No other live relay should have the same name: a relay that finds one logs an error. A
    /// process that was killed and restarted waits, like any other node, until the lease of the old
    /// process is over.
    pub name: String,
    /// How long the relay may miss its heartbeat before other relays take its partitions.
    /// [`limits::NODE_LEASE`] is a good choice. All relays of a store must use the same value.
    pub lease: Duration,
}

impl Node {
    /// Creates a node with this name and the default lease.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            lease: limits::NODE_LEASE,
        }
    }
}

impl Settings {
    /// Creates settings with the default poll interval and no failpoints.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self {
            clock,
            random,
            failpoints: Failpoints::none(),
            poll_idle: limits::POLL_IDLE,
            node: None,
            traces: Traces::off(),
        }
    }
}

/// The relay of one process.
#[derive(Debug)]
pub struct Relay;

impl Relay {
    /// Starts to deliver the events of `store` to `destinations`, on the current runtime.
    ///
    /// A destination in this list is enabled, even if its receiver had refused further events.
    /// Names are unique: if two destinations have the same name, the first is used.
    pub fn spawn<S>(
        store: &S,
        destinations: Vec<Destination>,
        settings: &Settings,
        notifier: &Notifier,
    ) -> RelayHandle
    where
        S: Source + Deliveries,
    {
        Self::spawn_from(store, store, destinations, settings, notifier)
    }

    /// Like [`spawn`](Self::spawn), with the events of another source than the outbox of the store.
    pub fn spawn_from<S, D>(
        source: &S,
        store: &D,
        destinations: Vec<Destination>,
        settings: &Settings,
        notifier: &Notifier,
    ) -> RelayHandle
    where
        S: Source,
        D: Deliveries,
    {
        let mut settings = settings.clone();
        if let Some(node) = &mut settings.node {
            node.name = namesake::identity(&node.name, &settings.random);
        }
        let identity = settings.node.as_ref().map(|node| node.name.clone());
        let namesakes = Arc::new(AtomicUsize::new(0));
        let operators = Arc::new(AtomicI64::new(-1));
        let states = PartitionStates::default();
        for destination in &destinations {
            let mut states = locked(&states);
            for number in 0..destination.partitions.get() {
                let partition = partition(&destination.name, number, destination.partitions);
                states.entry(partition).or_default();
            }
        }
        let draining = watch::Sender::new(false);
        let destinations = watch::Sender::new(destinations.into());
        let supervisor = Supervisor::new(
            source.clone(),
            store.clone(),
            settings,
            notifier.clone(),
            Arc::clone(&states),
            Namesakes::counted_by(Arc::clone(&namesakes)),
            OperatorChanges::reported_in(Arc::clone(&operators)),
        );
        let mut tasks = JoinSet::new();
        let supervised = supervisor.run(destinations.subscribe(), draining.subscribe());
        tasks.spawn(supervised.boxed());
        RelayHandle {
            draining,
            destinations,
            tasks,
            states,
            identity,
            namesakes,
            operators,
        }
    }
}

/// A running relay. Dropping it stops the relay at once, like a crash.
#[derive(Debug)]
pub struct RelayHandle {
    draining: watch::Sender<bool>,
    destinations: watch::Sender<Arc<[Destination]>>,
    tasks: JoinSet<()>,
    states: PartitionStates,
    identity: Option<String>,
    namesakes: Arc<AtomicUsize>,
    operators: Arc<AtomicI64>,
}

impl RelayHandle {
    /// Stops offering events, waits for the attempts in flight, records their outcomes, and
    /// releases all partitions.
    pub async fn drain(mut self) {
        self.draining.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Replaces the destinations. New destinations start, missing ones end, and changed ones are
    /// drained and continue with the new settings.
    ///
    /// A destination that is equal, including the `Arc` of its sink, is not interrupted.
    pub fn set(&self, destinations: Vec<Destination>) {
        self.destinations.send_replace(destinations.into());
    }

    /// The identity of this relay in the store: the name of its node and its number; `None` if it
    /// does not share its store.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// The number of other live processes with the name of this relay's node.
    ///
    /// No process takes a partition of another one. Equal names are a mistake all the same, because
    /// operators cannot distinguish the processes by name.
    pub fn namesakes(&self) -> usize {
        self.namesakes.load(Ordering::Relaxed)
    }

    /// The newest [version](crate::delivery::OperatorSetting::version) of what operators have set,
    /// as the last heartbeat has reported it; `None` if it is not known, or not recent enough.
    pub fn operator_version(&self) -> Option<i64> {
        let version = self.operators.load(Ordering::Relaxed);
        (version >= 0).then_some(version)
    }

    /// Enables a destination that was disabled. Returns false if there is no destination with this
    /// name.
    pub fn enable(&self, destination: &str) -> bool {
        let states = self.states_of(destination);
        for state in &states {
            // A running loop would remember the notification and enable the destination when it is
            // disabled later.
            if *state.stopped.borrow() == Some(DISABLED) {
                state.enable.notify_one();
            }
        }
        !states.is_empty()
    }

    /// Why no partition of a destination is served here; `None` while one is, or if there is no
    /// such destination.
    ///
    /// One of `disabled`, `paused`, `standby` (another node owns the partitions, or will) and
    /// `fenced`.
    pub fn stopped(&self, destination: &str) -> Option<&'static str> {
        let states = self.states_of(destination);
        let mut reasons = states.iter().map(|state| *state.stopped.borrow());
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    fn states_of(&self, destination: &str) -> Vec<PartitionState> {
        locked(&self.states)
            .iter()
            .filter(|(partition, _)| partition.split('/').next() == Some(destination))
            .map(|(_, state)| state.clone())
            .collect()
    }
}
