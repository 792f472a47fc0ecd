//! Lane: the events of one partition that are in memory, in the order in which they are offered.
//!
//! If the destination keeps an order, one event of a key is in flight, and later events of the key
//! wait for it. Otherwise events are offered as they come. Tenants take turns, so that a tenant
//! with many events does not delay the others. The lane does not know about time, failures or
//! storage.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::{
    key::Tenant,
    limits::{CROWD_EVENTS, PAST_BYTES, WINDOW_BYTES, WINDOW_EVENTS},
    outbox::OutboxEvent,
};

/// An event in memory, with the state that is needed to settle it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) event: Arc<OutboxEvent>,
    /// The number of attempts before the next one.
    pub(super) attempts: u32,
    /// Whether the delivery has a row, that is, is parked.
    pub(super) parked: bool,
    /// Whether the row says that the delivery is blocked by its key.
    pub(super) blocked: bool,
    /// The key within which order is kept.
    pub(super) order_key: Option<String>,
    /// The key that the row blocks. The order may have been another one when the row was written.
    pub(super) held_key: Option<String>,
}

impl Item {
    pub(super) fn position(&self) -> i64 {
        self.event.position
    }

    #[expect(clippy::ref_option, reason = "the map has keys of this type")]
    fn tenant(&self) -> &Option<Tenant> {
        &self.event.event.tenant
    }

    fn bytes(&self) -> usize {
        self.event.event.stored_bytes()
    }
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    ready: Turns,
    /// Keys whose first event is ready or in flight, with the events that wait for it.
    taken: HashMap<String, VecDeque<Item>>,
    /// The number of events in memory, by tenant.
    tenants: HashMap<Option<Tenant>, usize>,
    events: usize,
    bytes: usize,
}

impl Lane {
    /// Whether no more events may be read into memory.
    pub(super) fn is_full(&self) -> bool {
        self.events >= WINDOW_EVENTS || self.bytes >= WINDOW_BYTES
    }

    /// Whether no more events may be read ahead for other tenants.
    pub(super) fn is_stuffed(&self) -> bool {
        self.bytes >= WINDOW_BYTES + PAST_BYTES
    }

    /// Whether an event could be offered now.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.count > 0
    }

    /// The tenants that fill the window, so that the events of others have to be read ahead.
    pub(super) fn full_tenants(&self) -> impl Iterator<Item = &Option<Tenant>> {
        let is_full = self.is_full();
        // Few large events can fill the window too. In a full window, a tenant with a quarter of
        // the events counts.
        let most = if is_full {
            self.events / 4
        } else {
            CROWD_EVENTS
        };
        let full_tenants = self.tenants.iter();
        full_tenants
            .filter(move |(_, events)| **events >= most.clamp(1, CROWD_EVENTS))
            .map(|(tenant, _)| tenant)
    }

    pub(super) fn push(&mut self, item: Item) {
        self.events += 1;
        self.bytes += item.bytes();
        match self.tenants.get_mut(item.tenant()) {
            Some(events) => *events += 1,
            None => drop(self.tenants.insert(item.tenant().clone(), 1)),
        }
        if let Some(key) = &item.order_key {
            if let Some(waiting) = self.taken.get_mut(key) {
                return waiting.push_back(item);
            }
            self.taken.insert(key.clone(), VecDeque::new());
        }
        self.ready.push(item);
    }

    /// Whether an event of the key is in memory.
    pub(super) fn has(&self, key: &str) -> bool {
        self.taken.contains_key(key)
    }

    /// Takes the next events to offer, at most `count`. The tenants take turns.
    pub(super) fn take(&mut self, count: usize) -> Vec<Item> {
        self.ready.take(count)
    }

    /// Takes the next event of another type than `kind`, or the next of any type if there is none.
    pub(super) fn take_unlike(&mut self, kind: &str) -> Vec<Item> {
        match self.ready.take_unlike(kind) {
            Some(item) => vec![item],
            None => self.take(1),
        }
    }

    /// Puts back events that were taken and are not offered.
    pub(super) fn put_back(&mut self, items: Vec<Item>) {
        for item in items.into_iter().rev() {
            self.ready.put_back(item);
        }
    }

    /// Removes an event that is not in flight any more. The next event of its key becomes ready.
    pub(super) fn go_on(&mut self, item: &Item) {
        self.let_go(item);
        let Some(key) = &item.order_key else { return };
        match self.taken.get_mut(key).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push(next),
            None => drop(self.taken.remove(key)),
        }
    }

    /// Removes an event that is not in flight any more and blocks its key. Returns the events that
    /// waited for it.
    pub(super) fn hold_up(&mut self, item: &Item) -> VecDeque<Item> {
        self.let_go(item);
        let waiting = item
            .order_key
            .as_ref()
            .and_then(|key| self.taken.remove(key));
        let waiting = waiting.unwrap_or_default();
        for item in &waiting {
            self.let_go(item);
        }
        waiting
    }

    fn let_go(&mut self, item: &Item) {
        self.events -= 1;
        self.bytes -= item.bytes();
        if let Some(events) = self.tenants.get_mut(item.tenant()) {
            *events -= 1;
            if *events == 0 {
                self.tenants.remove(item.tenant());
            }
        }
    }
}

