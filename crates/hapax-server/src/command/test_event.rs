//! `hapax destinations test`: offers a test event to one destination and prints the outcome.

use hapax::delivery::{Attempt, AttemptOutcome};

use super::Failure;
use crate::{
    admin::{command_context::CommandContext, test_event},
    destination::Spec,
    output::FAILED,
};

/// Fails if the event was not delivered. `configured` is the destination in the configuration.
pub(super) async fn run(
    cx: &CommandContext,
    name: &str,
    configured: Option<Spec>,
) -> Result<(), Failure> {
    let tested = test_event::offer(&cx.declare, &cx.actor, name, configured, &cx.mask).await?;
    let attempt = &tested.attempt;
    cx.say(&tested, || {
        format!("{}, event {}", said(attempt), tested.event_id)
    })?;
    if attempt.outcome == AttemptOutcome::Delivered {
        return Ok(());
    }
    let error = attempt.error.as_deref().unwrap_or_default();
    let error_chain = format!("destination {name} did not take the test event: {error}");
    Err(Failure::new(FAILED, error_chain))
}

/// The outcome, the status and the duration, such as `delivered: status 200, 12 ms`.
fn said(attempt: &Attempt) -> String {
    let status = attempt.status.map(|it| format!("status {it}, "));
    let status = status.unwrap_or_default();
    let (outcome, took) = (attempt.outcome.as_str(), attempt.duration.as_millis());
    format!("{outcome}: {status}{took} ms")
}
