//! Conformance tests of several writers: transactions commit in another order than they begin, and
//! nothing is lost.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::join_all;
use hapax::{
    delivery::{Frontier, Shards},
    outbox::OutboxEvent,
    store::Source,
};

use super::{
    SourceUnderTest,
    fixture::{Fixture, check_keys, pairs, read, written},
};
use crate::wait::Patience;

/// How long a reader waits for committed events.
const PATIENCE: Duration = Duration::from_secs(30);

/// Events that were written early and committed late are read after the commit. Events that were
/// already read are not read again.
pub async fn what_commits_late_is_read_and_nothing_is_read_again<S: SourceUnderTest>() {
    if !S::WRITES_AT_ONCE {
        return;
    }
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    let early = fixture
        .open(&[written("early", 1), written("early", 2)])
        .await;
    let second = fixture.open(&[written("second", 1)]).await;
    fixture.commit_each("new", 3).await;
    let read = fixture.read(&mut frontier).await;
    let new: Vec<_> = (1..=3).map(|number| ("new".to_owned(), number)).collect();
    assert_eq!(pairs(&read), new);
    S::commit(second).await;
    let read = fixture.read(&mut frontier).await;
    assert_eq!(pairs(&read), [("second".into(), 1)]);
    fixture.commit(&[written("new", 4)]).await;
    S::commit(early).await;
    let mut read = pairs(&fixture.read(&mut frontier).await);
    read.sort();
    let expected = [("early", 1), ("early", 2), ("new", 4)];
    assert_eq!(read, expected.map(|(key, number)| (key.to_owned(), number)));
    assert_eq!(fixture.read(&mut frontier).await, []);
}

/// A transaction that stays open does not block readers or writers.
pub async fn a_writer_held_open_delays_no_other<S: SourceUnderTest>() {
    if !S::WRITES_AT_ONCE {
        return;
    }
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    let held = fixture.open(&[written("held", 1)]).await;
    for number in 1..=20 {
        fixture.commit(&[written("a", number)]).await;
        let read = fixture.read(&mut frontier).await;
        assert_eq!(pairs(&read), [("a".into(), number)]);
    }
    S::roll_back(held).await;
    assert_eq!(fixture.read(&mut frontier).await, []);
}

/// With writers that commit and roll back, a concurrent reader reads each key completely and in
/// order.
pub async fn a_reader_among_writers_loses_and_repeats_nothing<S: SourceUnderTest>() {
    const WRITERS: usize = 8;
    const ROUNDS: i64 = 40;
    let fixture = Arc::new(Fixture::<S>::fresh().await);
    let count = WRITERS * usize::try_from(ROUNDS).expect("some rounds") / 2;
    let reader = tokio::spawn(read_until(fixture.source().clone(), count));
    let writers = (0..WRITERS).map(|writer| {
        let fixture = Arc::clone(&fixture);
        tokio::spawn(async move { write_rounds(&fixture, &writer.to_string(), ROUNDS).await })
    });
    for writer in join_all(writers).await {
        writer.expect("no panic");
    }
    let (read_among, mut frontier) = reader.await.expect("no panic");
    let even: Vec<_> = (2..=ROUNDS).step_by(2).collect();
    let keys = (0..WRITERS).map(|writer| (writer.to_string(), even.clone()));
    let expected: BTreeMap<_, _> = keys.collect();
    check_keys(&read_among, &expected);
    assert_eq!(fixture.read(&mut frontier).await, []);
    check_keys(&fixture.read(&mut Frontier::default()).await, &expected);
}

/// The events of a transaction are read in the order in which they were written.
pub async fn a_large_transaction_is_read_in_its_order<S: SourceUnderTest>() {
    const COUNT: i64 = 1_500;
    let fixture = Fixture::<S>::fresh().await;
    let events: Vec<_> = (1..=COUNT).map(|number| written("a", number)).collect();
    fixture.commit(&events).await;
    let read = read(fixture.source(), &mut Frontier::default(), Shards::ALL, 100).await;
    let all = BTreeMap::from([("a".to_owned(), (1..=COUNT).collect())]);
    check_keys(&read, &all);
}

/// Reads until this number of events has arrived. The test checks for events beyond it.
async fn read_until<S: Source>(source: S, count: usize) -> (Vec<Arc<OutboxEvent>>, Frontier) {
    let (mut all, mut frontier) = (Vec::new(), Frontier::default());
    let patience = Patience::within(PATIENCE);
    loop {
        all.extend(read(&source, &mut frontier, Shards::ALL, 7).await);
        if all.len() >= count {
            return (all, frontier);
        }
        patience.pause().await;
    }
}

/// Commits an event in every even round and rolls one back in every odd round.
async fn write_rounds<S: SourceUnderTest>(fixture: &Fixture<S>, key: &str, rounds: i64) {
    for round in 1..=rounds {
        let writer = fixture.open(&[written(key, round)]).await;
        if round % 2 == 0 {
            S::commit(writer).await;
        } else {
            S::roll_back(writer).await;
        }
    }
}
