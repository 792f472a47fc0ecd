//! `hapax events`: lists events, shows one with its deliveries, and replays events.

use std::process::ExitCode;

use super::{Context, Failure};
use crate::admin::{
    EventView, ListQuery,
    command_context::{CommandContext, How},
    events,
    jobs::Act,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List events, newest first
    List(Box<ListQuery>),
    /// Show an event and its state at every destination
    Show {
        /// Event id or position
        id: String,
        /// Show the payload without masking sensitive values
        #[arg(long)]
        unmasked: bool,
    },
    /// Deliver all events that match the filter to a destination again, whatever the outcome was
    Replay {
        #[command(flatten)]
        filter: Box<ListQuery>,
        #[command(flatten)]
        how: How,
    },
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => list(&cx, *ask).await?,
        Verb::Show { id, unmasked } => {
            let mask = (!unmasked).then_some(&cx.mask);
            let found = events::one(&cx.store, &cx.declare, &cx.actor, &id, mask).await?;
            show(&cx, &found)?;
        }
        Verb::Replay { filter, how } => {
            let to = super::dead_letters::destination(&filter)?;
            cx.many(Act::ReplayEvents, to, *filter, None, how).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads page after page until there are enough rows or no more.
async fn list(cx: &CommandContext, mut ask: ListQuery) -> Result<(), Failure> {
    let limit = ask.limit();
    let mut page = events::page(&cx.store, &cx.actor, &ask).await?;
    while page.items.len() < limit {
        let Some(next) = page.next.take() else { break };
        (ask.before, ask.limit) = (Some(next), Some(limit - page.items.len()));
        let more = events::page(&cx.store, &cx.actor, &ask).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    if cx.output.json {
        return Ok(cx.output.json(&page)?);
    }
    let rows = page.items.into_iter().map(|it| {
        let about = it.aggregate_type.zip(it.aggregate_id);
        let about = about.map(|(kind, id)| format!("{kind} {id}"));
        let none = String::new;
        [
            it.id,
            it.kind,
            it.tenant.unwrap_or_else(none),
            about.unwrap_or_else(none),
            it.created_at,
        ]
    });
    let rows: Vec<_> = rows.collect();
    cx.output
        .table(["ID", "TYPE", "TENANT", "ABOUT", "CREATED"], &rows)?;
    Ok(())
}

/// Prints one event.
pub(super) fn show(cx: &CommandContext, event: &EventView) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(cx.output.json(event)?);
    }
    let out = cx.output;
    let mut facts = vec![
        ["id".to_owned(), event.id.clone()],
        ["position".to_owned(), event.position.to_string()],
        ["type".to_owned(), event.kind.clone()],
        ["created".to_owned(), event.created_at.clone()],
    ];
    facts.extend(event.tenant.clone().map(|it| ["tenant".to_owned(), it]));
    let about = event
        .aggregate_type
        .as_ref()
        .zip(event.aggregate_id.as_ref());
    facts.extend(about.map(|(kind, id)| ["about".to_owned(), format!("{kind} {id}")]));
    for (name, value) in &event.headers {
        facts.push([format!("header {name}"), value.clone()]);
    }
    let payload = event.payload.clone().unwrap_or_else(|| {
        let (bytes, kind) = (event.payload_bytes, &event.content_type);
        format!("{bytes} bytes of {kind}")
    });
    facts.push(["payload".to_owned(), payload]);
    out.table(["EVENT", ""], &facts)?;
    out.line("")?;
    let mut rows = Vec::new();
    for trace in &event.destinations {
        let behind = trace.behind.map(|position| format!("behind {position}"));
        let reason = trace
            .reason
            .clone()
            .or(behind)
            .or_else(|| trace.last_error.clone());
        let when = trace.next_at.clone().unwrap_or_default();
        rows.push([
            trace.partition.clone(),
            trace.state.to_owned(),
            when,
            reason.unwrap_or_default(),
        ]);
        for attempt in &trace.attempts {
            let took = format!("{} ms", attempt.duration_ms);
            let status = attempt.status.map(|it| it.to_string());
            let said = attempt.error.clone().or(status).unwrap_or_default();
            rows.push([
                format!("  attempt {}", attempt.number),
                attempt.outcome.to_owned(),
                attempt.started_at.clone(),
                format!("{took} {said}"),
            ]);
        }
    }
    out.table(["DESTINATION", "STATE", "WHEN", "WHY"], &rows)?;
    Ok(())
}
