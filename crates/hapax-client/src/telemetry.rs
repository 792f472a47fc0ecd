//! Metrics of the client: operations, attempts, waits, and retries that the budget refused.

use std::{sync::Arc, time::Duration};

use hapax::telemetry::{
    CLIENT_ATTEMPTS, CLIENT_BUDGET_REFUSALS, CLIENT_OPERATIONS, CLIENT_RETRY_DELAY,
};
use metrics::{counter, histogram};

use crate::stopped::Stopped;

/// Records an attempt and the wait before it.
pub(crate) fn attempt(destination: &Arc<str>, number: u32, delay: Duration, status: Option<u16>) {
    if number > 1 {
        let destination = Arc::clone(destination);
        histogram!(CLIENT_RETRY_DELAY, "destination" => destination).record(delay.as_secs_f64());
    }
    let kind = if number == 1 { "first" } else { "retry" };
    let outcome = match status {
        None => "network",
        Some(..300) => "2xx",
        Some(300..400) => "3xx",
        Some(400..500) => "4xx",
        Some(_) => "5xx",
    };
    let destination = Arc::clone(destination);
    counter!(CLIENT_ATTEMPTS, "destination" => destination, "kind" => kind, "outcome" => outcome)
        .increment(1);
}

/// Records the end of an operation.
pub(crate) fn operation(destination: &Arc<str>, stopped: Stopped) {
    let name = || Arc::clone(destination);
    counter!(CLIENT_OPERATIONS, "destination" => name(), "outcome" => stopped.word()).increment(1);
    // The counter exists from the start, so that the first refusal shows as an increase.
    let refused = u64::from(stopped == Stopped::BudgetExhausted);
    counter!(CLIENT_BUDGET_REFUSALS, "destination" => name()).increment(refused);
    tracing::debug!(outcome = stopped.word(), "operation ended");
}
