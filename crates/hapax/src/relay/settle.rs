//! Recording outcomes. This is the only place that changes a delivery.
//!
//! [`DeliveryQueue::conclude`] converts the outcome of an attempt to rows: delivered, parked until
//! later, dead, or destination disabled. The next iteration writes the rows in one transaction,
//! fenced by the epoch.

use std::time::Duration;

use metrics::counter;
use tracing::Level;

use crate::{
    clock::Timestamp,
    delivery::{
        Arrived, Attempt, AttemptOutcome, CheckpointId, Exhausted, ParkedState, Settlement,
    },
    limits::ERROR_BYTES,
    retry::Next,
    sink::{Outcome, Receipt, SinkError},
    telemetry,
};

use super::{
    blocked::unrecorded_keys, delivery_queue::DeliveryQueue, destination::Order, lane::Item,
};

/// One attempt and its outcome.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) item: Item,
    pub(super) started_at: Timestamp,
    pub(super) duration: Duration,
    pub(super) outcome: Outcome,
}

/// If the level is off, nothing is formatted.
macro_rules! write_arrival {
    ($level:expr, $queue:ident, $tried:ident, $status:ident) => {
        tracing::event!(
            $level,
            destination = $queue.partition,
            event_id = %$tried.item.event.event.id,
            event_type = $tried.item.event.event.kind,
            correlation_id = $tried.item.event.event.headers.get("correlation_id"),
            attempt = $tried.item.attempts + 1,
            status = $status,
            from_state = state_of(&$tried.item),
            to_state = "delivered",
            duration_us = u64::try_from($tried.duration.as_micros()).unwrap_or(u64::MAX),
            "the event is delivered"
        )
    };
}

impl DeliveryQueue {
    /// Records the outcome of an attempt; `unit` is a random number in `0.0..1.0` for jitter.
    pub(super) fn conclude(&mut self, tried: Tried, now: Timestamp, unit: f64) {
        if let Ok(receipt) = &tried.outcome {
            return self.arrived(&tried, receipt.status, now);
        }
        self.log(&tried);
        let Tried { item, outcome, .. } = tried;
        let attempt = item.attempts + 1;
        let Err(error) = outcome else { return };
        match &error {
            SinkError::Rejected { .. } => self.died(item, attempt, now, &error),
            SinkError::Gone { .. } => {
                // The failure does not concern the event, which is delivered when the destination
                // is enabled again.
                self.pending.disable = Some(one_line(&error));
                self.failed(item, ParkedState::Retrying, attempt, now, &error);
            }
            SinkError::Unavailable { retry_after, .. }
            | SinkError::Declined { retry_after, .. } => {
                let counted = self.counted(item.position(), attempt);
                match self.destination.schedule.after(counted, unit, *retry_after) {
                    Next::Retry(wait) => {
                        self.counted.retry_delay.record(wait.as_secs_f64());
                        self.failed(
                            item,
                            ParkedState::Retrying,
                            attempt,
                            now.after(wait),
                            &error,
                        );
                    }
                    Next::DeadLetter => self.died(item, attempt, now, &error),
                }
            }
        }
    }

    /// Gives up an event that has no attempts left: its relay died during the last one, whose outcome
    /// is unknown, or the schedule has become shorter.
    pub(super) fn give_up(&mut self, item: Item, now: Timestamp) {
        let reason = "no attempts are left: the relay died during the last one, or the schedule \
                      was shortened";
        let error = SinkError::unavailable("interrupted", reason);
        let attempts = item.attempts;
        self.died(item, attempts, now, &error);
    }

    /// The next settlement to write, if there is anything to record.
    ///
    /// A settlement that was sent is sent again under its number until it is
    /// [`settled`](Self::settled): it may have been written without a confirmation, and must not
    /// revert what an operator has changed since.
    pub(super) fn settlement(&mut self) -> Option<Settlement> {
        if self.sent.is_none() && self.is_pending() {
            let next = Settlement {
                destination: self.partition.clone(),
                epoch: self.pending.epoch,
                number: self.pending.number + 1,
                ..Settlement::default()
            };
            let pending = std::mem::replace(&mut self.pending, next);
            let moved = self.checkpoints.changed();
            let known_by = || pending.is_once().then(|| self.checkpoints.checkpoint());
            let checkpoint = moved.or_else(known_by);
            self.sent = Some(Settlement {
                read: self.checkpoints.read_to(),
                follows: Some(self.newest),
                seen: self.checkpoints.seen(checkpoint.is_some()),
                checkpoint,
                arrived: self.arrivals.said(),
                ..pending
            });
            self.checkpoints.kept();
            self.arrivals.0.clear();
        }
        if self.sent.is_some() {
            // Until the store has responded, it is unknown which checkpoint the store contains.
            self.known.set(None);
        }
        self.sent.clone()
    }