/// The events that could be offered now: the events of each tenant in order, and the tenants in
/// turn.
#[derive(Debug, Default)]
struct Turns {
    queues: HashMap<Option<Tenant>, VecDeque<Item>>,
    /// The tenants that have events, starting with the one whose turn it is.
    order: VecDeque<Option<Tenant>>,
    count: usize,
}

impl Turns {
    fn push(&mut self, item: Item) {
        self.count += 1;
        if let Some(queue) = self.queues.get_mut(item.tenant()) {
            return queue.push_back(item);
        }
        let tenant = item.tenant().clone();
        self.order.push_back(tenant.clone());
        self.queues.insert(tenant, VecDeque::from([item]));
    }

    fn put_back(&mut self, item: Item) {
        self.count += 1;
        if let Some(queue) = self.queues.get_mut(item.tenant()) {
            return queue.push_front(item);
        }
        let tenant = item.tenant().clone();
        self.order.push_front(tenant.clone());
        self.queues.insert(tenant, VecDeque::from([item]));
    }

    /// Takes an event of another type than `kind`. This searches all events that are ready, which
    /// is acceptable because only probes need it.
    fn take_unlike(&mut self, kind: &str) -> Option<Item> {
        let is_unlike = |item: &Item| item.event.event.kind != kind;
        let mut places = self.order.iter().enumerate();
        let (turn, at) = places.find_map(|(turn, tenant)| {
            let at = self.queues.get(tenant)?.iter().position(is_unlike)?;
            Some((turn, at))
        })?;
        let tenant = self.order.remove(turn)?;
        let queue = self.queues.get_mut(&tenant)?;
        let item = queue.remove(at)?;
        self.count -= 1;
        if queue.is_empty() {
            self.queues.remove(&tenant);
        } else {
            self.order.push_back(tenant);
        }
        Some(item)
    }

    fn take(&mut self, count: usize) -> Vec<Item> {
        let count = count.min(self.count);
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count
            && let Some(tenant) = self.order.pop_front()
        {
            let alone = self.order.is_empty();
            let queue = self
                .queues
                .get_mut(&tenant)
                .expect("a tenant in `order` has a queue");
            let share = if alone { count - taken.len() } else { 1 };
            taken.extend(queue.drain(..share.min(queue.len())));
            if queue.is_empty() {
                self.queues.remove(&tenant);
            } else {
                self.order.push_back(tenant);
            }
        }
        self.count -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::{Random, Timestamp},
        event::{Headers, NewEvent},
        outbox::build_event,
    };

    #[test]
    fn without_a_key_all_may_go_at_once() {
        let mut lane = lane(&[(1, None), (2, None)]);
        assert_eq!(positions(&lane.take(9)), [1, 2]);
    }

    #[test]
    fn a_key_has_one_event_on_the_wire() {
        let mut lane = lane(&[(1, Some("a")), (2, Some("a")), (3, Some("b"))]);
        let first = lane.take(9);
        assert_eq!(positions(&first), [1, 3]);
        assert!(!lane.is_ready());
        lane.go_on(&first[0]);
        assert_eq!(positions(&lane.take(9)), [2]);
    }

