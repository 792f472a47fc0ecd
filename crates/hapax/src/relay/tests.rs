//! Tests of the delivery queue without a store: its decision in each iteration.

mod settlements;
mod order;

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use super::{
    Destination, Node, Order, delivery_queue::DeliveryQueue, lane::Item, lease::LOOKS,
    settle::Tried,
};
use crate::{
    clock::{Random, Timestamp},
    delivery::{Checkpoint, CheckpointId, Frontier, Opened, Parked, ParkedState},
    event::{Headers, NewEvent},
    keyring::ENCRYPTED_UNDER,
    limits::READ_EVENTS,
    outbox::{OutboxEvent, build_event},
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
    store::Batch,
};

#[test]
fn a_node_counts_as_alive_for_several_signs_of_life() {
    let node = Node::new("a");
    assert!(node.lease >= 3 * (node.lease / LOOKS));
}

#[test]
fn a_parked_delivery_in_hand_is_not_taken_in_twice() {
    let mut queue = queue(Order::None);
    queue.admit_parked(vec![parked(1, 0, None), parked(1, 0, None)]);
    assert_eq!(queue.choose(9, at(0)).len(), 1);
}

#[test]
fn a_delivery_that_arrived_is_not_taken_in_again_before_that_is_written_down() {
    let mut queue = queue(Order::None);
    queue.admit_parked(vec![parked(1, 1, None)]);
    let item = queue.choose(9, at(0)).remove(0);
    conclude(&mut queue, item, Ok(Receipt::default()));
    queue.admit_parked(vec![parked(1, 1, None)]);
    assert!(queue.choose(9, at(0)).is_empty());
    written(&mut queue, vec![], at(0));
    assert!(queue.revived.is_empty());
}

/// The commit of a row may not have been confirmed, although the row exists.
#[test]
fn a_row_that_is_still_to_be_written_down_is_not_taken_in() {
    let mut queue = queue(Order::Key);
    admit(&mut queue, &[(1, Some("a")), (2, Some("a"))]);
    let item = queue.choose(9, at(0)).remove(0);
    conclude(&mut queue, item, unavailable());
    let rows = || vec![parked(1, 1, Some("a")), blocked(2, "a")];
    queue.admit_parked(rows());
    assert!(queue.choose(9, at(0)).is_empty());
    written(&mut queue, vec![], at(0));
    queue.admit_parked(rows());
    let mut chosen = queue.choose(9, at(0));
    assert_eq!(positions(&chosen), [1]);
    written(&mut queue, vec![], at(0));
    queue.admit_parked(rows());
    conclude(&mut queue, chosen.remove(0), Ok(Receipt::default()));
    let mut chosen = queue.choose(9, at(0));
    assert_eq!(positions(&chosen), [2]);
    conclude(&mut queue, chosen.remove(0), Ok(Receipt::default()));
    assert!(queue.choose(9, at(0)).is_empty());
}

#[test]
fn attempts_run_out_and_the_event_is_dead() {
    let mut queue = queue(Order::None);
    queue.admit_parked(vec![parked(1, 2, None)]);
    let item = queue.choose(1, at(0)).remove(0);
    conclude(&mut queue, item, unavailable());
    check_parked(&queue, &[(1, ParkedState::Dead, 3)]);
}

#[test]
fn a_last_attempt_that_was_interrupted_is_not_made_again() {
    let mut queue = queue(Order::None);
    queue.admit_parked(vec![parked(1, 3, None)]);
    assert!(queue.choose(9, at(0)).is_empty());
    check_parked(&queue, &[(1, ParkedState::Dead, 3)]);
}

/// The partition was taken because the relay had missed its heartbeats; it has sent one since.
#[test]
fn attempts_that_their_relay_outlived_do_not_count() {
    let mut queue = queue(Order::None);
    let due = vec![parked(1, 3, None), parked(2, 1, None), parked(3, 2, None)];
    assert_eq!(queue.nearly_spent(&due), [1, 3]);
    queue.spare(vec![(1, 2)]);
    queue.admit_parked(due);
    let mut chosen = queue.choose(9, at(0));
    assert_eq!(positions(&chosen), [1, 2, 3]);
    assert_eq!(queue.settlement().unwrap().begin, [(1, 4), (2, 2), (3, 3)]);
    conclude(&mut queue, chosen.remove(0), unavailable());
    check_parked(&queue, &[(1, ParkedState::Retrying, 4)]);
}

/// The event blocks its relay each time for longer than a lease, and never kills it.
#[test]
fn an_event_that_stops_its_relay_each_time_runs_out_of_attempts_all_the_same() {
    let mut queue = queue(Order::None);
    queue.spare(vec![(1, 6)]);
    queue.admit_parked(vec![parked(1, 6, None)]);
    assert!(queue.choose(9, at(0)).is_empty());
    check_parked(&queue, &[(1, ParkedState::Dead, 6)]);
}

