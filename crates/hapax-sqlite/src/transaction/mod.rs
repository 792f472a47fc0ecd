//! The handler's side of an interactive transaction.
//!
//! The writer serves only this transaction until it ends: by `complete`, `commit`, `rollback`, by
//! being dropped, or by taking longer than `tx_max`. If a closure fails, the transaction is doomed:
//! it can only be rolled back, or completed with a response without its effect. Any other write to
//! the same store waits until the transaction ends. A transaction with a pipelined claim does not
//! hold the writer before its first statement.

pub(crate) mod interactive;

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use hapax::{
    event::{EventId, Headers, NewEvent},
    idempotency::{Claim, OnClaimed, StoredResponse, Taken},
    inbox::{Acceptance, Accepted, Message, ResultError},
    key::Scope,
    outbox::{Draft, EventError},
    store::{ClaimOutcome, Effect, StoreError, Transaction},
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    error::unavailable,
    idempotency::ResponseColumns,
    inbox,
    sqlite::Sqlite,
    transaction::interactive::{Request, TransactionEnd, TransactionKind},
    writer::WriterContext,
};

/// An open transaction on the writer.
#[derive(Debug)]
pub struct Tx {
    store: Sqlite,
    draft: Draft,
    accepted: Accepted,
    /// The connection to the writer. `None` before a pipelined claim is made, and if it failed.
    line: Option<Line>,
    /// A pipelined claim that is not yet made: it is sent with the first statement.
    pipelined: Option<(Claim, OnClaimed)>,
    /// The claim outcome, if that claim found the key taken.
    taken: Option<Taken>,
}

/// A transaction's connection to the writer.
#[derive(Debug)]
struct Line {
    requests: mpsc::Sender<Request>,
    /// How long its response is kept.
    retention: Duration,
    /// The key under which its response is stored.
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
            accepted: Accepted::default(),
            line: Some(line),
            pipelined: None,
            taken: None,
        }
    }

    /// A transaction whose claim is sent with its first statement. Until then the writer serves
    /// other requests.
    pub(crate) fn pipelined(store: &Sqlite, draft: Draft, pipelined: (Claim, OnClaimed)) -> Self {
        Self {
            store: store.clone(),
            draft,
            accepted: Accepted::default(),
            line: None,
            pipelined: Some(pipelined),
            taken: None,
        }
    }

    /// Runs `work` in this transaction, on the writer's thread. All its statements need only one
    /// switch between threads. The closure cannot end the transaction.
    ///
    /// # Errors
    /// Fails if the closure fails, and then the transaction is doomed; and if the transaction has
    /// ended. `NotClaimed` means that the pipelined claim did not get the key, and that the closure
    /// did not run.
    pub async fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.ask(move |ctx| ctx.foreign(work)).await
    }

    /// The trace context of its request.
    pub(crate) fn context(&self) -> &Headers {
        self.draft.context()
    }

    /// The key of its request.
    pub(crate) fn scope(&self) -> Option<&Scope> {
        let pipelined = self.pipelined.as_ref().map(|(claim, _)| &claim.scope);
        pipelined.or_else(|| self.line.as_ref()?.scope.as_ref())
    }

    pub(crate) async fn ask<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&WriterContext) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.claim().await?;
        let (reply, response) = oneshot::channel();
        self.send(Request::run(work, reply))?;
        response.await.map_err(|_| self.over())?
    }

    async fn end(mut self, ending: TransactionEnd) -> Result<(), StoreError> {
        let (reply, response) = oneshot::channel();
        let events = self.draft.take_events();
        let processed = self.accepted.take_new();
        let keeps_effect = ending.keeps_effect();
        if !keeps_effect {
            self.accepted.rolled_back();
        }
        self.send(Request::End {
            ending,
            events,
            processed,
            reply,
        })?;
        response.await.map_err(|_| self.over())??;
        if keeps_effect {
            self.accepted.committed();
        }
        Ok(())
    }

    /// Makes the pipelined claim, if it is not yet made.
    async fn claim(&mut self) -> Result<(), StoreError> {
        let Some((claim, on_claimed)) = self.pipelined.take() else {
            return Ok(());
        };
        let events = std::mem::replace(&mut self.draft, Draft::new(None, Headers::new()));
        match interactive::open(&self.store, TransactionKind::Claim(claim), events).await? {
            ClaimOutcome::Open(tx) => {
                *self = tx;
                on_claimed.call();
            }
            ClaimOutcome::Taken(taken) => {
                self.taken = Some(taken);
                return Err(StoreError::NotClaimed);
            }
        }
        Ok(())
    }

    fn send(&self, request: Request) -> Result<(), StoreError> {
        let line = self.line.as_ref().ok_or(StoreError::NotClaimed)?;
        line.requests.send(request).map_err(|_| self.over())
    }

    /// The reason why the writer no longer serves this transaction.
    fn over(&self) -> StoreError {
        match &self.line {
            Some(line) if Instant::now() >= line.deadline => StoreError::TimedOut,
            _ => unavailable("the transaction was rolled back because its group failed"),
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
        let asked = message.clone();
        let acceptance = self.ask(move |ctx| inbox::accept(ctx, &asked)).await?;
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
        // If the handler ran no statement, the claim is sent on its own.
        self.claim().await?;
        let retention = self
            .line
            .as_ref()
            .map_or(Duration::ZERO, |line| line.retention);
        let scope = self.line.as_ref().and_then(|line| line.scope.as_ref());
        let keyring = self.store.keyring();
        let response = ResponseColumns::of(keyring, scope, response)?;
        self.end(TransactionEnd::Complete { response, effect })
            .await?;
        Ok(retention)
    }

    async fn commit(mut self) -> Result<(), StoreError> {
        self.claim().await?;
        self.end(TransactionEnd::Commit).await
    }

    async fn rollback(self) {
        // Even if this fails, the writer rolls the transaction back.
        let _over = self.end(TransactionEnd::Rollback).await;
    }

    fn taken(&mut self) -> Option<Taken> {
        self.taken.take()
    }

    fn has_conflict(&self) -> bool {
        self.line.is_none() && self.pipelined.is_none()
    }
}
