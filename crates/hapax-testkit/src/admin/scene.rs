//! Fixture of the suite: a fresh store with an operator, and common steps.

use std::{sync::Arc, time::Duration};

use hapax::{
    Timestamp,
    admin::{
        Actor, Admin, AdminError, AuditEntry, AuditFilter, Delivery, DeliveryFilter, EventFilter,
        JobStep, Stalled, destination_of,
    },
    delivery::{Checkpoint, Frontier, Park, ParkedState, Settlement},
    event::{Headers, NewEvent},
    key::Tenant,
    operational::OperationalEvents,
    phases::{Entry, Ownership},
    saga::{NewSaga, Owned, SagaRecord, SagaStatus, State, StepRecord},
    store::{ClaimOutcome, Effect, Keys, Phases, SagaRows, Sagas, Transaction},
};

use super::{
    AdminUnderTest, Table,
    checks::{Must, pages},
};
use crate::{
    clock::{ManualClock, seeded_random},
    events::{claim, claim_of, response, scope},
    store::{fixture::Fixture, saga_steps, steps::settlement},
};

/// The operation of most keys.
pub(crate) const OPERATION: &str = "POST /orders";
/// The length of leases.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const HOUR: Duration = Duration::from_hours(1);

/// A store, and an operator of all tenants.
pub(crate) struct Scene<S> {
    pub(crate) fixture: Fixture<S>,
    pub(crate) admin: Arc<dyn Admin>,
    pub(crate) ops: Actor,
}

impl<S: AdminUnderTest> Scene<S> {
    pub(crate) async fn new() -> Self {
        Self::of(Fixture::<S>::fresh().await)
    }

    /// A scene whose store emits operational events.
    pub(crate) async fn emitting(events: OperationalEvents) -> Self {
        let clock = ManualClock::new();
        let under_test = S::emitting(clock.clock(), seeded_random(1), events).await;
        Self::of(Fixture::of(clock, under_test))
    }

    fn of(fixture: Fixture<S>) -> Self {
        let admin = fixture.under_test().admin();
        let ops = Actor::new("ops");
        Self {
            fixture,
            admin,
            ops,
        }
    }

    pub(crate) fn store(&self) -> &S::Store {
        self.fixture.store()
    }

    /// The handle of another process.
    pub(crate) async fn beside(&self) -> Arc<dyn Admin> {
        self.fixture.under_test().beside().await
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.fixture.clock.now()
    }

    /// Moves the clock forward.
    pub(crate) async fn advance(&self, by: Duration) {
        self.fixture.clock.advance(by);
        self.fixture.under_test().time_passed(by).await;
    }

    /// Makes every write to a table fail.
    pub(crate) async fn break_table(&self, table: Table) {
        self.fixture.under_test().refuse_writes(table).await;
    }

    /// Undoes [`break_table`](Self::break_table).
    pub(crate) async fn mend(&self, table: Table) {
        self.fixture.under_test().accept_writes(table).await;
    }

    /// Emits `count` events of one type in one transaction, each about the order with its number.
    /// Returns their positions.
    pub(crate) async fn emit(&self, kind: &str, tenant: Option<&str>, count: usize) -> Vec<i64> {
        let numbers = 0..count;
        let events =
            numbers.map(|number| NewEvent::json(kind, &number).about("order", number.to_string()));
        self.write(tenant, events.collect()).await
    }

    /// Emits events in one transaction. Returns their positions.
    pub(crate) async fn write(&self, tenant: Option<&str>, events: Vec<NewEvent>) -> Vec<i64> {
        let count = events.len();
        let tenant = tenant.map(named);
        let mut tx = self.store().begin(tenant, Headers::new()).await.must();
        for event in events {
            tx.emit(event).expect("an event is emitted");
        }
        tx.commit().await.must();
        let all = self.positions().await;
        all[all.len() - count..].to_vec()
    }

    /// The positions of all events, in order.
    pub(crate) async fn positions(&self) -> Vec<i64> {
        let events = self.fixture.events().await;
        events.iter().map(|event| event.position).collect()
    }

