//! Settlements: they record an attempt before it leaves and an outcome once, and go again unchanged
//! until the store has confirmed them.

use std::sync::Arc;

use super::{
    admit, at, conclude, event, frontier, gone, key, parked, positions, queue, unavailable, written,
};
use crate::{
    delivery::Settlement,
    relay::{Order, delivery_queue::DeliveryQueue},
    sink::Receipt,
    store::Batch,
};

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
