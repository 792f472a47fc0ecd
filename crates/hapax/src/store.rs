//! What a store must offer, one trait per noun.
//!
//! The write path is [`Transaction`]: functions on the transaction that the
//! effect is written in. [`Keys`] opens such transactions; [`Source`],
//! [`Outbox`] and [`Deliveries`] are the relay's side. The conformance suites of
//! `hapax-testkit` are the law for all of them, method by method.

mod deliveries;
mod error;

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    clock::Timestamp,
    delivery::{Frontier, Shards},
    event::{EventId, Headers, NewEvent},
    idempotency::{Answer, Claim, KeyRecord, Known, SingleShot},
    inbox::{Acceptance, Message},
    key::{DerivationSecret, Operation, Scope, Tenant},
    outbox::{EventError, OutboxEvent},
    phases::{Entered, Entry, Lapsed, Ownership, TakenOver},
    purges::{PurgeMark, Purged},
    quota::Usage,
    saga::{Filter, Kind, NewSaga, Owned, SagaRecord, Standing as SagaStanding, StepRecord},
};

pub use deliveries::Deliveries;
pub use error::{DatabaseError, DatabaseErrorKind, StoreError};

/// An open transaction: the handler's rows, the key, the answer and the events are one commit.
///
/// Dropping it rolls everything back.
pub trait Transaction: Send + Sized + 'static {
    /// Adds an event to this transaction; it exists exactly when the transaction commits.
    ///
    /// # Errors
    /// Fails when the event could not be carried; the transaction stays usable.
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError>;

    /// Takes a message for a consumer, once, in this transaction.
    fn accept(
        &mut self,
        message: &Message,
    ) -> impl Future<Output = Result<Acceptance, StoreError>> + Send;

    /// Stores the answer under the claimed key and commits.
    ///
    /// With [`Effect::Drop`] the handler's rows, events and acceptances are rolled back first and
    /// only the answer is kept. Returns how long the answer stands, counted from now. Without a
    /// claimed key there is nothing to store the answer under: the effect is kept or dropped all
    /// the same, and the answer stands for no time.
    fn complete(
        self,
        answer: &Answer,
        effect: Effect,
    ) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Commits rows and events without an answer; a claimed key is let go.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls everything back and lets the key go; returns when that is done.
    fn rollback(self) -> impl Future<Output = ()> + Send;

    /// What was known about its key, when a claim that travelled with the first statement found
    /// it taken: that is the answer, whatever the handler made of the failure.
    fn known(&mut self) -> Option<Known> {
        None
    }

    /// Whether a statement of it lost against another transaction: whatever the handler answered
    /// then, nothing of it can be committed, and it should run again.
    fn has_conflict(&self) -> bool {
        false
    }
}

/// What becomes of the handler's rows and events when the answer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They are committed with it.
    Keep,
    /// They are rolled back.
    Drop,
}

