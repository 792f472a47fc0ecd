//! Tests of the delivery queue without a store: its decision in each iteration.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;

use crate::{
    clock::{Random, Timestamp},
    delivery::{Checkpoint, CheckpointId, Frontier, Opened, Parked, ParkedState, Settlement},
    event::{Headers, NewEvent},
    limits::{BEHIND, BLOCKED_KEYS, READ_EVENTS},
    outbox::{OutboxEvent, seal},
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
    store::Batch,
};

use super::{
    Destination, Node, Order, blocked::Blocked, delivery_queue::DeliveryQueue, lane::Item,
    lease::LOOKS, settle::Tried,
};

#[test]
fn a_node_counts_as_alive_for_several_signs_of_life() {
    let node = Node::new("a");
    assert!(node.lease >= 3 * (node.lease / LOOKS));
}

#[test]
fn what_is_offered_for_the_first_time_is_on_record_before_it_leaves() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None), (2, None)]);
    let chosen = queue.choose(1, at(0));
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.checkpoint.unwrap().offered, [1].into());
    assert_eq!(positions(&chosen), [1]);
}

/// For any content of a settlement, the store must be able to detect that it was read in a lost
/// history.
#[test]
fn each_settlement_says_up_to_where_was_read() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None), (2, None)]);
    let head = queue.checkpoints.head().clone();
    queue.choose(1, at(0));
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.read, vec![head.clone()]);
    assert!(settlement.checkpoint.unwrap().frontier.high < head.high);
    written(&mut queue, vec![], at(0));
    queue.pending.release = vec![key("a")];
    let settlement = queue.settlement().unwrap();
    assert_eq!((settlement.checkpoint, settlement.read), (None, vec![head]));
}

#[test]
fn a_retry_is_counted_before_it_leaves() {
    let mut queue = queue(Order::None);
    queue.admit_parked(vec![parked(1, 2, None)]);
    queue.choose(9, at(0));
    assert_eq!(queue.settlement().unwrap().begin, [(1, 3)]);
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

/// Its commit may not have been confirmed. The store recognizes it by its number.
#[test]
fn what_was_sent_goes_again_as_it_was_before_anything_else() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None), (2, None)]);
    let mut chosen = queue.choose(9, at(0));
    conclude(&mut queue, chosen.remove(0), unavailable());
    let first = queue.settlement().unwrap();
    conclude(&mut queue, chosen.remove(0), unavailable());
    let again = queue.settlement().unwrap();
    assert_eq!(format!("{again:?}"), format!("{first:?}"));
    let parked = |of: &Settlement| of.park.iter().map(|it| it.position).collect::<Vec<_>>();
    assert_eq!((again.number, parked(&again)), (1, vec![1]));
    queue.settled(vec![], at(0));
    assert!(!queue.revived.contains(&1) && queue.revived.contains(&2));
    let next = queue.settlement().unwrap();
    assert_eq!((next.number, parked(&next)), (2, vec![2]));
    assert!(next.checkpoint.is_some());
    queue.settled(vec![], at(0));
    assert!(!queue.is_dirty());
}

#[test]
fn an_attempt_that_did_not_leave_is_not_counted_by_what_goes_again() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None)]);
    queue.admit_parked(vec![parked(9, 1, None)]);
    let chosen = queue.choose(9, at(0));
    let first = queue.settlement().unwrap();
    assert_eq!(first.begin, [(9, 2)]);
    assert_eq!(first.checkpoint.unwrap().offered, [1].into());
    queue.put_back(chosen);
    let again = queue.settlement().unwrap();
    assert_eq!(again.begin, []);
    assert!(again.checkpoint.unwrap().offered.is_empty());
    queue.settled(vec![], at(0));
    assert_eq!(queue.choose(9, at(0)).len(), 2);
    let next = queue.settlement().unwrap();
    assert_eq!(next.begin, [(9, 2)]);
    assert_eq!(next.checkpoint.unwrap().offered, [1].into());
}

