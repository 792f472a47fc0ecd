//! Steps of the relay, one at a time, for the tests of deliveries.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hapax::{
    Timestamp,
    dead_letter::DeadLetter,
    delivery::{
        Arrived, Attempt, AttemptOutcome, Backlog, Checkpoint, Frontier, Opened, Park, Parked,
        ParkedState, Settlement, Shards,
    },
    outbox::OutboxEvent,
    store::{DeadLetters, Partitions, Settlements, Source},
};

use super::{DeliveriesUnderTest, fixture::Fixture};
use crate::events::event;

/// The destination of most tests.
pub(crate) const HOOK: &str = "hook";
/// A second destination, which must not be affected.
pub(crate) const MAIL: &str = "mail";

impl<S: DeliveriesUnderTest> Fixture<S> {
    /// A fresh store whose outbox contains `count` events.
    pub(crate) async fn with_events(count: usize) -> (Self, Vec<Arc<OutboxEvent>>) {
        let fixture = Self::fresh().await;
        let stated = (0..count).map(|number| event(&number.to_string()));
        fixture.emit(stated.collect()).await;
        let events = fixture.events().await;
        assert_eq!(events.len(), count);
        (fixture, events)
    }

    /// Opens a destination.
    pub(crate) async fn open(&self, destination: &str) -> Opened {
        let opened = self.store().open(destination).await;
        opened.expect("a destination is opened")
    }

    /// Writes a settlement that must be accepted.
    pub(crate) async fn settle(&self, settlement: Settlement) {
        let settled = self.store().settle(settlement).await;
        settled.expect("a settlement is written");
    }

    /// Opens a destination and parks deliveries of it.
    pub(crate) async fn park(&self, destination: &str, park: Vec<Park>) -> i64 {
        let opened = self.open(destination).await;
        let park = Settlement {
            park,
            ..settlement(destination, opened.epoch)
        };
        self.settle(park).await;
        opened.epoch
    }

    /// The due deliveries of a destination.
    pub(crate) async fn due(&self, destination: &str) -> Vec<Parked> {
        let due = self.store().due(destination, &[], 1_000, 0).await;
        due.expect("due deliveries are read")
    }

    /// The positions of the due deliveries of a destination.
    pub(crate) async fn due_positions(&self, destination: &str) -> Vec<i64> {
        positions(&self.due(destination).await)
    }

    /// The time when the next delivery becomes due.
    pub(crate) async fn next_due(&self, destination: &str) -> Option<Timestamp> {
        let next = self.store().next_due(destination).await;
        next.expect("the next due moment is read")
    }

    /// The backlog of a destination.
    pub(crate) async fn backlog(&self, destination: &str) -> Backlog {
        let backlog = self.store().backlog(destination).await;
        backlog.expect("the backlog is read")
    }

    /// All dead letters of a destination.
    pub(crate) async fn dead_letters(&self, destination: &str) -> Vec<DeadLetter> {
        let dead = self.store().dead_letters(destination, 0, 1_000).await;
        dead.expect("dead letters are read")
    }

    /// The frontier after the first `count` events.
    pub(crate) async fn frontier(&self, count: usize) -> Frontier {
        let batch = self
            .store()
            .read(&Frontier::default(), Shards::ALL, count)
            .await;
        batch.expect("the outbox is read").frontier
    }

    /// All attempts at one delivery, in order.
    pub(crate) async fn attempts(&self, partition: &str, position: i64) -> Vec<Attempt> {
        let attempts = self.store().attempts(partition, position).await;
        attempts.expect("attempts are read")
    }

    /// The outcomes of the attempts at one event so far. The event becomes a dead letter, so that
    /// they can be read.
    pub(crate) async fn outcomes(&self, position: i64) -> Vec<(u32, AttemptOutcome)> {
        let now = self.clock.now();
        self.park(HOOK, vec![park(position, ParkedState::Dead, now)])
            .await;
        let dead = self.dead_letters(HOOK).await;
        let letter = dead.iter().find(|letter| letter.event.position == position);
        let log = &letter.expect("it is dead").log;
        log.iter()
            .map(|attempt| (attempt.number, attempt.outcome))
            .collect()
    }
}

/// A settlement without changes.
pub(crate) fn settlement(destination: &str, epoch: i64) -> Settlement {
    Settlement {
        destination: destination.to_owned(),
        epoch,
        ..Settlement::default()
    }
}

/// A checkpoint at `frontier` with these positions beyond it settled and in flight.
pub(crate) fn checkpoint(frontier: Frontier, settled: &[i64], offered: &[i64]) -> Checkpoint {
    Checkpoint {
        frontier,
        settled: settled.iter().copied().collect(),
        offered: offered.iter().copied().collect(),
    }
}

/// A delivery that is parked after one attempt, without an order key.
pub(crate) fn park(position: i64, state: ParkedState, next_at: Timestamp) -> Park {
    Park {
        position,
        state,
        attempt: 1,
        next_at,
        order_key: None,
        last_error: Some("connection refused".to_owned()),
    }
}

/// A delivery that is parked after one attempt and blocks `key`.
pub(crate) fn park_key(position: i64, state: ParkedState, next_at: Timestamp, key: &str) -> Park {
    Park {
        order_key: Some(key.to_owned()),
        ..park(position, state, next_at)
    }
}

/// A failed attempt: the receiver was unavailable.
pub(crate) fn attempt(position: i64, number: u32, started_at: Timestamp) -> Attempt {
    Attempt {
        position,
        number,
        started_at,
        duration: Duration::from_millis(12),
        outcome: AttemptOutcome::Unavailable,
        status: Some(503),
        error: Some("service unavailable".to_owned()),
        response_head: Bytes::from_static(b"\x00\xff later"),
    }
}

/// First attempts that succeeded together.
pub(crate) fn arrived(positions: &[i64], started_at: Timestamp) -> Arrived {
    Arrived {
        positions: positions.iter().copied().collect(),
        started_at,
        duration: Duration::from_millis(7),
        status: Some(200),
    }
}

/// The positions of parked deliveries.
pub(crate) fn positions(parked: &[Parked]) -> Vec<i64> {
    parked.iter().map(|parked| parked.event.position).collect()
}
