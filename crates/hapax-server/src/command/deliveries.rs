//! `hapax deliveries`: lists deliveries that are parked, dead, or finished after they were parked,
//! and retries one now.

use std::process::ExitCode;

use hapax::admin::{Delivery, DeliveryFilter};

use super::{Context, Failure, retry};
use crate::admin::{
    ListQuery,
    command_context::{CommandContext, read_pages},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List deliveries, newest events first
    List(Box<ListQuery>),
    /// Make one delivery due now that waits for its next attempt; its attempts still count
    Retry(retry::Args),
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => {
            let filter = ask.of_deliveries()?;
            list(&cx, *ask, &filter).await?;
        }
        Verb::Retry(one) => retry::run(&cx, one).await?,
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(
    cx: &CommandContext,
    ask: ListQuery,
    filter: &DeliveryFilter,
) -> Result<(), Failure> {
    let limit = ask.limit();
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().deliveries(&cx.actor, filter, before, limit);
        page.await
    };
    let page = read_pages(ask.before, limit, read).await?;
    let row = |it: Delivery| {
        [
            it.partition,
            it.position.to_string(),
            it.state,
            it.kind,
            it.attempts.to_string(),
            it.changed_at.to_string(),
            it.reason.or(it.last_error).unwrap_or_default(),
        ]
    };
    let header = [
        "DESTINATION",
        "POSITION",
        "STATE",
        "TYPE",
        "ATTEMPTS",
        "CHANGED",
        "WHY",
    ];
    cx.page(page, header, row)
}
