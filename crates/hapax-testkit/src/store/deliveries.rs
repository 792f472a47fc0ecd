//! Conformance tests of deliveries: ownership of partitions, and settlements.

use std::time::Duration;

use hapax::{
    delivery::{Backlog, CheckpointId, Frontier, Opened, ParkedState, Settlement, Shards},
    store::{DeadLetters, Settlements, Source, StoreError},
};

use super::{
    DeliveriesUnderTest,
    fixture::{Fixture, check_error},
    steps::{HOOK, MAIL, attempt, checkpoint, park, park_key, settlement},
};
use crate::events::event;

const LATER: Duration = Duration::from_secs(5);

/// A new destination receives all existing events.
pub async fn a_new_destination_starts_at_the_first_event<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let opened = fixture.open(HOOK).await;
    let (beyond, _) = fixture.events_beyond(opened.checkpoint.frontier).await;
    assert_eq!(beyond, events);
    assert!(opened.checkpoint.settled.is_empty());
    assert!(opened.checkpoint.offered.is_empty());
    assert_eq!(opened.blocked_keys, [""; 0]);
    assert_eq!(opened.was_disabled, None);
    assert_eq!(fixture.due_positions(HOOK).await, [0; 0]);
}

/// After a destination is opened again, its previous owner cannot write.
pub async fn opening_again_fences_the_owner_before<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let old = fixture.open(HOOK).await;
    let new = fixture.open(HOOK).await;
    assert!(new.epoch > old.epoch, "{} after {}", new.epoch, old.epoch);
    let frontier = fixture.frontier(2).await;
    let now = fixture.clock.now();
    let all = |epoch| Settlement {
        checkpoint: Some(checkpoint(frontier.clone(), &[], &[])),
        park: vec![park(events[0].position, ParkedState::Dead, now)],
        attempts: vec![attempt(events[0].position, 1, now)],
        disable: Some("fenced".to_owned()),
        ..settlement(HOOK, epoch)
    };
    let fenced = fixture.store().settle(all(old.epoch)).await;
    check_error(fenced, "fenced", |error| {
        matches!(error, StoreError::Fenced)
    });
    assert_eq!(fixture.backlog(HOOK).await.events, 3);
    assert_eq!(fixture.dead_letters(HOOK).await.len(), 0);
    let newest = fixture.open(HOOK).await;
    assert_eq!(newest.was_disabled, None);
    fixture.settle(all(newest.epoch)).await;
    assert_eq!(fixture.dead_letters(HOOK).await[0].log.len(), 1);
}

/// A settlement with an epoch that was never assigned is fenced.
pub async fn a_settlement_of_an_unopened_destination_is_fenced<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    for epoch in [0, 1] {
        let fenced = fixture.store().settle(settlement(HOOK, epoch)).await;
        check_error(fenced, "fenced", |error| {
            matches!(error, StoreError::Fenced)
        });
    }
    let epoch = fixture.open(HOOK).await.epoch;
    for wrong in [epoch - 1, epoch + 1] {
        let fenced = fixture.store().settle(settlement(HOOK, wrong)).await;
        check_error(fenced, "fenced", |error| {
            matches!(error, StoreError::Fenced)
        });
    }
}

/// An epoch is never assigned twice, also after a restart.
pub async fn an_epoch_is_never_given_twice<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(1).await;
    let before = fixture.open(HOOK).await.epoch;
    let fixture = fixture.reopen().await;
    assert!(fixture.open(HOOK).await.epoch > before);
}

