//! `hapax inbox`: lists the messages of the inbox, and shows the consumers of one.

use std::process::ExitCode;

use hapax_postgres::admin::AdminError;

use super::{Context, Failure};
use crate::admin::{
    command_context::CommandContext,
    inbox::{AskInbox, MessageView, page},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List messages, newest first
    List(AskInbox),
    /// Show which consumers accepted a message, and when
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

/// Reads page after page until there are enough rows or no more.
async fn list(cx: &CommandContext, mut ask: AskInbox) -> Result<(), Failure> {
    let limit = ask.limit();
    let mut found = page(&cx.store, &cx.actor, &ask).await?;
    while found.items.len() < limit {
        let Some(next) = found.next.take() else { break };
        (ask.before, ask.limit) = (Some(next), Some(limit - found.items.len()));
        let more = page(&cx.store, &cx.actor, &ask).await?;
        found.items.extend(more.items);
        found.next = more.next;
    }
    if cx.output.json {
        return Ok(cx.output.json(&found)?);
    }
    tell(cx, found.items)
}

async fn show(cx: &CommandContext, id: String) -> Result<(), Failure> {
    let ask = AskInbox {
        message_id: Some(id.clone()),
        ..AskInbox::default()
    };
    let found = page(&cx.store, &cx.actor, &ask).await?.items;
    if found.is_empty() {
        let what = format!("message {}", id.escape_debug());
        return Err(AdminError::NotFound { what }.into());
    }
    if cx.output.json {
        return Ok(cx.output.json(&found)?);
    }
    tell(cx, found)
}

fn tell(cx: &CommandContext, messages: Vec<MessageView>) -> Result<(), Failure> {
    let row = |it: MessageView| {
        [
            it.message_id,
            it.consumer,
            it.source,
            it.received_at,
            it.result.unwrap_or_default(),
        ]
    };
    let rows: Vec<_> = messages.into_iter().map(row).collect();
    let header = ["ID", "CONSUMER", "SOURCE", "TAKEN", "RESULT"];
    Ok(cx.output.table(header, &rows)?)
}
