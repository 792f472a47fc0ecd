//! `hapax gateway unknown`: lists, shows and decides requests whose outcome is unknown.
//!
//! Such a request was sent to the service, and the gateway has no complete response to it. Its key
//! stays in progress, and its recovery point says why.

use std::path::PathBuf;

use anyhow::Context as _;
use hapax::{
    Timestamp,
    admin::{
        AdminError, KeyDecision, KeyFilter, KeyOutcome, PAGE_MAX, Page, UnknownFilter,
        UnknownOutcome, decide_unknown, read_field, unknown_outcome, unknown_outcomes,
    },
    idempotency::StoredResponse,
    key::Tenant,
};
use hapax_gateway::config::SERVICE;
use serde::Serialize;

use crate::{
    admin::command_context::{CommandContext, Consent, read_pages},
    command::{Context, Failure},
    output::USAGE,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List requests whose outcome is unknown, newest first
    #[command(after_help = "Example:\n  hapax gateway unknown list --database sqlite:gateway.db")]
    List(ListArgs),
    /// Show what is known of one request
    #[command(
        after_help = "Example:\n  hapax gateway unknown show 'gateway:POST /orders' order-4711"
    )]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Decide: the request happened, with the response to replay, or it did not, and a retry is sent
    #[command(
        after_help = "Example:\n  hapax gateway unknown decide 'gateway:POST /orders' order-4711 --happened --status 201 --body order.json --reason 'found in the ledger'"
    )]
    Decide(Box<DecideArgs>),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only requests of this operation, such as 'gateway:POST /orders'
    #[arg(long)]
    operation: Option<String>,
    /// Only requests of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Maximum number of requests
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
}

/// One request.
#[derive(Debug, clap::Args)]
struct One {
    /// Operation, such as 'gateway:POST /orders'
    operation: String,
    /// The key
    key: String,
    /// Tenant of the key; required if several tenants have used the key for this operation
    #[arg(long)]
    tenant: Option<String>,
}

#[derive(Debug, clap::Args)]
struct DecideArgs {
    #[command(flatten)]
    one: One,
    /// The service has executed the request; every retry receives the response that you give
    #[arg(long, conflicts_with = "did_not_happen", requires = "status")]
    happened: bool,
    /// The service has not executed the request and never will; a retry is sent
    #[arg(long, required_unless_present = "happened")]
    did_not_happen: bool,
    /// Status of the response to replay
    #[arg(long, value_name = "STATUS", requires = "happened")]
    status: Option<u16>,
    /// File with the body of the response to replay; without it, the body is empty
    #[arg(long, value_name = "FILE", requires = "happened")]
    body: Option<PathBuf>,
    /// Content type of that body
    #[arg(
        long,
        value_name = "TYPE",
        requires = "body",
        default_value = "application/json"
    )]
    content_type: String,
    /// Version printed by `show`; nothing is done if the request was sent again since. Without it,
    /// the current version is used
    #[arg(long, value_name = "VERSION", id = "if_version")]
    if_version: Option<String>,
    /// Reason, kept in the audit log
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    consent: Consent,
}

