//! The events of one partition in memory. This module makes decisions only and has no input or
//! output.
//!
//! Events are added from the outbox ([`DeliveryQueue::admit`]) and from parked rows
//! ([`DeliveryQueue::admit_parked`]), selected for delivery ([`DeliveryQueue::choose`]), and
//! concluded in `settle`. Everything that has to be recorded is collected in one pending
//! [`Settlement`], so that an iteration takes one transaction.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use metrics::{Counter, Histogram, counter, histogram};

use crate::{
    clock::Timestamp,
    delivery::{AttemptOutcome, CheckpointId, Opened, Park, Parked, ParkedState, Settlement},
    event::Event,
    key::Tenant,
    limits::{BEHIND, PAST_READ, READ_EVENTS, WINDOW_EVENTS},
    outbox::OutboxEvent,
    store::{Batch, Past},
    telemetry,
};

use super::{
    blocked::Blocked,
    checkpoint_tracker::CheckpointTracker,
    destination::{Destination, Order},
    gauges::KnownCheckpoint,
    lane::{Item, Lane},
    route,
    settle::Arrivals,
};

#[derive(Debug)]
pub(super) struct DeliveryQueue {
    pub(super) destination: Arc<Destination>,
    /// The name of the partition in the store.
    pub(super) partition: String,
    pub(super) lane: Lane,
    pub(super) checkpoints: CheckpointTracker,
    /// Order keys that are blocked by a parked delivery.
    pub(super) blocked: Blocked,
    /// Parked deliveries in memory: in the lane, in flight, or not recorded yet.
    pub(super) revived: HashSet<i64>,
    /// The content of the next settlement.
    pub(super) pending: Settlement,
    /// The settlement that was sent to the store and is not confirmed yet.
    pub(super) sent: Option<Settlement>,
    /// The checkpoint that the store is known to contain.
    pub(super) newest: CheckpointId,
    /// The same, for other tasks; empty while a settlement is being written.
    pub(super) known: KnownCheckpoint,
    /// First attempts that succeeded and are not recorded yet.
    pub(super) arrivals: Arrivals,
    pub(super) counted: Counted,
    reading_past: Option<ReadingPast>,
    /// The number of attempts at parked deliveries in memory that do not count, because they were
    /// interrupted while their relay was alive.
    spared: HashMap<i64, u32>,
    /// When the next parked delivery is due, as far as is known.
    pub(super) due_at: Option<Timestamp>,
}

/// Metrics of every event that is delivered, retried or becomes a dead letter.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) arrived: Counter,
    pub(super) age: Histogram,
    pub(super) retry_delay: Histogram,
    pub(super) died: Counter,
}

/// Reading ahead for other tenants while the window is full.
#[derive(Debug)]
struct ReadingPast {
    /// The position up to which the outbox was searched.
    until: i64,
    /// The tenants that were excluded. They stay excluded for as long as this lasts; otherwise
    /// later events of a tenant would overtake its earlier ones.
    except: Vec<Option<Tenant>>,
}

impl DeliveryQueue {
    /// `first` is the number of the first settlement.
    pub(super) fn new(
        partition: String,
        destination: Arc<Destination>,
        opened: Opened,
        first: i64,
    ) -> Self {
        let label = || partition.clone();
        let counted = Counted {
            arrived: counter!(
                telemetry::RELAY_ATTEMPTS,
                "destination" => label(),
                "outcome" => AttemptOutcome::Delivered.as_str(),
                "error_type" => ""
            ),
            age: histogram!(telemetry::RELAY_DELIVERY, "destination" => label()),
            retry_delay: histogram!(telemetry::RELAY_RETRY_DELAY, "destination" => label()),
            // The counter exists from the start, so that the first dead letter shows as an
            // increase.
            died: counter!(telemetry::RELAY_DEAD_LETTERS, "destination" => label()),
        };
        let pending = Settlement {
            destination: partition.clone(),
            epoch: opened.epoch,
            number: first,
            ..Settlement::default()
        };
        Self {
            destination,
            partition,
            arrivals: Arrivals::default(),
            counted,
            reading_past: None,
            spared: HashMap::new(),
            lane: Lane::default(),
            checkpoints: CheckpointTracker::new(opened.checkpoint),
            blocked: Blocked::new(opened.blocked_keys),
            revived: HashSet::new(),
            pending,
            sent: None,
            newest: opened.newest,
            known: KnownCheckpoint::of(opened.epoch, opened.newest),
            due_at: Some(Timestamp::default()),
        }
    }

    /// Whether there is room for more events from the outbox.
    pub(super) fn wants_more(&self) -> bool {
        let sent = self.sent.as_ref().map_or(0, |sent| sent.park.len());
        let unrecorded = self.pending.park.len() + sent;
        !self.lane.is_full() && !self.checkpoints.is_full() && unrecorded < WINDOW_EVENTS
    }

    /// How many parked deliveries there is room for; none until half of a full load is settled,
    /// because each read of a few deliveries has to skip all the others.
    pub(super) fn parked_room(&self) -> usize {
        let held = self.revived.len();
        if self.lane.is_full() || held > READ_EVENTS / 2 {
            return 0;
        }
        READ_EVENTS - held
    }

