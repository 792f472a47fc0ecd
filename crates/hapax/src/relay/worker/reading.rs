//! Reading the outbox: one read at a time in the background, and how long to wait for the next one.
//!
//! A worker polls for itself while events come in quick succession, and leaves the polling to the
//! lookout otherwise.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{task::JoinError, time::Instant};

use crate::{
    delivery::Frontier,
    limits::{LADEN, PAST_LOOK, POLL_BUSY, POLL_LADEN, POLL_PART, POLL_RESTING},
    store::{Deliveries, Source, StoreError},
};

use super::{ReadResult, Worker};

impl<S: Source, D: Deliveries> Worker<S, D> {
    /// Starts to read the outbox, or to read ahead for other tenants.
    pub(super) fn start_read(&mut self, moment: Instant) {
        if !self.may_have_more || !self.reading.is_empty() || self.unchecked_batch.is_some() {
            return;
        }
        let (tail, shards) = (Arc::clone(&self.tail), self.shards);
        if self.queue.wants_more() {
            let from = self.queue.checkpoints.head().clone();
            let notified = std::mem::take(&mut self.notified);
            let generation = self.seat.generation();
            self.generation = generation;
            let read = async move {
                let read = tail.read(&from, shards, notified, generation);
                read.await.map(ReadResult::Next)
            };
            self.reading.spawn(read.boxed());
        } else if moment >= self.read_past_at + PAST_LOOK {
            self.read_past_at = moment;
            let Some((beyond, except, limit)) = self.queue.looks_past() else {
                return;
            };
            let head = self.queue.checkpoints.head().clone();
            let read = async move {
                let past = tail.read_past(&head, beyond, shards, &except, limit);
                past.await.map(ReadResult::Past)
            };
            self.reading.spawn(read.boxed());
        }
    }

    /// Admits the unchecked batch, after asking the store which of its keys are blocked.
    pub(super) async fn admit_checked(&mut self) -> Result<(), StoreError> {
        if let Some(batch) = &self.unchecked_batch {
            self.queue.ask(&self.store, batch).await?;
        }
        if let Some(batch) = self.unchecked_batch.take() {
            self.queue.admit(batch, self.settings.clock.now());
        }
        Ok(())
    }

    /// Admits the result of a read.
    pub(super) fn admit(&mut self, read: Result<Result<ReadResult, StoreError>, JoinError>) {
        let now = self.settings.clock.now();
        match read {
            Ok(Ok(ReadResult::Next(batch))) => {
                self.read_backoff = None;
                // The checkpoint also moves for a partition without events.
                let high = self.queue.checkpoints.head().high;
                let moves = !batch.events.is_empty() || batch.frontier.high > high;
                self.may_have_more = moves || self.notified;
                let read_at = Instant::now();
                self.note_find(!batch.events.is_empty(), read_at);
                self.poll_at = read_at + self.pause(read_at);
                if !self.may_have_more && (self.seat.rests() || self.is_idle(read_at)) {
                    self.rest(&batch.frontier, read_at);
                }
                if moves && self.queue.asks_about(&batch).is_empty() {
                    self.queue.admit(batch, now);
                } else if moves {
                    self.unchecked_batch = Some(batch);
                }
            }
            Ok(Ok(ReadResult::Past(past))) => self.queue.admit_past(past, now),
            Ok(Err(error)) => self.read_error = Some(error),
            Err(died) => {
                let died = Box::new(died);
                self.read_error = Some(StoreError::Unavailable { source: died });
            }
        }
    }

    /// Notes when something was found, which determines the poll interval. A worker that rests
    /// polls for itself again when events come in quick succession; until then it does not count
    /// the events of other partitions.
    fn note_find(&mut self, has_events: bool, now: Instant) {
        let idle = self.settings.poll_idle;
        if has_events && self.found_at.is_some_and(|at| now < at + idle) {
            self.seat.rise();
        }
        if has_events || (self.may_have_more && !self.seat.rests()) {
            self.found_at = Some(now);
        }
    }

    /// How long to wait before the next poll if there is no notification: a fraction of the idle
    /// time. If events arrive every few milliseconds, it stays short.
    fn pause(&self, now: Instant) -> Duration {
        let idle = self.settings.poll_idle;
        let idle_for = self.found_at.map(|at| now.duration_since(at));
        let pause = idle_for.map_or(idle, |idle_for| idle_for / POLL_PART);
        let least = if self.in_flight.len() < LADEN {
            POLL_BUSY
        } else {
            POLL_LADEN
        };
        pause.max(least).min(idle)
    }

    /// Whether nothing was found for so long that the poll interval is at its longest.
    fn is_idle(&self, now: Instant) -> bool {
        self.pause(now) >= self.settings.poll_idle
    }

    /// Leaves the polling to the lookout, after a read that has found nothing.
    fn rest(&mut self, read: &Frontier, now: Instant) {
        if self.seat.rest(read, self.generation) {
            self.poll_at = now + POLL_RESTING.max(self.settings.poll_idle);
        } else {
            self.may_have_more = true;
        }
    }
}
