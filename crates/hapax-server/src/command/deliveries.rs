//! `hapax deliveries`: lists deliveries that are parked, dead, or finished after they were parked.

use std::process::ExitCode;

use hapax_postgres::admin::events::DeliveryStatus;

use super::{Context, Failure};
use crate::admin::{ListQuery, command_context::CommandContext, deliveries};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List deliveries, newest events first
    List(Box<ListQuery>),
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    let Verb::List(ask) = args.verb;
    let states = ask
        .states()
        .map_err(|wrong| Failure::new(crate::output::USAGE, wrong.to_string()))?;
    list(&cx, *ask, &states).await?;
    Ok(ExitCode::SUCCESS)
}

/// Reads page after page until there are enough rows or no more.
pub(super) async fn list(
    cx: &CommandContext,
    mut ask: ListQuery,
    states: &[DeliveryStatus],
) -> Result<(), Failure> {
    let limit = ask.limit();
    let mut page = deliveries::page(&cx.store, &cx.actor, &ask, states).await?;
    while page.items.len() < limit {
        let Some(next) = page.next.take() else { break };
        (ask.before, ask.limit) = (Some(next), Some(limit - page.items.len()));
        let more = deliveries::page(&cx.store, &cx.actor, &ask, states).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    if cx.output.json {
        return Ok(cx.output.json(&page)?);
    }
    let row = |it: crate::admin::DeliveryView| {
        [
            it.partition,
            it.position.to_string(),
            it.state,
            it.kind,
            it.attempts.to_string(),
            it.changed_at,
            it.reason.or(it.last_error).unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = page.items.into_iter().map(row).collect();
    let header = [
        "DESTINATION",
        "POSITION",
        "STATE",
        "TYPE",
        "ATTEMPTS",
        "CHANGED",
        "WHY",
    ];
    cx.output.table(header, &rows)?;
    Ok(())
}