#[test]
fn a_receiver_that_is_gone_disables_the_destination_and_keeps_the_event() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None)]);
    let item = queue.choose(1, at(0)).remove(0);
    conclude(&mut queue, item, gone());
    check_parked(&queue, &[(1, ParkedState::Retrying, 1)]);
    assert_eq!(
        queue.settlement().unwrap().disable.as_deref(),
        Some("sink is gone: 410")
    );
}

#[test]
fn an_event_that_asks_to_wait_is_scheduled_and_delays_no_other() {
    let mut queue = queue(Order::Key);
    let mut later = event(1, Some("a"));
    later.event.available_at = Some(at(5_000));
    let events = vec![Arc::new(later), Arc::new(event(2, Some("a")))];
    queue.admit(
        Batch {
            events,
            frontier: frontier(2),
        },
        at(0),
    );
    check_parked(&queue, &[(1, ParkedState::Scheduled, 0)]);
    assert_eq!(positions(&queue.choose(9, at(0))), [2]);
}

#[test]
fn parked_deliveries_wake_nobody_who_has_no_room_for_them() {
    let mut queue = queue(Order::None);
    queue.due_at = Some(at(0));
    assert_eq!(queue.reads_parked_at(), Some(at(0)));
    let many = i64::try_from(READ_EVENTS).unwrap();
    queue.admit_parked((1..=many).map(|at| parked(at, 1, None)).collect());
    assert_eq!(queue.parked_room(), 0);
    assert_eq!(queue.reads_parked_at(), None);
}

#[test]
fn reading_waits_for_what_is_not_written_down() {
    let mut queue = queue(Order::None);
    let mut position = 0;
    while queue.wants_more() {
        assert!(position <= 100_000, "parked deliveries fill the memory");
        position += 1;
        let mut later = event(position, None);
        later.event.available_at = Some(at(5_000));
        let batch = Batch {
            events: vec![Arc::new(later)],
            frontier: frontier(position),
        };
        queue.admit(batch, at(0));
    }
    written(&mut queue, vec![], at(0));
    assert!(queue.wants_more());
}

#[test]
fn a_parked_event_that_the_destination_does_not_take_is_passed_over() {
    let mut queue = queue(Order::Key);
    let mut other = parked(1, 0, Some("a"));
    Arc::make_mut(&mut other.event).event.kind = "user.created".to_owned();
    queue.admit_parked(vec![other, parked(2, 0, Some("b"))]);
    assert_eq!(positions(&queue.choose(9, at(0))), [2]);
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.delivered, [1]);
    assert_eq!(settlement.release, ["order\na"]);
    assert!(settlement.attempts.is_empty());
}

#[test]
fn a_parked_event_that_an_operator_asked_for_is_offered_whatever_the_patterns_say() {
    let mut queue = queue(Order::None);
    let mut other = parked(1, 0, None);
    other.manual = true;
    Arc::make_mut(&mut other.event).event.kind = "user.created".to_owned();
    queue.admit_parked(vec![other]);
    assert_eq!(positions(&queue.choose(9, at(0))), [1]);
}

#[test]
fn an_event_that_does_not_match_the_filter_is_settled_at_once_and_has_no_row() {
    let mut queue = filtered("{\"/\": {\"$exists\": true}}");
    admit(&mut queue, &[(1, Some("a")), (2, Some("a"))]);
    assert!(queue.choose(9, at(0)).is_empty());
    let settlement = queue.settlement().unwrap();
    assert!(settlement.park.is_empty() && settlement.delivered.is_empty());
    let checkpoint = settlement.checkpoint.clone().unwrap();
    assert_eq!(checkpoint.frontier.high, 2);
    assert!(checkpoint.settled.is_empty() && checkpoint.offered.is_empty());
}

#[test]
fn events_that_match_the_filter_are_in_order_and_the_others_are_no_part_of_it() {
    let mut queue = filtered("{\"aggregate_id\": \"a\"}");
    admit(
        &mut queue,
        &[(1, Some("a")), (2, Some("b")), (3, Some("a"))],
    );
    let mut chosen = queue.choose(9, at(0));
    assert_eq!(positions(&chosen), [1]);
    conclude(&mut queue, chosen.remove(0), Ok(Receipt::default()));
    assert_eq!(positions(&queue.choose(9, at(0))), [3]);
}

/// The relay then makes it a dead letter, which an operator sees.
#[test]
fn an_event_that_cannot_be_decrypted_is_not_lost_to_a_filter() {
    let mut queue = filtered("{\"/a\": 1}");
    let mut event = event(1, None);
    let header = (ENCRYPTED_UNDER.to_owned(), "k1".to_owned());
    event.event.headers.extend([header]);
    let batch = Batch {
        events: vec![Arc::new(event)],
        frontier: frontier(1),
    };
    queue.admit(batch, at(0));
    assert_eq!(positions(&queue.choose(9, at(0))), [1]);
}

