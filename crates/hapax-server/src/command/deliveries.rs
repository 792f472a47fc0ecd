//! `hapax deliveries`: lists deliveries that are parked, dead, or finished after they were parked,
//! and retries one now.

use std::process::ExitCode;

use hapax::admin::{Delivery, DeliveryFilter};

use super::{
    Context, Failure,
    filters::{AttemptArgs, EventArgs, PageArgs},
    retry,
};
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
    #[command(
        after_help = "Example:\n  hapax deliveries list --destination billing --state retrying"
    )]
    List(Box<ListArgs>),
    /// Make one delivery due now that waits for its next attempt; its attempts still count
    #[command(after_help = "Example:\n  hapax deliveries retry billing 4711")]
    Retry(retry::Args),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    attempts: AttemptArgs,
    /// Only deliveries of this destination
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Only deliveries in one of these states, separated by commas: scheduled, retrying, blocked,
    /// dead, delivered, discarded
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

impl ListArgs {
    fn query(self) -> ListQuery {
        let mut query = self.events.query();
        self.attempts.add_to(&mut query);
        self.page.add_to(&mut query);
        query.destination = self.destination;
        query.state = self.state;
        query
    }
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(args) => {
            let query = args.query();
            let filter = query.of_deliveries()?;
            list(&cx, query, &filter).await?;
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
        let is_due_later = matches!(it.state.as_str(), "scheduled" | "retrying");
        let next = is_due_later.then(|| it.next_at.to_string());
        [
            it.partition,
            it.position.to_string(),
            it.state,
            it.kind,
            it.attempts.to_string(),
            it.changed_at.to_string(),
            next.unwrap_or_default(),
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
        "NEXT",
        "WHY",
    ];
    cx.page(page, header, row)
}
