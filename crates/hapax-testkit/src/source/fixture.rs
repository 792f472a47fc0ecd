//! Fixture of the source suite: a fresh source and common steps.
//!
//! The payload of an event contains a key, and a number that increases within the key.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hapax::{
    delivery::{Frontier, Shards},
    outbox::OutboxEvent,
    store::Source,
};

use super::SourceUnderTest;

/// An event to write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// The key, which is the aggregate of the event.
    pub key: String,
    /// The number among the events of the key, starting at 1.
    pub number: i64,
    /// The minimum size of the payload in bytes.
    pub bytes: usize,
}

impl Written {
    /// The exact payload of the event.
    pub fn payload(&self) -> String {
        let Self { key, number, bytes } = self;
        let start = format!("{{\"key\": \"{key}\", \"number\": {number}, \"filler\": \"");
        let filler = "x".repeat(bytes.saturating_sub(start.len() + 2));
        format!("{start}{filler}\"}}")
    }
}

/// A small event.
pub(super) fn written(key: &str, number: i64) -> Written {
    Written {
        key: key.to_owned(),
        number,
        bytes: 0,
    }
}

/// A fresh source.
#[derive(Debug)]
pub(super) struct Fixture<S>(pub(super) S);

impl<S: SourceUnderTest> Fixture<S> {
    pub(super) async fn fresh() -> Self {
        Self(S::fresh().await)
    }

    pub(super) fn source(&self) -> &S::Source {
        self.0.source()
    }

    /// Commits events in one transaction.
    pub(super) async fn commit(&self, events: &[Written]) {
        let writer = self.open(events).await;
        S::commit(writer).await;
    }

    /// Writes events in a transaction that stays open.
    pub(super) async fn open(&self, events: &[Written]) -> S::Writer {
        let mut writer = self.0.begin().await;
        for event in events {
            S::write(&mut writer, event).await;
        }
        writer
    }

    /// Commits the numbers 1 to `count` of a key, each in its own transaction.
    pub(super) async fn commit_each(&self, key: &str, count: i64) {
        for number in 1..=count {
            self.commit(&[written(key, number)]).await;
        }
    }

    pub(super) async fn read(&self, frontier: &mut Frontier) -> Vec<Arc<OutboxEvent>> {
        read(self.source(), frontier, Shards::ALL, 100).await
    }
}

/// Reads until there are no more events.
pub(super) async fn read<S: Source>(
    source: &S,
    frontier: &mut Frontier,
    shards: Shards,
    limit: usize,
) -> Vec<Arc<OutboxEvent>> {
    let mut all = Vec::new();
    loop {
        let events = read_once(source, frontier, shards, limit).await;
        if events.is_empty() {
            return all;
        }
        all.extend(events);
    }
}

/// Reads one batch.
pub(super) async fn read_once<S: Source>(
    source: &S,
    frontier: &mut Frontier,
    shards: Shards,
    limit: usize,
) -> Vec<Arc<OutboxEvent>> {
    let batch = source.read(frontier, shards, limit).await;
    let batch = batch.expect("the source is read");
    *frontier = batch.frontier;
    batch.events
}

/// The key and the number of an event.
#[track_caller]
pub(super) fn said(event: &OutboxEvent) -> Written {
    let payload = event.event.payload.bytes();
    let value: serde_json::Value = serde_json::from_slice(payload).expect("a payload is JSON");
    let said = Written {
        key: value["key"].as_str().expect("it has a key").to_owned(),
        number: value["number"].as_i64().expect("it has a number"),
        bytes: payload.len(),
    };
    if let Some(aggregate) = &event.event.aggregate {
        assert_eq!(aggregate.id, said.key, "an event is about its key");
    }
    said
}

/// The keys and numbers of the events read, in order.
pub(super) fn pairs(events: &[Arc<OutboxEvent>]) -> Vec<(String, i64)> {
    let said = events.iter().map(|event| said(event));
    said.map(|it| (it.key, it.number)).collect()
}

/// Requires that for every key exactly these numbers were read, in order, each in one event.
#[track_caller]
pub(super) fn check_keys(events: &[Arc<OutboxEvent>], expected: &BTreeMap<String, Vec<i64>>) {
    let mut read = BTreeMap::<String, Vec<i64>>::new();
    for (key, number) in pairs(events) {
        read.entry(key).or_default().push(number);
    }
    assert_eq!(&read, expected);
    let ids: BTreeSet<_> = events.iter().map(|event| event.event.id).collect();
    assert_eq!(ids.len(), events.len(), "two events share an id");
}
