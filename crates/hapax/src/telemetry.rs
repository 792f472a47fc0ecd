//! Names of the metrics that Hapax reports, and texts of errors and panics.
//!
//! Libraries report through the `metrics` facade, so that a service uses its existing exporter.
//! Labels have few different values; an id is never a label.

use std::{any::Any, error::Error};

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Requests on protected operations, by operation and outcome.
pub const IDEMPOTENCY_REQUESTS: &str = "hapax_idempotency_requests_total";
/// Seconds that duplicates waited for the first request, by operation.
pub const IDEMPOTENCY_WAIT: &str = "hapax_idempotency_wait_seconds";
/// Keys that expired and were deleted, by operation.
pub const IDEMPOTENCY_EXPIRED: &str = "hapax_idempotency_expired_total";
/// Keys of phased requests that were taken over from an owner that did not finish, by operation and
/// by the kind of the new owner (`retry`, `completer`).
pub const IDEMPOTENCY_TAKEOVERS: &str = "hapax_idempotency_takeovers_total";
/// Optimistic claims that committed nothing, by operation and reason. Their requests have claimed
/// again.
pub const IDEMPOTENCY_LOST_CLAIMS: &str = "hapax_idempotency_lost_claims_total";
/// Owners of phased requests that found that they had lost their key, by operation.
pub const IDEMPOTENCY_FENCED: &str = "hapax_idempotency_fenced_total";
/// Events that were parked in bulk because their destination lagged by all segments, so that the
/// oldest segment can be used again, by destination.
pub const OUTBOX_SPILLED: &str = "hapax_outbox_spilled_total";
/// Steps of purges that failed, by step.
pub const OUTBOX_PURGE_FAILURES: &str = "hapax_outbox_purge_failures_total";
/// How often the sequence of event ids was lower than an assigned id and was raised.
pub const OUTBOX_RAISED: &str = "hapax_outbox_raised_sequences_total";
/// Seconds for which the oldest undelivered event has been due, by destination.
pub const OUTBOX_LAG: &str = "hapax_outbox_lag_seconds";
/// Events that are not delivered yet, by destination.
pub const OUTBOX_BACKLOG: &str = "hapax_outbox_backlog_events";
/// Seconds from the commit to the delivery, by destination.
pub const RELAY_DELIVERY: &str = "hapax_relay_delivery_seconds";
/// Attempts, by destination, outcome and error type.
pub const RELAY_ATTEMPTS: &str = "hapax_relay_attempts_total";
/// Seconds that the relay waits before it retries a failed delivery, by destination.
pub const RELAY_RETRY_DELAY: &str = "hapax_relay_retry_delay_seconds";
/// Events that became dead letters, by destination.
pub const RELAY_DEAD_LETTERS: &str = "hapax_relay_dead_letters_total";
/// Events that a destination did not get because its filter looks at the payload, which is not JSON,
/// by destination.
pub const RELAY_UNREADABLE: &str = "hapax_relay_unreadable_payloads_total";
/// Dead letters that exist now, by destination.
pub const RELAY_DEAD: &str = "hapax_relay_dead_events";
/// Parked deliveries without dead letters, by destination.
pub const RELAY_PARKED: &str = "hapax_relay_parked_events";
/// 1 while a destination's breaker is open, by destination.
pub const RELAY_BREAKER_OPEN: &str = "hapax_relay_breaker_open";
/// The epoch of the partition's ownership by this relay, by destination; 0 if it does not own it.
pub const RELAY_LEASE_EPOCH: &str = "hapax_relay_lease_epoch";
/// How often the relay could not use its store, by destination.
pub const RELAY_STORE_FAILURES: &str = "hapax_relay_store_failures_total";
/// How often the relay found its store in an earlier state than before, by destination.
pub const RELAY_SET_BACKS: &str = "hapax_relay_set_backs_total";
/// Other live processes with the name of this relay.
pub const RELAY_NAMESAKES: &str = "hapax_relay_namesakes";
/// Rows of a service's own table that were moved to the outbox, by source.
pub const SOURCE_MOVED: &str = "hapax_source_moved_rows_total";
/// Rows of a service's own table that were set aside because they are not valid events, by source.
pub const SOURCE_SET_ASIDE: &str = "hapax_source_set_aside_rows_total";
/// Events that feeds have appended to the outbox, by feed.
pub const FEED_EVENTS: &str = "hapax_feed_events_total";
/// Changes that were set aside because they are not valid events, by feed.
pub const FEED_SET_ASIDE: &str = "hapax_feed_set_aside_total";
/// 1 while this process reads the feed, by feed.
pub const FEED_UP: &str = "hapax_feed_up";
/// 1 while the feed stops at a gap, by feed.
pub const FEED_GAP: &str = "hapax_feed_gap";
/// Seconds from the commit at the source until the feed has read it, by feed.
pub const FEED_LAG: &str = "hapax_feed_lag_seconds";
/// Messages that the inbox received, by consumer and outcome.
pub const INBOX_MESSAGES: &str = "hapax_inbox_messages_total";
/// Webhooks that the gateway received for a service without an inbox, by source and outcome.
pub const INGEST_MESSAGES: &str = "hapax_ingest_messages_total";
/// Requests of consumers of polling endpoints, by operation and outcome.
pub const POLLING_REQUESTS: &str = "hapax_polling_requests_total";
/// Events that polls have returned, by endpoint.
pub const POLLING_EVENTS: &str = "hapax_polling_events_total";
/// Seconds since the last event of the last page was written, if there are more events; 0 otherwise,
/// by endpoint.
pub const POLLING_LAG: &str = "hapax_polling_lag_seconds";
/// Attempts to deliver an event to an endpoint, by outcome.
pub const ENDPOINTS_ATTEMPTS: &str = "hapax_endpoints_attempts_total";
/// Seconds that attempts at endpoints took.
pub const ENDPOINTS_ATTEMPT: &str = "hapax_endpoints_attempt_seconds";
/// Deliveries to endpoints that were put into the queue, because they were not over at once.
pub const ENDPOINTS_QUEUED: &str = "hapax_endpoints_queued_total";
/// Attempts at endpoints that are not in the log of attempts, because the store was too slow.
pub const ENDPOINTS_UNLOGGED: &str = "hapax_endpoints_unlogged_attempts_total";
/// Deliveries to endpoints that ended because too many waited for the endpoint.
pub const ENDPOINTS_DROPPED: &str = "hapax_endpoints_dropped_deliveries_total";
/// Endpoints that this relay has disabled because they failed for long or want no more events.
pub const ENDPOINTS_DISABLED: &str = "hapax_endpoints_disabled_total";
/// Deliveries to endpoints that wait in the queue.
pub const ENDPOINTS_WAITING: &str = "hapax_endpoints_waiting_deliveries";
/// Seconds for which the longest waiting delivery has been due to an endpoint that is enabled and did
/// not fail last.
pub const ENDPOINTS_OVERDUE: &str = "hapax_endpoints_overdue_seconds";
/// Endpoints that exist.
pub const ENDPOINTS_KNOWN: &str = "hapax_endpoints_known";
/// Endpoints that are disabled.
pub const ENDPOINTS_DISABLED_NOW: &str = "hapax_endpoints_known_disabled";
/// Endpoints that are enabled and slowed, because they fail.
pub const ENDPOINTS_SLOWED_NOW: &str = "hapax_endpoints_known_slowed";
/// Probes of endpoints that were disabled because they failed, by outcome.
pub const ENDPOINTS_PROBES: &str = "hapax_endpoints_probes_total";
/// Endpoints that this relay has enabled because they accepted a probe.
pub const ENDPOINTS_RECOVERED: &str = "hapax_endpoints_recovered_total";
/// Operational events that were passed to a transaction, by kind.
pub const OPERATIONAL_EVENTS: &str = "hapax_operational_events_total";
/// Exhausted deliveries that have no operational event, because of the rate limit.
pub const OPERATIONAL_OMITTED: &str = "hapax_operational_events_omitted_total";
/// Sagas that ended or began to need attention, by kind and outcome.
pub const SAGAS: &str = "hapax_saga_total";
/// Sagas that need attention now, by kind.
pub const SAGA_NEEDS_ATTENTION: &str = "hapax_saga_needs_attention";
/// Operations of the retry client, by destination and outcome.
pub const CLIENT_OPERATIONS: &str = "hapax_client_operations_total";
/// Attempts of the retry client, by destination, whether it is the first or a retry, and outcome.
pub const CLIENT_ATTEMPTS: &str = "hapax_client_attempts_total";
/// Seconds that retries waited before they were sent, by destination.
pub const CLIENT_RETRY_DELAY: &str = "hapax_client_retry_delay_seconds";
/// Retries that were not sent because the budget was exhausted, by destination.
pub const CLIENT_BUDGET_REFUSALS: &str = "hapax_client_budget_refusals_total";
/// Requests at the gateway, by route, kind (`protected` or `stream`) and class of the status.
pub const GATEWAY_REQUESTS: &str = "hapax_gateway_requests_total";
/// Seconds until the head of the response, by route and kind.
pub const GATEWAY_REQUEST: &str = "hapax_gateway_request_seconds";
/// Protected requests whose outcome is unknown, by route and reason.
pub const GATEWAY_UNKNOWN: &str = "hapax_gateway_unknown_total";
/// Requests whose outcome is unknown and that wait for a decision, in the whole store.
pub const GATEWAY_UNKNOWN_WAITING: &str = "hapax_gateway_unknown_waiting";
/// Retries of requests whose outcome is unknown, by route and result.
pub const GATEWAY_RESUMED: &str = "hapax_gateway_resumed_total";
/// Requests that the gateway sent again because nothing of them was sent, by upstream.
pub const GATEWAY_RESENT: &str = "hapax_gateway_resent_total";
/// Requests that were refused because too many are in flight, by upstream and bound.
pub const GATEWAY_FULL: &str = "hapax_gateway_full_total";
/// Requests that were refused because they exceed a rate, by upstream and rate.
pub const GATEWAY_LIMITED: &str = "hapax_gateway_limited_total";
/// 1 while an instance of an upstream is used, 0 while it is avoided.
pub const GATEWAY_INSTANCE_UP: &str = "hapax_gateway_instance_up";
/// Open connections of clients, by listener.
pub const GATEWAY_CONNECTIONS: &str = "hapax_gateway_connections";

