//! The transaction as a handler holds it.
//!
//! The writer serves it, and nobody else, until it ends: by `complete`, `commit`, `rollback`,
//! by being dropped, or by taking longer than `tx_max`. A closure that fails dooms it: only
//! `rollback`, or an answer without effect, is left to do. Another write to the same store,
//! awaited while a transaction is open, waits for its end.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use hapax::{
    event::{EventId, NewEvent},
    idempotency::Answer,
    inbox::{Acceptance, Message},
    outbox::{Draft, EventError},
    store::{Effect, StoreError, Transaction},
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{
    dialogue::{Ending, Request},
    error::unavailable,
    idempotency::StoredAnswer,
    inbox,
    sqlite::Sqlite,
    writer::Desk,
};

/// An open transaction on the writer.
#[derive(Debug)]
pub struct Tx {
    store: Sqlite,
    requests: mpsc::Sender<Request>,
    draft: Draft,
    /// How long its answer will stand.
    retention: Duration,
    deadline: Instant,
}

impl Tx {
    pub(crate) fn new(
        store: Sqlite,
        requests: mpsc::Sender<Request>,
        draft: Draft,
        retention: Duration,
        deadline: Instant,
    ) -> Self {
        Self {
            store,
            requests,
            draft,
            retention,
            deadline,
        }
    }

    /// Runs `work` in this transaction, on the writer's thread: many statements, one hop.
    ///
    /// # Errors
    /// Fails when the closure does, and then the transaction is doomed; and when the transaction
    /// is over. The closure cannot end the transaction.
    pub async fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<R> + Send + 'static,
    ) -> Result<R, StoreError> {
        self.ask(move |desk| desk.foreign(work)).await
    }

    async fn ask<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Desk) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
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

    fn send(&self, request: Request) -> Result<(), StoreError> {
        self.requests.send(request).map_err(|_| self.over())
    }

    /// Why the writer does not serve this transaction any more.
    fn over(&self) -> StoreError {
        if Instant::now() >= self.deadline {
            StoreError::TimedOut
        } else {
            unavailable("the transaction was lost with its group")
        }
    }
}

impl Transaction for Tx {
    fn emit(&mut self, event: NewEvent) -> Result<EventId, EventError> {
        self.draft
            .seal(event, self.store.clock(), self.store.random())
    }

    async fn accept(&mut self, message: &Message) -> Result<Acceptance, StoreError> {
        let message = message.clone();
        self.ask(move |desk| inbox::accept(desk, &message)).await
    }

    async fn complete(self, answer: &Answer, effect: Effect) -> Result<Duration, StoreError> {
        let retention = self.retention;
        let answer = StoredAnswer::of(answer);
        self.end(Ending::Complete { answer, effect }).await?;
        Ok(retention)
    }

    async fn commit(self) -> Result<(), StoreError> {
        self.end(Ending::Commit).await
    }

    async fn rollback(self) {
        // However this ends, nothing of the transaction is left.
        let _over = self.end(Ending::Rollback).await;
    }
}
