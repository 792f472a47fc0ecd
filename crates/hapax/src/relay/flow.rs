//! What one destination has in its hands: decisions only, no input or output.
//!
//! Events come in from the outbox ([`Flow::admit`]) and from parked rows
//! ([`Flow::admit_parked`]), go out in turns ([`Flow::choose`]) and end in
//! `settle`. Everything that must be written down gathers in one pending
//! [`Settlement`], so that a turn costs one transaction.

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
    seeded::{self, Bug},
    store::{Batch, Past},
    telemetry,
};

use super::{
    blocked::Blocked,
    destination::{Destination, Order},
    lane::{Item, Lane},
    progress::Progress,
    route,
    settle::Arrivals,
    standing::Known,
};

#[derive(Debug)]
pub(super) struct Flow {
    pub(super) destination: Arc<Destination>,
    /// The part of it that this is: what the store knows it by.
    pub(super) part: String,
    pub(super) lane: Lane,
    pub(super) progress: Progress,
    /// Keys that a parked delivery holds up.
    pub(super) blocked: Blocked,
    /// Parked deliveries in our hands: in the lane, on the wire, or not yet written down.
    pub(super) revived: HashSet<i64>,
    /// What is to be written down with the next settlement.
    pub(super) pending: Settlement,
    /// The settlement that the store was given last and has not said that it has.
    pub(super) sent: Option<Settlement>,
    /// Which checkpoint the store is known to hold.
    pub(super) newest: CheckpointId,
    /// The same for others; nothing while a settlement is on its way.
    pub(super) known: Known,
    /// First attempts that arrived and are not written down.
    pub(super) arrivals: Arrivals,
    pub(super) counted: Counted,
    crowded: Option<Crowded>,
    /// How many attempts of parked deliveries in our hands do not count: they were cut off while
    /// their relay lived on.
    spared: HashMap<i64, u32>,
    /// When a parked delivery may next fall due, as far as is known.
    pub(super) due_at: Option<Timestamp>,
}

/// What is counted for every event that arrives, or never will.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) arrived: Counter,
    pub(super) age: Histogram,
    pub(super) died: Counter,
}

/// A window that some tenants fill, so that others are looked for past them.
#[derive(Debug)]
struct Crowded {
    /// Up to where it was looked.
    until: i64,
    /// Who was left out; whoever was once is for as long as this lasts, or it would be overtaken
    /// by itself.
    except: Vec<Option<Tenant>>,
}

impl Flow {
    /// `first` is the number of the first settlement.
    pub(super) fn new(
        part: String,
        destination: Arc<Destination>,
        opened: Opened,
        first: i64,
    ) -> Self {
        let label = || part.clone();
        let counted = Counted {
            arrived: counter!(
                telemetry::RELAY_ATTEMPTS,
                "destination" => label(),
                "outcome" => AttemptOutcome::Delivered.as_str(),
                "error_type" => ""
            ),
            age: histogram!(telemetry::RELAY_DELIVERY, "destination" => label()),
            // From the start, or its first would be no rise.
            died: counter!(telemetry::RELAY_DEAD_LETTERS, "destination" => label()),
        };
        let pending = Settlement {
            destination: part.clone(),
            epoch: opened.epoch,
            number: first,
            ..Settlement::default()
        };
        Self {
            destination,
            part,
            arrivals: Arrivals::default(),
            counted,
            crowded: None,
            spared: HashMap::new(),
            lane: Lane::default(),
            progress: Progress::new(opened.checkpoint),
            blocked: Blocked::new(opened.blocked_keys),
            revived: HashSet::new(),
            pending,
            sent: None,
            newest: opened.newest,
            known: Known::of(opened.epoch, opened.newest),
            due_at: Some(Timestamp::default()),
        }
    }

    /// Whether there is room for more events from the outbox.
    pub(super) fn wants_more(&self) -> bool {
        let sent = self.sent.as_ref().map_or(0, |sent| sent.park.len());
        let unsaid = self.pending.park.len() + sent;
        !self.lane.is_full() && !self.progress.is_full() && unsaid < WINDOW_EVENTS
    }

