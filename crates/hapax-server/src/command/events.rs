//! `hapax events`: lists events, shows one with its deliveries, and replays events.

use std::process::ExitCode;

use hapax::admin::{EventDetail, EventSummary};

use super::{Context, Failure};
use crate::admin::{
    ListQuery,
    command_context::{CommandContext, How, read_pages},
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
            let found = events::one(cx.store(), cx.index(), &cx.actor, &id, mask).await?;
            show(&cx, &found)?;
        }
        Verb::Replay { filter, how } => {
            let to = super::dead_letters::destination(&filter)?;
            cx.many(Act::ReplayEvents, to, *filter, None, how).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(cx: &CommandContext, ask: ListQuery) -> Result<(), Failure> {
    let (filter, limit) = (ask.of_events()?, ask.limit());
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().events(&cx.actor, &filter, before, limit);
        page.await
    };
    let page = read_pages(ask.before, limit, read).await?;
    let row = |it: EventSummary| {
        let about = it.aggregate_type.zip(it.aggregate_id);
        let about = about.map(|(kind, id)| format!("{kind} {id}"));
        [
            it.id,
            it.kind,
            it.tenant.unwrap_or_default(),
            about.unwrap_or_default(),
            it.created_at.to_string(),
        ]
    };
    cx.page(page, ["ID", "TYPE", "TENANT", "ABOUT", "CREATED"], row)
}

/// Prints one event.
pub(super) fn show(cx: &CommandContext, event: &EventDetail) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(cx.output.json(event)?);
    }
    let out = cx.output;
    let mut facts = vec![
        ["id".to_owned(), event.id.clone()],
        ["position".to_owned(), event.position.to_string()],
        ["type".to_owned(), event.kind.clone()],
        ["created".to_owned(), event.created_at.to_string()],
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
    let payload = event.payload_text().unwrap_or_else(|| {
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
        let when = trace.next_at.map(|at| at.to_string());
        rows.push([
            trace.partition.clone(),
            trace.status.as_str().to_owned(),
            when.unwrap_or_default(),
            reason.unwrap_or_default(),
        ]);
        for attempt in &trace.log {
            let took = format!("{} ms", attempt.duration.as_millis());
            let status = attempt.status.map(|it| it.to_string());
            let said = attempt.error.clone().or(status).unwrap_or_default();
            rows.push([
                format!("  attempt {}", attempt.number),
                attempt.outcome.as_str().to_owned(),
                attempt.started_at.to_string(),
                format!("{took} {said}"),
            ]);
        }
    }
    out.table(["DESTINATION", "STATE", "WHEN", "WHY"], &rows)?;
    Ok(())
}
