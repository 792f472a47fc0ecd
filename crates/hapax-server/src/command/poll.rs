//! `hapax poll`: creates, lists, shows and removes polling endpoints, moves their positions, and replaces
//! their tokens.

use std::process::ExitCode;

use hapax::{Timestamp, admin::PollingEndpoint, delivery::Start, retry::parse_duration};
use serde_json::json;

use super::{Context, Failure};
use crate::{
    admin::{
        command_context::{CommandContext, Consent, read_pages},
        polling::{CreateEndpoint, WithToken, make, replace_token, seek_to},
    },
    config::Span,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a polling endpoint and print its token, which is not shown again
    #[command(
        after_help = "Example:\n  hapax poll create acme --tenant acme --type 'order.*'\n  hapax poll create audit --all-tenants --start beginning"
    )]
    Create {
        /// Name of the endpoint, which is part of its URL
        name: String,
        /// The only tenant whose events it receives
        #[arg(long, value_name = "TENANT", required_unless_present = "all_tenants")]
        tenant: Option<String>,
        /// Receive the events of all tenants, and those without a tenant
        #[arg(long, conflicts_with = "tenant")]
        all_tenants: bool,
        /// Pattern of event types, such as order.*; repeat it for several; all types if absent
        #[arg(long = "type", value_name = "PATTERN")]
        types: Vec<String>,
        /// Where it starts: now, beginning, or a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "WHEN", default_value = "now")]
        start: Start,
    },
    /// List the polling endpoints
    #[command(after_help = "Example:\n  hapax poll list")]
    List,
    /// Show a polling endpoint: its position, and when it was polled
    #[command(after_help = "Example:\n  hapax poll show acme")]
    Show {
        /// Name of the endpoint
        name: String,
    },
    /// Replace the token of a polling endpoint and print the new one, which is not shown again
    #[command(after_help = "Example:\n  hapax poll rotate acme --overlap 7d")]
    Rotate {
        /// Name of the endpoint
        name: String,
        /// How long the old token stays valid; 0s makes it and all earlier ones invalid at once
        #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = span)]
        overlap: Span,
        #[command(flatten)]
        consent: Consent,
    },
    /// Move the committed position of a polling endpoint: back to repeat events, or on to skip them
    #[command(
        after_help = "Example:\n  hapax poll seek acme --to 2026-01-31T12:00:00Z\n  hapax poll seek acme --to now --yes"
    )]
    Seek {
        /// Name of the endpoint
        name: String,
        /// The new position: now, beginning, or a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "WHEN")]
        to: Start,
        #[command(flatten)]
        consent: Consent,
    },
    /// Remove a polling endpoint with its tokens and its position
    #[command(after_help = "Example:\n  hapax poll remove acme")]
    Remove {
        /// Name of the endpoint
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    let (store, actor) = (cx.store(), &cx.actor);
    match args.verb {
        Verb::Create {
            name,
            tenant,
            all_tenants,
            types,
            start,
        } => {
            let create = CreateEndpoint {
                name,
                tenant,
                all_tenants,
                types,
                start: Some(start),
            };
            say_token(&cx, &make(store, actor, create).await?)?;
        }
        Verb::List => list(&cx).await?,
        Verb::Show { name } => show(&cx, &store.polling_endpoint(actor, &name).await?)?,
        Verb::Rotate {
            name,
            overlap,
            consent,
        } => {
            let question =
                format!("Replace the token of {name}? The old one is valid for {overlap} more.");
            cx.confirm(consent, &question)?;
            say_token(&cx, &replace_token(store, actor, &name, overlap.0).await?)?;
        }
        Verb::Seek { name, to, consent } => seek(&cx, &name, to, consent).await?,
        Verb::Remove { name, consent } => {
            let question =
                format!("Remove polling endpoint {name}? Its consumer loses its position.");
            cx.confirm(consent, &question)?;
            store.remove_polling_endpoint(actor, &name).await?;
            cx.say(&json!({"name": name, "removed": true}), || {
                format!("polling endpoint {name} is removed")
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn seek(cx: &CommandContext, name: &str, to: Start, consent: Consent) -> Result<(), Failure> {
    let (store, actor) = (cx.store(), &cx.actor);
    let from = store.polling_endpoint(actor, name).await?.position;
    let question = format!(
        "Move the position of {name} from {from} to {to}? Events between the two are returned again, or \
         skipped. Stop the consumer first: a later cursor that it commits moves the position on."
    );
    cx.confirm(consent, &question)?;
    let moved = seek_to(store, actor, name, to).await?;
    cx.say(&moved, || {
        format!("position of {name}: {from} -> {}", moved.position)
    })
}

/// Prints a token alone, so that it can be written to a file.
fn say_token(cx: &CommandContext, made: &WithToken) -> Result<(), Failure> {
    cx.say(made, || made.token.clone())
}

async fn list(cx: &CommandContext) -> Result<(), Failure> {
    let page = read_pages(None, usize::MAX, async |after: Option<&str>, limit| {
        cx.store().polling_endpoints(&cx.actor, after, limit).await
    });
    let header = ["NAME", "TENANT", "TYPES", "COMMITTED", "POLLED"];
    cx.page(page.await?, header, |endpoint| {
        let tenant = tenant(&endpoint);
        [
            endpoint.name,
            tenant,
            endpoint.types.join(" "),
            moment(endpoint.committed_at),
            moment(endpoint.last_polled_at),
        ]
    })
}

fn show(cx: &CommandContext, endpoint: &PollingEndpoint) -> Result<(), Failure> {
    if cx.output.json {
        return Ok(cx.output.json(endpoint)?);
    }
    let rows = [
        ["name".to_owned(), endpoint.name.clone()],
        ["tenant".to_owned(), tenant(endpoint)],
        ["types".to_owned(), endpoint.types.join(" ")],
        ["created".to_owned(), endpoint.created_at.to_string()],
        ["created by".to_owned(), endpoint.created_by.clone()],
        ["position".to_owned(), endpoint.position.to_string()],
        ["committed".to_owned(), moment(endpoint.committed_at)],
        ["polled".to_owned(), moment(endpoint.last_polled_at)],
        [
            "old tokens until".to_owned(),
            moment(endpoint.old_token_until),
        ],
    ];
    Ok(cx.output.table(["FIELD", "VALUE"], &rows)?)
}

fn tenant(endpoint: &PollingEndpoint) -> String {
    let tenant = endpoint.tenant.clone();
    tenant.unwrap_or_else(|| "(all)".to_owned())
}

fn moment(at: Option<Timestamp>) -> String {
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// Parses a duration.
fn span(text: &str) -> Result<Span, String> {
    let read = parse_duration(text).map(Span);
    read.map_err(|error| error.to_string())
}