/// The key table.
pub trait Keys: Clone + Send + Sync + 'static {
    /// An open transaction.
    type Tx: Transaction;
    /// One statement of a single-shot request.
    type Statement: Send + 'static;

    /// Opens a transaction without a key, for unprotected requests and consumers; its events are
    /// of `tenant` and carry `context`.
    fn begin(
        &self,
        tenant: Option<Tenant>,
        context: Headers,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// Opens a transaction that holds the key, or says what is known about it.
    fn claim(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<Claimed<Self::Tx>, StoreError>> + Send;

    /// As [`Keys::claim`], but the claim may travel with the first statement, and save its round
    /// trip, or the time until then on a writer that is alone.
    ///
    /// Whoever gets the transaction has begun before the key is known to be free. Where it was
    /// not, the first statement fails with [`StoreError::NotClaimed`], [`Transaction::known`] says what is known about the key,
    /// and nothing is committed. A store that gains nothing by it claims at once.
    fn claim_with_first_statement(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<Claimed<Self::Tx>, StoreError>> + Send {
        self.claim(claim)
    }

    /// Claims, writes, stores the answer and commits in one go.
    ///
    /// Past its deadline a request that the store has not begun is `TimedOut` and never begins;
    /// one that has begun is waited for, because it may commit.
    fn single_shot(
        &self,
        shot: SingleShot<Self::Statement>,
    ) -> impl Future<Output = Result<Ran, StoreError>> + Send;

    /// Reads a key's row.
    fn look_up(
        &self,
        scope: &Scope,
    ) -> impl Future<Output = Result<Option<KeyRecord>, StoreError>> + Send;

    /// Deletes a key's row, finished or not, and even while a saga lives that was started under it;
    /// false when there was none.
    fn forget(&self, scope: &Scope) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads which keys were forgotten, or purged by an operator, behind a mark.
    ///
    /// A key whose deletion was committed before this was asked is among them, unless the store does
    /// not know all of them any more: then it says so. Keys that [`purge_keys`](Self::purge_keys)
    /// deletes have expired, and are not told.
    fn purged(
        &self,
        since: Option<&PurgeMark>,
    ) -> impl Future<Output = Result<Purged, StoreError>> + Send;

    /// Deletes a batch of expired keys (a few hundred rows), leaving tombstones where the
    /// claim asked for `gone`. Never an unfinished key, nor one while a saga that was started under
    /// it has not ended.
    ///
    /// A tombstone goes [`TOMBSTONE`](crate::limits::TOMBSTONE) after its key expired. The counts
    /// are of rows deleted or turned to tombstones, by operation; empty means nothing was left.
    fn purge_keys(&self) -> impl Future<Output = Result<Vec<(Operation, u64)>, StoreError>> + Send;

    /// Counts what every tenant has stored. It may read every key, in its own time.
    fn usage(&self) -> impl Future<Output = Result<Vec<Usage>, StoreError>> + Send;

    /// The secret under which keys are derived: random, made once with the store's tables, and the
    /// same for every process that has this store open, now and later.
    fn derivation_secret(
        &self,
    ) -> impl Future<Output = Result<DerivationSecret, StoreError>> + Send;
}

/// Keys of requests that commit in several transactions.
///
/// Every method but [`enter`](Self::enter) and [`take_over`](Self::take_over) is fenced: where
/// another owner has come since, or the key is forgotten or finished, nothing changes and it fails
/// with [`StoreError::Fenced`]. A lease that has lapsed while nobody came is still the owner's.
pub trait Phases: Keys {
    /// Takes a key in a transaction of its own, or says what is known about it.
    ///
    /// A key in progress whose lease has lapsed is taken over by its own payload, with the
    /// recovery point and the request that it has.
    fn enter(&self, entry: Entry) -> impl Future<Output = Result<Entered, StoreError>> + Send;

    /// Has the lease count from now.
    fn renew(
        &self,
        owned: &Ownership,
        lease: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Opens a transaction of an owned key; its events carry `context`.
    ///
    /// Its `commit` writes `recovery_point` with the rows and events, its `complete` stores the
    /// answer and ends the ownership; both are fenced. Rolled back, it leaves the key as it was.
    fn phase(
        &self,
        owned: &Ownership,
        recovery_point: Option<&str>,
        context: Headers,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// Ends the lease now: the key stays in progress, for whoever resumes it.
    fn give_back(&self, owned: &Ownership) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Lets the key go as if it had never been used.
    fn release(&self, owned: &Ownership) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes over keys of `operations` that have lapsed and whose request was kept, the longest
    /// lapsed first; of many that ask at once, one gets each.
    fn take_over(
        &self,
        operations: &[Operation],
        lapsed: Lapsed,
    ) -> impl Future<Output = Result<Vec<TakenOver>, StoreError>> + Send;
}

/// The rows of sagas, in a transaction.
pub trait SagaRows: Transaction {
    /// Starts a saga; it is due once this commits. False when there is one of this id.
    ///
    /// Without headers of its own it carries the context of this transaction. The key that this
    /// transaction runs under stands until the saga has ended, however long that takes: its answer
    /// goes on being replayed, and no purge deletes it.
    fn start_saga(
        &mut self,
        saga: &NewSaga,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Tells a saga something, once: what it was told first under a name stands. It is due once
    /// this commits. False when there is none of this id, or it has ended.
    fn signal_saga(
        &mut self,
        id: &str,
        name: &str,
        payload: &[u8],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes the row of a step, or of what undoes it, in a transaction of [`Sagas::turn`].
    fn write_step(
        &mut self,
        owned: &Owned,
        step: &StepRecord,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes how a saga stands, in a transaction of [`Sagas::turn`]: one that has ended is due no
    /// more, and one that needs attention no more once it is given back.
    fn write_standing(
        &mut self,
        owned: &Owned,
        standing: &SagaStanding,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The sagas of a store.
pub trait Sagas: Keys<Tx: SagaRows> {
    /// Takes sagas of `kinds` that are due and nobody holds, the longest due first: each has its
    /// epoch raised and is held for `lease`; of many that ask at once, one gets each. One that
    /// cannot be read is left out and lapses: it keeps nobody from the others.
    fn take_sagas(
        &self,
        kinds: &[Kind],
        lease: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SagaRecord>, StoreError>> + Send;

    /// Takes one saga, whoever holds it and whether it is due or not: for a person.
    fn seize_saga(
        &self,
        id: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<SagaRecord>, StoreError>> + Send;

    /// Opens a transaction that holds the row of an owned saga, and its lease counts from now.
    ///
    /// # Errors
    /// Fails with [`StoreError::Fenced`] where another owner has come since; until this
    /// transaction ends, none comes.
    fn turn(
        &self,
        owned: &Owned,
        lease: Duration,
    ) -> impl Future<Output = Result<Held<Self::Tx>, StoreError>> + Send;

    /// Lets a saga go until `pause` has gone by, and one that needs attention for good; or at once
    /// when it was told more than `told` things by now. Fenced as [`turn`](Self::turn) is.
    fn give_back_saga(
        &self,
        owned: &Owned,
        pause: Duration,
        waiting_for: &str,
        told: usize,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// When the next saga of `kinds` falls due, past or future; `None` when none ever does.
    fn next_saga(
        &self,
        kinds: &[Kind],
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;

    /// Reads a saga with its steps.
    fn saga(&self, id: &str)
    -> impl Future<Output = Result<Option<SagaRecord>, StoreError>> + Send;

    /// Lists sagas by id, at most `limit`; their steps, input and signals are left out.
    fn sagas(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SagaRecord>, StoreError>> + Send;

    /// Counts the sagas that need attention, by the names of their kinds; names without one are
    /// left out.
    fn sagas_in_attention(
        &self,
    ) -> impl Future<Output = Result<Vec<(String, u64)>, StoreError>> + Send;

    /// Deletes a batch of sagas that ended longer than `retention` ago; returns how many.
    fn purge_sagas(
        &self,
        retention: Duration,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A transaction that holds the row of a saga.
#[derive(Debug)]
pub struct Held<Tx> {
    /// The transaction.
    pub tx: Tx,
    /// How many things the saga was told by now; until this transaction ends, it is told no more.
    pub told: usize,
}

/// What came of a claim.
#[derive(Debug)]
pub enum Claimed<Tx> {
    /// The key is ours until this transaction ends.
    Open(Tx),
    /// The key was taken.
    Known(Known),
}

/// What came of a single-shot request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// It is committed; its answer stands this long.
    Committed {
        /// How long the answer stands.
        fresh_for: Duration,
    },
    /// The key was taken; nothing ran.
    Known(Known),
}

/// Where a relay reads the events that it carries: the outbox of a store, or whatever fills one.
///
/// A source remembers nothing about its readers: how far each is stands in its own frontier.
pub trait Source: Clone + Send + Sync + 'static {
    /// Reads at most `limit` events of `shards` beyond `frontier`, with the frontier that lies
    /// behind them.
    ///
    /// It stops earlier once what the events are stored in (payload, headers, names) exceeds
    /// [`crate::limits::READ_BYTES`], so that large events cannot fill the memory; it always reads at least one event if there is one.
    /// An empty batch means that nothing lies beyond `frontier` now.
    fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> impl Future<Output = Result<Batch, StoreError>> + Send;

    /// Looks past a crowd: reads at most `limit` events of `shards` at positions above `beyond`
    /// whose tenant is none of `except`, with the position up to which it looked.
    ///
    /// What it returns is visible now and in order; what it does not, [`read`](Self::read) finds.
    /// A source that cannot look past finds nothing, nor does one that is not in the history in
    /// which `head` was read.
    fn read_past(
        &self,
        head: &Frontier,
        beyond: i64,
        shards: Shards,
        except: &[Option<Tenant>],
        limit: usize,
    ) -> impl Future<Output = Result<Past, StoreError>> + Send {
        let _ = (head, shards, except, limit);
        async move {
            Ok(Past {
                events: Vec::new(),
                until: beyond,
            })
        }
    }
}

/// Events that were found past a crowd.
#[derive(Clone, Debug)]
pub struct Past {
    /// The events, in order.
    pub events: Vec<Arc<OutboxEvent>>,
    /// Up to which position it was looked.
    pub until: i64,
}

/// The outbox of a store.
pub trait Outbox: Source {
    /// Deletes a batch of events that every destination has passed and that are older than
    /// `retention`, and inbox rows older than `inbox_retention`; returns how many rows went,
    /// those that belonged to an event included.
    ///
    /// An event that a destination still has parked, or dead, stays; while there is no
    /// destination, nothing is passed. A destination that no relay has carried or known for
    /// `retention`, while relays were running, is not waited for, unless it was disabled. The age of
    /// an event does not depend on a clock that was ahead when it was written. A position is never given to a second event, whatever was
    /// deleted and however often the store was opened since; a store may keep its newest event to
    /// know which was the last.
    fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// Events read at once.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The events, in order.
    pub events: Vec<Arc<OutboxEvent>>,
    /// The frontier behind them.
    pub frontier: Frontier,
}
