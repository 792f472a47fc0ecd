//! Conformance tests of shards: the partitions share the events, and no key is in two of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    sync::Arc,
};

use hapax::{
    delivery::{Frontier, Shards},
    outbox::OutboxEvent,
    store::Source as _,
};

use super::{
    SourceUnderTest,
    fixture::{Fixture, check_keys, pairs, read, written},
};

const KEYS: usize = 40;
const NUMBERS: i64 = 3;

/// For any number of partitions, they together read every event exactly once.
pub async fn the_partitions_share_every_event_and_none_twice<S: SourceUnderTest>() {
    let (fixture, expected) = with_keys::<S>().await;
    for count in [1, 2, 4, 8, 16] {
        let all: Vec<_> = partitions(&fixture, count)
            .await
            .into_iter()
            .flatten()
            .collect();
        let mut ordered = all;
        ordered.sort_by_key(|event| event.position);
        check_keys(&ordered, &expected);
    }
}

/// All events of a key are read by one partition, because only a single reader can keep their
/// order.
pub async fn events_about_one_thing_are_in_one_partition<S: SourceUnderTest>() {
    let (fixture, _) = with_keys::<S>().await;
    let mut owner = BTreeMap::new();
    let partitions = partitions(&fixture, 16).await;
    let busy = partitions
        .iter()
        .filter(|partition| !partition.is_empty())
        .count();
    assert!(busy > 4, "{busy} partitions of 16 have all the events");
    if !S::HAS_AGGREGATES {
        return;
    }
    for (partition, events) in partitions.iter().enumerate() {
        for key in pairs(events).into_iter().map(|(key, _)| key) {
            let first = *owner.entry(key.clone()).or_insert(partition);
            assert_eq!(first, partition, "events about {key} are in two partitions");
        }
    }
    assert_eq!(owner.len(), KEYS);
}

/// A partition continues from its frontier like the whole source.
pub async fn a_partition_keeps_its_order<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let two = NonZeroU8::new(2).expect("two is not zero");
    let partition = |number| Shards::of_partition(number, two).expect("there are two partitions");
    let mut partitions = [0, 1].map(|number| (partition(number), Frontier::default(), Vec::new()));
    for number in 1..=10 {
        let round = (0..8).map(|key| written(&key.to_string(), number));
        fixture.commit(&round.collect::<Vec<_>>()).await;
        for (shards, frontier, seen) in &mut partitions {
            seen.extend(read(fixture.source(), frontier, *shards, 3).await);
        }
    }
    let mut all: Vec<_> = partitions
        .into_iter()
        .flat_map(|(_, _, seen)| seen)
        .collect();
    if !S::HAS_AGGREGATES {
        all.sort_by_key(|event| event.position);
    }
    let keys = (0..8).map(|key: i32| (key.to_string(), (1..=10).collect()));
    check_keys(&all, &keys.collect());
}

/// What is asked for all readers at once names the shards of the events, and leads past them.
pub async fn a_look_names_the_shards_that_have_events<S: SourceUnderTest>() {
    let fixture = Fixture::<S>::fresh().await;
    let mut frontier = Frontier::default();
    for number in 1..=20 {
        let before = frontier.clone();
        let events = [
            written(&format!("key {number}"), 1),
            written("common", number),
        ];
        fixture.commit(&events).await;
        let mut named = Shards::NONE;
        loop {
            let found = fixture.source().shards_after(&frontier).await;
            let (shards, behind) = found.expect("the source is asked");
            if shards.is_empty() {
                break;
            }
            named = named.union(shards);
            frontier = behind;
        }
        assert!(fixture.read(&mut frontier.clone()).await.is_empty());
        let of = NonZeroU8::new(16).expect("sixteen is not zero");
        for shard in 0..16 {
            let only = Shards::of_partition(shard, of).expect("there is such a partition");
            let events = read(fixture.source(), &mut before.clone(), only, 100).await;
            assert!(events.is_empty() || named.contains(shard), "{events:?}");
        }
    }
}

/// A source with some events of many keys.
async fn with_keys<S: SourceUnderTest>() -> (Fixture<S>, BTreeMap<String, Vec<i64>>) {
    let fixture = Fixture::<S>::fresh().await;
    let keys: BTreeSet<_> = (0..KEYS).map(|key| format!("key {key}")).collect();
    for number in 1..=NUMBERS {
        let round = keys.iter().map(|key| written(key, number));
        fixture.commit(&round.collect::<Vec<_>>()).await;
    }
    let numbers: Vec<_> = (1..=NUMBERS).collect();
    let expected = keys.into_iter().map(|key| (key, numbers.clone()));
    (fixture, expected.collect())
}

/// The events that each of `count` partitions reads.
async fn partitions<S: SourceUnderTest>(
    fixture: &Fixture<S>,
    count: u8,
) -> Vec<Vec<Arc<OutboxEvent>>> {
    let of = NonZeroU8::new(count).expect("there are some partitions");
    let mut partitions = Vec::new();
    for partition in 0..count {
        let shards = Shards::of_partition(partition, of).expect("there is such a partition");
        partitions.push(read(fixture.source(), &mut Frontier::default(), shards, 100).await);
    }
    partitions
}