    /// Opens a partition, reads everything, and settles all events as delivered except those in
    /// `dead`.
    pub(crate) async fn pass(&self, partition: &str, dead: &[i64]) {
        let parks = dead.iter().map(|position| {
            let key = format!("order\n{position}");
            park(*position, ParkedState::Dead, Some(&key))
        });
        self.settle(partition, parks.collect()).await;
    }

    /// Like [`pass`](Self::pass), with any parked deliveries.
    pub(crate) async fn settle(&self, partition: &str, park: Vec<Park>) {
        let epoch = self.fixture.open(partition).await.epoch;
        let (_, frontier) = self.fixture.events_beyond(Frontier::default()).await;
        let checkpoint = Checkpoint {
            frontier,
            ..Checkpoint::default()
        };
        let settled = Settlement {
            checkpoint: Some(checkpoint),
            park,
            ..settlement(partition, epoch)
        };
        self.fixture.settle(settled).await;
    }

    /// The deliveries that match a filter.
    pub(crate) async fn deliveries(&self, actor: &Actor, filter: &DeliveryFilter) -> Vec<Delivery> {
        pages(3, async |before: Option<String>| {
            let before = before.as_deref();
            self.admin.deliveries(actor, filter, before, 3).await
        })
        .await
    }

    /// The states of a partition's deliveries, by position.
    pub(crate) async fn states(&self, partition: &str) -> Vec<(i64, String)> {
        let filter = DeliveryFilter {
            destination: Some(destination_of(partition).to_owned()),
            ..DeliveryFilter::default()
        };
        let all = pages(1_000, async |before: Option<String>| {
            let before = before.as_deref();
            let page = self.admin.deliveries(&self.ops, &filter, before, 1_000);
            page.await
        });
        let of_partition = all.await.into_iter().filter(|it| it.partition == partition);
        let mut states: Vec<_> = of_partition.map(|it| (it.position, it.state)).collect();
        states.sort_unstable();
        states
    }

    /// The positions of a partition's deliveries in one state.
    pub(crate) async fn positions_in(&self, partition: &str, state: &str) -> Vec<i64> {
        let states = self.states(partition).await.into_iter();
        let fitting = states.filter(|(_, it)| it == state);
        fitting.map(|(position, _)| position).collect()
    }

    /// The number of dead letters of a destination that match a filter now.
    pub(crate) async fn count_dead(
        &self,
        actor: &Actor,
        destination: &str,
        filter: &EventFilter,
    ) -> u64 {
        let seen = self.admin.seen().await.must();
        let count = self
            .admin
            .count_dead_letters(actor, destination, filter, &seen);
        count.await.must()
    }

    /// Runs jobs until none is due. Returns how many batches that took.
    pub(crate) async fn work(&self) -> usize {
        let mut batches = 0;
        while self.admin.run_job().await.must() != JobStep::Nothing {
            batches += 1;
            assert!(batches < 10_000, "a job does not end");
        }
        batches
    }

    /// The lines of the audit log, the oldest first.
    pub(crate) async fn log(&self) -> Vec<AuditEntry> {
        let filter = AuditFilter::default();
        let mut all = pages(1_000, async |before: Option<String>| {
            let before = before.as_deref();
            self.admin
                .audit_log(&self.ops, &filter, before, 1_000)
                .await
        })
        .await;
        all.reverse();
        all
    }

    /// The actions in the audit log with their outcomes, the oldest first.
    pub(crate) async fn acts(&self) -> Vec<(String, String)> {
        let log = self.log().await.into_iter();
        log.map(|line| (line.action, line.outcome)).collect()
    }

    /// What is stalled.
    pub(crate) async fn stalled(&self) -> Vec<Stalled> {
        self.admin.stalled(&self.ops).await.must()
    }

    /// Stores a response under a key of `POST /orders`.
    pub(crate) async fn complete(&self, tenant: &str, key: &str) {
        self.complete_of(tenant, OPERATION, key).await;
    }

