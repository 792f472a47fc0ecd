//! Conformance tests of reading: committed events are read once, unchanged and in order, and
//! nothing else is read.

use std::collections::BTreeSet;

use hapax::{
    delivery::{Frontier, Shards},
    limits::{PAYLOAD_BYTES_MAX, READ_BYTES},
};

use super::{
    SourceUnderTest, Written,
    fixture::{Fixture, pairs, read, read_once, said, written},
};

/// An empty source returns nothing, and its frontier leads to the first event.
pub async fn nothing_is_read_of_a_source_that_is_empty<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    assert_eq!(fixture.read(&mut frontier).await, []);
    fixture.commit_each("a", 1).await;
    assert_eq!(pairs(&fixture.read(&mut frontier).await), [("a".into(), 1)]);
}

/// A reader that continues from its frontiers reads every committed event once, byte for byte.
pub async fn every_committed_event_is_read_once_and_whole<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    for number in 1..=5 {
        let events = [
            written("a", number),
            written("caf\u{e9} '\u{1f980}", number),
        ];
        fixture.commit(&events).await;
        let read = fixture.read(&mut frontier).await;
        let payloads: BTreeSet<_> = read.iter().map(|it| it.event.payload.bytes()).collect();
        let stated = events.each_ref().map(Written::payload);
        assert_eq!(payloads, stated.iter().map(String::as_bytes).collect());
        for event in &read {
            assert!(event.event.aggregate.is_some() == S::HAS_AGGREGATES);
        }
        assert_eq!(fixture.read(&mut frontier).await, []);
    }
}

/// An event that was rolled back is never read.
pub async fn nothing_is_read_of_what_was_rolled_back<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    for number in 1..=4 {
        let writer = fixture.open(&[written("gone", number)]).await;
        S::roll_back(writer).await;
        fixture.commit(&[written("a", number)]).await;
        let read = fixture.read(&mut frontier).await;
        assert_eq!(pairs(&read), [("a".into(), number)]);
    }
    assert_eq!(fixture.read(&mut Frontier::default()).await.len(), 4);
}

/// The events of an open transaction are not read before it commits.
pub async fn what_is_not_committed_is_not_read_yet<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    let writer = fixture.open(&[written("a", 1), written("a", 2)]).await;
    assert_eq!(fixture.read(&mut frontier).await, []);
    S::commit(writer).await;
    let read = fixture.read(&mut frontier).await;
    assert_eq!(pairs(&read), [("a".into(), 1), ("a".into(), 2)]);
}

/// A batch has a maximum number of events, and batches of any size together contain everything.
pub async fn a_batch_holds_no_more_than_was_asked_for<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.commit_each("a", 10).await;
    for limit in [1, 3, 10, 11] {
        let (mut all, mut frontier) = (Vec::new(), Frontier::default());
        loop {
            let events = read_once(fixture.source(), &mut frontier, Shards::ALL, limit).await;
            assert!(events.len() <= limit, "{} of {limit}", events.len());
            if events.is_empty() {
                break;
            }
            all.extend(events.iter().map(|event| said(event).number));
        }
        assert_eq!(all, (1..=10).collect::<Vec<_>>(), "in pages of {limit}");
    }
}

/// A batch has a maximum size in bytes, contains at least one event, and the next one continues
/// after it.
pub async fn a_batch_of_large_events_ends_early<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let count = 2 * READ_BYTES / PAYLOAD_BYTES_MAX + 2;
    let last = i64::try_from(count).expect("some events");
    for number in 1..=last {
        let large = Written {
            bytes: PAYLOAD_BYTES_MAX,
            ..written("a", number)
        };
        fixture.commit(&[large]).await;
    }
    let mut frontier = Frontier::default();
    let first = read_once(fixture.source(), &mut frontier, Shards::ALL, 1_000).await;
    let first: Vec<_> = first.iter().map(|event| said(event)).collect();
    assert!(
        (1..count).contains(&first.len()),
        "{} of {count}",
        first.len()
    );
    assert!(first.iter().all(|it| it.bytes == PAYLOAD_BYTES_MAX));
    let rest = fixture.read(&mut frontier).await;
    let numbers = first.iter().map(|it| it.number);
    let numbers: Vec<_> = numbers
        .chain(rest.iter().map(|it| said(it).number))
        .collect();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>());
}

/// An event has the same id and position for all readers at all times.
pub async fn an_event_is_the_same_however_often_it_is_read<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    fixture.commit_each("a", 5).await;
    let first = fixture.read(&mut Frontier::default()).await;
    let other = fixture.0.beside().await;
    let again = read(&other, &mut Frontier::default(), Shards::ALL, 2).await;
    assert_eq!(first, again);
    let fixture = Fixture(fixture.0.reopen().await);
    assert_eq!(fixture.read(&mut Frontier::default()).await, first);
}

/// Without late commits, later events have higher positions.
pub async fn positions_rise_from_batch_to_batch<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let (mut frontier, mut positions) = (Frontier::default(), Vec::new());
    for number in 1..=6 {
        fixture
            .commit(&[written("a", number), written("b", number)])
            .await;
        if number % 2 == 0 {
            let read = fixture.read(&mut frontier).await;
            positions.extend(read.iter().map(|event| event.position));
        }
    }
    assert_eq!(positions.len(), 12);
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
}
