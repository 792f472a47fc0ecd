//! The interface of a store, one trait per noun.
//!
//! [`Transaction`] is the write path: the handler's effect, the key, the response and the events
//! are written in one transaction. [`Keys`] opens such transactions. The relay reads a [`Source`]
//! or an [`Outbox`] and records its progress in [`Deliveries`]. The conformance suites of
//! `hapax-testkit` test every method of every trait.
//!
//! Code that works with any store is generic over these traits:
//!
//! ```
//! use hapax::{event::{Headers, NewEvent}, store::{Keys, StoreError, Transaction}};
//!
//! /// Emits an event in a transaction without a key.
//! async fn announce<S: Keys>(store: &S) -> Result<(), StoreError> {
//!     let mut tx = store.begin(None, Headers::new()).await?;
//!     tx.emit(NewEvent::json("shop.opened", &true)).expect("a valid event");
//!     tx.commit().await
//! }
//! ```

mod deliveries;
mod error;

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    clock::Timestamp,
    delivery::{Frontier, Shards},
    event::{EventId, Headers, NewEvent},
    idempotency::{Claim, KeyRecord, OnClaimed, PlannedRequest, StoredResponse, Taken},
    inbox::{Acceptance, Message, ResultError},
    key::{DerivationSecret, Operation, Scope, Tenant},
    notify::Sleep,
    outbox::{EventError, OutboxEvent},
    phases::{Entry, Lapsed, Ownership, TakenOver},
    purges::{PurgeMark, Purged},
    quota::Usage,
    saga::{Filter, Kind, NewSaga, Owned, SagaRecord, SagaStatus, StepRecord},
};

pub use deliveries::{DeadLetters, Deliveries, Partitions, Settlements, Starts, Summaries};
pub use error::{DatabaseError, DatabaseErrorKind, StoreError};

/// An open transaction. The handler's rows, the key, the response and the events are committed
/// together.
///
/// Dropping the transaction rolls it back.
pub trait Transaction: Send + Sized + 'static {
    /// Adds an event to this transaction. The event exists if and only if the transaction commits.
    ///
    /// # Errors
    /// Fails if the event is not valid. The transaction stays usable.
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError>;

    /// Accepts a message for a consumer in this transaction, unless the consumer has accepted it
    /// before. The commit writes the time at which the effect ended into the message's row, and the
    /// transaction counts the message; [`Accepted`](crate::inbox::Accepted) has both for a store.
    fn accept(
        &mut self,
        message: &Message,
    ) -> impl Future<Output = Result<Acceptance, StoreError>> + Send;

    /// Records the result of the new message that this transaction has accepted last: a short text
    /// or JSON, such as `applied` or `ignored: type ping`. The message's row keeps it from the
    /// commit on. A later call replaces it.
    ///
    /// # Errors
    /// Fails if there is no such message, and if the result is longer than
    /// [`MESSAGE_RESULT_BYTES_MAX`](crate::limits::MESSAGE_RESULT_BYTES_MAX) bytes or contains a NUL.
    /// The transaction stays usable.
    fn record_result(&mut self, result: &str) -> Result<(), ResultError>;

    /// Stores the response under the claimed key and commits.
    ///
    /// With [`Effect::Drop`] the handler's rows, events and acceptances are rolled back first, and
    /// only the response is stored. Returns the remaining retention of the response. If no key was
    /// claimed, no response is stored: the effect is kept or dropped as asked, and the returned
    /// duration is zero.
    fn complete(
        self,
        response: &StoredResponse,
        effect: Effect,
    ) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Commits rows and events without a response. A claimed key is released.
    fn commit(self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Rolls the transaction back and releases the key. Returns when both are done.
    fn rollback(self) -> impl Future<Output = ()> + Send;

    /// The state of the key, if the claim was sent together with the first statement and the key
    /// was taken. In that case this is the outcome of the request, even if the handler has ignored
    /// the failed statement.
    fn taken(&mut self) -> Option<Taken> {
        None
    }

    /// Whether a statement of this transaction has failed because of a conflict with another
    /// transaction, or because its pipelined claim has failed. The transaction cannot commit, and
    /// the request should run again, even if the handler has returned a response.
    fn has_conflict(&self) -> bool {
        false
    }
}

/// What happens to the handler's rows and events when the response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They are committed together with the response.
    Keep,
    /// They are rolled back.
    Drop,
}

/// The idempotency keys of a store.
pub trait Keys: KeyMaintenance {
    /// An open transaction.
    type Tx: Transaction;

