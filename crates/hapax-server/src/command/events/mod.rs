//! `hapax events`: lists and follows events, shows one with its deliveries, and replays events.

mod tail;

use std::{collections::HashMap, process::ExitCode};

use hapax::admin::{AdminError, DeliveryStatus, EventDetail, EventSummary, Page, Trace};
use serde::Serialize;

use super::{
    Context, Failure,
    filters::{EventArgs, PageArgs},
};
use crate::admin::{
    ListQuery,
    command_context::{CommandContext, How, read_pages},
    events,
    jobs::JobOperation,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List events, newest first
    #[command(after_help = "Example:\n  hapax events list --type 'order.*' --since 1h")]
    List(Box<ListArgs>),
    /// Print the latest events, oldest first, and follow new ones
    #[command(after_help = "Example:\n  hapax events tail --follow --type 'order.*'")]
    Tail(Box<tail::Args>),
    /// Show an event and its state at every destination
    #[command(after_help = "Example:\n  hapax events show 4711")]
    Show {
        /// Event id or position
        id: String,
        /// Show the payload without masking sensitive values
        #[arg(long)]
        unmasked: bool,
    },
    /// Deliver all events that match the filter to a destination again, whatever the outcome was
    #[command(
        after_help = "Example:\n  hapax events replay --destination billing --since 7d --until 1d --dry-run"
    )]
    Replay {
        /// Destination that the events are delivered to
        #[arg(long, value_name = "NAME")]
        destination: String,
        #[command(flatten)]
        filter: Box<EventArgs>,
        #[command(flatten)]
        how: How,
    },
}

/// Which events, and the page.
#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    events: EventArgs,
    /// Only events that this destination has not read yet, whether they are for it or not
    #[arg(long, value_name = "NAME")]
    unread: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(args) => {
            let mut query = args.events.query();
            args.page.add_to(&mut query);
            list(&cx, query, args.unread.as_deref()).await?;
        }
        Verb::Tail(args) => tail::run(&cx, *args).await?,
        Verb::Show { id, unmasked } => {
            let mask = (!unmasked).then_some(&cx.mask);
            let found = events::one(cx.store(), cx.index(), &cx.actor, &id, mask).await?;
            show(&cx, &found)?;
        }
        Verb::Replay {
            destination,
            filter,
            how,
        } => {
            let filter = filter.query();
            cx.many(JobOperation::ReplayEvents, destination, filter, None, how)
                .await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An event in a list, with its state at all destinations together.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    event: EventSummary,
    /// The state at the destination where the event is worst off; absent if no relay has opened a
    /// destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// States of an event at a destination, the worst first.
const WORST_FIRST: [DeliveryStatus; 8] = [
    DeliveryStatus::Dead,
    DeliveryStatus::Blocked,
    DeliveryStatus::Retrying,
    DeliveryStatus::Unread,
    DeliveryStatus::Scheduled,
    DeliveryStatus::Discarded,
    DeliveryStatus::Delivered,
    DeliveryStatus::Passed,
];

async fn list(cx: &CommandContext, ask: ListQuery, unread: Option<&str>) -> Result<(), Failure> {
    let (filter, limit) = (ask.of_events()?, ask.limit());
    let actor = &cx.actor;
    let read = async |before: Option<&str>, limit| match unread {
        Some(name) => cx.index().unread(actor, name, &filter, before, limit).await,
        None => cx.store().events(actor, &filter, before, limit).await,
    };
    let Page { items, next } = read_pages(ask.before, limit, read).await?;
    let items = listed(cx, items).await?;
    let row = |it: Listed| {
        let event = it.event;
        let about = event.aggregate_type.zip(event.aggregate_id);
        let about = about.map(|(kind, id)| format!("{kind} {id}"));
        [
            event.id,
            event.kind,
            it.state.unwrap_or_default().to_owned(),
            event.tenant.unwrap_or_default(),
            about.unwrap_or_default(),
            event.created_at.to_string(),
        ]
    };
    let header = ["ID", "TYPE", "STATE", "TENANT", "ABOUT", "CREATED"];
    cx.page(Page { items, next }, header, row)
}

/// Reads the states of events.
async fn listed(cx: &CommandContext, events: Vec<EventSummary>) -> Result<Vec<Listed>, AdminError> {
    let positions: Vec<i64> = events.iter().map(|it| it.position).collect();
    let mut traces = HashMap::new();
    for positions in positions.chunks(TRACED) {
        traces.extend(cx.store().traces(positions).await?);
    }
    let listed = |event: EventSummary| {
        let traces = traces.get(&event.position).map_or(&[][..], Vec::as_slice);
        let state = state(traces);
        Listed { event, state }
    };
    Ok(events.into_iter().map(listed).collect())
}

/// The number of events whose states are read at once.
const TRACED: usize = 200;

/// The worst state of an event.
fn state(traces: &[Trace]) -> Option<&'static str> {
    let is_in = |status: &&DeliveryStatus| traces.iter().any(|it| it.status == **status);
    WORST_FIRST.iter().find(is_in).map(|it| it.as_str())
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
    out.side_table(["EVENT", ""], &facts)?;
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