    /// Whether there is anything to record.
    pub(super) fn is_dirty(&self) -> bool {
        self.sent.is_some() || self.is_pending()
    }

    /// Whether the destination is to be disabled.
    pub(super) fn is_disabling(&self) -> bool {
        let mut unrecorded = self.sent.iter().chain([&self.pending]);
        unrecorded.any(|unrecorded| unrecorded.disable.is_some())
    }

    fn is_pending(&self) -> bool {
        let Settlement {
            begin,
            park,
            delivered,
            release,
            attempts,
            disable,
            ..
        } = &self.pending;
        self.checkpoints.has_moved()
            || disable.is_some()
            || !(begin.is_empty() && park.is_empty() && delivered.is_empty())
            || !(release.is_empty() && attempts.is_empty() && self.arrivals.0.is_empty())
    }

    /// Records that the settlement was written, and which order keys are unblocked.
    pub(super) fn settled(&mut self, mut freed: Vec<String>, now: Timestamp) {
        let Some(sent) = self.sent.take() else { return };
        if let Some(checkpoint) = &sent.checkpoint {
            self.newest = CheckpointId {
                epoch: sent.epoch,
                settlement: sent.number,
                high: checkpoint.frontier.high,
            };
        }
        self.known.set(Some(self.newest));
        let falls_due = |key: &String| !freed.contains(key) && !self.lane.has(key);
        if sent.release.iter().any(falls_due) {
            self.due_at = Some(now);
        }
        // The store does not know yet which other deliveries they have to wait for.
        let parked = |key: &String| {
            let mut keys = self.pending.park.iter().map(|park| &park.order_key);
            keys.any(|held| held.as_ref() == Some(key))
        };
        freed.retain(|key| !parked(key));
        for key in freed {
            self.blocked.remove(&key);
        }
        self.blocked.keep(unrecorded_keys(None, &self.pending));
        // Until now their rows seemed to be due, although their deliveries were in memory.
        let written = sent.park.iter().map(|park| park.position);
        for position in written.chain(sent.delivered) {
            self.revived.remove(&position);
        }
    }

    fn arrived(&mut self, tried: &Tried, status: Option<u16>, now: Timestamp) {
        let item = &tried.item;
        let age = now.since(item.event.event.created_at).as_secs_f64();
        self.counted.age.record(age);
        self.counted.arrived.increment(1);
        self.log_arrival(tried, status);
        if item.attempts == 0 && !item.parked {
            self.arrivals.note(tried, status);
        } else {
            self.pending.attempts.push(Attempt {
                outcome: AttemptOutcome::Delivered,
                status,
                ..attempt(tried)
            });
        }
        self.checkpoints.settle(item.position());
        if item.parked {
            self.pending.delivered.push(item.position());
            self.release(item);
        }
        self.lane.go_on(item);
    }

    fn died(&mut self, item: Item, attempt: u32, now: Timestamp, error: &SinkError) {
        self.counted.died.increment(1);
        let exhausted = exhausted(&item, attempt, error);
        self.pending.exhausted.push(exhausted);
        tracing::warn!(
            destination = self.partition, event_id = %item.event.event.id,
            correlation_id = item.event.event.headers.get("correlation_id"),
            attempt, error_code = error.error_type(), error = one_line(error),
            from_state = state_of(&item), to_state = "dead",
            "the event is a dead letter"
        );
        if self.destination.order == Order::KeySkip {
            self.release(&item);
            self.lane.go_on(&item);
            let last_error = Some(one_line(error));
            // Without a key it does not block others.
            return self.park(
                item.position(),
                ParkedState::Dead,
                attempt,
                now,
                None,
                last_error,
            );
        }
        self.failed(item, ParkedState::Dead, attempt, now, error);
    }

    /// Parks an event, and the events in memory that have to wait for it.
    fn failed(
        &mut self,
        item: Item,
        state: ParkedState,
        attempt: u32,
        next_at: Timestamp,
        error: &SinkError,
    ) {
        if state == ParkedState::Retrying {
            tracing::info!(
                destination = self.partition, event_id = %item.event.event.id,
                correlation_id = item.event.event.headers.get("correlation_id"),
                attempt, error_code = error.error_type(), error = one_line(error),
                from_state = state_of(&item), to_state = "retrying", %next_at,
                "the delivery is parked"
            );
        }
        let waiting = self.lane.hold_up(&item);
        if item.order_key.is_none() {
            // It blocked a key in an earlier order. Deliveries that wait for it must not wait any
            // longer.
            self.release(&item);
        }
        let last_error = Some(one_line(error));
        let position = item.position();
        self.park(
            position,
            state,
            attempt,
            next_at,
            item.order_key,
            last_error,
        );
        for behind in waiting {
            let position = behind.position();
            if behind.blocked {
                // Its row is blocked already.
                self.revived.remove(&position);
                continue;
            }
            let next_at = behind.event.event.created_at;
            self.park(
                position,
                ParkedState::Blocked,
                0,
                next_at,
                behind.order_key,
                None,
            );
        }
    }