    #[test]
    fn who_holds_a_key_up_returns_those_behind_it_in_order() {
        let mut lane = lane(&[(1, Some("a")), (2, Some("a")), (3, Some("a"))]);
        let first = lane.take(1);
        let waiting: Vec<_> = lane.hold_up(&first[0]).into();
        assert_eq!(positions(&waiting), [2, 3]);
        assert_eq!((lane.events, lane.bytes, lane.taken.len()), (0, 0, 0));
    }

    #[test]
    fn it_is_full_by_the_events_or_by_the_bytes() {
        let mut many = Lane::default();
        for position in 0..WINDOW_EVENTS {
            assert!(!many.is_full());
            many.push(item(i64::try_from(position).unwrap(), Some("a")));
        }
        assert!(many.is_full());
        let mut large = Lane::default();
        let payload = "x".repeat(WINDOW_BYTES / 8 - 2);
        for position in 0..8 {
            assert!(!large.is_full());
            large.push(sealed(position, NewEvent::json("a", &payload), None));
        }
        assert!(large.is_full());
        let taken = large.take(1);
        large.go_on(&taken[0]);
        assert!(!large.is_full());
    }

    #[test]
    fn it_is_full_by_the_headers_too() {
        let mut lane = Lane::default();
        for position in 0..8 {
            assert!(!lane.is_full());
            let event = (0..16).fold(NewEvent::json("a", &position), |event, number| {
                event.header(format!("h{number}"), "x".repeat(4_000))
            });
            let mut item = sealed(position, event, None);
            let sealed = Arc::make_mut(&mut item.event);
            let large = "x".repeat(WINDOW_BYTES / 8);
            sealed.event.headers.insert("large".to_owned(), large);
            lane.push(item);
        }
        assert!(lane.is_full() && !lane.is_stuffed());
    }

    #[test]
    fn what_is_put_back_is_first_again() {
        let mut lane = lane(&[(1, None), (2, None), (3, None)]);
        let taken = lane.take(2);
        lane.put_back(taken);
        assert_eq!(positions(&lane.take(9)), [1, 2, 3]);
    }

    #[test]
    fn tenants_take_turns() {
        let mut lane = Lane::default();
        for position in 1..=4 {
            lane.push(of("a", position));
        }
        lane.push(of("b", 5));
        lane.push(of("b", 6));
        let taken = lane.take(3);
        assert_eq!(positions(&taken), [1, 5, 2]);
        lane.put_back(taken);
        assert_eq!(lane.take(9).len(), 6);
        assert!(!lane.is_ready());
    }

    #[test]
    fn who_fills_the_window_is_a_crowd_until_it_is_gone() {
        let mut lane = Lane::default();
        for position in 1.. {
            if lane.is_full() {
                break;
            }
            lane.push(of("a", position));
        }
        lane.push(of("b", 0));
        let full_tenants: Vec<_> = lane.full_tenants().flatten().map(Tenant::as_str).collect();
        assert_eq!(full_tenants, ["a"]);
        for item in lane.take(usize::MAX) {
            lane.go_on(&item);
        }
        assert_eq!(lane.full_tenants().count(), 0);
        assert!(lane.tenants.is_empty());
    }

    fn of(tenant: &str, position: i64) -> Item {
        let mut item = item(position, None);
        let event = Arc::make_mut(&mut item.event);
        event.event.tenant = Some(Tenant::new(tenant).unwrap());
        item
    }

    fn lane(items: &[(i64, Option<&str>)]) -> Lane {
        let mut lane = Lane::default();
        for (position, key) in items {
            lane.push(item(*position, *key));
        }
        lane
    }

    fn item(position: i64, key: Option<&str>) -> Item {
        sealed(position, NewEvent::json("a", &position), key)
    }

    fn sealed(position: i64, new: NewEvent, key: Option<&str>) -> Item {
        let now = Timestamp::from_millis(0);
        let event = build_event(new, None, &Headers::new(), now, &Random::new(|| 1)).unwrap();
        Item {
            event: Arc::new(OutboxEvent { position, event }),
            attempts: 0,
            parked: false,
            blocked: false,
            order_key: key.map(ToOwned::to_owned),
            held_key: None,
        }
    }

    fn positions(items: &[Item]) -> Vec<i64> {
        items.iter().map(Item::position).collect()
    }
}
