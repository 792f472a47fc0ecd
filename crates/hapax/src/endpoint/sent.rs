//! An attempt that has ended: what is recorded of it, and what happens to its delivery.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    excerpt::{RequestExcerpt, beginning},
    gate::InFlight,
    record::Endpoint,
    settings::EndpointSettings,
    store::{ClaimedDelivery, EndpointAttempt, NextStep, QueuedDelivery, SettledDelivery},
    transport::{BUSY, Exchange},
};
use crate::{
    clock::Timestamp,
    delivery::AttemptOutcome,
    limits::{ENDPOINT_BUSY, ENDPOINT_POSTPONE, ERROR_BYTES},
    outbox::OutboxEvent,
    retry::Next,
    sink::SinkError,
};

/// An attempt that has ended. Its place is free once this is dropped.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) event: Arc<OutboxEvent>,
    /// The number of the attempt.
    pub(super) number: u32,
    /// The number of attempts that count for the schedule.
    pub(super) counted: u32,
    pub(super) started_at: Timestamp,
    pub(super) duration: Duration,
    pub(super) exchange: Exchange,
    /// Whether it was a probe of an endpoint that is disabled.
    pub(super) is_probe: bool,
    pub(super) _place: InFlight,
}

impl Sent {
    /// Whether the endpoint has the event.
    pub(super) fn is_delivered(&self) -> bool {
        self.exchange.outcome.is_ok()
    }

    /// Whether there was an attempt.
    pub(super) fn is_made(&self) -> bool {
        self.exchange.is_made
    }

    /// Whether the endpoint responded that it does not want any more events.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.exchange.outcome, Err(SinkError::Gone { .. }))
    }

    /// Whether the event could not be sent. No other attempt would have another outcome, and it says nothing
    /// about the endpoint.
    pub(super) fn is_rejected(&self) -> bool {
        matches!(self.exchange.outcome, Err(SinkError::Rejected { .. }))
    }

    /// The id and the version of the endpoint that the event was sent to.
    pub(super) fn version(&self) -> (String, i64) {
        (self.endpoint.id.clone(), self.endpoint.version)
    }

    /// The attempt as it is logged; `None` if there was none.
    pub(super) fn attempt(&self) -> Option<EndpointAttempt> {
        if !self.is_made() {
            return None;
        }
        let (receipt, error) = match &self.exchange.outcome {
            Ok(receipt) => (receipt, None),
            Err(error) => (error.receipt(), Some(one_line(error))),
        };
        Some(EndpointAttempt {
            endpoint: self.endpoint.id.clone(),
            position: self.event.position,
            event_id: self.event.event.id,
            kind: self.event.event.kind.clone(),
            number: self.number,
            started_at: self.started_at,
            duration: self.duration,
            outcome: self.outcome(),
            status: receipt.status,
            error,
            request: self.exchange.request.encode(),
            response: Bytes::copy_from_slice(beginning(&receipt.head)),
        })
    }

    /// What happens next. `unit` is a uniform random number in `0.0..1.0`.
    pub(super) fn next(&self, settings: &EndpointSettings, unit: f64) -> NextStep {
        // Also of a probe: the next one sends another event.
        if self.is_rejected() {
            return NextStep::Failed;
        }
        let retry_after = match &self.exchange.outcome {
            Ok(_) => return NextStep::Delivered,
            // The endpoint is disabled: its deliveries wait until it is enabled. If this relay has no key for
            // its secrets, another one makes the next probe, with the same event.
            Err(_) if self.is_probe => return NextStep::Postpone(Duration::ZERO),
            Err(error) if !self.is_made() => return NextStep::Postpone(postponed(error, unit)),
            Err(
                SinkError::Unavailable { retry_after, .. }
                | SinkError::Declined { retry_after, .. },
            ) => *retry_after,
            Err(_) => return NextStep::Failed,
        };
        match settings.schedule.after(self.counted, unit, retry_after) {
            Next::Retry(wait) => NextStep::Retry(wait),
            Next::DeadLetter => NextStep::Failed,
        }
    }

    /// The row of a first attempt that failed.
    pub(super) fn queued(&self, next: NextStep) -> QueuedDelivery {
        QueuedDelivery {
            endpoint: self.endpoint.id.clone(),
            position: self.event.position,
            event_id: self.event.event.id,
            attempt: if self.is_made() { self.number } else { 0 },
            next,
            error: self.error(),
        }
    }

    /// The settlement of a claimed delivery.
    pub(super) fn settled(&self, next: NextStep) -> SettledDelivery {
        SettledDelivery {
            endpoint: self.endpoint.id.clone(),
            event_id: self.event.event.id,
            attempt: self.number,
            next,
            error: self.error(),
        }
    }

    fn error(&self) -> Option<String> {
        self.exchange.outcome.as_ref().err().map(one_line)
    }

    pub(super) fn outcome(&self) -> AttemptOutcome {
        match &self.exchange.outcome {
            Ok(_) => AttemptOutcome::Delivered,
            Err(SinkError::Unavailable { .. }) => AttemptOutcome::Unavailable,
            Err(SinkError::Declined { .. }) => AttemptOutcome::Declined,
            Err(SinkError::Rejected { .. }) => AttemptOutcome::Rejected,
            Err(SinkError::Gone { .. }) => AttemptOutcome::Gone,
        }
    }
}

/// The line in the log of a claimed delivery that has failed, because its event could not be sent.
pub(super) fn unsent(
    delivery: &ClaimedDelivery,
    event: &OutboxEvent,
    error: &str,
    now: Timestamp,
) -> EndpointAttempt {
    EndpointAttempt {
        endpoint: delivery.endpoint.clone(),
        position: event.position,
        event_id: delivery.event_id,
        kind: event.event.kind.clone(),
        number: delivery.attempt,
        started_at: now,
        duration: Duration::ZERO,
        outcome: AttemptOutcome::Rejected,
        status: None,
        error: Some(error.to_owned()),
        request: RequestExcerpt::default().encode(),
        response: Bytes::new(),
    }
}

/// How long a delivery waits that this relay could not make. `unit` is a uniform random number in `0.0..1.0`.
fn postponed(error: &SinkError, unit: f64) -> Duration {
    if error.error_type() != BUSY {
        return ENDPOINT_POSTPONE;
    }
    let (shortest, longest) = ENDPOINT_BUSY;
    shortest + longest.saturating_sub(shortest).mul_f64(unit)
}

/// An error in one line of bounded length.
fn one_line(error: &SinkError) -> String {
    let mut line: String = error
        .error_chain()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    line.truncate(line.floor_char_boundary(ERROR_BYTES));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_of_a_busy_relay_are_due_again_at_different_times_soon() {
        let busy = SinkError::unavailable(BUSY, "no thread");
        let waits = [0.0, 0.5, 1.0].map(|unit| postponed(&busy, unit));
        assert_eq!(waits, [1, 3, 5].map(Duration::from_secs));
        let no_key = SinkError::unavailable("settings", "no key");
        assert_eq!(postponed(&no_key, 0.5), ENDPOINT_POSTPONE);
    }
}
