//! `hapax deliveries retry`: makes a delivery due now, instead of when its next attempt is due.

use super::Failure;
use crate::admin::command_context::{CommandContext, Consent};

/// One delivery that waits for its next attempt.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Destination as listed; if it has several partitions, the partition, such as orders/3
    destination: String,
    /// Position as listed
    position: i64,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn run(cx: &CommandContext, args: Args) -> Result<(), Failure> {
    let Args {
        destination,
        position,
        consent,
    } = args;
    let question = format!("Retry delivery {position} of {destination} now?");
    cx.confirm(consent, &question)?;
    let store = cx.store();
    let retried = store.retry_delivery_now(&cx.actor, &destination, position);
    retried.await?;
    let said = serde_json::json!({"destination": destination, "position": position});
    cx.say(&said, || {
        format!("delivery {position} of {destination} is due now")
    })
}
