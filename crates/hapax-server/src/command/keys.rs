//! `hapax keys`: lists idempotency keys, shows one with its stored response, and purges one.

use std::process::ExitCode;

use hapax::admin::{Content, KeyRecord, KeySummary};

use super::{Context, Failure};
use crate::admin::{
    command_context::{CommandContext, Consent, read_pages},
    keys::AskKeys,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List keys, newest claim first
    #[command(after_help = "Example:\n  hapax keys list --operation 'POST /orders' --since 1h")]
    List(AskKeys),
    /// Show the state and the stored response of a key
    #[command(after_help = "Example:\n  hapax keys show 'POST /orders' order-4711")]
    Show {
        #[command(flatten)]
        one: One,
    },
    /// Delete a key and its response; within a second the next request with this key runs again, on
    /// any node
    #[command(
        after_help = "Example:\n  hapax keys purge 'POST /orders' order-4711 --reason 'wrong price'"
    )]
    Purge {
        #[command(flatten)]
        one: One,
        /// Version of the key that you have seen; the key is kept if it was used again since.
        /// Without it, the current version is used
        #[arg(long, value_name = "VERSION", id = "if_version")]
        if_version: Option<String>,
        /// Reason, kept in the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
}

/// One key.
#[derive(Debug, clap::Args)]
struct One {
    /// Operation, such as 'POST /orders'
    operation: String,
    /// The key
    key: String,
    /// Tenant of the key; required if several tenants have used the key for this operation
    #[arg(long)]
    tenant: Option<String>,
}

pub(crate) async fn run(args: Args, context: Context) -> Result<ExitCode, Failure> {
    let cx = CommandContext::open(&context).await?;
    match args.verb {
        Verb::List(ask) => list(&cx, ask).await?,
        Verb::Show { one } => show(&cx, &one).await?,
        Verb::Purge {
            one,
            if_version,
            reason,
            consent,
        } => purge(&cx, &one, if_version, &reason, consent).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(cx: &CommandContext, ask: AskKeys) -> Result<(), Failure> {
    let (filter, limit) = (ask.filter()?, ask.limit());
    let read = async |before: Option<&str>, limit| {
        let page = cx.store().keys(&cx.actor, &filter, before, limit);
        page.await
    };
    let page = read_pages(ask.before, limit, read).await?;
    let row = |it: KeySummary| {
        [
            it.operation,
            it.key,
            it.short_hash,
            it.tenant,
            it.state.as_str().to_owned(),
            it.status.map(|it| it.to_string()).unwrap_or_default(),
            it.resource_id.unwrap_or_default(),
            it.created_at.to_string(),
            it.fingerprint,
        ]
    };
    let header = [
        "OPERATION",
        "KEY",
        "HASH",
        "TENANT",
        "STATE",
        "STATUS",
        "RESOURCE",
        "CLAIMED",
        "FINGERPRINT",
    ];
    cx.page(page, header, row)
}

async fn show(cx: &CommandContext, one: &One) -> Result<(), Failure> {
    let tenant = one.tenant.as_deref();
    let found = cx.store().key(&cx.actor, tenant, &one.operation, &one.key);
    let mut found = found.await?;
    found.mask(&cx.mask);
    if cx.output.json {
        return Ok(cx.output.json(&found)?);
    }
    let fact = |name: &str, value: String| [name.to_owned(), value];
    let key = found.summary;
    let mut facts = vec![
        fact("operation", key.operation),
        fact("key", key.key),
        fact("short hash", key.short_hash),
        fact("tenant", key.tenant),
        fact("state", key.state.as_str().to_owned()),
        fact("owners", key.epoch.to_string()),
    ];
    let lease = key.lease_until.map(|until| {
        let lapsed = if found.is_lapsed { ", lapsed" } else { "" };
        fact("held until", format!("{until}{lapsed}"))
    });
    facts.extend(lease);
    facts.extend(found.owner.map(|it| fact("held by", it)));
    facts.extend(key.recovery_point.map(|it| fact("goes on at", it)));
    let data = found.recovery_data.map(text_of);
    facts.extend(data.map(|it| fact("phase data", it)));
    let kept = found.request_bytes.map(|it| format!("{it} bytes"));
    facts.extend(kept.map(|it| fact("request", it)));
    facts.push(fact("claimed", key.created_at.to_string()));
    facts.extend(key.completed_at.map(|it| fact("completed", it.to_string())));
    facts.push(fact(
        "expires",
        format!("{}, then {}", key.expires_at, found.on_expired),
    ));
    facts.push(fact("fingerprint", key.fingerprint));
    facts.push(fact("version", found.version));
    facts.extend(key.status.map(|it| fact("status", it.to_string())));
    facts.extend(key.resource_id.map(|it| fact("resource", it)));
    for (name, value) in found.headers {
        facts.push(fact(&format!("header {name}"), value));
    }
    facts.extend(found.body.map(|it| fact("body", text_of(it))));
    Ok(cx.output.table(["KEY", ""], &facts)?)
}

/// The text of masked content, or its length and type if it has none.
fn text_of(content: Content) -> String {
    let kind = content.content_type;
    let kind = kind.unwrap_or_else(|| "no said type".to_owned());
    let bytes = content.bytes;
    content
        .text
        .unwrap_or_else(|| format!("{bytes} bytes of {kind}"))
}

async fn purge(
    cx: &CommandContext,
    one: &One,
    version: Option<String>,
    reason: &str,
    consent: Consent,
) -> Result<(), Failure> {
    let One {
        operation,
        key,
        tenant,
    } = one;
    let (store, actor, tenant) = (cx.store(), &cx.actor, tenant.as_deref());
    let found = store.key(actor, tenant, operation, key).await?;
    let question = format!(
        "Purge {}? The next request with it runs again.",
        said(&found)
    );
    let version = version.unwrap_or(found.version);
    cx.confirm(consent, &question)?;
    let purged = store.purge_key(actor, tenant, operation, key, &version, reason);
    purged.await?;
    let said = serde_json::json!({"operation": operation, "key": key});
    cx.say(&said, || {
        format!("key {key} of {operation} is purged: within a second no service replays its answer")
    })
}

/// The key in the confirmation prompt of a purge.
fn said(found: &KeyRecord) -> String {
    let key = &found.summary;
    let answered = match (key.status, key.completed_at) {
        (Some(status), Some(at)) => format!("answered {status} at {at}"),
        _ => format!("{} since {}", key.state.as_str(), key.created_at),
    };
    let (name, operation) = (key.key.escape_debug(), key.operation.escape_debug());
    let tenant = key.tenant.escape_debug();
    format!("key {name} of {operation}, tenant {tenant}, {answered}")
}
