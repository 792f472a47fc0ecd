//! Conformance tests of parked deliveries: when they become due, and what they block.

use std::time::Duration;

use hapax::{
    delivery::{Parked, ParkedState, Settlement},
    store::{Settlements, Summaries},
};

use super::{
    DeliveriesUnderTest,
    fixture::Fixture,
    steps::{HOOK, MAIL, park, park_key, positions, settlement},
};

const MOMENT: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_secs(5);

/// A parked delivery becomes due at its time, with everything that was recorded about it.
pub async fn a_parked_delivery_falls_due_at_its_moment<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let at = fixture.clock.now().after(LATER);
    let mut scheduled = park(events[0].position, ParkedState::Scheduled, at);
    scheduled.attempt = 0;
    let mut retrying = park_key(events[1].position, ParkedState::Retrying, at, "key");
    retrying.attempt = 3;
    fixture.park(HOOK, vec![scheduled, retrying]).await;
    fixture.clock.advance(LATER.saturating_sub(MOMENT));
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    fixture.clock.advance(MOMENT);
    let fixture = fixture.reopen().await;
    let due = fixture.due(HOOK).await;
    let of = |parked: &Parked| (parked.state, parked.attempt, parked.order_key.clone());
    assert_eq!(due.len(), 2);
    assert_eq!(of(&due[0]), (ParkedState::Scheduled, 0, None));
    assert_eq!(
        of(&due[1]),
        (ParkedState::Retrying, 3, Some("key".to_owned()))
    );
    for (parked, event) in due.iter().zip(&events) {
        assert_eq!((&parked.event, parked.next_at), (event, at));
    }
}

/// If no order is kept, nothing waits for its key: blocked deliveries become due without it, a
/// limited number at a time, for the owner only.
pub async fn what_is_blocked_falls_due_without_its_key_where_none_is_kept<
    S: DeliveriesUnderTest,
>() {
    let (fixture, events) = Fixture::<S>::with_events(5).await;
    let (now, place) = (fixture.clock.now(), |index: usize| events[index].position);
    let epoch = fixture.open(HOOK).await.epoch;
    let key = |index, state| park_key(place(index), state, now, "key");
    let mut later = key(0, ParkedState::Retrying);
    later.next_at = now.after(LATER);
    let parked = vec![
        later,
        key(1, ParkedState::Blocked),
        key(2, ParkedState::Blocked),
        park(place(3), ParkedState::Dead, now),
        key(4, ParkedState::Blocked),
    ];
    fixture
        .settle(Settlement {
            park: parked,
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    let ignore = async |epoch, after| {
        let ignored = fixture.store().ignore_keys(HOOK, epoch, after, 2).await;
        ignored.expect("keys are ignored")
    };
    assert_eq!(ignore(epoch + 1, i64::MIN).await, None);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(ignore(epoch, i64::MIN).await, Some(place(1)));
    assert_eq!(fixture.due_positions(HOOK).await, [place(1)]);
    assert_eq!(ignore(epoch, place(1)).await, Some(place(4)));
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(1), place(2), place(4)]);
    for parked in &due {
        assert_eq!((parked.state, parked.attempt), (ParkedState::Retrying, 1));
        assert_eq!(parked.order_key, None);
    }
    assert_eq!(ignore(epoch, place(4)).await, None);
}

/// The longest due delivery comes first; deliveries due at the same time are ordered by position.
pub async fn the_longest_due_comes_first<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(4).await;
    let at = |millis| fixture.clock.now().after(Duration::from_millis(millis));
    let place = |index: usize| events[index].position;
    let retrying = |index, millis| park(place(index), ParkedState::Retrying, at(millis));
    let parked = vec![
        retrying(3, 20),
        retrying(2, 20),
        retrying(1, 10),
        retrying(0, 30),
    ];
    fixture.park(HOOK, parked).await;
    fixture.clock.advance(LATER);
    let due = async |except: &[i64], limit| {
        let due = fixture.store().due(HOOK, except, limit, 0).await;
        positions(&due.expect("due deliveries are read"))
    };
    assert_eq!(due(&[], 10).await, [place(1), place(2), place(3), place(0)]);
    assert_eq!(due(&[], 2).await, [place(1), place(2)]);
    assert_eq!(due(&[place(1), place(3)], 10).await, [place(2), place(0)]);
    assert_eq!(due(&[place(1)], 1).await, [place(2)]);
    let everything: Vec<i64> = (0..2_000).collect();
    assert_eq!(due(&everything, 10).await, [0; 0]);
}