    /// Stores a response under a key of any operation.
    pub(crate) async fn complete_of(&self, tenant: &str, operation: &str, key: &str) {
        let claim = claim_of(scope(tenant, operation, key));
        let tx = self.fixture.claim(claim).await;
        let stored = tx.complete(&response("{\"id\":1}"), Effect::Keep).await;
        stored.must();
    }

    /// Takes a key of phased mode.
    pub(crate) async fn enter(&self, key: &str) -> Ownership {
        let entry = Entry {
            claim: claim(key),
            lease: LEASE,
            request: None,
            recovery_point: None,
        };
        match self.store().enter(entry).await.must() {
            ClaimOutcome::Open(owned) => owned,
            ClaimOutcome::Taken(taken) => panic!("the key should be free, not {taken:?}"),
        }
    }

    /// Reads a key and purges the version that was read.
    pub(crate) async fn purge(
        &self,
        actor: &Actor,
        tenant: Option<&str>,
        key: &str,
        reason: &str,
    ) -> Result<(), AdminError> {
        let found = self.admin.key(actor, tenant, OPERATION, key).await?;
        let version = &found.version;
        let purge = self
            .admin
            .purge_key(actor, tenant, OPERATION, key, version, reason);
        purge.await
    }

    /// Starts sagas in one transaction.
    pub(crate) async fn start_sagas(&self, sagas: impl IntoIterator<Item = NewSaga>) {
        let mut tx = self.store().begin(None, Headers::new()).await.must();
        for saga in sagas {
            assert!(tx.start_saga(&saga).await.must(), "saga {}", saga.id);
        }
        tx.commit().await.must();
    }

    /// Gives a saga these steps and this state, as its worker does, and releases it.
    pub(crate) async fn put_saga(&self, id: &str, steps: &[StepRecord], state: State) {
        let seized = self.store().seize_saga(id, LEASE).await.must();
        let saga = seized.expect("the saga exists");
        let owned = Owned::of(&saga);
        let status = SagaStatus {
            state,
            ..saga.status.clone()
        };
        let mut tx = self.store().lock_saga(&owned, LEASE).await.must().tx;
        for step in steps {
            tx.write_step(&owned, step).await.must();
        }
        tx.write_status(&owned, &status).await.must();
        tx.commit().await.must();
        if !state.is_end() {
            let given = self.store();
            let given = given.give_back_saga(&owned, Duration::ZERO, "a person", 0);
            given.await.must();
        }
    }

    /// A saga that needs attention, as its worker gave it back.
    pub(crate) async fn saga_in_attention(&self, id: &str, tenant: Option<&str>) -> SagaRecord {
        self.start_sagas([new_saga(id, tenant)]).await;
        self.put_saga(id, &[], State::NeedsAttention).await;
        let look = self.admin.look_at_saga(&self.ops, id).await.must();
        look.saga
    }
}

/// A saga of a tenant.
pub(crate) fn new_saga(id: &str, tenant: Option<&str>) -> NewSaga {
    NewSaga {
        tenant: tenant.map(named),
        ..saga_steps::saga(id)
    }
}

/// A tenant.
pub(crate) fn named(tenant: &str) -> Tenant {
    Tenant::new(tenant).expect("a tenant's name is well formed")
}

/// An operator of one tenant, with the tenant's name.
pub(crate) fn of(tenant: &str) -> Actor {
    Actor::new(tenant).of(named(tenant))
}

/// A delivery to be parked, which has been due for long.
pub(crate) fn park(position: i64, state: ParkedState, order_key: Option<&str>) -> Park {
    Park {
        position,
        state,
        attempt: 3,
        next_at: Timestamp::from_millis(32_000),
        order_key: order_key.map(str::to_owned),
        last_error: Some(format!("connection Refused by 100% of host_{position}")),
    }
}

/// An expected line of the audit log.
pub(crate) fn line(action: &str, outcome: &str) -> (String, String) {
    (action.to_owned(), outcome.to_owned())
}