    /// One statement of a single-shot request.
    type Statement: Send + 'static;

    /// Opens a transaction without a key, for unprotected requests and consumers. Its events belong
    /// to `tenant` and carry the headers of `context`.
    fn begin(
        &self,
        tenant: Option<Tenant>,
        context: Headers,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// Claims a key. Returns an open transaction that holds the key, or the state of a key that was
    /// taken. If another payload is running under the key, this is a mismatch, and the claim does
    /// not wait.
    fn claim(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<ClaimOutcome<Self::Tx>, StoreError>> + Send;

    /// Like [`Keys::claim`], but the store may send the claim together with the first statement.
    /// This saves a round trip, or time on a store with a single writer.
    ///
    /// The caller receives the transaction before the claim is decided. If the key turns out to be
    /// taken, the first statement fails with [`StoreError::NotClaimed`], [`Transaction::taken`]
    /// returns the state of the key, and nothing is committed. If the claim itself fails, the first
    /// statement fails with its error, and [`Transaction::has_conflict`] returns true, so that the
    /// caller claims again. A store for which this has no advantage claims at once. The store calls
    /// `on_claimed` when the transaction has its key.
    fn claim_pipelined(
        &self,
        claim: Claim,
        on_claimed: OnClaimed,
    ) -> impl Future<Output = Result<ClaimOutcome<Self::Tx>, StoreError>> + Send {
        async move {
            let outcome = self.claim(claim).await?;
            if let ClaimOutcome::Open(_) = &outcome {
                on_claimed.call();
            }
            Ok(outcome)
        }
    }

    /// Opens a transaction for a key that is assumed to be free (optimistic claim). The store neither
    /// locks the key nor looks for it before the handler starts. This saves another round trip.
    ///
    /// Returns `None` if this has no advantage in this store; the caller then claims in another way.
    /// Otherwise the key is claimed when [`Transaction::complete`] stores the response: either a new
    /// key is committed with everything else, or nothing is. If the key was taken, or another request
    /// was claiming it, `complete` fails with [`StoreError::NotClaimed`] or
    /// [`StoreError::Conflict`], and the caller claims the key with [`claim`](Self::claim), which
    /// finds out what it is taken for. If the result of the commit is lost and the key has no row,
    /// `complete` fails with [`StoreError::Unavailable`], because it may still be committed.
    ///
    /// Until then nothing is known of the key. So the response of a handler that is not to be stored
    /// is no outcome of the request: the handler may have failed because the request was executed
    /// before. The caller rolls back, claims the key, and runs the handler again if it was free.
    fn claim_optimistic(
        &self,
        claim: Claim,
    ) -> impl Future<Output = Result<Option<Self::Tx>, StoreError>> + Send {
        let _ = claim;
        async move { Ok(None) }
    }

    /// Opens a transaction like [`begin`](Self::begin), whose commit accepts `message`. The
    /// consumer writes its effect at once, and an acceptance before it would be a round trip more.
    ///
    /// Returns `None` if this has no advantage in this store; the consumer then calls
    /// [`Transaction::accept`]. Otherwise the message counts as new until the transaction ends:
    /// [`Transaction::record_result`] records its result. The commit stores the message with
    /// everything else, or it fails with [`StoreError::AcceptedBefore`] and commits nothing. It
    /// waits for another transaction that has accepted the same message and has not ended.
    ///
    /// Until the commit nothing is known of the message. So a failure is no outcome of it: a
    /// statement may have failed because the message was processed before. After any failure except
    /// that of a commit whose result is lost ([`StoreError::Unavailable`]), the consumer accepts
    /// the message with [`Transaction::accept`] in another transaction, and writes its effect there
    /// if the message is new. So the effect must be nothing but writes of this transaction.
    fn accept_at_commit(
        &self,
        tenant: Option<Tenant>,
        context: Headers,
        message: &Message,
    ) -> impl Future<Output = Result<Option<Self::Tx>, StoreError>> + Send {
        let _ = (tenant, context, message);
        async move { Ok(None) }
    }

    /// Claims the key, executes the statements, stores the response and commits, in one step.
    ///
    /// If the deadline passes before the store has started the request, the result is `TimedOut`
    /// and the request never starts. If it has started, it may commit: a store that can interrupt a
    /// statement rolls the request back, which is also `TimedOut`, and otherwise the call waits for the
    /// result. The result of a commit is always waited for.
    fn execute_plan(
        &self,
        planned: PlannedRequest<Self::Statement>,
    ) -> impl Future<Output = Result<ClaimOutcome<Duration>, StoreError>> + Send;

    /// Reads the row of a key.
    fn look_up(
        &self,
        scope: &Scope,
    ) -> impl Future<Output = Result<Option<KeyRecord>, StoreError>> + Send;

    /// The secret from which derived keys are computed. It is random, is created together with the
    /// store's tables, and is the same for every process that opens this store.
    fn derivation_secret(
        &self,
    ) -> impl Future<Output = Result<DerivationSecret, StoreError>> + Send;
}

/// Deletion of keys, and what they occupy.
pub trait KeyMaintenance: Clone + Send + Sync + 'static {
    /// Deletes the row of a key in any state, even while a saga that was started under the key has
    /// not ended. Returns false if there is no such row.
    fn forget(&self, scope: &Scope) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Reads the keys that were deleted by [`forget`](Self::forget) or purged by an operator after
    /// the mark `since`.
    ///
    /// Every deletion that was committed before this call is included. If the store no longer has
    /// all of them, the result says so. Expired keys that [`purge_keys`](Self::purge_keys) deletes
    /// are not included.
    fn purged(
        &self,
        since: Option<&PurgeMark>,
    ) -> impl Future<Output = Result<Purged, StoreError>> + Send;

    /// Deletes a batch of expired keys (a few hundred rows) and leaves a tombstone for each key
    /// whose claim asked for `gone`. Keys in progress are kept, and so are keys under which a saga
    /// was started that has not ended.
    ///
    /// A tombstone is deleted [`TOMBSTONE`](crate::limits::TOMBSTONE) after its key has expired.
    /// Returns the number of rows that were deleted or turned into tombstones, by operation. An
    /// empty result means that nothing is left to purge.
    fn purge_keys(&self) -> impl Future<Output = Result<Vec<(Operation, u64)>, StoreError>> + Send;

    /// Counts what each tenant has stored. This may read every key and may take long.
    fn usage(&self) -> impl Future<Output = Result<Vec<Usage>, StoreError>> + Send;
}

/// Keys of requests that commit in several transactions.
///
/// Every method except [`enter`](Self::enter) and [`take_over`](Self::take_over) is fenced: if
/// another owner has taken the key, or the key was deleted or completed, the method changes nothing
/// and fails with [`StoreError::Fenced`]. A lease that has expired still belongs to its owner until
/// another one takes the key.
pub trait Phases: Keys {
    /// Takes a key in a separate transaction, or returns its state.
    ///
    /// A new key is entered at the recovery point of the entry, in the same commit. A key in progress
    /// whose lease has expired is taken over by a request with the same payload. The new owner
    /// receives the recovery point and the stored request.
    ///
    /// If this fails, the caller does nothing under the key. A store that may lose the result of a
    /// commit frees a new key that was entered all the same, as soon as it can.
    ///
    /// # Errors
    /// Fails with [`StoreError::Statement`] if the recovery point is not the [name of a
    /// phase](crate::phases::check_name).
    fn enter(
        &self,
        entry: Entry,
    ) -> impl Future<Output = Result<ClaimOutcome<Ownership>, StoreError>> + Send;