/// A request whose outcome is unknown, as it is printed.
#[derive(Debug, Serialize)]
struct Shown {
    operation: String,
    key: String,
    tenant: String,
    reason: &'static str,
    upstream: String,
    sent_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    noted_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    owners: i64,
    version: String,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<(), Failure> {
    let cx = CommandContext::open(context).await?;
    match args.verb {
        Verb::List(ask) => list(&cx, context, ask).await,
        Verb::Show { one } => show(&cx, &one).await,
        Verb::Decide(args) => decide(&cx, *args).await,
    }
}

impl From<UnknownOutcome> for Shown {
    fn from(it: UnknownOutcome) -> Self {
        let UnknownOutcome {
            key,
            record,
            version,
            ..
        } = it;
        Self {
            operation: key.operation,
            key: key.key,
            tenant: key.tenant,
            reason: record.reason.as_str(),
            upstream: record.upstream,
            sent_at: record.sent_at,
            noted_at: record.noted_at,
            status: record.response_status,
            received: record.response_bytes,
            owners: key.epoch,
            version,
        }
    }
}

async fn list(cx: &CommandContext, context: &Context, ask: ListArgs) -> Result<(), Failure> {
    let service = context.config.gateway.as_ref();
    let service = service.map_or(SERVICE, |settings| settings.service.as_str());
    let prefix = format!("{service}:");
    let tenant = ask.tenant.as_deref();
    let filter = UnknownFilter {
        keys: KeyFilter {
            operation: ask.operation,
            tenant: read_field("tenant", tenant, "a tenant", |it| Tenant::new(it).ok())?,
            ..KeyFilter::default()
        },
        // A key with a lease belongs to a gateway that still waits for the response.
        is_waiting: Some(true),
        ..UnknownFilter::default()
    };
    let now = crate::environment::clock().now();
    let limit = ask.limit.clamp(1, PAGE_MAX);
    let read = async |before: Option<&str>, limit| {
        let page = (before, limit);
        let page = unknown_outcomes(cx.store(), &cx.actor, &filter, page, now).await?;
        let is_own = |it: &UnknownOutcome| it.key.operation.starts_with(&prefix);
        let own = page.items.into_iter().filter(is_own);
        Ok::<_, AdminError>(Page {
            items: own.map(Shown::from).collect(),
            next: page.next,
        })
    };
    let page = read_pages(None, limit, read).await?;
    let row = |it: Shown| {
        [
            it.operation,
            it.key,
            it.tenant,
            it.reason.to_owned(),
            it.status
                .map(|status| status.to_string())
                .unwrap_or_default(),
            it.upstream,
            it.sent_at.to_string(),
        ]
    };
    let header = [
        "OPERATION",
        "KEY",
        "TENANT",
        "REASON",
        "STATUS",
        "UPSTREAM",
        "SENT",
    ];
    cx.page(page, header, row)
}

async fn show(cx: &CommandContext, one: &One) -> Result<(), Failure> {
    let (found, request_bytes) = find(cx, one).await?;
    let shown = Shown::from(found);
    if cx.output.json {
        return Ok(cx.output.json(&shown)?);
    }
    let fact = |name: &str, value: String| [name.to_owned(), value];
    let mut facts = vec![
        fact("operation", shown.operation),
        fact("key", shown.key),
        fact("tenant", shown.tenant),
        fact("reason", shown.reason.to_owned()),
        fact("upstream", shown.upstream),
        fact("sent", shown.sent_at.to_string()),
    ];
    facts.extend(shown.noted_at.map(|at| fact("noted", at.to_string())));
    facts.extend(shown.status.map(|it| fact("status", it.to_string())));
    facts.extend(
        shown
            .received
            .map(|it| fact("received", format!("{it} bytes"))),
    );
    facts.extend(request_bytes.map(|it| fact("request", format!("{it} bytes"))));
    facts.push(fact("owners", shown.owners.to_string()));
    facts.push(fact("version", shown.version));
    Ok(cx.output.table(["REQUEST", ""], &facts)?)
}

async fn decide(cx: &CommandContext, args: DecideArgs) -> Result<(), Failure> {
    let outcome = outcome(&args)?;
    let version = match args.if_version {
        Some(version) => version,
        None => find(cx, &args.one).await?.0.version,
    };
    let (question, done) = match &outcome {
        KeyOutcome::Happened(response) => (
            format!(
                "Store this response with status {}, for every retry?",
                response.status
            ),
            "has happened: every retry receives the response",
        ),
        KeyOutcome::DidNotHappen => (
            "Free the key, so that a retry is sent to the service?".to_owned(),
            "has not happened: a retry is sent to the service",
        ),
    };
    cx.confirm(args.consent, &question)?;
    let decision = KeyDecision {
        tenant: args.one.tenant,
        operation: args.one.operation,
        key: args.one.key,
        version,
        outcome,
        reason: args.reason,
    };
    decide_unknown(cx.store(), &cx.actor, &decision).await?;
    let said = serde_json::json!({
        "operation": decision.operation,
        "key": decision.key,
        "outcome": decision.outcome.as_str(),
    });
    cx.say(&said, || {
        let (key, operation) = (&decision.key, &decision.operation);
        format!("the request with key {key} of {operation} {done}")
    })
}

/// The outcome that the flags describe.
fn outcome(args: &DecideArgs) -> Result<KeyOutcome, Failure> {
    let status = match args.status {
        Some(status) if args.happened && !args.did_not_happen => status,
        _ => return Ok(KeyOutcome::DidNotHappen),
    };
    let mut response = StoredResponse {
        status,
        ..StoredResponse::default()
    };
    if let Some(path) = &args.body {
        if !args
            .content_type
            .bytes()
            .all(|byte| (0x20..=0x7e).contains(&byte))
        {
            let problem = "--content-type: expected a media type such as application/json";
            return Err(Failure::new(USAGE, problem));
        }
        let body = std::fs::read(path);
        let body = body.with_context(|| format!("--body {} cannot be read", path.display()))?;
        response.body = body.into();
        let content_type = args.content_type.clone().into_bytes();
        response
            .headers
            .push(("content-type".to_owned(), content_type.into()));
    }
    Ok(KeyOutcome::Happened(response))
}

/// Reads the unknown outcome of a key, with the size of the request that is kept.
async fn find(cx: &CommandContext, one: &One) -> Result<(UnknownOutcome, Option<u64>), Failure> {
    let (tenant, operation) = (one.tenant.as_deref(), one.operation.as_str());
    let found = unknown_outcome(cx.store(), &cx.actor, tenant, operation, &one.key);
    Ok(found.await?)
}