/// The store responds to a release before it knows of a delivery that was parked since.
#[test]
fn a_key_is_not_free_that_was_held_up_again_since() {
    let mut queue = queue(Order::Key);
    queue.blocked.insert(key("a"));
    queue.admit_parked(vec![parked(1, 1, Some("a")), blocked(2, "a")]);
    let first = queue.choose(9, at(0)).remove(0);
    conclude(&mut queue, first, Ok(Receipt::default()));
    let second = queue.choose(9, at(0)).remove(0);
    assert_eq!(queue.settlement().unwrap().release, [key("a")]);
    conclude(&mut queue, second, unavailable());
    queue.settled(vec![key("a")], at(0));
    admit(&mut queue, &[(3, Some("a"))]);
    assert!(queue.choose(9, at(0)).is_empty());
}

/// If not all blocked keys are in memory, those that the store does not know yet are.
#[test]
fn a_key_is_known_to_be_blocked_until_the_store_knows_it() {
    let mut queue = queue(Order::Key);
    let many = (0..=BLOCKED_KEYS).map(|number| number.to_string());
    queue.blocked = Blocked::new(many.collect());
    admit(&mut queue, &[(1, Some("a")), (2, Some("b"))]);
    let mut chosen = queue.choose(9, at(0)).into_iter();
    conclude(&mut queue, chosen.next().unwrap(), unavailable());
    assert_eq!(asked_about(&queue, "a"), [""; 0]);
    let _sent = queue.settlement();
    conclude(&mut queue, chosen.next().unwrap(), unavailable());
    queue.settled(vec![], at(0));
    // The first is recorded, so the store is asked about it. The second is not recorded yet.
    assert_eq!(asked_about(&queue, "a"), [key("a")]);
    assert_eq!(asked_about(&queue, "b"), [""; 0]);
}

fn asked_about(queue: &DeliveryQueue, name: &str) -> Vec<String> {
    queue.asks_about(&Batch {
        events: vec![Arc::new(event(9, Some(name)))],
        frontier: frontier(9),
    })
}

#[test]
fn an_end_that_was_sent_is_an_end_until_it_is_written_down() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None)]);
    let item = queue.choose(9, at(0)).remove(0);
    conclude(&mut queue, item, gone());
    assert!(queue.is_disabling());
    let sent = queue.settlement().unwrap();
    assert!(sent.disable.is_some() && queue.is_disabling());
    queue.settled(vec![], at(0));
    assert!(!queue.is_disabling());
}

#[test]
fn a_failure_parks_the_event_and_those_behind_it_without_spending_attempts() {
    let mut queue = queue(Order::Key);
    admit(
        &mut queue,
        &[(1, Some("a")), (2, Some("a")), (3, Some("b"))],
    );
    let mut chosen = queue.choose(9, at(0));
    assert_eq!(positions(&chosen), [1, 3]);
    conclude(&mut queue, chosen.remove(0), unavailable());
    admit(&mut queue, &[(4, Some("a")), (5, Some("b"))]);
    check_parked(
        &queue,
        &[
            (1, ParkedState::Retrying, 1),
            (2, ParkedState::Blocked, 0),
            (4, ParkedState::Blocked, 0),
        ],
    );
    conclude(&mut queue, chosen.remove(0), Ok(Receipt::default()));
    assert_eq!(
        positions(&queue.choose(9, at(0))),
        [5],
        "other keys continue"
    );
}

#[test]
fn an_event_that_dies_blocks_its_key_under_key_and_lets_it_go_under_key_skip() {
    for (order, goes_on) in [(Order::Key, vec![]), (Order::KeySkip, vec![2])] {
        let mut queue = queue(order);
        admit(&mut queue, &[(1, Some("a")), (2, Some("a"))]);
        let item = queue.choose(1, at(0)).remove(0);
        conclude(&mut queue, item, Err(SinkError::rejected("no", "never")));
        assert_eq!(queue.pending.park[0].state, ParkedState::Dead, "{order:?}");
        assert_eq!(positions(&queue.choose(9, at(0))), goes_on, "{order:?}");
    }
}