    /// How many parked deliveries there is room for; none until half of a full load is settled,
    /// for whoever asks for a few at a time is made to skip all the others each time.
    pub(super) fn parked_room(&self) -> usize {
        let held = self.revived.len();
        if self.lane.is_full() || held > READ_EVENTS / 2 {
            return 0;
        }
        READ_EVENTS - held
    }

    /// When parked deliveries are worth reading; never while there is no room for them.
    pub(super) fn reads_parked_at(&self) -> Option<Timestamp> {
        self.due_at.filter(|_| self.parked_room() > 0)
    }

    /// Takes in what was read from the outbox.
    pub(super) fn admit(&mut self, batch: Batch, now: Timestamp) {
        let mut ours = batch.events;
        if let Some(last) = ours.last() {
            self.progress.saw(last.position, last.event.id);
        }
        ours.retain(|event| {
            let takes = route::takes(&self.destination, &event.event);
            if !takes {
                self.progress.forget(event.position);
            }
            takes
        });
        let positions = ours.iter().map(|event| event.position).collect();
        let fresh: Vec<_> = ours
            .into_iter()
            .filter(|event| !self.progress.is_known(event.position))
            .collect();
        self.progress.read(positions, batch.frontier);
        let high = self.progress.head().high;
        self.crowded.take_if(|crowded| crowded.until <= high);
        for event in fresh {
            self.admit_event(event, now);
        }
    }

    /// Where to look past the tenants that fill the window, whom to leave out, and how many
    /// others there is room for; `None` while nobody does.
    pub(super) fn looks_past(&mut self) -> Option<(i64, Vec<Option<Tenant>>, usize)> {
        let room = self.progress.room_ahead().min(PAST_READ);
        // A key's earlier event may be committed behind where it was looked.
        let keeps_order = self.destination.order != Order::None;
        if room == 0 || keeps_order || self.wants_more() || self.lane.is_stuffed() {
            return None;
        }
        let high = self.progress.head().high;
        let crowded = self.crowded.get_or_insert_with(|| Crowded {
            until: high,
            except: Vec::new(),
        });
        for tenant in self.lane.crowd() {
            if !crowded.except.contains(tenant) {
                crowded.except.push(tenant.clone());
            }
        }
        let Crowded { until, except } = crowded;
        (!except.is_empty()).then(|| ((*until).max(high), except.clone(), room))
    }

    /// Takes in what was found past a crowd.
    pub(super) fn admit_past(&mut self, past: Past, now: Timestamp) {
        let high = self.progress.head().high;
        if let Some(crowded) = &mut self.crowded {
            crowded.until = crowded.until.max(past.until);
        }
        if let Some(last) = past.events.last() {
            self.progress.saw(last.position, last.event.id);
        }
        for event in past.events {
            // What was read meanwhile is here already.
            let is_new = event.position > high && !self.progress.is_known(event.position);
            if is_new && route::takes(&self.destination, &event.event) {
                self.progress.take_ahead(event.position);
                self.admit_event(event, now);
            }
        }
    }

