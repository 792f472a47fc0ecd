//! The names under which Hapax reports what it does.
//!
//! Libraries report through the `metrics` facade, so that a service keeps its
//! own exporter. Labels come from small sets; an id is never a label.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Requests on protected operations, by operation and outcome.
pub const IDEMPOTENCY_REQUESTS: &str = "hapax_idempotency_requests_total";
/// Seconds that duplicates waited for the first request, by operation.
pub const IDEMPOTENCY_WAIT: &str = "hapax_idempotency_wait_seconds";
/// Keys that expired and were deleted, by operation.
pub const IDEMPOTENCY_EXPIRED: &str = "hapax_idempotency_expired_total";
/// Keys of phased requests that were taken over from an owner that did not finish, by operation
/// and by whom (`retry`, `completer`).
pub const IDEMPOTENCY_TAKEOVERS: &str = "hapax_idempotency_takeovers_total";
/// Owners of phased requests that were told that their key is no longer theirs, by operation.
pub const IDEMPOTENCY_FENCED: &str = "hapax_idempotency_fenced_total";
/// Events of destinations that lagged a whole ring, parked in bulk so that the ring can turn, by
/// destination.
pub const OUTBOX_SPILLED: &str = "hapax_outbox_spilled_total";
/// Steps of purges that failed, by step.
pub const OUTBOX_PURGE_FAILURES: &str = "hapax_outbox_purge_failures_total";
/// Age in seconds of the oldest undelivered event, by destination.
pub const OUTBOX_LAG: &str = "hapax_outbox_lag_seconds";
/// Events not yet delivered, by destination.
pub const OUTBOX_BACKLOG: &str = "hapax_outbox_backlog_events";
/// Seconds from commit to delivery, by destination.
pub const RELAY_DELIVERY: &str = "hapax_relay_delivery_seconds";
/// Attempts, by destination, outcome and error type.
pub const RELAY_ATTEMPTS: &str = "hapax_relay_attempts_total";
/// Events given up on, by destination.
pub const RELAY_DEAD_LETTERS: &str = "hapax_relay_dead_letters_total";
/// Deliveries waiting outside the flow, by destination.
pub const RELAY_PARKED: &str = "hapax_relay_parked_events";
/// 1 while a destination's breaker is open.
pub const RELAY_BREAKER_OPEN: &str = "hapax_relay_breaker_open";
/// How often a destination has changed owners.
pub const RELAY_LEASE_EPOCH: &str = "hapax_relay_lease_epoch";
/// Messages that the inbox saw, by consumer and outcome.
pub const INBOX_MESSAGES: &str = "hapax_inbox_messages_total";

/// Tells the installed exporter what each name means; call it once, after installing one.
pub fn describe() {
    describe_counter!(
        IDEMPOTENCY_REQUESTS,
        "Requests on protected operations, by outcome"
    );
    describe_histogram!(
        IDEMPOTENCY_WAIT,
        Unit::Seconds,
        "How long duplicates waited"
    );
    describe_counter!(IDEMPOTENCY_EXPIRED, "Keys that expired and were deleted");
    describe_counter!(
        IDEMPOTENCY_TAKEOVERS,
        "Keys taken over from an owner that did not finish"
    );
    describe_counter!(IDEMPOTENCY_FENCED, "Owners that had lost their key");
    describe_gauge!(
        OUTBOX_LAG,
        Unit::Seconds,
        "Age of the oldest undelivered event"
    );
    describe_counter!(OUTBOX_SPILLED, "Events parked in bulk for who lagged");
    describe_counter!(OUTBOX_PURGE_FAILURES, "Steps of purges that failed");
    describe_gauge!(OUTBOX_BACKLOG, "Events not yet delivered");
    describe_histogram!(RELAY_DELIVERY, Unit::Seconds, "From commit to delivery");
    describe_counter!(RELAY_ATTEMPTS, "Attempts to deliver an event");
    describe_counter!(RELAY_DEAD_LETTERS, "Events given up on");
    describe_gauge!(RELAY_PARKED, "Deliveries waiting outside the flow");
    describe_gauge!(RELAY_BREAKER_OPEN, "1 while the breaker is open");
    describe_gauge!(
        RELAY_LEASE_EPOCH,
        "How often the destination has changed owners"
    );
    describe_counter!(INBOX_MESSAGES, "Messages that the inbox saw, by outcome");
}
