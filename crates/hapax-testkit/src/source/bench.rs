//! A fresh source, and the steps that its laws share.
//!
//! What an event says names it: a key, and a number that rises within it.

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

/// What a law has a writer say.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Written {
    /// What the event is about.
    pub key: String,
    /// Its place among the events about it, from 1.
    pub number: i64,
    /// At least so many bytes of payload.
    pub bytes: usize,
}

impl Written {
    /// The event's payload, byte for byte.
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
pub(super) struct Bench<S>(pub(super) S);

impl<S: SourceUnderTest> Bench<S> {
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

    /// Commits the numbers 1 to `count` of a key, each in a transaction of its own.
    pub(super) async fn commit_each(&self, key: &str, count: i64) {
        for number in 1..=count {
            self.commit(&[written(key, number)]).await;
        }
    }

    pub(super) async fn read(&self, frontier: &mut Frontier) -> Vec<Arc<OutboxEvent>> {
        read(self.source(), frontier, Shards::ALL, 100).await
    }
}

/// Reads on until nothing is left now.
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

/// What an event says.
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

/// What was read, as pairs of key and number, in order.
pub(super) fn pairs(events: &[Arc<OutboxEvent>]) -> Vec<(String, i64)> {
    let said = events.iter().map(|event| said(event));
    said.map(|it| (it.key, it.number)).collect()
}

/// Requires that of every key exactly these numbers were read, in order and each by one event.
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