/// The next due time is the earliest of the deliveries that become due by themselves.
pub async fn the_next_due_moment_is_the_earliest<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(4).await;
    let at = |millis| fixture.clock.now().after(Duration::from_millis(millis));
    let place = |index: usize| events[index].position;
    assert_eq!(fixture.next_due(HOOK).await, None);
    let waiting = vec![
        park_key(place(0), ParkedState::Dead, at(1), "key"),
        park_key(place(1), ParkedState::Blocked, at(2), "key"),
    ];
    fixture.park(HOOK, waiting).await;
    assert_eq!(fixture.next_due(HOOK).await, None);
    let coming = vec![
        park(place(2), ParkedState::Retrying, at(20)),
        park(place(3), ParkedState::Scheduled, at(10)),
    ];
    fixture.park(HOOK, coming).await;
    let earliest = at(10);
    assert_eq!(fixture.next_due(HOOK).await, Some(earliest));
    fixture.clock.advance(LATER);
    assert_eq!(fixture.next_due(HOOK).await, Some(earliest));
}

/// What is read for several partitions together is what is read for each of them.
pub async fn what_is_read_for_all_is_what_is_read_for_each<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let at = |millis| fixture.clock.now().after(Duration::from_millis(millis));
    let coming = vec![
        park(events[0].position, ParkedState::Retrying, at(20)),
        park(events[1].position, ParkedState::Scheduled, at(10)),
    ];
    fixture.park(HOOK, coming).await;
    fixture.open(MAIL).await;
    let partitions = [HOOK, MAIL].map(str::to_owned);
    let due = async || {
        let due = fixture.store().due_of(&partitions).await;
        due.expect("the due partitions are read")
    };
    assert_eq!(due().await, [""; 0]);
    fixture.clock.advance(Duration::from_millis(10));
    assert_eq!(due().await, [HOOK]);
    let backlogs = fixture.store().backlogs(&partitions).await;
    let backlogs = backlogs.expect("the backlogs are read");
    assert_eq!(backlogs.len(), 2);
    for (partition, backlog) in backlogs {
        assert_eq!(backlog, fixture.backlog(&partition).await, "{partition}");
    }
    let nothing = fixture.store().backlogs(&[]).await;
    assert!(nothing.expect("no backlogs are read").is_empty());
}

/// A delivery that is parked again has its new state, and a delivery that arrived is deleted.
pub async fn a_parked_delivery_is_parked_again_or_arrives<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let place = |index: usize| events[index].position;
    let retrying = |index| park(place(index), ParkedState::Retrying, now);
    let epoch = fixture.park(HOOK, vec![retrying(0), retrying(1)]).await;
    let mut again = park(place(0), ParkedState::Retrying, now.after(LATER));
    again.attempt = 2;
    fixture
        .settle(Settlement {
            park: vec![again],
            delivered: vec![place(1)],
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(fixture.backlog(HOOK).await.parked, 1);
    fixture.clock.advance(LATER);
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(0)]);
    assert_eq!(due[0].attempt, 2);
}

/// Deliveries that are blocked by a key wait until the key is released, and are then released in
/// order.
pub async fn blocked_deliveries_are_released_one_by_one_in_order<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(6).await;
    let now = fixture.clock.now();
    let place = |index: usize| events[index].position;
    let blocked = |index, key| park_key(place(index), ParkedState::Blocked, now, key);
    let later = now.after(LATER);
    let parked = vec![
        blocked(4, "a"),
        blocked(2, "a"),
        blocked(5, "b"),
        park_key(place(0), ParkedState::Retrying, later, "a"),
        park_key(place(1), ParkedState::Retrying, later, "b"),
        blocked(3, "a"),
    ];
    let epoch = fixture.park(HOOK, parked).await;
    let arrive = async |index, key: &str| {
        let arrived = Settlement {
            delivered: vec![place(index)],
            release: vec![key.to_owned()],
            ..settlement(HOOK, epoch)
        };
        let free = fixture.store().settle(arrived).await;
        free.expect("a settlement is written")
    };
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    assert_eq!(arrive(0, "a").await, [""; 0]);
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(2)]);
    assert_eq!((due[0].state, due[0].attempt), (ParkedState::Retrying, 0));
    assert_eq!(due[0].next_at, now);
    assert_eq!(arrive(2, "a").await, [""; 0]);
    assert_eq!(fixture.due_positions(HOOK).await, [place(3)]);
    assert_eq!(arrive(1, "b").await, [""; 0]);
    assert_eq!(fixture.due_positions(HOOK).await, [place(3), place(5)]);
    assert_eq!(arrive(3, "a").await, [""; 0]);
    assert_eq!(arrive(4, "a").await, ["a"]);
    assert_eq!(arrive(5, "b").await, ["b"]);
    assert_eq!(fixture.backlog(HOOK).await.parked, 0);
}

