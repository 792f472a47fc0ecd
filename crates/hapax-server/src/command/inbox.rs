//! `hapax inbox`: lists the messages of the inbox, and shows the consumers of one.

use std::process::ExitCode;

use hapax::admin::{AdminError, Message, MessageFilter, PAGE_MAX};

use super::{Context, Failure};
use crate::admin::{
    command_context::{CommandContext, read_pages},
    inbox::AskInbox,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List messages, newest first
    #[command(after_help = "Example:\n  hapax inbox list --consumer billing --since 1h")]
    List(AskInbox),
    /// Show which consumers accepted a message, and when
    #[command(after_help = "Example:\n  hapax inbox show 0190c2f4-3f6e-7aaa-8000-000000000001")]
    Show {
        /// Message id; for an event, the event id
        id: String,
    },
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => list(&cx, ask).await?,
        Verb::Show { id } => show(&cx, id).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(cx: &CommandContext, ask: AskInbox) -> Result<(), Failure> {
    let (filter, limit) = (ask.filter()?, ask.limit());
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().messages(&cx.actor, &filter, before, limit);
        page.await
    };
    let page = read_pages(ask.before, limit, read).await?;
    cx.page(page, HEADER, row)
}

async fn show(cx: &CommandContext, id: String) -> Result<(), Failure> {
    let filter = MessageFilter {
        message_id: Some(id.clone()),
        ..MessageFilter::default()
    };
    let found = cx.store().messages(&cx.actor, &filter, None, PAGE_MAX);
    let found = found.await?.items;
    if found.is_empty() {
        return Err(AdminError::not_found(format!("message {}", id.escape_debug())).into());
    }
    if cx.output.json {
        return Ok(cx.output.json(&found)?);
    }
    let rows: Vec<_> = found.into_iter().map(row).collect();
    Ok(cx.output.table(HEADER, &rows)?)
}

const HEADER: [&str; 6] = [
    "ID",
    "CONSUMER",
    "SOURCE",
    "RECEIVED",
    "PROCESSED",
    "RESULT",
];

fn row(it: Message) -> [String; 6] {
    [
        it.message_id,
        it.consumer,
        it.source,
        it.received_at.to_string(),
        it.processed_at
            .map_or_else(String::new, |at| at.to_string()),
        it.result.unwrap_or_default(),
    ]
}