#[test]
fn a_retry_that_arrives_releases_its_key_until_the_store_says_it_is_free() {
    let mut queue = queue(Order::Key);
    admit(&mut queue, &[(1, Some("a"))]);
    let item = queue.choose(1, at(0)).remove(0);
    conclude(&mut queue, item, unavailable());
    written(&mut queue, vec![], at(0));
    queue.admit_parked(vec![parked(1, 1, Some("a"))]);
    let item = queue.choose(1, at(0)).remove(0);
    conclude(&mut queue, item, Ok(Receipt::default()));
    let key = "order\na".to_owned();
    assert_eq!(
        queue.settlement().unwrap().release,
        std::slice::from_ref(&key)
    );
    assert_eq!(queue.settlement().unwrap().delivered, [1]);
    written(&mut queue, vec![key], at(0));
    admit(&mut queue, &[(2, Some("a"))]);
    assert_eq!(positions(&queue.choose(9, at(0))), [2]);
}

#[test]
fn what_was_blocked_has_its_turn_in_the_settlement_of_the_one_before() {
    let mut queue = queue(Order::Key);
    queue.blocked.insert(key("a"));
    queue.admit_parked(vec![
        parked(1, 2, Some("a")),
        blocked(2, "a"),
        blocked(3, "a"),
    ]);
    let first = queue.choose(9, at(0));
    assert_eq!(positions(&first), [1]);
    written(&mut queue, vec![], at(0));
    queue.due_at = None;
    conclude(
        &mut queue,
        first.into_iter().next().unwrap(),
        Ok(Receipt::default()),
    );
    assert_eq!(positions(&queue.choose(9, at(0))), [2]);
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.begin, [(2, 1)]);
    assert_eq!(settlement.delivered, [1]);
    assert_eq!(settlement.release, [key("a")]);
    written(&mut queue, vec![], at(7));
    assert_eq!(queue.due_at, None, "the next event is in memory");
}

#[test]
fn the_last_in_hand_of_a_key_has_the_next_looked_for() {
    let mut queue = queue(Order::Key);
    queue.admit_parked(vec![parked(1, 2, Some("a"))]);
    let first = queue.choose(9, at(0)).remove(0);
    written(&mut queue, vec![], at(0));
    queue.due_at = None;
    conclude(&mut queue, first, Ok(Receipt::default()));
    written(&mut queue, vec![], at(7));
    assert_eq!(queue.due_at, Some(at(7)));
}

#[test]
fn a_failure_lets_go_of_what_is_blocked_behind_it_and_writes_nothing_about_that() {
    let mut queue = queue(Order::Key);
    queue.admit_parked(vec![parked(1, 0, Some("a")), blocked(2, "a")]);
    let first = queue.choose(9, at(0)).remove(0);
    written(&mut queue, vec![], at(0));
    conclude(&mut queue, first, unavailable());
    check_parked(&queue, &[(1, ParkedState::Retrying, 1)]);
    assert!(!queue.revived.contains(&2));
    queue.admit_parked(vec![blocked(2, "a")]);
    assert!(
        queue.choose(9, at(0)).is_empty(),
        "no event before it is in memory"
    );
    assert!(!queue.revived.contains(&2));
}