/// A due delivery is returned together with those that it blocks, in order, up to the first one
/// that is not blocked.
pub async fn what_waits_behind_a_due_delivery_comes_with_it<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(8).await;
    let now = fixture.clock.now();
    let place = |index: usize| events[index].position;
    let parked = |index, state, key| park_key(place(index), state, now, key);
    let all = vec![
        parked(1, ParkedState::Retrying, "a"),
        parked(5, ParkedState::Blocked, "a"),
        parked(3, ParkedState::Blocked, "a"),
        parked(4, ParkedState::Blocked, "a"),
        parked(0, ParkedState::Retrying, "b"),
        parked(2, ParkedState::Blocked, "b"),
        parked(6, ParkedState::Dead, "b"),
        parked(7, ParkedState::Blocked, "b"),
    ];
    fixture.park(HOOK, all).await;
    let due = async |except: &[i64], limit, behind| {
        let due = fixture.store().due(HOOK, except, limit, behind).await;
        due.expect("due deliveries are read")
    };
    check_together(&due(&[], 9, 0).await, &[place(0), place(1)], 2);
    let few = [place(0), place(1), place(2), place(3)];
    check_together(&due(&[], 9, 1).await, &few, 2);
    check_together(&due(&[], 3, 1).await, &few[..3], 2);
    let mut all = due(&[], 9, 9).await;
    // One store returns the keys alternately, another one after the other.
    all[2..].sort_by_key(|parked| parked.event.position);
    check_together(&all, &[0, 1, 2, 3, 4, 5].map(place), 2);
    let held = [place(1), place(2)];
    check_together(&due(&held, 9, 9).await, &[place(0)], 1);
}

#[track_caller]
fn check_together(found: &[Parked], expected: &[i64], due: usize) {
    assert_eq!(positions(found), expected);
    for (place, parked) in found.iter().enumerate() {
        let expected = if place < due {
            ParkedState::Retrying
        } else {
            ParkedState::Blocked
        };
        assert_eq!(parked.state, expected, "{place}");
    }
}

/// A blocked delivery whose attempt has started blocks its key, and is due again when its owner
/// dies.
pub async fn a_blocked_delivery_that_is_begun_has_its_turn<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let now = fixture.clock.now();
    let place = |index: usize| events[index].position;
    let parked = vec![
        park_key(place(0), ParkedState::Retrying, now, "a"),
        park_key(place(1), ParkedState::Blocked, now, "a"),
        park_key(place(2), ParkedState::Blocked, now, "a"),
    ];
    let epoch = fixture.park(HOOK, parked).await;
    let settlement = Settlement {
        begin: vec![(place(1), 1)],
        delivered: vec![place(0)],
        release: vec!["a".to_owned()],
        ..settlement(HOOK, epoch)
    };
    let free = fixture.store().settle(settlement).await;
    assert_eq!(free.expect("a settlement is written"), [""; 0]);
    assert_eq!(fixture.open(HOOK).await.interrupted, 1);
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(1)]);
    assert_eq!((due[0].state, due[0].attempt), (ParkedState::Retrying, 1));
}

/// A release never lets a delivery pass an unfinished earlier one, and returns which keys are free.
pub async fn a_release_lets_nothing_pass_an_unfinished_delivery<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(4).await;
    let later = fixture.clock.now().after(LATER);
    let place = |index: usize| events[index].position;
    let parked = vec![
        park_key(place(0), ParkedState::Retrying, later, "a"),
        park_key(place(1), ParkedState::Blocked, later, "a"),
        park_key(place(2), ParkedState::Dead, later, "b"),
        park_key(place(3), ParkedState::Blocked, later, "b"),
    ];
    let epoch = fixture.park(HOOK, parked).await;
    let release = ["a", "b", "nobody's"].map(str::to_owned).to_vec();
    let released = Settlement {
        release,
        ..settlement(HOOK, epoch)
    };
    let free = fixture.store().settle(released).await;
    assert_eq!(free.expect("a settlement is written"), ["nobody's"]);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
    fixture.clock.advance(LATER);
    assert_eq!(fixture.due_positions(HOOK).await, [place(0)]);
}

/// A delivery that is blocked by nothing is due at once, so that no delivery waits forever.
pub async fn a_delivery_blocked_by_nothing_is_due_at_once<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(4).await;
    let later = fixture.clock.now().after(LATER);
    let place = |index: usize| events[index].position;
    let parked = vec![
        park_key(place(3), ParkedState::Blocked, later, "a"),
        park_key(place(1), ParkedState::Blocked, later, "a"),
        park_key(place(2), ParkedState::Dead, later, "b"),
        park_key(place(0), ParkedState::Blocked, later, "b"),
    ];
    fixture.park(HOOK, parked).await;
    let due = fixture.due(HOOK).await;
    assert_eq!(positions(&due), [place(0), place(1)]);
    assert!(
        due.iter()
            .all(|parked| parked.state == ParkedState::Retrying)
    );
    assert!(
        due.iter()
            .all(|parked| parked.next_at == fixture.clock.now())
    );
}

