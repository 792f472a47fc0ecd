//! `hapax endpoints replay` and `replay-missing`: deliveries that are sent again, and the events that an
//! endpoint never got.

use hapax::admin::{UnsentReplayed, replay_unsent};
use serde_json::json;

use super::{Failure, Which};
use crate::{
    admin::{
        arguments::time,
        command_context::{CommandContext, Consent},
        endpoints::EndpointReplayed,
        tenant_endpoints::EndpointReplayMissing,
    },
    environment,
};

/// Which deliveries are sent again.
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    #[command(flatten)]
    which: Which,
    /// The event
    #[arg(long, value_name = "ID", required_unless_present = "since")]
    event_id: Option<String>,
    /// Deliveries that have failed since this time, such as 1h or 2026-01-31T12:00:00Z
    #[arg(long, alias = "failed-since", value_name = "WHEN", value_parser = time,
        conflicts_with = "event_id")]
    since: Option<String>,
    /// Deliveries that have failed before this time
    #[arg(long, value_name = "WHEN", value_parser = time, conflicts_with = "event_id")]
    until: Option<String>,
    /// Only deliveries whose attempts have failed
    #[arg(long, conflicts_with_all = ["event_id", "missed"])]
    failed: bool,
    /// Only deliveries that were dropped because too many waited
    #[arg(long, conflicts_with = "event_id")]
    missed: bool,
    #[command(flatten)]
    consent: Consent,
}

/// Which events that an endpoint never got are sent.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayMissing {
    #[command(flatten)]
    which: Which,
    /// Events that were created since this time, such as 7d or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = time)]
    since: String,
    /// Events that were created before this time; the time at which the endpoint was created if not given
    #[arg(long, value_name = "WHEN", value_parser = time)]
    until: Option<String>,
    /// Count the events, and send none
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn deliveries(cx: &CommandContext, args: Replay) -> Result<(), Failure> {
    let Which { id, tenant } = &args.which;
    let replay = EndpointReplayed {
        event_id: args.event_id,
        since: args.since,
        until: args.until,
        dropped: (args.failed || args.missed).then_some(args.missed),
    };
    let replay = replay.read()?;
    let question = format!("Send deliveries of endpoint {id} again?");
    cx.confirm(args.consent, &question)?;
    let (store, actor) = (cx.store(), &cx.actor);
    let replayed = store.replay_endpoint(actor, tenant, id, &replay).await?;
    cx.say(&json!({"replayed": replayed}), || {
        format!("{replayed} sent again")
    })
}

/// Queues the events that the endpoint never got, call by call. A command that is ended can be repeated: it
/// finds what is left.
pub(super) async fn missing(cx: &CommandContext, args: ReplayMissing) -> Result<(), Failure> {
    let Which { id, tenant } = &args.which;
    let is_dry_run = args.dry_run;
    if !is_dry_run {
        let question = format!("Send the missing events to endpoint {id}?");
        cx.confirm(args.consent, &question)?;
    }
    let mut ask = EndpointReplayMissing {
        since: Some(args.since),
        until: args.until,
        after: None,
        dry_run: is_dry_run,
    };
    let mut total = UnsentReplayed::default();
    loop {
        let part = ask.ask(cx.waiting_max, environment::clock().now())?;
        let part = replay_unsent(cx.store(), &cx.actor, tenant, id, &part).await?;
        total.missing += part.missing;
        total.queued += part.queued;
        total.unreadable += part.unreadable;
        (total.is_full, total.next) = (part.is_full, part.next);
        if total.is_full || total.next.is_none() {
            break;
        }
        ask.after.clone_from(&total.next);
    }
    cx.say(&total, || missing_line(&total, is_dry_run))
}

fn missing_line(total: &UnsentReplayed, is_dry_run: bool) -> String {
    let count = if is_dry_run {
        format!("{} were never sent", total.missing)
    } else {
        format!("{} are sent", total.queued)
    };
    let unreadable = match total.unreadable {
        0 => String::new(),
        unreadable => format!("; the filter cannot read {unreadable}"),
    };
    let full = if total.is_full {
        "; the queue is full: repeat the command when it is shorter"
    } else {
        ""
    };
    format!("{count}{unreadable}{full}")
}
