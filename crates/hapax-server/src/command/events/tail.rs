//! `hapax events tail`: the latest events, oldest first, and then new ones as they are committed.
//!
//! Events are read once a second. An event whose transaction commits late has a lower position than
//! some that were printed before; it is printed when it is seen.

use std::{collections::BTreeSet, time::Duration};

use hapax::admin::EventFilter;
use tokio::time::sleep;

use super::{Listed, page};
use crate::{
    admin::{arguments, command_context::CommandContext},
    command::{Failure, filters::EventArgs},
};

/// How often new events are read.
const POLL: Duration = Duration::from_secs(1);
/// How many events are read at once.
const READ: usize = 200;
/// How many printed positions are remembered. An event that commits later than this many others is
/// not printed.
const SEEN: usize = 10_000;

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
    let first = page(cx, &filter, None, args.lines).await?;
    // Older events are not new, whenever they are read. If there are none, everything is.
    let oldest = first.items.last().map(|it| it.event.position);
    let floor = oldest.filter(|_| first.next.is_some()).unwrap_or(0);
    let mut seen: BTreeSet<i64> = first.items.iter().map(|it| it.event.position).collect();
    print(cx, first.items)?;
    if !args.follow {
        return Ok(());
    }
    loop {
        sleep(POLL).await;
        let new = unseen(cx, &filter, floor, &seen).await?;
        seen.extend(new.iter().map(|it| it.event.position));
        while seen.len() > SEEN {
            seen.pop_first();
        }
        print(cx, new)?;
    }
}

/// The events that were not seen before, newest first.
async fn unseen(
    cx: &CommandContext,
    filter: &EventFilter,
    floor: i64,
    seen: &BTreeSet<i64>,
) -> Result<Vec<Listed>, Failure> {
    let floor = seen
        .first()
        .copied()
        .filter(|_| seen.len() >= SEEN)
        .unwrap_or(floor);
    let (mut new, mut before) = (Vec::new(), None);
    loop {
        let read = page(cx, filter, before, READ).await?;
        let count = read.items.len();
        let is_new = |it: &Listed| it.event.position > floor && !seen.contains(&it.event.position);
        let before_count = new.len();
        new.extend(read.items.into_iter().filter(is_new));
        before = read.next;
        // A page with an event that was seen reaches back far enough.
        if before.is_none() || new.len() - before_count < count {
            return Ok(new);
        }
    }
}

/// Prints events that were read newest first: as lines, or each as a JSON object on a line.
fn print(cx: &CommandContext, events: Vec<Listed>) -> Result<(), Failure> {
    for it in events.into_iter().rev() {
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
            format!("{:<9}", it.state.unwrap_or("-")),
            event.kind,
            about.unwrap_or_default(),
            event.tenant.unwrap_or_default(),
        ];
        cx.output.cells(&line)?;
    }
    Ok(())
}
