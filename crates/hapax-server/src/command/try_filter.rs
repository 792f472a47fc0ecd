//! `hapax destinations filter`: tries a filter on stored events and prints which of them match.

use std::path::{Path, PathBuf};

use hapax::{
    admin::{FilterTrial, TriedEvent, try_filter},
    filter::Filter,
};

use super::{
    Failure,
    filters::{EventArgs, PageArgs},
    json_file,
};
use crate::{
    admin::{command_context::CommandContext, filters},
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// File with the filter, a JSON object; "-" reads it from standard input
    #[arg(long, value_name = "FILE")]
    filter: PathBuf,
    #[command(flatten)]
    events: EventArgs,
    #[command(flatten)]
    page: PageArgs,
}

pub(super) async fn run(cx: &CommandContext, args: Args) -> Result<(), Failure> {
    let filter = read(&args.filter)?;
    let mut query = args.events.query();
    args.page.add_to(&mut query);
    let (events, limit) = (query.of_events()?, filters::limit(&query)?);
    let (store, before) = (cx.store(), query.before.as_deref());
    let trial = try_filter(store, &cx.actor, &filter, &events, before, limit, None).await?;
    if cx.output.json {
        return Ok(cx.output.json(&trial)?);
    }
    let rows: Vec<_> = trial.items.iter().map(row).collect();
    let header = ["ID", "TYPE", "CREATED", "MATCHES", "FAILS AT"];
    cx.output.table(header, &rows)?;
    Ok(cx.output.line(summary(&trial))?)
}

fn row(event: &TriedEvent) -> [String; 5] {
    let (matches, why) = match (event.matches, &event.fails_at) {
        (true, _) => ("yes", ""),
        (false, Some(place)) => ("no", place.as_str()),
        (false, None) => ("no", "(not JSON)"),
    };
    [
        event.id.clone(),
        event.kind.clone(),
        event.created_at.to_string(),
        matches.to_owned(),
        why.to_owned(),
    ]
}

fn summary(trial: &FilterTrial) -> String {
    let FilterTrial {
        tried,
        matched,
        unreadable,
        next,
        ..
    } = trial;
    let unreadable = match unreadable {
        0 => String::new(),
        count => format!(", {count} have a payload that is not JSON or cannot be decrypted"),
    };
    let next = next.as_ref().map(|next| format!("; more: --before {next}"));
    let next = next.unwrap_or_default();
    format!("{matched} of {tried} events match{unreadable}{next}")
}

/// Reads and compiles a filter.
fn read(path: &Path) -> Result<Filter, Failure> {
    let text = json_file::read(path)?;
    let filter = Filter::parse(&text);
    filter.map_err(|error| Failure::new(USAGE, format!("{}: {error}", path.display())))
}