/// The histograms. An exporter should use the buckets [`SECONDS`] for each, unless it has reasons
/// for others.
pub const HISTOGRAMS: [&str; 6] = [
    IDEMPOTENCY_WAIT,
    RELAY_DELIVERY,
    RELAY_RETRY_DELAY,
    ENDPOINTS_ATTEMPT,
    CLIENT_RETRY_DELAY,
    GATEWAY_REQUEST,
];
/// Upper bounds of the buckets, from half a millisecond to an hour. The time that requests wait is
/// in the lower half; the age of delivered events can be anywhere.
pub const SECONDS: [f64; 17] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
    600.0, 3600.0,
];

/// An error and its causes, in one line.
///
/// Only the first line of each message is used. Databases describe the error in the first line, and
/// print the values that caused it in later lines (`DETAIL: Key (email)=(...)`).
pub fn error_chain(error: &dyn Error) -> String {
    let mut error_chain = first_line(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = first_line(error);
        if !error_chain.ends_with(&said) {
            error_chain.push_str(": ");
            error_chain.push_str(&said);
        }
        cause = error.source();
    }
    error_chain
}

fn first_line(error: &dyn Error) -> String {
    let mut said = error.to_string();
    said.truncate(said.find(['\r', '\n']).unwrap_or(said.len()));
    said
}