/// A settlement of one destination does not affect another one.
pub async fn destinations_are_apart<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let first = fixture.open(HOOK).await;
    let second = fixture.open(MAIL).await;
    let now = fixture.clock.now();
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(3).await, &[], &[])),
            park: vec![
                park_key(events[0].position, ParkedState::Retrying, now, "key"),
                park_key(events[1].position, ParkedState::Dead, now, "key"),
            ],
            ..settlement(HOOK, first.epoch)
        })
        .await;
    fixture.settle(settlement(MAIL, second.epoch)).await;
    assert_eq!(fixture.due_positions(MAIL).await, [0; 0]);
    assert_eq!(fixture.next_due(MAIL).await, None);
    assert_eq!(fixture.dead_letters(MAIL).await.len(), 0);
    let backlog = fixture.backlog(MAIL).await;
    assert_eq!((backlog.events, backlog.parked, backlog.dead), (3, 0, 0));
    let opened = fixture.open(MAIL).await;
    assert_eq!(opened.blocked_keys, [""; 0]);
    assert_eq!(
        fixture
            .events_beyond(opened.checkpoint.frontier)
            .await
            .0
            .len(),
        3
    );
}

/// The next owner receives the checkpoint as it was written, also after a restart.
pub async fn a_checkpoint_comes_back_as_it_was_written<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(6).await;
    let epoch = fixture.open(HOOK).await.epoch;
    let written = checkpoint(
        fixture.frontier(2).await,
        &[events[3].position, events[5].position],
        &[],
    );
    fixture
        .settle(Settlement {
            checkpoint: Some(written.clone()),
            ..settlement(HOOK, epoch)
        })
        .await;
    fixture.settle(settlement(HOOK, epoch)).await;
    assert_eq!(fixture.open(HOOK).await.checkpoint, written);
    let fixture = fixture.reopen().await;
    let opened = fixture.open(HOOK).await;
    assert_eq!(opened.checkpoint, written);
    let (beyond, _) = fixture.events_beyond(opened.checkpoint.frontier).await;
    assert_eq!(beyond, events[2..]);
}

/// A settlement is never visible in part.
pub async fn a_settlement_is_seen_whole_or_not_at_all<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(2).await;
    let now = fixture.clock.now();
    let places = [events[0].position, events[1].position];
    let epoch = fixture
        .park(HOOK, vec![park(places[0], ParkedState::Retrying, now)])
        .await;
    let store = fixture.store().clone();
    let settler = tokio::spawn(async move {
        for turn in 0..100 {
            let swapped = Settlement {
                delivered: vec![places[turn % 2]],
                park: vec![park(places[(turn + 1) % 2], ParkedState::Retrying, now)],
                ..settlement(HOOK, epoch)
            };
            store
                .settle(swapped)
                .await
                .expect("a settlement is written");
        }
    });
    while !settler.is_finished() {
        assert_eq!(fixture.backlog(HOOK).await.parked, 1);
        assert_eq!(fixture.due(HOOK).await.len(), 1);
        tokio::task::yield_now().await;
    }
    settler.await.expect("no panic");
}

/// The settlements of an owner are numbered; a repeated one is accepted.
pub async fn a_settlement_follows_the_newest_checkpoint<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    let opened = fixture.open(HOOK).await;
    let (first, one) = numbered(&fixture, &opened, 1, opened.newest).await;
    let (second, two) = numbered(&fixture, &opened, 2, one).await;
    for (settlement, newest) in [(&first, one), (&first, one), (&second, two), (&second, two)] {
        fixture.settle(settlement.clone()).await;
        assert_eq!(fixture.backlog(HOOK).await.newest, Some(newest));
    }
    // A settlement without a checkpoint follows the same one.
    let (third, three) = numbered(&fixture, &opened, 3, two).await;
    let nothing = Settlement {
        checkpoint: None,
        ..third.clone()
    };
    fixture.settle(nothing).await;
    fixture.settle(third).await;
    let reopened = fixture.open(HOOK).await;
    assert_eq!(reopened.newest.high, three.high);
    let (fourth, _) = numbered(&fixture, &reopened, 1, reopened.newest).await;
    fixture.settle(fourth).await;
}

