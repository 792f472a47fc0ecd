//! The supervisor of a relay: knows the destinations, polls the membership, and runs a task for
//! each partition.
//!
//! Destinations can be added and removed while it runs. If several nodes share a store, it sends
//! heartbeats for this node and orders its tasks to take the partitions that belong to this node.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};

use crate::{
    delivery::{KnownDestinations, partition},
    limits,
    notify::Notifier,
    store::{Deliveries, Source},
};

use super::{
    Destination, Node, Settings, gauges,
    lease::{LOOKS, Shares},
    lookout::Lookout,
    namesake::Namesakes,
    operator_changes::OperatorChanges,
    partition_task::{Orders, PartitionStates, PartitionTask, locked},
    tail_cache::TailCache,
};

/// Poll interval of a node that does not share its store.
const NEVER: Duration = Duration::from_hours(24 * 365);

#[derive(Debug)]
pub(super) struct Supervisor<S, D> {
    source: S,
    store: D,
    settings: Settings,
    notifier: Notifier,
    states: PartitionStates,
    partition_tasks: HashMap<String, (watch::Sender<Orders>, AbortHandle)>,
    /// Tasks that were ordered to end and have not ended yet.
    ending: HashMap<String, AbortHandle>,
    tasks: JoinSet<()>,
    lookout: Arc<Lookout>,
    /// The task that polls for all partitions.
    polling: JoinSet<()>,
    shares: Shares,
    namesakes: Namesakes,
    /// When the membership was last read.
    polled_at: Option<Instant>,
    /// Until when missing heartbeats of other nodes are ignored, because this node was blocked
    /// itself.
    away_until: Option<Instant>,
    /// The destinations, for a store that receives no heartbeats.
    known: Arc<KnownDestinations>,
    operators: OperatorChanges,
}

impl<S: Source, D: Deliveries> Supervisor<S, D> {
    pub(super) fn new(
        source: S,
        store: D,
        settings: Settings,
        notifier: Notifier,
        states: PartitionStates,
        namesakes: Namesakes,
        operators: OperatorChanges,
    ) -> Self {
        let known = Arc::new(KnownDestinations::default());
        if settings.node.is_none() {
            store.follow(Arc::downgrade(&known));
        }
        Self {
            source,
            store,
            settings,
            notifier,
            states,
            partition_tasks: HashMap::new(),
            ending: HashMap::new(),
            tasks: JoinSet::new(),
            lookout: Arc::new(Lookout::new()),
            polling: JoinSet::new(),
            shares: Shares::default(),
            namesakes,
            polled_at: None,
            away_until: None,
            known,
            operators,
        }
    }

