//! `hapax endpoints`: the endpoints of tenants, their secrets and their deliveries.

mod replay;
mod trial;

use std::{collections::BTreeMap, process::ExitCode};

use hapax::{
    Timestamp,
    admin::{
        EndpointDelivery, EndpointFilter, EndpointOperations as _, EndpointStatus, TenantEndpoint,
    },
    retry::parse_duration,
    sink::PayloadMode,
};
use hapax_sinks::settings::JsonSetting;
use serde_json::json;

use super::{Context, Failure, try_mapping};
use crate::{
    admin::{
        arguments::{limit, time},
        command_context::{CommandContext, Consent, read_pages},
        endpoints::{AskDeliveries, a_day_ago},
        tenant_endpoints::{EndpointCreate, EndpointUpdate},
    },
    config::Span,
    destination::FilterSetting,
    output::FAILED,
};

/// Number of attempts that are listed without `--limit`.
const LISTED: usize = 20;
/// The reason of `disable` without one.
const BY_HAND: &str = "disabled by an operator";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

/// An endpoint of a tenant.
#[derive(Debug, clap::Args)]
struct Which {
    /// Id of the endpoint
    id: String,
    /// Tenant to which it belongs
    #[arg(long, value_name = "TENANT")]
    tenant: String,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List endpoints
    #[command(after_help = "Example:\n  hapax endpoints list --tenant acme --state slowed")]
    List {
        /// Only endpoints of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Only endpoints in this state: enabled, slowed or disabled
        #[arg(long, value_name = "STATE", value_parser = status)]
        state: Option<EndpointStatus>,
    },
    /// Show an endpoint with its health
    #[command(after_help = "Example:\n  hapax endpoints show ep_0a1b --tenant acme")]
    Show(Which),
    /// Create an endpoint and print its id and its signing secret, which is not shown again
    #[command(
        after_help = "Example:\n  hapax endpoints create --tenant acme --url https://acme.example/hooks --type 'order.*'"
    )]
    Create {
        /// Tenant whose events it receives
        #[arg(long, value_name = "TENANT")]
        tenant: String,
        /// URL that events are posted to
        #[arg(long, value_name = "URL")]
        url: String,
        /// Description for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        selection: Selection,
    },
    /// Change an endpoint; what is not given stays as it is
    #[command(
        after_help = "Example:\n  hapax endpoints change ep_0a1b --tenant acme --type 'order.*' --type refund.created"
    )]
    Change {
        #[command(flatten)]
        which: Which,
        /// URL that events are posted to; headers have to be given again with it
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// Description for people
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        #[command(flatten)]
        selection: Selection,
    },
    /// Replace the signing secret and print the new one, which is not shown again
    #[command(after_help = "Example:\n  hapax endpoints rotate ep_0a1b --tenant acme --overlap 7d")]
    Rotate {
        #[command(flatten)]
        which: Which,
        /// How long the old secret signs too; 0s makes it and all earlier ones invalid at once
        #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = span)]
        overlap: Span,
        #[command(flatten)]
        consent: Consent,
    },
    /// Enable an endpoint: what waits for it is sent
    #[command(after_help = "Example:\n  hapax endpoints enable ep_0a1b --tenant acme")]
    Enable(Which),
    /// Disable an endpoint: it receives nothing
    #[command(
        after_help = "Example:\n  hapax endpoints disable ep_0a1b --tenant acme --reason 'asked to'"
    )]
    Disable {
        #[command(flatten)]
        which: Which,
        /// Reason, which the tenant sees
        #[arg(long, value_name = "TEXT", default_value = BY_HAND)]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
    /// Delete an endpoint with its secrets and its queue
    #[command(after_help = "Example:\n  hapax endpoints delete ep_0a1b --tenant acme")]
    Delete {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        consent: Consent,
    },
    /// List the attempts at an endpoint, the newest first; --json has request and response
    #[command(after_help = "Example:\n  hapax endpoints deliveries ep_0a1b --tenant acme --failed")]
    Deliveries {
        #[command(flatten)]
        which: Which,
        /// Only attempts that failed
        #[arg(long)]
        failed: bool,
        /// Only attempts at this event
        #[arg(long, value_name = "ID")]
        event_id: Option<String>,
        /// Only attempts since this time, such as 1h or 2026-01-31T12:00:00Z
        #[arg(long, value_name = "WHEN", value_parser = time)]
        since: Option<String>,
        /// Maximum number of attempts
        #[arg(long, value_name = "COUNT", value_parser = limit)]
        limit: Option<usize>,
    },
    /// Send deliveries again: that of one event, or those that have failed since a time
    #[command(after_help = "Example:\n  hapax endpoints replay ep_0a1b --tenant acme --since 1d")]
    Replay(replay::Replay),
    /// Send the events that an endpoint never got: those from before it was created, or from before --until
    #[command(
        after_help = "Example:\n  hapax endpoints replay-missing ep_0a1b --tenant acme --since 7d --dry-run"
    )]
    ReplayMissing(replay::ReplayMissing),
    /// Show what the mapping of an endpoint makes of stored events, newest first
    #[command(after_help = "Example:\n  hapax endpoints map ep_0a1b --tenant acme --limit 3")]
    Map(Box<try_mapping::EndpointArgs>),
    /// Try types, a filter and a mapping on stored events of a tenant, newest first
    #[command(
        after_help = "Example:\n  hapax endpoints try --tenant acme --type 'order.*' --filter large.json --mapping chat.json"
    )]
    Try(Box<trial::Try>),
    /// Send a test event to an endpoint, once
    #[command(after_help = "Example:\n  hapax endpoints test ep_0a1b --tenant acme")]
    Test(Which),
}

