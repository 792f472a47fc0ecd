//! The command line, with one flag for each setting; values are read as text.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource, value_parser};
use hapax_runtime::config::Given;

/// The name of the flag of the configuration file, the only one that is not a setting.
pub(super) const FILE: &str = "config";

/// The command line. The id of a flag is the key of its setting.
pub(super) fn command() -> Command {
    let file = text(FILE, "--config", "FILE").value_parser(value_parser!(PathBuf));
    let help = "TOML file with settings; the environment and flags override it";
    Command::new("shop")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .arg(file.help(help))
        .args(settings())
}

/// The keys of all settings.
pub(super) fn keys() -> Vec<String> {
    let keys = settings().into_iter().map(|flag| flag.get_id().to_string());
    keys.collect()
}

/// The settings that are given by flags.
pub(super) fn given(matches: &ArgMatches) -> Vec<Given> {
    let read = |flag: Arg| {
        let (key, long) = (flag.get_id().as_str(), flag.get_long()?);
        if matches.value_source(key) != Some(ValueSource::CommandLine) {
            return None;
        }
        let name = ["--", long].concat();
        Some(match flag.get_action() {
            ArgAction::SetTrue => Given::text(key, &name, (!long.starts_with("no-")).to_string()),
            ArgAction::Append => Given::list(key, &name, matches.get_many(key)?.cloned()),
            _ => Given::text(key, &name, matches.get_one::<String>(key)?),
        })
    };
    settings().into_iter().filter_map(read).collect()
}

/// A flag with a value, and the key of its setting.
fn text(key: &'static str, flag: &'static str, value: &'static str) -> Arg {
    named(key, flag).value_name(value)
}

/// A flag with a value that may be repeated.
fn list(key: &'static str, flag: &'static str, value: &'static str) -> Arg {
    text(key, flag, value).action(ArgAction::Append)
}

/// A flag without a value, which turns the setting on, or off if its name begins with `--no-`.
fn switch(key: &'static str, flag: &'static str) -> Arg {
    named(key, flag).action(ArgAction::SetTrue)
}

fn named(key: &'static str, flag: &'static str) -> Arg {
    Arg::new(key).long(flag.trim_start_matches("--"))
}

