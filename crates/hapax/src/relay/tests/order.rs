//! Order keys: a failure holds up the later events of its key, and the key is released only when
//! the store says so.

use std::sync::Arc;

use super::{
    admit, at, blocked, check_parked, conclude, event, frontier, key, parked, positions, queue,
    unavailable, written,
};
use crate::{
    delivery::{Parked, ParkedState},
    limits::{BEHIND, BLOCKED_KEYS},
    relay::{Order, blocked::Blocked, delivery_queue::DeliveryQueue},
    sink::{Receipt, SinkError},
    store::Batch,
};

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