/// The events of an endpoint, and the headers of its requests.
#[derive(Debug, clap::Args)]
struct Selection {
    /// Pattern of event types, such as order.*; repeat it for several
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// Conditions on the content of events, as JSON; an empty text removes them
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    /// Header of every request; repeat it for several
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Payload of requests: full, or thin for the id of the event and a link
    #[arg(long, value_name = "WORD", value_parser = payload)]
    payload: Option<PayloadMode>,
    /// Template that makes the body of each request, as JSON; an empty text removes it
    #[arg(long, value_name = "JSON")]
    mapping: Option<String>,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List { tenant, state } => list(&cx, tenant, state).await?,
        Verb::Show(which) => show(&cx, &which).await?,
        Verb::Create {
            tenant,
            url,
            description,
            selection,
        } => {
            create(
                &cx,
                &tenant,
                url,
                description.unwrap_or_default(),
                selection,
            )
            .await?;
        }
        Verb::Change {
            which,
            url,
            description,
            selection,
        } => change(&cx, &which, url, description, selection).await?,
        Verb::Rotate {
            which,
            overlap,
            consent,
        } => rotate(&cx, &which, overlap, consent).await?,
        Verb::Enable(which) => set_disabled(&cx, &which, None).await?,
        Verb::Disable {
            which,
            reason,
            consent,
        } => disable(&cx, &which, reason, consent).await?,
        Verb::Delete { which, consent } => delete(&cx, &which, consent).await?,
        Verb::Deliveries {
            which,
            failed,
            event_id,
            since,
            limit,
        } => {
            let ask = AskDeliveries {
                failed: failed.then_some(true),
                event_id,
                since,
                limit,
                ..AskDeliveries::default()
            };
            deliveries(&cx, &which, &ask).await?;
        }
        Verb::Replay(args) => replay::deliveries(&cx, args).await?,
        Verb::ReplayMissing(args) => replay::missing(&cx, args).await?,
        Verb::Map(args) => try_mapping::endpoint(&cx, &args).await?,
        Verb::Try(args) => trial::run(&cx, &args).await?,
        Verb::Test(which) => test(&cx, &which).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(
    cx: &CommandContext,
    tenant: Option<String>,
    state: Option<EndpointStatus>,
) -> Result<(), Failure> {
    let filter = EndpointFilter {
        tenant,
        state,
        text: None,
    };
    let page = read_pages(None, usize::MAX, async |after: Option<&str>, limit| {
        let (store, actor) = (cx.store(), &cx.actor);
        store.endpoints(actor, &filter, after, limit).await
    });
    let header = ["ID", "TENANT", "URL", "TYPES", "STATE"];
    cx.page(page.await?, header, |endpoint| {
        let state = state_with_reason(&endpoint);
        [
            endpoint.id,
            endpoint.tenant,
            endpoint.url,
            endpoint.types.join(" "),
            state,
        ]
    })
}

async fn show(cx: &CommandContext, which: &Which) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let (store, actor) = (cx.store(), &cx.actor);
    let endpoint = store.endpoint(actor, tenant, id).await?.endpoint;
    let health = store
        .endpoint_health(actor, tenant, id, a_day_ago())
        .await?;
    if cx.output.json {
        let shown = json!({"endpoint": endpoint, "health": health});
        return Ok(cx.output.json(&shown)?);
    }
    let rate = health
        .success_rate
        .map(|rate| format!("{:.1} %", rate * 100.0));
    let p95 = health.p95_ms.map(|millis| format!("{millis} ms"));
    let row = |name: &str, value: &str| [name.to_owned(), value.to_owned()];
    let rows = [
        row("id", &endpoint.id),
        row("tenant", &endpoint.tenant),
        row("url", &endpoint.url),
        row("description", &endpoint.description),
        row("types", &endpoint.types.join(" ")),
        row("filter", endpoint.filter.as_deref().unwrap_or_default()),
        row("headers", &endpoint.headers.join(" ")),
        row("payload", endpoint.payload.as_str()),
        row("mapping", endpoint.mapping.as_deref().unwrap_or_default()),
        row("state", &state_with_reason(&endpoint)),
        row("failures", &endpoint.failures.to_string()),
        row("failing since", &moment(endpoint.failing_since)),
        row("slowed until", &moment(endpoint.slowed_until)),
        row("next probe", &moment(endpoint.next_probe_at)),
        row("old secrets until", &moment(endpoint.previous_secret_until)),
        row("created", &endpoint.created_at.to_string()),
        row("created by", &endpoint.created_by),
        row("changed", &endpoint.changed_at.to_string()),
        row("version", &endpoint.version.to_string()),
        row("attempts in a day", &health.attempts.to_string()),
        row("success rate", &rate.unwrap_or_default()),
        row("p95", &p95.unwrap_or_default()),
        row("waiting", &health.waiting.to_string()),
        row("failed", &health.failed.to_string()),
    ];
    Ok(cx.output.table(["FIELD", "VALUE"], &rows)?)
}