    /// Runs the tasks until the relay drains.
    pub(super) async fn run(
        mut self,
        mut destinations: watch::Receiver<Arc<[Destination]>>,
        mut draining: watch::Receiver<bool>,
    ) {
        let interval = self.settings.node.as_ref().map(|node| node.lease / LOOKS);
        let tail = Arc::new(TailCache::new(self.source.clone()));
        self.operators.read(&self.store).await;
        while !*draining.borrow_and_update() {
            let current = Arc::clone(&destinations.borrow_and_update());
            self.poll_for_all();
            self.assign(&self.operators.apply(&current), &tail);
            self.poll_membership().await;
            let next = Instant::now() + interval.unwrap_or(NEVER);
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.operators.changed(&self.store) => {}
                outcome = destinations.changed() => if outcome.is_err() { return },
                outcome = draining.changed() => if outcome.is_err() { return },
                Some(_) = self.tasks.join_next() => {}
                // It only ends by a panic.
                Some(_) = self.polling.join_next() => {}
            }
        }
        self.end().await;
    }

    /// Starts the lookout, unless it runs.
    fn poll_for_all(&mut self) {
        if self.polling.is_empty() {
            let (source, store) = (self.source.clone(), self.store.clone());
            let (lookout, notifier) = (Arc::clone(&self.lookout), self.notifier.clone());
            let polls = lookout.run(source, store, notifier, self.settings.poll_idle);
            self.polling.spawn(polls.boxed());
        }
    }

    /// Starts tasks for new partitions, and passes changes to the others.
    fn assign(&mut self, destinations: &[Destination], tail: &Arc<TailCache<S>>) {
        let mut wanted = BTreeSet::new();
        self.ending.retain(|_, task| !task.is_finished());
        if self.settings.node.is_some() {
            // A task that died without an order is started again. A relay that does not share its
            // store was fenced permanently.
            self.partition_tasks
                .retain(|_, (_, task)| !task.is_finished());
        }
        for destination in destinations {
            for number in 0..destination.partitions.get() {
                let name = partition(&destination.name, number, destination.partitions);
                if !wanted.insert(name.clone()) {
                    tracing::error!(
                        destination = name,
                        "a second destination with this name is ignored"
                    );
                    continue;
                }
                self.instruct(name, number, destination, tail);
            }
        }
        let names = destinations
            .iter()
            .map(|destination| destination.name.clone());
        self.known.set(names.collect());
        let is_removed = |name: &String| !wanted.contains(name);
        for (name, (orders, task)) in self.partition_tasks.extract_if(|name, _| is_removed(name)) {
            orders.send_modify(|orders| orders.ends = true);
            self.ending.insert(name, task);
        }
        locked(&self.states).retain(|name, _| wanted.contains(name));
    }

    fn instruct(
        &mut self,
        name: String,
        number: u8,
        destination: &Destination,
        tail: &Arc<TailCache<S>>,
    ) {
        if self.ending.contains_key(&name) {
            // The new task starts when the old one has settled what it offered.
            return;
        }
        if let Some((orders, _)) = self.partition_tasks.get(&name) {
            orders.send_if_modified(|orders| {
                let changed = !orders.destination.is_same(destination);
                if changed {
                    orders.destination = Arc::new(destination.clone());
                }
                changed
            });
            return;
        }
        let state = locked(&self.states)
            .entry(name.clone())
            .or_default()
            .clone();
        let orders = watch::Sender::new(Orders {
            destination: Arc::new(destination.clone()),
            may_own: self.settings.node.is_none(),
            ends: false,
            process_stops: false,
            owned_epoch: None,
            poll: 0,
        });
        let partition_task = PartitionTask {
            store: self.store.clone(),
            tail: Arc::clone(tail),
            lookout: Arc::clone(&self.lookout),
            partition: name.clone(),
            number,
            settings: self.settings.clone(),
            notifier: self.notifier.clone(),
            orders: orders.subscribe(),
            state,
        };
        let task = self.tasks.spawn(partition_task.run().boxed());
        self.partition_tasks.insert(name, (orders, task));
    }

    /// Polls the membership, and orders each task to take or release its partition.
    async fn poll_membership(&mut self) {
        let Some(node) = self.settings.node.clone() else {
            return;
        };
        let Node { name, lease } = node;
        let wanted = self.wanted();
        let knows: BTreeSet<String> = wanted.values().cloned().collect();
        let knows: Vec<String> = knows.into_iter().collect();
        let heartbeat = timeout(lease, self.store.heartbeat(&name, &knows, lease)).await;
        let heartbeat = match heartbeat {
            Ok(sent) => sent.map_err(|error| error.error_chain()),
            Err(_) => Err(format!("the store has not responded within {lease:?}")),
        };
        let membership = match heartbeat {
            Ok(membership) => membership,
            Err(error) => {
                self.operators.report(None);
                tracing::warn!(node = name, error, "the heartbeat could not be sent");
                // A worker detects by itself that it was fenced. Without this count, failures of
                // the store would not be counted for partitions that were never taken.
                let waiting = self.partition_tasks.keys();
                return waiting.for_each(|partition| gauges::store_failed(partition, 1));
            }
        };
        let is_soon = lease / LOOKS <= limits::HEARTBEAT_SOON;
        self.operators
            .report(membership.operators.filter(|_| is_soon));
        self.namesakes.look(&name, &membership, lease);
        // After it was blocked, this node keeps its partitions and takes no others.
        let was_away = self.was_away(lease);
        let shares = (!was_away).then(|| self.shares.of(&name, &wanted, &membership));
        let owned = membership.held.into_iter();
        let owned: HashMap<String, i64> = owned
            .filter(|held| held.node == name)
            .map(|held| (held.partition, held.epoch))
            .collect();
        for (partition, (orders, _)) in &self.partition_tasks {
            let epoch = owned.get(partition).copied();
            orders.send_modify(|orders| {
                let owns_partition = epoch.is_some();
                orders.may_own = shares
                    .as_ref()
                    .map_or(owns_partition, |ours| ours.contains(partition));
                orders.owned_epoch = epoch;
                orders.poll += 1;
            });
        }
    }

    /// The partitions that need an owner, each with its destination.
    fn wanted(&self) -> BTreeMap<String, String> {
        let partition_tasks = self.partition_tasks.iter();
        partition_tasks
            .map(|(partition, (orders, _))| {
                (partition.clone(), orders.borrow().destination.name.clone())
            })
            .collect()
    }

    /// Whether this node has not polled for so long that other nodes may not have been able to send
    /// heartbeats either: the store was unavailable, or this process was stopped.
    fn was_away(&mut self, lease: Duration) -> bool {
        let now = Instant::now();
        let last = self.polled_at.replace(now);
        if last.is_some_and(|last| now > last + lease) {
            self.away_until = Some(now + lease);
        }
        self.away_until.is_some_and(|until| now < until)
    }

    /// Ends all tasks and removes this node from the membership.
    async fn end(mut self) {
        for (orders, _) in self.partition_tasks.values() {
            orders.send_modify(|orders| (orders.ends, orders.process_stops) = (true, true));
        }
        let interval = self.settings.node.as_ref().map(|node| node.lease / LOOKS);
        loop {
            // The partitions belong to this node until the last outcomes are recorded.
            tokio::select! {
                ended = self.tasks.join_next() => if ended.is_none() { break },
                () = sleep_until(Instant::now() + interval.unwrap_or(NEVER)) => {
                    if let Some(Node { name, lease }) = &self.settings.node {
                        let _sent = timeout(*lease, self.store.heartbeat(name, &[], *lease)).await;
                    }
                }
            }
        }
        if let Some(Node { name, .. }) = &self.settings.node {
            let left = timeout(limits::STORE_BACKOFF.1, self.store.leave(name)).await;
            if !matches!(left, Ok(Ok(()))) {
                tracing::warn!(
                    node = name,
                    "the node could not be removed from the membership"
                );
            }
        }
    }
}