    fn release(&mut self, item: &Item) {
        if item.parked
            && let Some(key) = item.order_key.as_ref().or(item.held_key.as_ref())
        {
            self.pending.release.push(key.clone());
        }
    }

    /// Logs an attempt that succeeded. If an earlier one failed, which is logged at `info`, so is
    /// this one. A first attempt is logged at `debug`, because a relay makes thousands per second.
    fn log_arrival(&self, tried: &Tried, status: Option<u16>) {
        if tried.item.attempts == 0 {
            write_arrival!(Level::DEBUG, self, tried, status);
        } else {
            write_arrival!(Level::INFO, self, tried, status);
        }
    }

    fn log(&mut self, tried: &Tried) {
        let Err(error) = &tried.outcome else { return };
        counter!(
            telemetry::RELAY_ATTEMPTS,
            "destination" => self.partition.clone(),
            "outcome" => outcome_of(error).as_str(),
            "error_type" => error.error_type()
        )
        .increment(1);
        self.pending.attempts.push(attempt_of(tried));
    }
}

/// An attempt with its outcome, as it is recorded.
pub(super) fn attempt_of(tried: &Tried) -> Attempt {
    let error = match &tried.outcome {
        Ok(receipt) => {
            return Attempt {
                status: receipt.status,
                ..attempt(tried)
            };
        }
        Err(error) => error,
    };
    let Receipt { status, head } = error.receipt().clone();
    Attempt {
        outcome: outcome_of(error),
        status,
        response_head: head,
        error: Some(with_type(error)),
        ..attempt(tried)
    }
}

/// An attempt without its outcome. The response to a success is not stored.
fn attempt(tried: &Tried) -> Attempt {
    Attempt {
        position: tried.item.position(),
        number: tried.item.attempts + 1,
        started_at: tried.started_at,
        duration: tried.duration,
        outcome: AttemptOutcome::Delivered,
        status: None,
        response_head: bytes::Bytes::new(),
        error: None,
    }
}

/// A delivery without attempts left, for its operational event.
fn exhausted(item: &Item, attempts: u32, error: &SinkError) -> Exhausted {
    let event = &item.event.event;
    Exhausted {
        event_id: event.id,
        event_type: event.kind.clone(),
        event_tenant: event.tenant.as_ref().map(|it| it.as_str().to_owned()),
        attempts,
        error: Some(one_line(error)),
    }
}

/// First attempts that succeeded, by status code.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Vec<Gathered>);

#[derive(Debug)]
struct Gathered {
    status: Option<u16>,
    started_at: Timestamp,
    duration: Duration,
    positions: Vec<i64>,
}

impl Arrivals {
    fn note(&mut self, tried: &Tried, status: Option<u16>) {
        let Tried {
            item,
            started_at,
            duration,
            ..
        } = tried;
        let known = self.0.iter_mut().find(|known| known.status == status);
        let Some(known) = known else {
            return self.0.push(Gathered {
                status,
                started_at: *started_at,
                duration: *duration,
                positions: vec![item.position()],
            });
        };
        known.started_at = known.started_at.min(*started_at);
        known.duration = known.duration.max(*duration);
        known.positions.push(item.position());
    }

    fn said(&self) -> Vec<Arrived> {
        let said = |gathered: &Gathered| Arrived {
            positions: gathered.positions.iter().copied().collect(),
            started_at: gathered.started_at,
            duration: gathered.duration,
            status: gathered.status,
        };
        self.0.iter().map(said).collect()
    }
}

pub(super) fn outcome_of(error: &SinkError) -> AttemptOutcome {
    match error {
        SinkError::Unavailable { .. } => AttemptOutcome::Unavailable,
        SinkError::Declined { .. } => AttemptOutcome::Declined,
        SinkError::Rejected { .. } => AttemptOutcome::Rejected,
        SinkError::Gone { .. } => AttemptOutcome::Gone,
    }
}

/// The state of a delivery before its attempt, for log lines.
const fn state_of(item: &Item) -> &'static str {
    match (item.parked, item.attempts) {
        (false, _) => "offered",
        // It was scheduled, blocked or replayed.
        (true, 0) => "parked",
        (true, _) => "retrying",
    }
}

fn one_line(error: &SinkError) -> String {
    bounded_line(error, ERROR_BYTES)
}

/// The error in one line that ends with its type, by which the guides of the sinks explain it.
fn with_type(error: &SinkError) -> String {
    let ending = format!(" (error type {})", error.error_type());
    let mut line = bounded_line(error, ERROR_BYTES.saturating_sub(ending.len()));
    line.push_str(&ending);
    line
}

fn bounded_line(error: &SinkError, bytes_max: usize) -> String {
    let mut line: String = error
        .error_chain()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    line.truncate(line.floor_char_boundary(bytes_max));
    line
}
