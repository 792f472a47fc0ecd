//! The interactive transaction that a handler uses, and its commit.
//!
//! Events are kept in memory until the end: the response, the events and `COMMIT` are sent in one
//! pipeline. After a statement has failed, the transaction can only be rolled back, or completed
//! with a response whose effect is dropped. A statement that would end the transaction is refused
//! before it is sent, and counts as one that has failed. If the connection dies during the commit,
//! the key is queried on another connection to find out whether the commit happened; nothing is
//! assumed.
//!
//! A transaction with an optimistic claim is opened by the handler's first statement, and claims its
//! key in the last pipeline. A transaction that accepts a message at its commit does the same with
//! the message.

use std::time::Duration;

use hapax::{
    event::{EventId, Headers, NewEvent},
    idempotency::{Claim, OnClaimed, StoredResponse, Taken},
    inbox::{Acceptance, Accepted, Message, ResultError},
    key::Scope,
    outbox::{Draft, EventError},
    store::{ClaimOutcome, Effect, StoreError, Transaction},
};
use tokio_postgres::{Row, types::ToSql};

use crate::{
    claim::try_hold,
    commit::CommitPipeline,
    commit_recovery::{self, IfAbsent},
    connection::Link,
    ending_keyword::ending_keyword,
    error::{ends_transaction, lost, own_error, store_error, unavailable},
    idempotency::{ClaimedKey, OldRow, ResponseColumns, evaluate_rows, parts, retention},
    inbox,
    payload_lock::payload_lock,
    phase::Phase,
    postgres::Postgres,
    query,
    session::{QueuedStatement, Session},
    value::Param,
};

/// An open transaction on a connection that nothing else uses.
#[derive(Debug)]
pub struct Tx {
    store: Postgres,
    session: Session,
    draft: Draft,
    accepted: Accepted,
    /// The message that the last pipeline accepts. It is the first one of `accepted`.
    at_commit: Option<Message>,
    held: Option<ClaimedKey>,
    phase: Option<Phase>,
    /// A pipelined claim that was not sent yet: it is sent with the first statement.
    pipelined: Option<(Claim, OnClaimed)>,
    /// The outcome of that claim if the key was taken.
    taken: Option<Taken>,
    doom: Option<Doom>,
    /// Whether to notify this process after the commit even if there are no events.
    notifies: bool,
}

/// Why a transaction can only be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doom {
    /// A statement failed.
    Failed,
    /// It conflicted with another transaction and may run again.
    Conflict,
    /// Its pipelined claim did not get the key, or failed.
    NotClaimed,
    /// A statement would have ended it, and was refused. This is its keyword.
    Refused(&'static str),
}

impl Tx {
    pub(crate) fn new(
        store: &Postgres,
        session: Session,
        draft: Draft,
        held: Option<ClaimedKey>,
    ) -> Self {
        Self {
            store: store.clone(),
            session,
            draft,
            accepted: Accepted::default(),
            at_commit: None,
            held,
            phase: None,
            pipelined: None,
            taken: None,
            doom: None,
            notifies: false,
        }
    }

    /// Creates a transaction with a pipelined claim, which is sent with the first statement.
    pub(crate) fn pipelined(
        store: &Postgres,
        session: Session,
        draft: Draft,
        pipelined: (Claim, OnClaimed),
    ) -> Self {
        Self {
            pipelined: Some(pipelined),
            ..Self::new(store, session, draft, None)
        }
    }

    /// Creates a transaction with an optimistic claim. Nothing is sent before the first statement,
    /// and the statement that stores the response claims the key.
    pub(crate) fn optimistic(
        store: &Postgres,
        mut session: Session,
        draft: Draft,
        claim: Claim,
    ) -> Self {
        session.begin(store.begin());
        let row = OldRow::Unread;
        Self::new(store, session, draft, Some(ClaimedKey { claim, row }))
    }

    /// Creates a transaction whose last pipeline accepts `message`. Nothing is sent before the
    /// first statement.
    pub(crate) fn accepting(
        store: &Postgres,
        mut session: Session,
        draft: Draft,
        message: Message,
    ) -> Self {
        session.begin(store.begin());
        let mut tx = Self::new(store, session, draft, None);
        tx.accepted.add(&message, Acceptance::First);
        tx.at_commit = Some(message);
        tx
    }

    /// Creates a transaction of a key that is already owned. It commits only if the key still is.
    pub(crate) fn of_phase(store: &Postgres, session: Session, draft: Draft, phase: Phase) -> Self {
        Self {
            phase: Some(phase),
            ..Self::new(store, session, draft, None)
        }
    }