/// The message of a panic, if it is a literal in the code. A formatted message may contain any data
/// and is not returned.
pub fn panic_message(panic: &(dyn Any + Send)) -> &'static str {
    let literal = panic.downcast_ref::<&'static str>().copied();
    literal.unwrap_or("its message is not shown, because it may contain data")
}

/// Registers the description of each metric with the installed exporter. Call this once, after the
/// exporter is installed.
pub fn describe() {
    describe_keys();
    describe_outbox();
    describe_relay();
    describe_inbox();
    describe_feeds();
    describe_polling();
    describe_endpoints();
    describe_operational_events();
    describe_sagas();
    describe_clients();
    describe_gateway();
}

fn describe_keys() {
    describe_counter!(
        IDEMPOTENCY_REQUESTS,
        "Requests on protected operations, by outcome"
    );
    describe_histogram!(
        IDEMPOTENCY_WAIT,
        Unit::Seconds,
        "Time that duplicates waited for the first request"
    );
    describe_counter!(IDEMPOTENCY_EXPIRED, "Keys that expired and were deleted");
    describe_counter!(
        IDEMPOTENCY_TAKEOVERS,
        "Keys taken over from an owner that did not finish"
    );
    describe_counter!(
        IDEMPOTENCY_LOST_CLAIMS,
        "Optimistic claims that committed nothing, by reason"
    );
    describe_counter!(IDEMPOTENCY_FENCED, "Owners that lost their key");
}