async fn create(
    cx: &CommandContext,
    tenant: &str,
    url: String,
    description: String,
    selection: Selection,
) -> Result<(), Failure> {
    let create = EndpointCreate {
        url,
        description,
        types: selection.types,
        filter: selection.filter.map(FilterSetting::from),
        headers: selection.headers.into_iter().collect(),
        payload: selection.payload.unwrap_or_default(),
        mapping: selection.mapping.map(JsonSetting::Text),
        ..EndpointCreate::default()
    };
    let created = cx
        .endpoints
        .create(&cx.actor, tenant, create.into())
        .await?;
    let line = || format!("{} {}", created.endpoint.id, created.secret);
    cx.say(&created, line)
}

async fn change(
    cx: &CommandContext,
    which: &Which,
    url: Option<String>,
    description: Option<String>,
    selection: Selection,
) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let stored = cx.store().endpoint(&cx.actor, tenant, id).await?;
    let headers: BTreeMap<String, String> = selection.headers.into_iter().collect();
    let update = EndpointUpdate {
        version: stored.endpoint.version,
        url,
        description,
        types: Some(selection.types).filter(|types| !types.is_empty()),
        filter: selection.filter.map(FilterSetting::from),
        headers: Some(headers).filter(|headers| !headers.is_empty()),
        payload: selection.payload,
        mapping: selection.mapping.map(JsonSetting::Text),
    };
    let changed = cx
        .endpoints
        .update(&cx.actor, tenant, id, update.into())
        .await?;
    say_state(cx, &changed)
}

async fn rotate(
    cx: &CommandContext,
    which: &Which,
    overlap: Span,
    consent: Consent,
) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let question = format!("Replace the secret of {id}? The old one signs for {overlap} more.");
    cx.confirm(consent, &question)?;
    let rotated = cx
        .endpoints
        .rotate(&cx.actor, tenant, id, None, overlap.0)
        .await?;
    cx.say(&rotated, || rotated.secret.clone())
}