/// The store parks events in bulk, and the filter of a destination may change.
#[test]
fn a_parked_event_that_does_not_match_the_filter_is_passed_over_unless_an_operator_asked_for_it() {
    let mut queue = filtered("{\"aggregate_id\": \"b\"}");
    let mut wanted = parked(3, 0, Some("c"));
    wanted.manual = true;
    queue.admit_parked(vec![
        parked(1, 0, Some("a")),
        parked(2, 0, Some("b")),
        wanted,
    ]);
    assert_eq!(positions(&queue.choose(9, at(0))), [2, 3]);
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.delivered, [1]);
    assert_eq!(settlement.release, ["order\na"]);
}

#[test]
fn a_destination_with_another_filter_is_another_one() {
    let destination = Destination::new("d", Arc::new(Nowhere));
    let filter = |text: &str| destination.clone().filter(text.parse().unwrap());
    assert!(filter("{\"/a\": 1}").is_same(&filter("{\"/a\": 1}")));
    assert!(!filter("{\"/a\": 1}").is_same(&filter("{\"/a\": 2}")));
    assert!(!filter("{\"/a\": 1}").is_same(&destination));
}

struct Nowhere;

impl Sink for Nowhere {
    fn kind(&self) -> &'static str {
        "nowhere"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(async { offers.iter().map(|_| Ok(Receipt::default())).collect() })
    }
}

fn queue(order: Order) -> DeliveryQueue {
    queue_of(
        Destination::new("d", Arc::new(Nowhere))
            .only(["order.*"])
            .order(order)
            .schedule("0s,1s,1s".parse().unwrap()),
    )
}

/// The queue of a destination that keeps an order and has this filter.
fn filtered(filter: &str) -> DeliveryQueue {
    let destination = Destination::new("d", Arc::new(Nowhere)).order(Order::Key);
    queue_of(destination.filter(filter.parse().unwrap()))
}

fn queue_of(destination: Destination) -> DeliveryQueue {
    let opened = Opened {
        epoch: 1,
        newest: CheckpointId::default(),
        checkpoint: Checkpoint::default(),
        blocked_keys: vec![],
        interrupted: 0,
        was_disabled: None,
    };
    DeliveryQueue::new("d".to_owned(), Arc::new(destination), opened, 1)
}

fn admit(queue: &mut DeliveryQueue, events: &[(i64, Option<&str>)]) {
    let high = events.last().unwrap().0;
    let events = events
        .iter()
        .map(|(at, key)| Arc::new(event(*at, *key)))
        .collect();
    queue.admit(
        Batch {
            events,
            frontier: frontier(high),
        },
        at(0),
    );
}

fn event(position: i64, key: Option<&str>) -> OutboxEvent {
    let mut new = NewEvent::json("order.created", &position);
    if let Some(key) = key {
        new = new.about("order", key);
    }
    let event = build_event(new, None, &Headers::new(), at(0), &Random::new(|| 1)).unwrap();
    OutboxEvent { position, event }
}

fn parked(position: i64, attempt: u32, key: Option<&str>) -> Parked {
    Parked {
        event: Arc::new(event(position, key)),
        state: ParkedState::Retrying,
        attempt,
        next_at: at(0),
        order_key: key.map(|key| format!("order\n{key}")),
        manual: false,
    }
}

fn blocked(position: i64, key: &str) -> Parked {
    Parked {
        state: ParkedState::Blocked,
        ..parked(position, 0, Some(key))
    }
}

fn key(of: &str) -> String {
    event(1, Some(of)).event.order_key().unwrap()
}

fn conclude(queue: &mut DeliveryQueue, item: Item, outcome: Outcome) {
    let tried = Tried {
        item,
        started_at: at(0),
        duration: Duration::ZERO,
        outcome,
    };
    queue.conclude(tried, at(0), 0.0);
}

fn unavailable() -> Outcome {
    Err(SinkError::unavailable("status_5xx", "503"))
}

fn gone() -> Outcome {
    Err(SinkError::Gone {
        receipt: Receipt::default(),
        source: "410".into(),
    })
}

/// Writes the next settlement. The store responds that the keys in `freed` are free.
fn written(queue: &mut DeliveryQueue, freed: Vec<String>, now: Timestamp) {
    let _written = queue.settlement();
    queue.settled(freed, now);
}

#[track_caller]
fn check_parked(queue: &DeliveryQueue, expected: &[(i64, ParkedState, u32)]) {
    let parked: Vec<_> = queue
        .pending
        .park
        .iter()
        .map(|park| (park.position, park.state, park.attempt))
        .collect();
    assert_eq!(parked, expected);
}

fn positions(items: &[Item]) -> Vec<i64> {
    items.iter().map(Item::position).collect()
}

fn frontier(high: i64) -> Frontier {
    Frontier {
        high,
        snapshot: None,
    }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}