fn describe_outbox() {
    describe_gauge!(
        OUTBOX_LAG,
        Unit::Seconds,
        "How long the oldest undelivered event has been due"
    );
    describe_counter!(
        OUTBOX_SPILLED,
        "Events parked in bulk for lagging destinations"
    );
    describe_counter!(OUTBOX_PURGE_FAILURES, "Steps of purges that failed");
    describe_counter!(
        OUTBOX_RAISED,
        "How often the sequence of event ids was too low and was raised"
    );
    describe_gauge!(OUTBOX_BACKLOG, "Events that are not delivered yet");
}

fn describe_relay() {
    describe_histogram!(
        RELAY_DELIVERY,
        Unit::Seconds,
        "Time from commit to delivery"
    );
    describe_counter!(RELAY_ATTEMPTS, "Attempts to deliver an event");
    describe_histogram!(
        RELAY_RETRY_DELAY,
        Unit::Seconds,
        "Time until a failed delivery is retried"
    );
    describe_counter!(RELAY_DEAD_LETTERS, "Events that became dead letters");
    describe_counter!(
        RELAY_UNREADABLE,
        "Events not delivered because a filter could not read their payload"
    );
    describe_gauge!(RELAY_DEAD, "Dead letters that exist now");
    describe_gauge!(RELAY_PARKED, "Parked deliveries without dead letters");
    describe_gauge!(RELAY_BREAKER_OPEN, "1 while the breaker is open");
    describe_gauge!(
        RELAY_LEASE_EPOCH,
        "The epoch of this relay's ownership of the destination, or 0"
    );
    describe_counter!(
        RELAY_STORE_FAILURES,
        "How often the relay could not use its store"
    );
    describe_counter!(
        RELAY_SET_BACKS,
        "How often the relay found its store in an earlier state"
    );
    describe_gauge!(
        RELAY_NAMESAKES,
        "Other live processes with the name of this relay"
    );
}

/// Table sources and the inbox: the events that come in.
fn describe_inbox() {
    describe_counter!(
        SOURCE_MOVED,
        "Rows of a table that were moved to the outbox"
    );
    describe_counter!(
        SOURCE_SET_ASIDE,
        "Rows of a table that are not valid events"
    );
    describe_counter!(
        INBOX_MESSAGES,
        "Messages that the inbox received, by outcome"
    );
    describe_counter!(
        INGEST_MESSAGES,
        "Webhooks received for a service without an inbox, by outcome"
    );
}

fn describe_feeds() {
    describe_counter!(FEED_EVENTS, "Events that feeds have appended");
    describe_counter!(FEED_SET_ASIDE, "Changes that are not valid events");
    describe_gauge!(FEED_UP, "1 while this process reads the feed");
    describe_gauge!(FEED_GAP, "1 while the feed stops at a gap");
    describe_gauge!(
        FEED_LAG,
        Unit::Seconds,
        "Time from the commit at the source until the feed has read it"
    );
}

fn describe_polling() {
    describe_counter!(
        POLLING_REQUESTS,
        "Requests of consumers of polling endpoints"
    );
    describe_counter!(POLLING_EVENTS, "Events that polls have returned");
    describe_gauge!(
        POLLING_LAG,
        Unit::Seconds,
        "Age of the last event of the last page, if there are more"
    );
}