async fn disable(
    cx: &CommandContext,
    which: &Which,
    reason: String,
    consent: Consent,
) -> Result<(), Failure> {
    let question = format!("Disable endpoint {}? It receives nothing then.", which.id);
    cx.confirm(consent, &question)?;
    set_disabled(cx, which, Some(reason)).await
}

async fn set_disabled(
    cx: &CommandContext,
    which: &Which,
    reason: Option<String>,
) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let changed = cx.endpoints.set_disabled(&cx.actor, tenant, id, reason);
    say_state(cx, &changed.await?)
}

async fn delete(cx: &CommandContext, which: &Which, consent: Consent) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let question = format!("Delete endpoint {id}? What waits for it is lost.");
    cx.confirm(consent, &question)?;
    cx.store().delete_endpoint(&cx.actor, tenant, id).await?;
    cx.say(&json!({"id": id, "deleted": true}), || {
        format!("endpoint {id} is deleted")
    })
}

async fn deliveries(
    cx: &CommandContext,
    which: &Which,
    ask: &AskDeliveries,
) -> Result<(), Failure> {
    let (Which { id, tenant }, filter) = (which, ask.filter()?);
    let limit = ask.limit.unwrap_or(LISTED);
    let page = read_pages(None, limit, async |before: Option<&str>, limit| {
        let (store, actor) = (cx.store(), &cx.actor);
        let page = store.endpoint_deliveries(actor, tenant, id, &filter, before, limit);
        page.await
    });
    let mut page = page.await?;
    for delivery in &mut page.items {
        delivery.mask(&cx.mask);
    }
    let header = [
        "EVENT", "TYPE", "ATTEMPT", "AT", "OUTCOME", "STATUS", "STATE",
    ];
    cx.page(page, header, |delivery| {
        let status = delivery.status.map(|it| it.to_string());
        [
            delivery.event_id,
            delivery.kind,
            delivery.attempt.to_string(),
            delivery.started_at.to_string(),
            delivery.outcome.as_str().to_owned(),
            status.unwrap_or_default(),
            delivery.state,
        ]
    })
}

/// Fails if the event was not delivered.
async fn test(cx: &CommandContext, which: &Which) -> Result<(), Failure> {
    let Which { id, tenant } = which;
    let mut tested = cx.endpoints.test(&cx.actor, tenant, id).await?;
    tested.mask(&cx.mask);
    cx.say(&tested, || said(&tested))?;
    match &tested.error {
        None => Ok(()),
        Some(error) => {
            let error_chain = format!("endpoint {id} did not take the test event: {error}");
            Err(Failure::new(FAILED, error_chain))
        }
    }
}

/// The outcome of a test event, such as `delivered: status 200, 12 ms, event 0190...`.
fn said(tested: &EndpointDelivery) -> String {
    let status = tested.status.map(|it| format!("status {it}, "));
    let (outcome, took) = (tested.outcome.as_str(), tested.duration.as_millis());
    let (status, event) = (status.unwrap_or_default(), &tested.event_id);
    format!("{outcome}: {status}{took} ms, event {event}")
}

fn say_state(cx: &CommandContext, endpoint: &TenantEndpoint) -> Result<(), Failure> {
    cx.say(endpoint, || {
        format!(
            "endpoint {} is {} (version {})",
            endpoint.id,
            state_with_reason(endpoint),
            endpoint.version
        )
    })
}

fn state_with_reason(endpoint: &TenantEndpoint) -> String {
    let state = endpoint.state.as_str();
    let disabled = endpoint.disabled_reason.as_ref();
    match disabled.or(endpoint.slowed_reason.as_ref()) {
        None => state.to_owned(),
        Some(reason) => format!("{state}: {reason}"),
    }
}

fn moment(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// Parses `NAME:VALUE`.
fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or("expected a name, a colon and a value")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// Parses what requests contain of an event.
fn payload(text: &str) -> Result<PayloadMode, String> {
    PayloadMode::parse(text).ok_or_else(|| "expected full or thin".to_owned())
}

/// Parses a state.
fn status(text: &str) -> Result<EndpointStatus, String> {
    let wrong = || "expected enabled, slowed or disabled".to_owned();
    EndpointStatus::parse(text).ok_or_else(wrong)
}

/// Parses a duration.
fn span(text: &str) -> Result<Span, String> {
    let read = parse_duration(text).map(Span);
    read.map_err(|error| error.to_string())
}
