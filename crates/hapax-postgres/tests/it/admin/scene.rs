//! Fixture: a store with destinations, events, and deliveries in every state.

use std::time::Duration;

use hapax::{
    Timestamp,
    admin::{Actor, JobAdmin as _, JobStep},
    delivery::{Checkpoint, Frontier, Park, ParkedState, Settlement, Shards},
    event::{Headers, NewEvent},
    key::Tenant,
    outbox::OutboxEvent,
    store::{Keys as _, Partitions as _, Settlements as _, Source, Transaction as _},
};
use hapax_postgres::Postgres;

use crate::fixture::{Fixture, PATIENCE};

/// A store, and an operator who acts on it.
pub(crate) struct Scene {
    pub(crate) fixture: Fixture,
    pub(crate) ops: Actor,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self {
            fixture: Fixture::new().await,
            ops: Actor::new("ops"),
        }
    }

    pub(crate) fn store(&self) -> &Postgres {
        &self.fixture.store
    }

    /// Emits `count` events of one type in one transaction, each about the order with its number.
    pub(crate) async fn emit(&self, kind: &str, tenant: Option<&str>, count: usize) {
        let tenant = tenant.map(|name| Tenant::new(name).unwrap());
        let mut tx = self.store().begin(tenant, Headers::new()).await.unwrap();
        for number in 0..count {
            let event = NewEvent::json(kind, &number).about("order", number.to_string());
            tx.emit(event).unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// Every event, in order.
    pub(crate) async fn events(&self) -> Vec<OutboxEvent> {
        self.read().await.0
    }

    /// The positions of all events, in order.
    pub(crate) async fn positions(&self) -> Vec<i64> {
        let events = self.events().await;
        events.iter().map(|event| event.position).collect()
    }

    /// Opens a partition, reads everything, and settles all events as delivered except those in
    /// `dead`.
    pub(crate) async fn pass(&self, partition: &str, dead: &[i64]) {
        let parks = dead.iter().map(|position| {
            let state = ParkedState::Dead;
            park(*position, state, Some(format!("order\n{position}")))
        });
        self.settle(partition, parks.collect()).await;
    }

    /// Like `pass`, with any parked deliveries.
    pub(crate) async fn settle(&self, partition: &str, parks: Vec<Park>) {
        let opened = self.store().open(partition).await.unwrap();
        let (_, frontier) = self.read().await;
        let settlement = Settlement {
            destination: partition.to_owned(),
            epoch: opened.epoch,
            checkpoint: Some(Checkpoint {
                frontier,
                ..Checkpoint::default()
            }),
            park: parks,
            ..Settlement::default()
        };
        self.store().settle(settlement).await.unwrap();
    }

    async fn read(&self) -> (Vec<OutboxEvent>, Frontier) {
        let (mut events, mut frontier) = (Vec::new(), Frontier::default());
        loop {
            let batch = Source::read(self.store(), &frontier, Shards::ALL, 10_000).await;
            let batch = batch.unwrap();
            frontier = batch.frontier;
            if batch.events.is_empty() {
                return (events, frontier);
            }
            events.extend(batch.events.iter().map(|event| OutboxEvent::clone(event)));
        }
    }

    /// Runs jobs until none is due; returns how many batches that took.
    pub(crate) async fn work(&self) -> usize {
        let mut batches = 0;
        while self.store().run_job().await.unwrap() != JobStep::Nothing {
            batches += 1;
            assert!(batches < 10_000, "a job does not end");
        }
        batches
    }

    /// Makes every job due now.
    pub(crate) async fn hurry(&self) {
        let due = "UPDATE hapax.job SET next_at = now() WHERE state IN ('waiting', 'running')";
        self.fixture.plain.execute(due, &[]).await.unwrap();
    }

    /// The states of a partition's deliveries, by position.
    pub(crate) async fn states(&self, partition: &str) -> Vec<(i64, String)> {
        let sql = "SELECT position, state FROM hapax.delivery WHERE destination = $1 ORDER BY 1";
        let rows = self.fixture.plain.query(sql, &[&partition]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

/// A delivery to be parked.
pub(crate) fn park(position: i64, state: ParkedState, order_key: Option<String>) -> Park {
    Park {
        position,
        state,
        attempt: 3,
        next_at: Timestamp::from_millis(1_000).after(PATIENCE + Duration::from_secs(1)),
        order_key,
        last_error: Some(format!("connection Refused by 100% of host_{position}")),
    }
}