fn describe_endpoints() {
    describe_counter!(
        ENDPOINTS_ATTEMPTS,
        "Attempts to deliver an event to an endpoint"
    );
    describe_histogram!(
        ENDPOINTS_ATTEMPT,
        Unit::Seconds,
        "Time that attempts at endpoints took"
    );
    describe_counter!(
        ENDPOINTS_QUEUED,
        "Deliveries to endpoints that were put into the queue"
    );
    describe_counter!(
        ENDPOINTS_UNLOGGED,
        "Attempts at endpoints that were not logged"
    );
    describe_counter!(
        ENDPOINTS_DROPPED,
        "Deliveries to endpoints that ended because too many waited"
    );
    describe_counter!(ENDPOINTS_DISABLED, "Endpoints that a relay has disabled");
    describe_gauge!(ENDPOINTS_WAITING, "Deliveries to endpoints that wait");
    describe_gauge!(
        ENDPOINTS_OVERDUE,
        Unit::Seconds,
        "How long the longest waiting delivery to an endpoint has been due"
    );
    describe_gauge!(ENDPOINTS_KNOWN, "Endpoints that exist");
    describe_gauge!(ENDPOINTS_DISABLED_NOW, "Endpoints that are disabled");
    describe_gauge!(ENDPOINTS_SLOWED_NOW, "Endpoints that are slowed");
    describe_counter!(ENDPOINTS_PROBES, "Probes of disabled endpoints");
    describe_counter!(
        ENDPOINTS_RECOVERED,
        "Endpoints that a relay has enabled after a probe"
    );
}

fn describe_operational_events() {
    describe_counter!(
        OPERATIONAL_EVENTS,
        "Operational events that were passed to a transaction"
    );
    describe_counter!(
        OPERATIONAL_OMITTED,
        "Failed deliveries without an operational event, because of the rate limit"
    );
}

fn describe_sagas() {
    describe_counter!(SAGAS, "Sagas that ended or began to need attention");
    describe_gauge!(SAGA_NEEDS_ATTENTION, "Sagas that need attention");
}

fn describe_clients() {
    describe_counter!(CLIENT_OPERATIONS, "Operations of the retry client");
    describe_counter!(CLIENT_ATTEMPTS, "Attempts of the retry client");
    describe_histogram!(
        CLIENT_RETRY_DELAY,
        Unit::Seconds,
        "Time that retries waited"
    );
    describe_counter!(
        CLIENT_BUDGET_REFUSALS,
        "Retries for which no budget was left"
    );
}

fn describe_gateway() {
    describe_counter!(
        GATEWAY_REQUESTS,
        "Requests at the gateway, by class of the status"
    );
    describe_histogram!(
        GATEWAY_REQUEST,
        Unit::Seconds,
        "Time until the head of the response"
    );
    describe_counter!(GATEWAY_UNKNOWN, "Requests whose outcome is unknown");
    describe_gauge!(
        GATEWAY_UNKNOWN_WAITING,
        "Requests whose outcome is unknown and that wait for a decision"
    );
    describe_counter!(
        GATEWAY_RESUMED,
        "Retries of requests whose outcome is unknown"
    );
    describe_counter!(
        GATEWAY_RESENT,
        "Requests sent again because nothing of them was sent"
    );
    describe_counter!(
        GATEWAY_FULL,
        "Requests refused because too many are in flight"
    );
    describe_counter!(
        GATEWAY_LIMITED,
        "Requests refused because they exceed a rate"
    );
    describe_gauge!(
        GATEWAY_INSTANCE_UP,
        "1 while the instance is used, NaN after it is removed"
    );
    describe_gauge!(GATEWAY_CONNECTIONS, "Open connections of clients");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Said {
        said: &'static str,
        source: Option<Box<Said>>,
    }

    #[test]
    fn an_error_chain_has_the_first_line_of_each_cause_once() {
        let database = Said {
            said: "ERROR: duplicate key\nDETAIL: Key (email)=(ann@example.com) already exists.",
            source: None,
        };
        let driver = Said {
            said: "db error: ERROR: duplicate key\nDETAIL: Key (email)=(ann@example.com) exists.",
            source: Some(Box::new(database)),
        };
        let store = Said {
            said: "statement failed",
            source: Some(Box::new(driver)),
        };
        let outcome = "statement failed: db error: ERROR: duplicate key";
        assert_eq!(error_chain(&store), outcome);
    }

    #[test]
    fn a_panic_message_is_a_literal_of_the_code_or_hidden() {
        let caught = std::panic::catch_unwind(|| panic!("no shelf left")).unwrap_err();
        assert_eq!(panic_message(&*caught), "no shelf left");
        let card = "4242";
        let caught = std::panic::catch_unwind(|| panic!("bad card {card}")).unwrap_err();
        assert!(!panic_message(&*caught).contains(card));
    }
}
