//! The transaction as a handler holds it.
//!
//! The writer serves it, and nobody else, until it ends: by `complete`, `commit`, `rollback`,
//! by being dropped, or by taking longer than `tx_max`. A closure that fails dooms it: only
//! `rollback`, or an answer without effect, is left to do. Another write to the same store,
//! awaited while a transaction is open, waits for its end. Whose claim rides with the first
//! statement holds up nobody before it.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use hapax::{
    event::{EventId, Headers, NewEvent},
    idempotency::{Answer, Claim, Known},
    inbox::{Acceptance, Message},
    key::Scope,
    outbox::{Draft, EventError},
    seeded::{self, Bug},
    store::{Claimed, Effect, StoreError, Transaction},
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    dialogue::{self, Ending, Request, Under},
    error::unavailable,
    idempotency::StoredAnswer,
    inbox, outbox,
    sqlite::Sqlite,
    writer::Desk,
};

/// An open transaction on the writer.
#[derive(Debug)]
pub struct Tx {
    store: Sqlite,
    draft: Draft,
    /// The way to the writer: none before a claim that rides, and none when that was lost.
    line: Option<Line>,
    /// A claim that has not been made: it travels with the first statement.
    riding: Option<Claim>,
    /// What is known about the key, when that claim found it taken.
    known: Option<Known>,
}

/// A transaction's way to the writer that serves it.
#[derive(Debug)]
struct Line {
    requests: mpsc::Sender<Request>,
    /// How long its answer will stand.
    retention: Duration,
    /// The key that its answer will stand under.
    scope: Option<Scope>,
    deadline: Instant,
}

impl Tx {
    pub(crate) fn new(
        store: Sqlite,
        requests: mpsc::Sender<Request>,
        draft: Draft,
        retention: Duration,
        scope: Option<Scope>,
        deadline: Instant,
    ) -> Self {
        let line = Line {
            requests,
            retention,
            scope,
            deadline,
        };
        Self {
            store,
            draft,
            line: Some(line),
            riding: None,
            known: None,
        }
    }

    /// Whose claim travels with the first statement: until then the writer serves others.
    pub(crate) fn riding(store: &Sqlite, draft: Draft, claim: Claim) -> Self {
        Self {
            store: store.clone(),
            draft,
            line: None,
            riding: Some(claim),
            known: None,
        }
    }

    /// Runs `work` in this transaction, on the writer's thread: many statements, one hop.
    ///
    /// # Errors
    /// Fails when the closure does, and then the transaction is doomed; and when the transaction
    /// is over. `NotClaimed` says that a claim which travelled with it did not get the key, and that
    /// the closure did not run. The closure cannot end the transaction.
    pub async fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.ask(move |desk| desk.foreign(work)).await
    }

    /// What its request carries.
    pub(crate) fn context(&self) -> &Headers {
        self.draft.context()
    }

    /// The key that it runs under.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        let riding = self.riding.as_ref().map(|claim| &claim.scope);
        riding.or_else(|| self.line.as_ref()?.scope.as_ref())
    }

    pub(crate) async fn ask<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Desk) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.claim().await?;
        let (reply, answer) = oneshot::channel();
        self.send(Request::run(work, reply))?;
        answer.await.map_err(|_| self.over())?
    }

    async fn end(mut self, ending: Ending) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let events = self.draft.take_events();
        self.send(Request::End {
            ending,
            events,
            reply,
        })?;
        answer.await.map_err(|_| self.over())?
    }

    /// Makes the claim that has been riding so far.
    async fn claim(&mut self) -> Result<(), StoreError> {
        let Some(claim) = self.riding.take() else {
            return Ok(());
        };
        let events = std::mem::replace(&mut self.draft, Draft::new(None, Headers::new()));
        match dialogue::open(&self.store, Under::Claim(claim), events).await? {
            Claimed::Open(tx) => *self = tx,
            Claimed::Known(known) => {
                self.known = Some(known);
                return Err(StoreError::NotClaimed);
            }
        }
        Ok(())
    }

    fn send(&self, request: Request) -> Result<(), StoreError> {
        let line = self.line.as_ref().ok_or(StoreError::NotClaimed)?;
        line.requests.send(request).map_err(|_| self.over())
    }

    /// Why the writer does not serve this transaction any more.
    fn over(&self) -> StoreError {
        match &self.line {
            Some(line) if Instant::now() >= line.deadline => StoreError::TimedOut,
            _ => unavailable("the transaction was lost with its group"),
        }
    }
}

impl Transaction for Tx {
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        let id = self.draft.seal(
            event,
            self.store.clock(),
            self.store.random(),
            self.store.keyring(),
        )?;
        if seeded::has(Bug::PublishBeforeCommit) {
            let (store, events) = (self.store.clone(), self.draft.take_events());
            tokio::spawn(async move { outbox::append_apart(&store, events).await });
        }
        Ok(id)
    }

    async fn accept(&mut self, message: &Message) -> Result<Acceptance, StoreError> {
        let message = message.clone();
        self.ask(move |desk| inbox::accept(desk, &message)).await
    }

    async fn complete(mut self, answer: &Answer, effect: Effect) -> Result<Duration, StoreError> {
        // Where nothing was asked of the writer yet, the claim travels alone.
        self.claim().await?;
        let retention = self
            .line
            .as_ref()
            .map_or(Duration::ZERO, |line| line.retention);
        let scope = self.line.as_ref().and_then(|line| line.scope.as_ref());
        let keyring = self.store.keyring();
        let answer = StoredAnswer::of(keyring, scope, answer)?;
        self.end(Ending::Complete { answer, effect }).await?;
        Ok(retention)
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.claim().await?;
        self.end(Ending::Commit).await
    }

    async fn rollback(self) {
        // However this ends, nothing of the transaction is left.
        let _over = self.end(Ending::Rollback).await;
    }

    fn known(&mut self) -> Option<Known> {
        self.known.take()
    }

    fn has_conflict(&self) -> bool {
        self.line.is_none() && self.riding.is_none()
    }
}