    fn admit_event(&mut self, event: Arc<OutboxEvent>, now: Timestamp) {
        let order_key = self.order_key(&event.event);
        if let Some(later) = event.event.available_at.filter(|moment| *moment > now) {
            // An event that asks to wait holds nobody up: it has left its place in the order.
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

    /// How many of those that a parked delivery holds up are worth having with it; none where
    /// no order is kept, or while much of the room for others is taken.
    pub(super) fn reads_behind(&self) -> usize {
        let keeps_order = self.destination.order != Order::None;
        let has_room = self.revived.len() < READ_EVENTS / 4;
        if keeps_order && has_room { BEHIND } else { 0 }
    }

    /// Of these deliveries, those of which it matters whether their attempts were cut off while their
    /// relay lived on: they have had all but the last.
    pub(super) fn nearly_spent(&self, due: &[Parked]) -> Vec<i64> {
        let attempts_max = self.destination.schedule.attempts_max();
        let nearly = |it: &&Parked| it.attempt > 0 && it.attempt + 1 >= attempts_max;
        due.iter()
            .filter(nearly)
            .map(|it| it.event.position)
            .collect()
    }

    /// Notes how many attempts do not count; at most as many as there are, so that an event which
    /// stops its relay each time for longer than a lease runs out of attempts all the same.
    pub(super) fn spare(&mut self, outlived: Vec<(i64, u32)>) {
        let attempts_max = self.destination.schedule.attempts_max();
        let Self {
            spared, revived, ..
        } = self;
        spared.retain(|position, _| revived.contains(position));
        let bounded = |(position, count): (i64, u32)| (position, count.min(attempts_max));
        spared.extend(outlived.into_iter().map(bounded));
    }

    /// Of so many attempts, those that count.
    pub(super) fn counted(&self, position: i64, attempts: u32) -> u32 {
        attempts.saturating_sub(self.spared.get(&position).copied().unwrap_or(0))
    }

    /// Takes in parked deliveries that fell due, and what waits behind them.
    pub(super) fn admit_parked(&mut self, due: Vec<Parked>) {
        for parked in due {
            // The row's key was written by a store that does not know what order we keep. A row
            // without one has left its place in the order, and does not come back to it.
            let order_key = match (parked.state, &parked.order_key) {
                (ParkedState::Scheduled, _) | (_, None) => None,
                _ => self.order_key(&parked.event.event),
            };
            let blocked = parked.state == ParkedState::Blocked;
            // Its turn comes with the one before it.
            let is_stray = blocked && !order_key.as_ref().is_some_and(|key| self.lane.has(key));
            if is_stray || !self.revived.insert(parked.event.position) {
                continue;
            }
            // What an operator asked for is offered whatever the patterns say.
            let takes = if parked.asked {
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

    /// Ends a parked delivery of an event that this destination does not take: a store that parks
    /// in bulk knows nothing of that, and what a destination takes may have changed since.
    fn pass_over(&mut self, parked: &Parked) {
        tracing::info!(
            destination = self.part, event_id = %parked.event.event.id,
            from_state = "parked", to_state = "passed over",
            "the destination does not take the event"
        );
        self.pending.delivered.push(parked.event.position);
        if let Some(key) = &parked.order_key {
            self.pending.release.push(key.clone());
        }
    }

    /// Chooses what is offered next, at most `count` events, and notes that it will be.
    ///
    /// Nothing may be offered before the pending settlement is written down: it counts these
    /// attempts, so that an event which kills its relay still runs out of them.
    pub(super) fn choose(&mut self, count: usize, now: Timestamp) -> Vec<Item> {
        let taken = self.lane.take(count);
        self.begin(taken, now)
    }

    /// Chooses one event to see whether the far side is back: of another type than the one that failed
    /// last, where there is one, as the failure may be about that type alone.
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
            if seeded::has(Bug::MarkSentBeforeSend) {
                self.progress.settle(item.position());
                self.pending
                    .delivered
                    .extend(item.parked.then(|| item.position()));
            } else if item.parked {
                self.pending
                    .begin
                    .push((item.position(), item.attempts + 1));
            } else {
                self.progress.offer(item.position());
            }
        }
        for item in spent {
            self.give_up(item, now);
        }
        chosen
    }

    /// Takes back what was chosen, for its attempts may not be on record.
    pub(super) fn put_back(&mut self, chosen: Vec<Item>) {
        for item in chosen.iter().filter(|item| !item.parked) {
            self.progress.withdraw(item.position());
        }
        self.pending.begin.clear();
        if let Some(sent) = &mut self.sent {
            // Nothing is on the wire by it, if it is not written down before it goes again.
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
        self.progress.settle(position);
        // Where its commit is not heard of, its row is there all the same.
        self.revived.insert(position);
        if let Some(key) = &order_key {
            // Until the store has it, it knows of the key from us alone.
            self.blocked.insert(key.clone());
        }
        if state != ParkedState::Dead {
            // A blocked one may turn out to be due: the store knows what stands before it.
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

    /// The key that `event` keeps order within, where this destination keeps any.
    pub(super) fn order_key(&self, event: &Event) -> Option<String> {
        match self.destination.order {
            Order::None => None,
            Order::Key | Order::KeySkip => event.order_key(),
        }
    }
}