/// After a store was reset to an earlier state, an owner that has written more is refused, and
/// nothing of its settlement is written.
pub async fn a_store_that_was_set_back_refuses_its_owner<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(4).await;
    let opened = fixture.open(HOOK).await;
    let (first, one) = numbered(&fixture, &opened, 1, opened.newest).await;
    fixture.settle(first.clone()).await;
    fixture.keep_image().await;
    let (second, two) = numbered(&fixture, &opened, 2, one).await;
    fixture.settle(second).await;
    let (third, three) = numbered(&fixture, &opened, 3, two).await;
    let (fourth, _) = numbered(&fixture, &opened, 4, three).await;
    fixture.settle(third.clone()).await;
    fixture.set_back().await;
    for settlement in [third, fourth] {
        let outcome = fixture.store().settle(settlement).await;
        check_error(outcome, "set back", |error| {
            matches!(error, StoreError::SetBack { .. })
        });
    }
    assert_eq!(fixture.backlog(HOOK).await.newest, Some(one));
    let checkpoint = fixture.open(HOOK).await.checkpoint;
    assert_eq!(Some(checkpoint), first.checkpoint);
    // An owner since the image was kept has a later epoch than the store knows.
    fixture.keep_image().await;
    let later = fixture.open(HOOK).await;
    let (settlement, _) = numbered(&fixture, &later, 1, later.newest).await;
    fixture.set_back().await;
    let outcome = fixture.store().settle(settlement).await;
    check_error(outcome, "set back", |error| {
        matches!(error, StoreError::SetBack { .. })
    });
}

/// The epoch, the settlement number and the position of the newest checkpoint are all compared. In
/// a store that was reset, the newest checkpoint may differ in only one of them from the one that
/// an owner wrote.
pub async fn a_settlement_follows_no_checkpoint_but_the_newest<S: DeliveriesUnderTest>() {
    let (fixture, _) = Fixture::<S>::with_events(3).await;
    fixture.open(HOOK).await;
    let opened = fixture.open(HOOK).await;
    let (first, one) = numbered(&fixture, &opened, 1, opened.newest).await;
    fixture.settle(first).await;
    let (epoch, settlement, high) = (one.epoch - 1, one.settlement + 2, one.high + 1);
    for other in [
        CheckpointId { epoch, ..one },
        CheckpointId { settlement, ..one },
        CheckpointId { high, ..one },
    ] {
        let (second, _) = numbered(&fixture, &opened, 2, other).await;
        let outcome = fixture.store().settle(second).await;
        check_error(outcome, "set back", |error| {
            matches!(error, StoreError::SetBack { .. })
        });
    }
    assert_eq!(fixture.backlog(HOOK).await.newest, Some(one));
}

/// An owner that continues from the checkpoint of the earlier state misses none of the events
/// committed since, even if it had read further before.
pub async fn of_a_store_that_was_set_back_every_later_event_is_read<S: DeliveriesUnderTest>() {
    for later in [1, 5] {
        let (fixture, _) = Fixture::<S>::with_events(2).await;
        let opened = fixture.open(HOOK).await;
        let (first, _) = numbered(&fixture, &opened, 2, opened.newest).await;
        fixture.settle(first).await;
        fixture.keep_image().await;
        let lost = fixture.emit((0..3).map(|it| event(&format!("lost {it}"))).collect());
        lost.await;
        fixture.frontier(5).await;
        fixture.set_back().await;
        let kept = (0..later).map(|it| event(&format!("kept {it}")));
        let kept = fixture.emit(kept.collect()).await;
        let frontier = fixture.open(HOOK).await.checkpoint.frontier;
        let (beyond, _) = fixture.events_beyond(frontier).await;
        let ids: Vec<_> = beyond.iter().map(|event| event.event.id).collect();
        assert_eq!(ids, kept);
    }
}

/// A settlement with a number, whose checkpoint is after that number of events, and the checkpoint.
async fn numbered<S: DeliveriesUnderTest>(
    fixture: &Fixture<S>,
    opened: &Opened,
    number: i64,
    follows: CheckpointId,
) -> (Settlement, CheckpointId) {
    let count = usize::try_from(number).expect("a small number");
    let frontier = fixture.frontier(count).await;
    let newest = CheckpointId {
        epoch: opened.epoch,
        settlement: number,
        high: frontier.high,
    };
    let settlement = Settlement {
        number,
        follows: Some(follows),
        checkpoint: Some(checkpoint(frontier, &[], &[])),
        ..settlement(HOOK, opened.epoch)
    };
    (settlement, newest)
}