    /// When parked deliveries should be read; never while there is no room for them.
    pub(super) fn reads_parked_at(&self) -> Option<Timestamp> {
        self.due_at.filter(|_| self.parked_room() > 0)
    }

    /// Adds events from the outbox.
    pub(super) fn admit(&mut self, batch: Batch, now: Timestamp) {
        let mut ours = batch.events;
        if let Some(last) = ours.last() {
            self.checkpoints.saw(last.position, last.event.id);
        }
        ours.retain(|event| {
            let takes = route::takes(&self.destination, &event.event);
            if !takes {
                self.checkpoints.forget(event.position);
            }
            takes
        });
        let positions = ours.iter().map(|event| event.position).collect();
        let fresh: Vec<_> = ours
            .into_iter()
            .filter(|event| !self.checkpoints.is_known(event.position))
            .collect();
        self.checkpoints.read(positions, batch.frontier);
        let high = self.checkpoints.head().high;
        self.reading_past
            .take_if(|reading_past| reading_past.until <= high);
        for event in fresh {
            self.admit_event(event, now);
        }
    }

    /// Where to read ahead for other tenants, which tenants to exclude, and how many events there
    /// is room for; `None` while no tenant fills the window.
    pub(super) fn looks_past(&mut self) -> Option<(i64, Vec<Option<Tenant>>, usize)> {
        let room = self.checkpoints.room_ahead().min(PAST_READ);
        // An earlier event of the key may be committed before the position that was searched.
        let keeps_order = self.destination.order != Order::None;
        if room == 0 || keeps_order || self.wants_more() || self.lane.is_stuffed() {
            return None;
        }
        let high = self.checkpoints.head().high;
        let reading_past = self.reading_past.get_or_insert_with(|| ReadingPast {
            until: high,
            except: Vec::new(),
        });
        for tenant in self.lane.full_tenants() {
            if !reading_past.except.contains(tenant) {
                reading_past.except.push(tenant.clone());
            }
        }
        let ReadingPast { until, except } = reading_past;
        (!except.is_empty()).then(|| ((*until).max(high), except.clone(), room))
    }

    /// Adds events that were read ahead for other tenants.
    pub(super) fn admit_past(&mut self, past: Past, now: Timestamp) {
        let high = self.checkpoints.head().high;
        if let Some(reading_past) = &mut self.reading_past {
            reading_past.until = reading_past.until.max(past.until);
        }
        if let Some(last) = past.events.last() {
            self.checkpoints.saw(last.position, last.event.id);
        }
        for event in past.events {
            // A normal read may have returned them meanwhile.
            let is_new = event.position > high && !self.checkpoints.is_known(event.position);
            if is_new && route::takes(&self.destination, &event.event) {
                self.checkpoints.take_ahead(event.position);
                self.admit_event(event, now);
            }
        }
    }

    fn admit_event(&mut self, event: Arc<OutboxEvent>, now: Timestamp) {
        let order_key = self.order_key(&event.event);
        if let Some(later) = event.event.available_at.filter(|moment| *moment > now) {
            // A delayed event does not block its key: it is no longer part of the order.
            return self.park(event.position, ParkedState::Scheduled, 0, later, None, None);
        }
        if order_key.as_ref().is_some_and(|key| self.blocked.has(key)) {
            return self.park(
                event.position,
                ParkedState::Blocked,
                0,
                now,
                order_key,
                None,
            );
        }
        self.lane.push(Item {
            event,
            attempts: 0,
            parked: false,
            blocked: false,
            order_key,
            held_key: None,
        });
    }

    /// How many deliveries that are blocked by a parked one should be read with it; none if no
    /// order is kept, or while little room is left.
    pub(super) fn reads_behind(&self) -> usize {
        let keeps_order = self.destination.order != Order::None;
        let has_room = self.revived.len() < READ_EVENTS / 4;
        if keeps_order && has_room { BEHIND } else { 0 }
    }

    /// Those of these deliveries that have only one attempt left, for which it matters whether
    /// earlier attempts were interrupted while their relay was alive.
    pub(super) fn nearly_spent(&self, due: &[Parked]) -> Vec<i64> {
        let attempts_max = self.destination.schedule.attempts_max();
        let nearly = |it: &&Parked| it.attempt > 0 && it.attempt + 1 >= attempts_max;
        due.iter()
            .filter(nearly)
            .map(|it| it.event.position)
            .collect()
    }

    /// Records how many attempts do not count. The number is limited, so that an event that blocks
    /// its relay each time for longer than a lease still runs out of attempts.
    pub(super) fn spare(&mut self, outlived: Vec<(i64, u32)>) {
        let attempts_max = self.destination.schedule.attempts_max();
        let Self {
            spared, revived, ..
        } = self;
        spared.retain(|position, _| revived.contains(position));
        let bounded = |(position, count): (i64, u32)| (position, count.min(attempts_max));
        spared.extend(outlived.into_iter().map(bounded));
    }

