//! Conformance tests of several readers: each has its own frontier and does not affect the others.

use std::collections::BTreeMap;

use futures_util::future::join;
use hapax::delivery::{Frontier, Shards};

use super::{
    SourceUnderTest,
    fixture::{Fixture, check_keys, pairs, read, read_once, written},
};

/// Reading from a frontier returns what comes after it, repeatedly and after a restart.
pub async fn a_frontier_leads_on_after_a_restart<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    fixture.commit_each("a", 3).await;
    assert_eq!(fixture.read(&mut frontier).await.len(), 3);
    let fixture = Fixture(fixture.0.reopen().await);
    assert_eq!(fixture.read(&mut frontier.clone()).await, []);
    fixture.commit(&[written("a", 4)]).await;
    for _ in 0..2 {
        let read = fixture.read(&mut frontier.clone()).await;
        assert_eq!(pairs(&read), [("a".into(), 4)]);
    }
}

/// Events that were read beyond a frontier and never settled are read again by the next reader.
pub async fn a_frontier_in_the_middle_leads_on_after_a_restart<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    fixture.commit_each("a", 10).await;
    let first = read_once(fixture.source(), &mut frontier, Shards::ALL, 4).await;
    let rest = fixture.read(&mut frontier.clone()).await;
    let fixture = Fixture(fixture.0.reopen().await);
    let again = fixture.read(&mut frontier).await;
    assert_eq!(again, rest);
    let all: Vec<_> = first.into_iter().chain(again).collect();
    check_keys(&all, &BTreeMap::from([("a".into(), (1..=10).collect())]));
}

/// A reader at the head does not affect a reader that lags.
pub async fn a_reader_that_is_behind_reads_all_of_it<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let (mut head, mut behind) = (Frontier::default(), Frontier::default());
    fixture.commit_each("a", 5).await;
    let first = read_once(fixture.source(), &mut behind, Shards::ALL, 2).await;
    let mut at_head = fixture.read(&mut head).await;
    for number in 6..=30 {
        fixture.commit(&[written("a", number)]).await;
        at_head.extend(fixture.read(&mut head).await);
    }
    let rest = read(fixture.source(), &mut behind, Shards::ALL, 7).await;
    let lagging: Vec<_> = first.into_iter().chain(rest).collect();
    assert_eq!(lagging, at_head);
    check_keys(
        &lagging,
        &BTreeMap::from([("a".into(), (1..=30).collect())]),
    );
}

/// Two readers in two processes, at the same time and at their own pace, read everything.
pub async fn two_readers_at_once_read_the_same<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let other = fixture.0.beside().await;
    let (mut mine, mut theirs) = (Frontier::default(), Frontier::default());
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for round in 0..10 {
        let numbers = (1..=5).map(|number| written("a", round * 5 + number));
        fixture.commit(&numbers.collect::<Vec<_>>()).await;
        let (one, two) = join(
            read(fixture.source(), &mut mine, Shards::ALL, 2),
            read(&other, &mut theirs, Shards::ALL, 3),
        )
        .await;
        first.extend(one);
        second.extend(two);
    }
    // More events may have been committed in the meantime.
    first.extend(fixture.read(&mut mine).await);
    second.extend(read(&other, &mut theirs, Shards::ALL, 3).await);
    assert_eq!(first, second);
    check_keys(&first, &BTreeMap::from([("a".into(), (1..=50).collect())]));
}