/// The backlog counts events that are not settled, parked deliveries and dead letters, and finds
/// the oldest one.
pub async fn a_standing_says_how_far_behind_a_destination_is<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let epoch = fixture.open(HOOK).await.epoch;
    let backlog = fixture.backlog(HOOK).await;
    assert_eq!((backlog.events, backlog.parked, backlog.dead), (0, 0, 0));
    assert_eq!(backlog.oldest_at, None);
    let start = fixture.clock.now();
    for number in 0..5 {
        fixture.emit(vec![event(&number.to_string())]).await;
        fixture.clock.advance(LATER);
    }
    let events = fixture.events().await;
    let backlog = fixture.backlog(HOOK).await;
    assert_eq!((backlog.events, backlog.oldest_at), (5, Some(start)));
    let now = fixture.clock.now();
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(4).await, &[], &[])),
            park: vec![
                park(events[0].position, ParkedState::Dead, now),
                park_key(events[1].position, ParkedState::Retrying, now, "key"),
                park_key(events[2].position, ParkedState::Blocked, now, "key"),
            ],
            ..settlement(HOOK, epoch)
        })
        .await;
    let backlog = fixture.backlog(HOOK).await;
    assert_eq!((backlog.events, backlog.parked, backlog.dead), (3, 2, 1));
    assert_eq!(backlog.oldest_at, Some(start.after(LATER)));
    let arrived = Settlement {
        delivered: vec![events[1].position, events[2].position],
        ..settlement(HOOK, epoch)
    };
    fixture.settle(arrived).await;
    let backlog = fixture.backlog(HOOK).await;
    assert_eq!((backlog.events, backlog.parked, backlog.dead), (1, 0, 1));
    assert_eq!(backlog.oldest_at, Some(start.after(LATER * 4)));
}

/// An event that has to wait for its time is not late before: not while it is unread, nor while its
/// delivery is scheduled. The next one is.
pub async fn an_event_is_late_from_the_time_when_it_is_due<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let epoch = fixture.open(HOOK).await.epoch;
    let start = fixture.clock.now();
    let due = start.after(Duration::from_hours(1));
    let delayed = || event("delayed").available_at(due);
    fixture.emit(vec![delayed(), delayed()]).await;
    let later = async || {
        fixture.clock.advance(LATER);
        fixture.backlog(HOOK).await
    };
    let is_late = |backlog: Backlog| {
        backlog
            .oldest_at
            .is_some_and(|at| at <= fixture.clock.now())
    };
    let backlog = later().await;
    assert_eq!(backlog.events, 2);
    assert!(!is_late(backlog), "{backlog:?}");
    let behind = fixture.clock.now();
    fixture.emit(vec![event("behind")]).await;
    assert_eq!(later().await.oldest_at, Some(behind));
    let events = fixture.events().await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(fixture.frontier(3).await, &[], &[])),
            park: vec![
                park(events[0].position, ParkedState::Scheduled, due),
                park(events[1].position, ParkedState::Scheduled, due),
                park(events[2].position, ParkedState::Retrying, due),
            ],
            ..settlement(HOOK, epoch)
        })
        .await;
    assert_eq!(later().await.oldest_at, Some(behind));
    let delivered = vec![events[2].position];
    let arrived = Settlement {
        delivered,
        ..settlement(HOOK, epoch)
    };
    fixture.settle(arrived).await;
    let backlog = later().await;
    assert_eq!(backlog.parked, 2);
    assert!(!is_late(backlog), "{backlog:?}");
    fixture.clock.advance(Duration::from_hours(1));
    assert_eq!(fixture.backlog(HOOK).await.oldest_at, Some(due));
}