    /// Restarts the lease, from now on.
    fn renew(
        &self,
        owned: &Ownership,
        lease: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Opens a transaction of an owned key. Its events carry the headers of `context`.
    ///
    /// `commit` writes `recovery_point` together with the rows and events. `complete` stores the
    /// response and ends the ownership. Both are fenced. Rolling back leaves the key as it was.
    fn phase(
        &self,
        owned: &Ownership,
        recovery_point: Option<&str>,
        context: Headers,
    ) -> impl Future<Output = Result<Self::Tx, StoreError>> + Send;

    /// Commits a phase without rows and events: `recovery_point` is the new recovery point. This is
    /// a [`phase`](Self::phase) that is committed at once, without an open transaction.
    ///
    /// # Errors
    /// Fails with [`StoreError::Statement`] if the recovery point is not the [name of a
    /// phase](crate::phases::check_name).
    fn reach(
        &self,
        owned: &Ownership,
        recovery_point: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Stores the response and ends the ownership, without an open transaction. What earlier phases
    /// have committed stays. Returns the remaining retention of the response, as
    /// [`Transaction::complete`] does.
    ///
    /// If the result of the commit is lost, this fails with [`StoreError::Unavailable`]. The owner
    /// may try again: if the commit has happened, it is fenced, and the key has its response.
    fn finish(
        &self,
        owned: &Ownership,
        response: &StoredResponse,
    ) -> impl Future<Output = Result<Duration, StoreError>> + Send;

    /// Ends the lease now. The key stays in progress, and another process may resume it.
    fn give_back(&self, owned: &Ownership) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Releases the key as if it had never been used.
    fn release(&self, owned: &Ownership) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes over keys of `operations` whose lease has expired and whose request was stored,
    /// starting with the one that expired first. Concurrent callers never receive the same key.
    fn take_over(
        &self,
        operations: &[Operation],
        lapsed: Lapsed,
    ) -> impl Future<Output = Result<Vec<TakenOver>, StoreError>> + Send;
}

/// The rows of sagas, in a transaction.
pub trait SagaRows: Transaction {
    /// Starts a saga. It is due as soon as the transaction commits. Returns false if a saga with
    /// this id exists.
    ///
    /// A saga without headers carries the context of this transaction. The key under which the
    /// transaction runs is kept until the saga has ended, however long that takes: its response is
    /// still replayed, and no purge deletes it.
    fn start_saga(
        &mut self,
        saga: &NewSaga,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Sends a signal to a saga. The first payload under a name is kept; later ones are ignored.
    /// The saga is due as soon as the transaction commits. Returns false if there is no saga with
    /// this id, or if it has ended.
    fn signal_saga(
        &mut self,
        id: &str,
        name: &str,
        payload: &[u8],
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Writes the row of a step or of its compensation. Requires a transaction of [`Sagas::lock_saga`].
    fn write_step(
        &mut self,
        owned: &Owned,
        step: &StepRecord,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes the status of a saga. Requires a transaction of [`Sagas::lock_saga`]. A saga that has
    /// ended is never due again. A saga that needs attention is not due after it is given back.
    fn write_status(
        &mut self,
        owned: &Owned,
        status: &SagaStatus,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The sagas of a store.
pub trait Sagas: Keys<Tx: SagaRows> + SagaRecords {
    /// Takes sagas of `kinds` that are due and have no owner, starting with the one that was due
    /// first. The epoch of each is incremented, and each is leased for `lease`. Concurrent callers
    /// never receive the same saga. A saga that cannot be read is skipped until its lease expires,
    /// so that it does not block the others.
    fn take_sagas(
        &self,
        kinds: &[Kind],
        lease: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SagaRecord>, StoreError>> + Send;

    /// Takes one saga, even if it has an owner or is not due. This is for operators.
    fn seize_saga(
        &self,
        id: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<SagaRecord>, StoreError>> + Send;

    /// Opens a transaction that locks the row of an owned saga and restarts its lease.
    ///
    /// # Errors
    /// Fails with [`StoreError::Fenced`] if the saga has another owner by now. Until this
    /// transaction ends, no other owner can take the saga.
    fn lock_saga(
        &self,
        owned: &Owned,
        lease: Duration,
    ) -> impl Future<Output = Result<LockedSaga<Self::Tx>, StoreError>> + Send;

    /// Releases a saga and makes it due again after `pause`; at once if it has received more than
    /// `signals_seen` signals; never if it needs attention. Fenced like [`lock_saga`](Self::lock_saga).
    fn give_back_saga(
        &self,
        owned: &Owned,
        pause: Duration,
        waiting_for: &str,
        signals_seen: usize,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The time at which the next saga of `kinds` is due, in the past or in the future; `None` if
    /// there is no such saga.
    fn next_saga(
        &self,
        kinds: &[Kind],
    ) -> impl Future<Output = Result<Option<Timestamp>, StoreError>> + Send;
}

/// The stored sagas: reading, counting and deleting them.
pub trait SagaRecords: Clone + Send + Sync + 'static {
    /// Reads a saga with its steps.
    fn saga(&self, id: &str)
    -> impl Future<Output = Result<Option<SagaRecord>, StoreError>> + Send;

    /// Lists up to `limit` sagas by id, without their steps, input and signals.
    fn sagas(
        &self,
        filter: &Filter,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<SagaRecord>, StoreError>> + Send;

    /// Counts the sagas that need attention, by kind. Kinds without such sagas are left out.
    fn sagas_in_attention(
        &self,
    ) -> impl Future<Output = Result<Vec<(String, u64)>, StoreError>> + Send;

    /// Deletes a batch of sagas that ended longer than `retention` ago. Returns the number of
    /// deleted sagas.
    fn purge_sagas(
        &self,
        retention: Duration,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// A transaction that has locked the row of a saga.
#[derive(Debug)]
pub struct LockedSaga<Tx> {
    /// The transaction.
    pub tx: Tx,
    /// The number of signals that the saga has received. It does not change until the transaction
    /// ends.
    pub signals_seen: usize,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimOutcome<T> {
    /// The key was free. The value is what the claim gives: a transaction that holds the key until it
    /// ends, the ownership of a key of phased mode, or the retention of the response of a plan that
    /// was executed and committed.
    Open(T),
    /// The key was taken. Nothing was executed.
    Taken(Taken),
}

/// Where a relay reads events: the outbox of a store, or any other table of events.
///
/// A source keeps no state about its readers. Each reader keeps its position in its own frontier.
pub trait Source: Clone + Send + Sync + 'static {
    /// Reads up to `limit` events of `shards` after `frontier`. Returns them with the new frontier.
    ///
    /// The read ends early when the stored size of its events (payload, headers, names) exceeds
    /// [`crate::limits::READ_BYTES`], so that large events cannot fill the memory. It returns at
    /// least one event if there is one. An empty batch means that there are no events after
    /// `frontier` now.
    fn read(
        &self,
        frontier: &Frontier,
        shards: Shards,
        limit: usize,
    ) -> impl Future<Output = Result<Batch, StoreError>> + Send;

    /// Reads ahead for other tenants: up to `limit` events of `shards` at positions above `beyond`
    /// whose tenant is not in `except`. Returns them with the position up to which the source was
    /// searched.
    ///
    /// The returned events are visible and in order. [`read`](Self::read) returns all others later.
    /// A source that does not support this returns no events, and so does a source that is not in
    /// the history in which `head` was read.
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

    /// Finds out for all readers at once whether there is anything to read: returns the shards of
    /// the first events after `frontier`, and the frontier after these events.
    ///
    /// No event of another shard is between the two frontiers. Shards without events may be
    /// returned too, for example [`Shards::ALL`] if there are many events. If there are no events
    /// after `frontier` now, no shard is returned.
    fn shards_after(
        &self,
        frontier: &Frontier,
    ) -> impl Future<Output = Result<(Shards, Frontier), StoreError>> + Send {
        async move {
            let batch = self.read(frontier, Shards::ALL, 1).await?;
            let is_end = batch.events.is_empty() && batch.frontier.high <= frontier.high;
            let shards = if is_end { Shards::NONE } else { Shards::ALL };
            Ok((shards, batch.frontier))
        }
    }

    /// Asks to be woken after commits of events by any process, so that the caller may poll rarely.
    /// The caller reads once more when it has the [`Sleep`], and may drop this future.
    ///
    /// Returns `None` if the source cannot do this, or cannot at the moment: for example because a
    /// transaction with events is open whose commit would not wake the caller. An error says that it will
    /// not be able to for a while.
    fn fall_asleep(&self) -> impl Future<Output = Result<Option<Sleep>, StoreError>> + Send {
        async { Ok(None) }
    }
}

/// Events that were read ahead for other tenants.
#[derive(Clone, Debug)]
pub struct Past {
    /// The events, in order.
    pub events: Vec<Arc<OutboxEvent>>,
    /// The position up to which the source was searched.
    pub until: i64,
}

/// The outbox of a store.
pub trait Outbox: Source {
    /// Deletes a batch of events that all destinations have settled and that are older than
    /// `retention`, and inbox rows older than `inbox_retention`. Returns the number of deleted
    /// rows, including rows that belong to the events.
    ///
    /// An event that is parked or dead at a destination is kept. Without any destination, all
    /// events are kept. A destination that no relay has owned or known for `retention`, while
    /// relays were running, is ignored, unless it was disabled. The age of an event does not depend
    /// on a clock that was ahead when the event was written. A position is never used again, even
    /// if its event was deleted and the store was opened again since; a store may keep its newest
    /// event to remember the last position.
    fn purge_events(
        &self,
        retention: Duration,
        inbox_retention: Duration,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;
}

/// Events of one read.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The events, in order.
    pub events: Vec<Arc<OutboxEvent>>,
    /// The frontier after these events.
    pub frontier: Frontier,
}

/// The rows before the first one that cannot be read, for a store that reads events or deliveries.
///
/// # Errors
/// Fails with the error of the first row if that one cannot be read.
pub fn until_unreadable<R>(rows: Vec<Result<R, StoreError>>) -> Result<Vec<R>, StoreError> {
    let mut readable = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            Ok(row) => readable.push(row),
            Err(error) if readable.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(readable)
}