    pub(crate) fn store(&self) -> &Postgres {
        &self.store
    }

    /// The headers that the events of its request carry.
    pub(crate) fn context(&self) -> &Headers {
        self.draft.context()
    }

    /// The scope of its key.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        let held = self.held.as_ref().map(|held| &held.claim);
        let pipelined = self.pipelined.as_ref().map(|(claim, _)| claim);
        let claimed = held.or(pipelined).map(|claim| &claim.scope);
        claimed.or_else(|| self.phase.as_ref().map(|phase| &phase.owned.scope))
    }

    /// Notifies the relay after the commit, even if there are no events.
    pub(crate) fn notify_after_commit(&mut self) {
        self.notifies = true;
    }

    /// Runs a statement in this transaction and returns its rows.
    ///
    /// Savepoints are statements like any other. A statement that would end the transaction
    /// (`COMMIT`, `END`, `ROLLBACK`, `ABORT`, `PREPARE TRANSACTION`) is refused: nothing of the
    /// transaction can be committed without what the store writes at its end.
    ///
    /// # Errors
    /// Fails if the statement fails or is refused; then the transaction cannot be committed.
    /// `Conflict` means that it may run again, `NotClaimed` that its pipelined claim did not get the
    /// key.
    pub async fn query(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.check_statement(sql).await?;
        self.ask(async |link| link.theirs(sql, params).await)
            .await
            .map(|(rows, _)| rows)
    }

    /// Runs a statement in this transaction and returns the number of rows that it changed.
    ///
    /// # Errors
    /// The same as [`Tx::query`].
    pub async fn execute(
        &mut self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, StoreError> {
        self.check_statement(sql).await?;
        self.ask(async |link| link.theirs(sql, params).await)
            .await
            .map(|(_, count)| count)
    }

    /// Refuses a statement that would end this transaction.
    async fn check_statement(&mut self, sql: &str) -> Result<(), StoreError> {
        let Some(keyword) = ending_keyword(sql) else {
            return Ok(());
        };
        // A pipelined claim is sent with the first statement. If it does not get the key, that is the
        // outcome of the request.
        Box::pin(self.ask(async |_| Ok(()))).await?;
        self.doom = Some(Doom::Refused(keyword));
        Err(ends_transaction(keyword))
    }

    pub(crate) async fn ask<R>(
        &mut self,
        ask: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, StoreError> {
        self.check()?;
        // If this future is dropped, the transaction must not be committed.
        self.doom = Some(Doom::Failed);
        let claims = self.pipelined.is_some();
        let asked = match self.pipelined.take() {
            None => self.session.run(ask).await.map_err(StoreError::from),
            Some((claim, on_claimed)) => self.pipeline_claim(claim, on_claimed, ask).await,
        };
        let error = match asked {
            Ok(response) => {
                self.doom = None;
                return Ok(response);
            }
            Err(error) => error,
        };
        match error {
            StoreError::Conflict { .. } => self.doom = Some(Doom::Conflict),
            // Either the key was taken, or the claim failed. The statement did not run, so the
            // request can claim again before its handler starts.
            _ if claims && self.held.is_none() => self.doom = Some(Doom::NotClaimed),
            _ => {}
        }
        Err(error)
    }

    /// Opens the transaction, claims the key and runs the first statement in one pipeline.
    ///
    /// The result of the statement is returned only if the key was free.
    async fn pipeline_claim<R>(
        &mut self,
        claim: Claim,
        on_claimed: OnClaimed,
        ask: impl AsyncFnOnce(&Link) -> Result<R, tokio_postgres::Error>,
    ) -> Result<R, StoreError> {
        // The lock is also the guard of the handler's statement.
        let lock = if self.store.settings().pooled {
            query!("idempotency/lock_in_transaction_pooled")
        } else {
            query!("idempotency/lock_in_transaction")
        };
        let sql = [lock, query!("idempotency/find")];
        let ready = self.session.ready(&sql).await.map_err(own_error)?;
        let begin = self.store.begin();
        let [tenant, operation, key] = parts(&claim.scope);
        let (payload, time) = (payload_lock(&claim), self.store.time());
        let scope: [&dyn Param; 4] = [&tenant, &operation, &key, &payload];
        let scope_at: [&dyn Param; 4] = [&tenant, &operation, &key, &time];
        let results = self.session.run_behind(
            &begin,
            |link| {
                vec![
                    Box::pin(link.rows(&ready[0], &scope)) as QueuedStatement<'_>,
                    Box::pin(link.rows(&ready[1], &scope_at)),
                ]
            },
            ask,
        );
        let (ahead, asked) = results.await.map_err(own_error)?;
        match evaluate_rows(&ahead[0], &ahead[1], &claim, self.store.keyring())? {
            Some(ClaimOutcome::Open(row)) => {
                self.held = Some(ClaimedKey { claim, row });
                on_claimed.call();
                asked.map_err(store_error)
            }
            Some(ClaimOutcome::Taken(taken)) => {
                self.taken = Some(taken);
                Err(StoreError::NotClaimed)
            }
            None => Err(StoreError::NotClaimed),
        }
    }

    /// Whether the key or the message is only assumed to be free or new.
    fn is_optimistic(&self) -> bool {
        let held = self.held.as_ref();
        self.at_commit.is_some() || held.is_some_and(|held| held.row == OldRow::Unread)
    }

    /// Opens a transaction in which no statement was sent. Otherwise, if `BEGIN` failed, the statement
    /// that stores the response, or the message, would be committed on its own.
    async fn open(&mut self) -> Result<(), StoreError> {
        if self.session.is_begun() {
            return Ok(());
        }
        let opened = self.ask(async |_| Ok(())).await;
        // Nothing was committed, so the request may run again.
        opened.map_err(StoreError::conflict)
    }

    fn check(&self) -> Result<(), StoreError> {
        match self.doom {
            None => Ok(()),
            Some(Doom::Failed) => Err(StoreError::statement(
                "an earlier statement of this transaction failed",
            )),
            Some(Doom::Conflict) => Err(lost("an earlier statement caused a conflict")),
            Some(Doom::NotClaimed) => Err(StoreError::NotClaimed),
            Some(Doom::Refused(keyword)) => Err(ends_transaction(keyword)),
        }
    }

    /// Commits the events, and the response if there is a key under which to store it.
    async fn keep(mut self, response: Option<&StoredResponse>) -> Result<(), StoreError> {
        if let Err(error) = self.check() {
            self.session.rollback().await;
            return Err(error);
        }
        let events = self.draft.take_events();
        if !self.session.is_begun() && events.is_empty() && self.phase.is_none() {
            self.session.end();
            return Ok(());
        }
        let scope = match (&self.held, &self.phase) {
            (Some(held), _) => Some(&held.claim.scope),
            (None, Some(phase)) => Some(&phase.owned.scope),
            (None, None) => None,
        };
        let stored = scope
            .zip(response)
            .map(|(scope, response)| ResponseColumns::of(self.store.keyring(), scope, response));
        let stored = match stored.transpose() {
            Ok(stored) => stored,
            Err(error) => {
                self.session.rollback().await;
                return Err(error);
            }
        };
        let processed = self.accepted.take_new();
        let (held, phase) = (self.held.as_ref(), self.phase.as_ref());
        let time = self.store.time();
        let pipeline = CommitPipeline::of(held, phase, stored.as_ref(), &events, &processed, time)
            .accepting(self.at_commit.as_ref());
        let failpoints = &self.store.settings().failpoints;
        let failed = match pipeline.send(&mut self.session, failpoints).await {
            Ok(()) => {
                self.session.end();
                self.accepted.committed();
                failpoints.hit("postgres.commit.after");
                if !events.is_empty() || self.notifies {
                    self.store.notifier().notify();
                }
                return Ok(());
            }
            Err(failed) => failed,
        };
        if !failed.is_unknown() {
            self.session.rollback().await;
            return Err(failed.into_error());
        }
        self.session.discard();
        match (self.held, response) {
            (Some(held), Some(response)) => {
                Box::pin(commit_recovery::committed(
                    &self.store,
                    &held.claim,
                    IfAbsent::of(held.row),
                    response,
                ))
                .await?;
                self.accepted.committed();
                self.store.notifier().notify();
                Ok(())
            }
            _ => Err(failed.into_error()),
        }
    }

    /// Rolls the effect back and stores the response alone, in a second transaction that is sent
    /// together with the rollback. The second transaction claims the key before it is written. If the
    /// first one was not opened, nothing is stored.
    ///
    /// Between the two the key is free for a moment. If another request takes it then, this request
    /// runs again and finds the key taken.
    async fn drop_effect(
        self,
        held: ClaimedKey,
        response: &StoredResponse,
    ) -> Result<(), StoreError> {
        self.accepted.rolled_back();
        let Self {
            store,
            mut session,
            doom,
            ..
        } = self;
        if !session.can_restart() {
            session.rollback().await;
            return Err(lost("the transaction was not opened"));
        }
        let begin = match session.take_begin() {
            Some(begin) => begin.into_owned(),
            None if doom.is_some() => {
                // Nothing can be prepared in a transaction that has failed.
                let rollback = session.pipeline(|link| vec![Box::pin(link.none("ROLLBACK"))]);
                if let Err(failed) = rollback.await {
                    session.rollback().await;
                    return Err(StoreError::conflict(own_error(failed.cause)));
                }
                store.begin().into_owned()
            }
            None => format!("ROLLBACK; {}", &store.begin()),
        };
        let claimed = match try_hold(&store, session, &held.claim, &begin).await {
            // Nothing was stored. The next run looks for a connection that works.
            Err(error) if held.row == OldRow::Unread => return Err(StoreError::conflict(error)),
            claimed => claimed?,
        };
        match claimed {
            Some(ClaimOutcome::Open((session, row))) => {
                let tenant = held.claim.scope.tenant.clone();
                let draft = Draft::new(Some(tenant), Headers::new());
                let held = ClaimedKey { row, ..held };
                let tx = Self::new(&store, *session, draft, Some(held));
                tx.keep(Some(response)).await
            }
            _ if held.row == OldRow::Unread => Err(StoreError::NotClaimed),
            _ => Err(lost("another request took the key")),
        }
    }
}

impl Transaction for Tx {
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        let Self { store, draft, .. } = self;
        draft.add(
            event,
            store.clock(),
            store.random(),
            store.keyring(),
            store.event_check(),
        )
    }

    async fn accept(&mut self, message: &Message) -> Result<Acceptance, StoreError> {
        let time = self.store.time();
        let acceptance = self
            .ask(async |link| inbox::accept(link, message, time).await)
            .await
            .map_err(own_error)?;
        self.accepted.add(message, acceptance);
        Ok(acceptance)
    }

    fn record_result(&mut self, result: &str) -> Result<(), ResultError> {
        self.accepted.record_result(result)
    }

    async fn complete(
        mut self,
        response: &StoredResponse,
        effect: Effect,
    ) -> Result<Duration, StoreError> {
        if self.has_conflict()
            && let Err(outcome) = self.check()
        {
            self.session.rollback().await;
            return Err(outcome);
        }
        if self.pipelined.is_some() {
            // No statement was sent yet, so the claim is sent alone.
            self.ask(async |_| Ok(())).await?;
        }
        if effect == Effect::Keep && self.is_optimistic() {
            self.open().await?;
        }
        let stands = match (&self.held, &self.phase) {
            (Some(held), _) => retention(&held.claim),
            (None, Some(phase)) => phase.owned.retention,
            (None, None) => Duration::ZERO,
        };
        match (effect, self.held.take(), self.phase.take()) {
            (Effect::Keep, held, phase) => {
                let kept = Self {
                    held,
                    phase,
                    ..self
                };
                kept.keep(Some(response)).await?;
            }
            (Effect::Drop, Some(held), _) => Box::pin(self.drop_effect(held, response)).await?,
            (Effect::Drop, None, phase) => {
                self.accepted.rolled_back();
                self.session.rollback().await;
                match phase {
                    // The response alone is stored, in a separate transaction.
                    Some(phase) => {
                        let scope = &phase.owned.scope;
                        let stored = ResponseColumns::of(self.store.keyring(), scope, response)?;
                        phase.end_alone(&self.store, Some(&stored)).await?;
                    }
                    // The first statement was cut off, for example by the client's deadline, and the
                    // claim with it: there is no key under which the response could be stored.
                    None if self.doom.is_some() => {
                        return Err(unavailable("the claim of the key was interrupted"));
                    }
                    None => {}
                }
            }
        }
        Ok(stands)
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        if self.pipelined.take().is_some() {
            // There was no statement and there is no response, but there may be events.
            self.session.begin(self.store.begin());
        }
        if self.at_commit.is_some() {
            self.open().await?;
        }
        self.keep(None).await
    }

    async fn rollback(self) {
        self.accepted.rolled_back();
        self.session.rollback().await;
    }

    fn taken(&mut self) -> Option<Taken> {
        self.taken.take()
    }

    fn has_conflict(&self) -> bool {
        matches!(self.doom, Some(Doom::Conflict | Doom::NotClaimed))
    }
}