    /// The number of attempts that count.
    pub(super) fn counted(&self, position: i64, attempts: u32) -> u32 {
        attempts.saturating_sub(self.spared.get(&position).copied().unwrap_or(0))
    }

    /// Adds parked deliveries that are due, and those that wait for them.
    pub(super) fn admit_parked(&mut self, due: Vec<Parked>) {
        for parked in due {
            // The key of the row was written by a store that does not know the order of the
            // destination. A row without a key is no longer part of the order.
            let order_key = match (parked.state, &parked.order_key) {
                (ParkedState::Scheduled, _) | (_, None) => None,
                _ => self.order_key(&parked.event.event),
            };
            let blocked = parked.state == ParkedState::Blocked;
            // It is delivered after the one before it.
            let is_stray = blocked && !order_key.as_ref().is_some_and(|key| self.lane.has(key));
            if is_stray || !self.revived.insert(parked.event.position) {
                continue;
            }
            // A delivery that an operator requested ignores the patterns and the filter.
            let takes = if parked.manual {
                route::may_have
            } else {
                route::takes
            };
            if !takes(&self.destination, &parked.event.event) {
                self.pass_over(&parked);
                continue;
            }
            self.lane.push(Item {
                event: parked.event,
                attempts: parked.attempt,
                parked: true,
                blocked,
                order_key,
                held_key: parked.order_key,
            });
        }
    }

    /// Ends a parked delivery whose event is not routed to this destination: the store parks in
    /// bulk without knowing the patterns and the filter, and both may have changed.
    fn pass_over(&mut self, parked: &Parked) {
        tracing::info!(
            destination = self.partition, event_id = %parked.event.event.id,
            from_state = "parked", to_state = "passed over",
            "the destination does not take the event"
        );
        self.pending.delivered.push(parked.event.position);
        if let Some(key) = &parked.order_key {
            self.pending.release.push(key.clone());
        }
    }

    /// Selects up to `count` events to offer next, and adds their attempts to the pending
    /// settlement.
    ///
    /// They must not be offered before that settlement is recorded: it counts the attempts, so that
    /// an event that kills its relay still runs out of them.
    pub(super) fn choose(&mut self, count: usize, now: Timestamp) -> Vec<Item> {
        let taken = self.lane.take(count);
        self.begin(taken, now)
    }

    /// Selects one event as a probe of the receiver: if possible one of another type than the one
    /// that failed last, because the failure may concern that type only.
    pub(super) fn choose_probe(&mut self, failed: Option<&str>, now: Timestamp) -> Vec<Item> {
        let taken = match failed {
            Some(kind) => self.lane.take_unlike(kind),
            None => self.lane.take(1),
        };
        self.begin(taken, now)
    }

    fn begin(&mut self, taken: Vec<Item>, now: Timestamp) -> Vec<Item> {
        let attempts_max = self.destination.schedule.attempts_max();
        let (chosen, spent): (Vec<_>, Vec<_>) = taken
            .into_iter()
            .partition(|item| self.counted(item.position(), item.attempts) < attempts_max);
        for item in &chosen {
            if item.parked {
                self.pending
                    .begin
                    .push((item.position(), item.attempts + 1));
            } else {
                self.checkpoints.offer(item.position());
            }
        }
        for item in spent {
            self.give_up(item, now);
        }
        chosen
    }

    /// Puts selected events back, because their attempts may not be recorded.
    pub(super) fn put_back(&mut self, chosen: Vec<Item>) {
        for item in chosen.iter().filter(|item| !item.parked) {
            self.checkpoints.withdraw(item.position());
        }
        self.pending.begin.clear();
        if let Some(sent) = &mut self.sent {
            // If it is not recorded before it is sent again, no attempt is made by it.
            sent.begin.clear();
            if let Some(checkpoint) = &mut sent.checkpoint {
                for item in &chosen {
                    checkpoint.offered.remove(&item.position());
                }
            }
        }
        self.lane.put_back(chosen);
    }

    pub(super) fn park(
        &mut self,
        position: i64,
        state: ParkedState,
        attempt: u32,
        next_at: Timestamp,
        order_key: Option<String>,
        last_error: Option<String>,
    ) {
        self.checkpoints.settle(position);
        // If its commit was not confirmed, its row may exist all the same.
        self.revived.insert(position);
        if let Some(key) = &order_key {
            // Until it is recorded, the store does not know that the key is blocked.
            self.blocked.insert(key.clone());
        }
        if state != ParkedState::Dead {
            // A blocked delivery may become due at once: the store knows which deliveries are
            // before it.
            self.due_at = Some(self.due_at.map_or(next_at, |due_at| due_at.min(next_at)));
        }
        let park = Park {
            position,
            state,
            attempt,
            next_at,
            order_key,
            last_error,
        };
        self.pending.park.push(park);
    }

    /// The order key of `event`, if this destination keeps an order.
    pub(super) fn order_key(&self, event: &Event) -> Option<String> {
        match self.destination.order {
            Order::None => None,
            Order::Key | Order::KeySkip => event.order_key(),
        }
    }
}
