//! `hapax deliveries retry`: makes a delivery due now, instead of when its next attempt is due.

use super::{Failure, filters::DeliveryArgs};
use crate::admin::command_context::{CommandContext, Consent};

/// One delivery that waits for its next attempt.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    delivery: DeliveryArgs,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn run(cx: &CommandContext, args: Args) -> Result<(), Failure> {
    let DeliveryArgs {
        destination,
        position,
    } = args.delivery;
    let question = format!("Retry delivery {position} of {destination} now?");
    cx.confirm(args.consent, &question)?;
    let store = cx.store();
    let retried = store.retry_delivery_now(&cx.actor, &destination, position);
    retried.await?;
    let said = serde_json::json!({"destination": destination, "position": position});
    cx.say(&said, || {
        format!("delivery {position} of {destination} is due now")
    })
}
