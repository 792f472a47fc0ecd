//! `hapax events tail`: the latest events, oldest first, and then new ones as they are committed.

use super::{Listed, listed};
use crate::{
    admin::{arguments, command_context::CommandContext},
    command::{
        Failure,
        filters::EventArgs,
        follow::{Follow, with_patience},
    },
};

const COLUMNS: [&str; 6] = ["CREATED", "ID", "STATE", "TYPE", "ABOUT", "TENANT"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    events: EventArgs,
    /// Number of events to begin with, at least 1
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = arguments::limit)]
    lines: usize,
    /// Continue with new events until the command is interrupted
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(cx: &CommandContext, args: Args) -> Result<(), Failure> {
    let filter = args.events.query().of_events()?;
    let (mut follow, first) = Follow::start(cx, filter, Some(args.lines)).await?;
    let first = listed(cx, first).await?;
    cx.output.header(&COLUMNS)?;
    print(cx, first)?;
    if !args.follow {
        return Ok(());
    }
    loop {
        let new = follow.new_events(cx).await?;
        let new = with_patience(async || listed(cx, new.clone()).await).await?;
        print(cx, new)?;
    }
}

/// Prints events as lines, or each as a JSON object on a line.
fn print(cx: &CommandContext, events: Vec<Listed>) -> Result<(), Failure> {
    for it in events {
        if cx.output.json {
            cx.output.json_line(&it)?;
            continue;
        }
        let event = it.event;
        let about = event.aggregate_type.zip(event.aggregate_id);
        let about = about.map(|(kind, id)| format!("{kind} {id}"));
        let line = [
            event.created_at.to_string(),
            event.id,
            if cx.output.csv {
                it.state.unwrap_or_default().to_owned()
            } else {
                format!("{:<9}", it.state.unwrap_or("-"))
            },
            event.kind,
            about.unwrap_or_default(),
            event.tenant.unwrap_or_default(),
        ];
        cx.output.cells(&line)?;
    }
    Ok(())
}