#[test]
fn behind_what_is_due_nobody_is_asked_for_where_no_order_is_kept_or_room_is_scarce() {
    assert_eq!(queue(Order::None).reads_behind(), 0);
    let mut queue = queue(Order::KeySkip);
    assert_eq!(queue.reads_behind(), BEHIND);
    queue.revived.extend(0..1_000);
    assert_eq!(queue.reads_behind(), 0);
    let mut free = self::queue(Order::None);
    free.admit_parked(vec![parked(1, 0, Some("a")), blocked(2, "a")]);
    assert_eq!(positions(&free.choose(9, at(0))), [1]);
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
fn what_has_left_its_place_in_the_order_delays_no_other_however_often_it_fails() {
    let mut queue = queue(Order::Key);
    for (state, attempt) in [(ParkedState::Scheduled, 0), (ParkedState::Retrying, 1)] {
        let row = Parked {
            state,
            order_key: None,
            ..parked(1, attempt, Some("a"))
        };
        queue.admit_parked(vec![row]);
        let item = queue.choose(1, at(0)).remove(0);
        written(&mut queue, vec![], at(0));
        conclude(&mut queue, item, unavailable());
        check_parked(&queue, &[(1, ParkedState::Retrying, attempt + 1)]);
        assert_eq!(queue.pending.park[0].order_key, None);
        written(&mut queue, vec![], at(0));
    }
    admit(&mut queue, &[(2, Some("a"))]);
    assert_eq!(positions(&queue.choose(9, at(0))), [2]);
}

#[test]
fn events_for_others_move_the_checkpoint_and_nothing_else() {
    let mut queue = queue(Order::None);
    let mut other = event(1, None);
    other.event.kind = "user.created".to_owned();
    queue.admit(
        Batch {
            events: vec![Arc::new(other)],
            frontier: frontier(1),
        },
        at(0),
    );
    assert!(queue.choose(9, at(0)).is_empty());
    assert_eq!(
        queue.settlement().unwrap().checkpoint.unwrap().frontier,
        frontier(1)
    );
}

/// Events of other destinations count too, because the checkpoint passes them.
#[test]
fn a_settlement_says_which_event_was_the_last_of_each_read_since_the_one_before() {
    let mut queue = queue(Order::Key);
    let seen = |queue: &mut DeliveryQueue| {
        let settlement = queue.settlement().unwrap();
        queue.settled(vec![], at(0));
        settlement.seen
    };
    let of = |position| (position, event(position, None).event.id);
    admit(&mut queue, &[(3, None), (4, Some("a"))]);
    admit(&mut queue, &[(1, None), (2, None)]);
    let item = queue.choose(1, at(0)).remove(0);
    assert_eq!(seen(&mut queue), [of(4), of(2)]);
    conclude(&mut queue, item, Ok(Receipt::default()));
    assert_eq!(seen(&mut queue), []);
    let mut other = event(5, None);
    other.event.kind = "user.created".to_owned();
    let batch = Batch {
        events: vec![Arc::new(other)],
        frontier: frontier(5),
    };
    queue.admit(batch, at(0));
    // A settlement without a checkpoint does not clear the list.
    for is_kept in [false, true] {
        assert_eq!(queue.checkpoints.seen(is_kept), [of(5)]);
    }
    assert_eq!(queue.checkpoints.seen(true), []);
    queue.checkpoints.kept();
    for position in 6..2_000 {
        queue.checkpoints.saw(position, of(5).1);
    }
    assert_eq!(seen(&mut queue).len(), 1_994);
    assert_eq!(queue.checkpoints.seen(true), []);
}

#[test]
fn what_is_not_offered_after_all_is_not_on_record() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None)]);
    queue.admit_parked(vec![parked(2, 1, None)]);
    let chosen = queue.choose(9, at(0));
    queue.put_back(chosen);
    let settlement = queue.settlement().unwrap();
    assert!(settlement.checkpoint.unwrap().offered.is_empty());
    assert!(settlement.begin.is_empty());
    assert_eq!(positions(&queue.choose(9, at(0))), [1, 2]);
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
fn a_key_that_is_kept_no_longer_is_let_go() {
    for outcome in [Ok(Receipt::default()), unavailable()] {
        let mut queue = queue(Order::None);
        queue.admit_parked(vec![parked(1, 1, Some("a"))]);
        let item = queue.choose(1, at(0)).remove(0);
        conclude(&mut queue, item, outcome);
        assert_eq!(queue.settlement().unwrap().release, ["order\na"]);
    }
}

#[test]
fn nothing_is_written_down_twice() {
    let mut queue = queue(Order::None);
    admit(&mut queue, &[(1, None)]);
    let item = queue.choose(1, at(0)).remove(0);
    conclude(&mut queue, item, Ok(Receipt::default()));
    let settlement = queue.settlement().unwrap();
    assert_eq!(settlement.arrived[0].positions, [1].into());
    assert!(settlement.attempts.is_empty());
    written(&mut queue, vec![], at(0));
    assert!(queue.settlement().is_none());
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
fn no_read_goes_past_a_busy_tenant_where_order_is_kept() {
    for (order, looks) in [(Order::None, true), (Order::Key, false)] {
        let mut queue = queue(order);
        let mut position = 0;
        while queue.wants_more() {
            position += 1;
            admit(&mut queue, &[(position, None)]);
        }
        assert_eq!(queue.looks_past().is_some(), looks, "{order:?}");
    }
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
    let destination = Destination::new("d", Arc::new(Nowhere))
        .only(["order.*"])
        .order(order)
        .schedule("0s,1s,1s".parse().unwrap());
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
    let event = seal(new, None, &Headers::new(), at(0), &Random::new(|| 1)).unwrap();
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