/// Events that have to wait for their time do not hide one after them that is due, however many they
/// are.
pub async fn delayed_events_do_not_hide_one_that_is_due<S: DeliveriesUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.open(HOOK).await;
    let start = fixture.clock.now();
    let due = start.after(Duration::from_hours(1));
    let delayed = (0..1_500).map(|_| event("delayed").available_at(due));
    fixture.emit(delayed.collect()).await;
    fixture.emit(vec![event("behind")]).await;
    fixture.clock.advance(LATER);
    assert_eq!(fixture.backlog(HOOK).await.oldest_at, Some(start));
}

/// A repeated settlement, sent because its commit was not confirmed, does not undo what an operator
/// did in the meantime.
pub async fn a_settlement_that_comes_again_undoes_nothing<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let epoch = fixture.open(HOOK).await.epoch;
    let (frontier, now) = (fixture.frontier(3).await, fixture.clock.now());
    let [replayed, discarded, keyed] = [0, 1, 2].map(|index: usize| events[index].position);
    let numbered = |epoch, number| Settlement {
        number,
        checkpoint: Some(checkpoint(frontier.clone(), &[], &[])),
        ..settlement(HOOK, epoch)
    };
    let dying = |epoch, number| Settlement {
        park: vec![
            park(replayed, ParkedState::Dead, now),
            park(discarded, ParkedState::Dead, now),
            park_key(keyed, ParkedState::Retrying, now.after(LATER), "key"),
        ],
        disable: Some("it answered 410".to_owned()),
        ..numbered(epoch, number)
    };
    fixture.settle(dying(epoch, 1)).await;
    let store = fixture.store();
    assert!(store.replay(HOOK, replayed).await.expect("it is replayed"));
    let discard = store.discard(HOOK, discarded, "never mind").await;
    assert!(discard.expect("it is discarded"));
    fixture.settle(dying(epoch, 1)).await;
    assert_eq!(fixture.due_positions(HOOK).await, [replayed]);
    assert_eq!(fixture.dead_letters(HOOK).await.len(), 0);

    // The free keys are requested each time.
    let arriving = || Settlement {
        delivered: vec![keyed],
        release: vec!["key".to_owned()],
        ..numbered(epoch, 2)
    };
    for _ in 0..2 {
        let free = store.settle(arriving()).await;
        assert_eq!(free.expect("it is settled"), ["key"]);
    }
    let again = Settlement {
        park: vec![park(replayed, ParkedState::Dead, now)],
        ..numbered(epoch, 3)
    };
    fixture.settle(again).await;
    assert_eq!(fixture.dead_letters(HOOK).await.len(), 1);

    // The next owner starts to count again.
    let epoch = fixture.open(HOOK).await.epoch;
    fixture.settle(dying(epoch, 1)).await;
    assert_eq!(fixture.dead_letters(HOOK).await.len(), 2);
    assert!(fixture.open(HOOK).await.was_disabled.is_some());
}

/// A disabled destination continues from its checkpoint after it is opened again.
pub async fn a_disabled_destination_is_enabled_by_opening_it<S: DeliveriesUnderTest>() {
    let (fixture, events) = Fixture::<S>::with_events(3).await;
    let epoch = fixture.open(HOOK).await.epoch;
    let frontier = fixture.frontier(2).await;
    fixture
        .settle(Settlement {
            checkpoint: Some(checkpoint(frontier.clone(), &[], &[])),
            disable: Some("it answered 410".to_owned()),
            ..settlement(HOOK, epoch)
        })
        .await;
    let fixture = fixture.reopen().await;
    let opened = fixture.open(HOOK).await;
    assert_eq!(opened.was_disabled.as_deref(), Some("it answered 410"));
    assert_eq!(opened.checkpoint.frontier, frontier);
    let beyond = fixture
        .store()
        .read(&opened.checkpoint.frontier, Shards::ALL, 10)
        .await;
    assert_eq!(beyond.expect("the outbox is read").events, events[2..]);
    assert_eq!(fixture.open(HOOK).await.was_disabled, None);
    assert_ne!(frontier, Frontier::default());
}