/// Declares a flag by its help, its kind, the key of its setting, its name, and the name of its
/// value.
macro_rules! settings {
    ($(#[doc = $help:literal] $kind:ident $($part:literal),*;)*) => {
        /// The flags of all settings, in the order of `--help`.
        pub(super) fn settings() -> Vec<Arg> {
            vec![$($kind($($part),*).help($help.trim())),*]
        }
    };
}

settings! {
    /// Address to listen on [default: 127.0.0.1:8080]
    text "listen", "--listen", "ADDR";
    /// Directory of the database, uploads, caught mail, the webhook secret and keys [default: .]
    text "data_dir", "--data-dir", "DIR";
    /// Database URL, sqlite:// or postgres:// [default: shop.db in the data directory]
    text "database", "--database", "URL";
    /// Sends every event to this URL; may be repeated
    list "webhook.urls", "--webhook", "URL";
    /// Secret that signs requests to --webhook [default: created, stored and printed once]
    text "webhook.secret", "--webhook-secret", "whsec_...";
    /// Wait before each attempt of a webhook, such as "0s,5s,5m"
    text "webhook.schedule", "--webhook-schedule", "WAITS";
    /// Private network that webhooks may connect to; may be repeated
    list "webhook.allow_net", "--allow-net", "CIDR";
    /// Mail server (smtp:// or smtps://) [default: the demo's mail catcher]
    text "smtp.url", "--smtp", "URL";
    /// Wait before each attempt of a mail, such as "0s,5s,5m"
    text "smtp.schedule", "--smtp-schedule", "WAITS";
    /// Wait before each attempt to make the thumbnails of an upload, such as "0s,5s,5m"
    text "thumbnails.schedule", "--thumbnail-schedule", "WAITS";
    /// URL of the payment provider [default: the demo's own provider]
    text "providers.payment", "--payment-provider", "URL";
    /// URL of the shipping provider [default: the demo's own provider]
    text "providers.shipping", "--shipping-provider", "URL";
    /// Bearer token and the tenant it belongs to; may be repeated
    list "tokens", "--token", "TOKEN=TENANT";
    /// Operator of the web console, by name and token; may be repeated
    list "console.tokens", "--console-token", "NAME=TOKEN";
    /// Source that may send webhooks, with its signing secret; may be repeated
    list "inbox.secrets", "--inbox-secret", "SOURCE=whsec_...";
    /// Key of webhooks of a type: id, payload or a JSON pointer [default: id]; may be repeated
    list "inbox.dedupe", "--inbox-dedupe", "TYPE=KEY";
    /// Tenant to whom webhooks about unknown charges belong [default: the first token's tenant]
    text "inbox.tenant", "--inbox-tenant", "TENANT";
    /// Public base URL of the customer portal [default: that of the demo; without the demo no portal]
    text "portal.url", "--portal-url", "URL";
    /// Key that signs links to the portal, at least 32 bytes [default: created and stored]
    text "portal.key", "--portal-key", "KEY";
    /// Key of the portal before the last change
    text "portal.previous_key", "--portal-previous-key", "KEY";
    /// Name of the product in the portal [default: Webhooks]
    text "portal.name", "--portal-name", "TEXT";
    /// Logo in the portal: an https:// URL, or the path of an image
    text "portal.logo", "--portal-logo", "URL";
    /// Color of the portal, such as #0b6e4f
    text "portal.colour", "--portal-colour", "COLOUR";
    /// Origin whose pages may show the portal in a frame; may be repeated
    list "portal.embed", "--portal-embed", "ORIGIN";
    /// How long responses are stored [default: 24h]
    text "idempotency.retention", "--retention", "DURATION";
    /// Outcome for an expired key: new or gone [default: new]
    text "idempotency.on_expired", "--on-expired", "WORD";
    /// If the store is down: closed (refuse requests) or open (run unprotected) [default: closed]
    text "idempotency.on_store_error", "--on-store-error", "WORD";
    /// If a handler fails: release (the key) or store (the failure) [default: release]
    text "idempotency.on_failure", "--on-failure", "WORD";
    /// When handlers with nothing but a transaction claim keys: optimistic or first [default: optimistic]
    text "idempotency.claims", "--claims", "WORD";
    /// Protocol of the clients: hapax, ietf, stripe, acp, ucp, adcp or iceberg [default: hapax]
    text "idempotency.profile", "--profile", "WORD";
    /// How bodies are compared: raw, json or json-semantic [default: as the profile says]
    text "idempotency.fingerprint", "--fingerprint", "WORD";
    /// How long a duplicate waits for the first request [default: 1s]
    text "idempotency.wait", "--wait", "DURATION";
    /// How long the key of a phased operation stays owned after its owner dies [default: 10s]
    text "idempotency.lease", "--lease", "DURATION";
    /// Bytes of completed responses kept in memory; 0 keeps none [default: 8388608]
    text "idempotency.cache_bytes", "--replay-cache", "BYTES";
    /// Maximum number of stored keys per tenant [default: no bound]
    text "idempotency.quota_keys", "--quota-keys", "COUNT";
    /// Maximum bytes of stored responses per tenant [default: no bound]
    text "idempotency.quota_bytes", "--quota-bytes", "BYTES";
    /// Requests per tenant, such as 100/s, 600/m or 1000/h; more are refused with 429 [default: no limit]
    text "rate_limit.rate", "--rate-limit", "RATE";
    /// Requests that a tenant may send at once [default: the number in --rate-limit]
    text "rate_limit.burst", "--rate-limit-burst", "COUNT";
    /// Maximum number of requests that share one commit; 1 turns groups off [default: 128]
    text "store.group_max", "--group-max", "COUNT";
    /// What merges SQLite's write-ahead log: beside (a thread beside the writer) or commit [default: beside]
    text "store.merge_log", "--merge-log", "WORD";
    /// Maximum number of connections to PostgreSQL [default: 16]
    text "store.connections", "--database-connections", "COUNT";
    /// Connections go through a pooler in transaction mode
    switch "store.pooled", "--database-pooled";
    /// Create missing tables in PostgreSQL, or refuse to start: apply or check [default: apply]
    text "store.schema", "--database-schema", "WORD";
    /// File of keys; the first encrypts stored responses, requests and payloads
    text "store.encryption_keys", "--encryption-keys", "FILE";
    /// Runs no relay; events stay in the outbox
    switch "relay", "--no-relay";
    /// No demo tokens, receiver, mail catcher and providers; no console without tokens
    switch "demo", "--no-demo";
    /// Format of the log: human or json [default: human]
    text "log.format", "--log", "WORD";
    /// Log level: error, warn, info, debug or trace [default: info]
    text "log.level", "--log-level", "LEVEL";
    /// Level of the line for each request and message: info, debug or off [default: info]
    text "log.requests", "--log-requests", "LEVEL";
    /// Share of keys and messages whose ordinary lines are written, from 0 to 1 [default: 1]
    text "log.requests_sample", "--log-requests-sample", "SHARE";
    /// OTLP collector that spans are sent to, over HTTP [default: nothing is traced]
    text "telemetry.otlp_endpoint", "--otlp-endpoint", "URL";
    /// Header of requests to the collector; may be repeated
    list "telemetry.otlp_headers", "--otlp-header", "NAME=VALUE";
    /// Share of the traces started by the shop that are recorded, from 0 to 1 [default: 1]
    text "telemetry.sample", "--trace-sample", "SHARE";
    /// Name of this service in traces [default: shop]
    text "telemetry.service", "--service", "NAME";
}