/// The parts of a settlement about one delivery are applied in the order of its fields.
pub async fn a_settlement_happens_in_the_order_of_its_fields<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let now = fixture.clock.now();
    let later = now.after(LATER);
    let place = |index: usize| events[index].position;
    let epoch = fixture
        .park(HOOK, vec![park(place(0), ParkedState::Retrying, now)])
        .await;
    let mut again = park(place(0), ParkedState::Retrying, later);
    again.attempt = 2;
    fixture
        .settle(Settlement {
            begin: vec![(place(0), 2)],
            park: vec![
                again,
                park_key(place(1), ParkedState::Retrying, later, "key"),
                park_key(place(2), ParkedState::Blocked, later, "key"),
            ],
            delivered: vec![place(1)],
            release: vec!["key".to_owned()],
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(fixture.due_positions(HOOK).await, [place(2)]);
    fixture.open(HOOK).await;
    assert_eq!(
        fixture.due_positions(HOOK).await,
        [place(2)],
        "no attempt was interrupted"
    );
}

/// The next owner receives the blocked order keys, each once.
pub async fn an_opened_destination_says_which_keys_are_blocked<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(6).await;
    let now = fixture.clock.now();
    let states = [
        (ParkedState::Retrying, "a"),
        (ParkedState::Blocked, "a"),
        (ParkedState::Dead, "b"),
        (ParkedState::Retrying, "c"),
    ];
    let mut parked: Vec<_> = events
        .iter()
        .zip(states)
        .map(|(event, (state, key))| park_key(event.position, state, now, key))
        .collect();
    parked.push(park(events[4].position, ParkedState::Retrying, now));
    parked.push(park(events[5].position, ParkedState::Scheduled, now));
    fixture.park(HOOK, parked).await;
    let fixture = fixture.reopen().await;
    let mut opened = fixture.open(HOOK).await;
    opened.blocked_keys.sort();
    assert_eq!(opened.blocked_keys, ["a", "b", "c"]);
    let arrived = Settlement {
        delivered: vec![events[0].position, events[1].position],
        ..settlement(HOOK, opened.epoch)
    };
    fixture.settle(arrived).await;
    let mut opened = fixture.open(HOOK).await;
    opened.blocked_keys.sort();
    assert_eq!(opened.blocked_keys, ["b", "c"]);
}

/// Any number of blocked keys can be listed in pages, and single keys can be looked up.
pub async fn blocked_keys_are_asked_for_in_pages_and_one_by_one<S: DeliveriesUnderTest>() {
    const KEYS: usize = 1_000;
    let (fixture, events) = Fixture::<S>::with_events(2 * KEYS).await;
    let (now, store) = (fixture.clock.now(), fixture.store());
    let key = |number: usize| format!("order\nk{number:04}");
    // Two events per key, the first of them parked in each state that blocks.
    let states = [ParkedState::Retrying, ParkedState::Dead];
    let (first, second) = events.split_at(KEYS);
    let states = states.into_iter().cycle();
    let firsts = first.iter().zip(states).enumerate();
    let firsts = firsts.map(|(n, (event, state))| park_key(event.position, state, now, &key(n)));
    let seconds = second.iter().enumerate();
    let seconds =
        seconds.map(|(n, event)| park_key(event.position, ParkedState::Blocked, now, &key(n)));
    fixture.park(HOOK, firsts.chain(seconds).collect()).await;
    let all: Vec<_> = (0..KEYS).map(key).collect();
    for limit in [0, 1, 7, KEYS, KEYS + 1] {
        let keys = store.blocked_keys(HOOK, limit).await;
        assert_eq!(keys.expect("they are listed"), all[..limit.min(KEYS)]);
    }
    let others = store.blocked_keys("other", 10).await;
    assert_eq!(others.expect("they are listed"), [""; 0]);
    let asked = [key(5), "order\nfree".to_owned(), key(KEYS - 1)];
    let mut blocked = store.blocked(HOOK, &asked).await.expect("it is asked");
    blocked.sort();
    assert_eq!(blocked, [key(5), key(KEYS - 1)]);
    // Settled deliveries count at once: half of one key has arrived, and all of the other.
    let opened = fixture.open(HOOK).await;
    let arrived = Settlement {
        delivered: vec![first[6].position, first[8].position, second[8].position],
        ..settlement(HOOK, opened.epoch)
    };
    fixture.settle(arrived).await;
    let asked = [key(6), key(8)];
    let blocked = store.blocked(HOOK, &asked).await.expect("it is asked");
    assert_eq!(blocked, [key(6)]);
}
