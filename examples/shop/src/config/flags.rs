//! The command line: one flag per setting, nothing decided here.

use std::path::PathBuf;

use super::layers::{Given, Layers};

/// A small shop whose every retry is safe.
#[derive(Debug, clap::Parser)]
#[command(name = "shop", version, about)]
pub(super) struct Flags {
    /// Reads settings from this TOML file; the environment and the flags win over it.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Holds the database, uploads, caught mail and the webhook secret [default: .]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Where rows are kept, as a URL of sqlite or postgres [default: shop.db in the data directory]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Sends every event there; may be given again
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// Signs what --webhook gets; made, kept and printed when absent
    #[arg(long, value_name = "whsec_...")]
    webhook_secret: Option<String>,
    /// Waits before each attempt of a webhook, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    webhook_schedule: Option<String>,
    /// Lets webhooks reach this network in spite of the guard; may be given again
    #[arg(long, value_name = "CIDR")]
    allow_net: Vec<String>,
    /// Sends mail through this server (smtp:// or smtps://) [default: the demo's mail catcher]
    #[arg(long, value_name = "URL")]
    smtp: Option<String>,
    /// Waits before each attempt of a mail, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    smtp_schedule: Option<String>,
    /// Waits before each attempt at the thumbnails of an upload, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    thumbnail_schedule: Option<String>,
    /// Where payments are made [default: the demo's own provider]
    #[arg(long, value_name = "URL")]
    payment_provider: Option<String>,
    /// Where shipments are made [default: the demo's own provider]
    #[arg(long, value_name = "URL")]
    shipping_provider: Option<String>,
    /// Lets this bearer token act for this tenant; may be given again
    #[arg(long, value_name = "TOKEN=TENANT")]
    token: Vec<String>,
    /// Lets an operator of this name into the web console with this token; may be given again
    #[arg(long, value_name = "NAME=TOKEN")]
    console_token: Vec<String>,
    /// Takes webhooks that this source signed; may be given again
    #[arg(long, value_name = "SOURCE=whsec_...")]
    inbox_secret: Vec<String>,
    /// Whose ledger a webhook about an unknown charge goes to [default: the first token's tenant]
    #[arg(long, value_name = "TENANT")]
    inbox_tenant: Option<String>,
    /// How long answers are remembered [default: 24h]
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// What a key gets after it expired: new or gone [default: new]
    #[arg(long, value_name = "WORD")]
    on_expired: Option<String>,
    /// What a request gets when the store is down: closed or open [default: closed]
    #[arg(long, value_name = "WORD")]
    on_store_error: Option<String>,
    /// What becomes of a key when its handler fails: release or store [default: release]
    #[arg(long, value_name = "WORD")]
    on_failure: Option<String>,
    /// Names and statuses to answer with: hapax, ietf or stripe [default: hapax]
    #[arg(long, value_name = "WORD")]
    profile: Option<String>,
    /// How long a duplicate waits for the first request [default: 1s]
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// How long a dead owner keeps the key of a phased operation [default: 10s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
    /// Bytes of completed answers kept in memory; 0 keeps none [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    replay_cache: Option<String>,
    /// The most keys that one tenant may have stored [default: no bound]
    #[arg(long, value_name = "COUNT")]
    quota_keys: Option<String>,
    /// The most bytes of answers that one tenant may have stored [default: no bound]
    #[arg(long, value_name = "BYTES")]
    quota_bytes: Option<String>,
    /// Most requests that share one commit; 1 turns groups off [default: 128]
    #[arg(long, value_name = "COUNT")]
    group_max: Option<String>,
    /// Most connections to PostgreSQL [default: 16]
    #[arg(long, value_name = "COUNT")]
    database_connections: Option<String>,
    /// A transaction-mode pooler stands before PostgreSQL
    #[arg(long)]
    database_pooled: bool,
    /// Whether missing tables in PostgreSQL are made: apply or check [default: apply]
    #[arg(long, value_name = "WORD")]
    database_schema: Option<String>,
    /// Encrypts answers, kept requests and payloads with the first key of this file
    #[arg(long, value_name = "FILE")]
    encryption_keys: Option<String>,
    /// Keeps events in the outbox until a relay runs
    #[arg(long)]
    no_relay: bool,
    /// No demo tokens, no receiver, no mail catcher, no providers of its own, no console without tokens
    #[arg(long)]
    no_demo: bool,
    /// How the log is written: human or json [default: human]
    #[arg(long, value_name = "WORD")]
    log: Option<String>,
    /// What is logged: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Exports spans to this OTLP collector, over HTTP [default: nothing is traced]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Sends this header to the collector; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    otlp_header: Vec<String>,
    /// The share of the traces that begin here, from 0 to 1 [default: 1]
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<String>,
    /// The name of this service in traces [default: shop]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
}

impl Flags {
    /// Puts every flag that was given over what the other layers said.
    pub(super) fn write_to(self, layers: &mut Layers) {
        let switched_off = |given: bool| given.then(|| "false".to_owned());
        let texts = [
            ("listen", "--listen", self.listen),
            ("data_dir", "--data-dir", self.data_dir),
            ("database", "--database", self.database),
            ("webhook.secret", "--webhook-secret", self.webhook_secret),
            (
                "webhook.schedule",
                "--webhook-schedule",
                self.webhook_schedule,
            ),
            ("smtp.url", "--smtp", self.smtp),
            ("smtp.schedule", "--smtp-schedule", self.smtp_schedule),
            (
                "thumbnails.schedule",
                "--thumbnail-schedule",
                self.thumbnail_schedule,
            ),
            (
                "providers.payment",
                "--payment-provider",
                self.payment_provider,
            ),
            (
                "providers.shipping",
                "--shipping-provider",
                self.shipping_provider,
            ),
            ("inbox.tenant", "--inbox-tenant", self.inbox_tenant),
            ("idempotency.retention", "--retention", self.retention),
            ("idempotency.on_expired", "--on-expired", self.on_expired),
            (
                "idempotency.on_store_error",
                "--on-store-error",
                self.on_store_error,
            ),
            ("idempotency.on_failure", "--on-failure", self.on_failure),
            ("idempotency.profile", "--profile", self.profile),
            ("idempotency.wait", "--wait", self.wait),
            ("idempotency.lease", "--lease", self.lease),
            (
                "idempotency.cache_bytes",
                "--replay-cache",
                self.replay_cache,
            ),
            ("idempotency.quota_keys", "--quota-keys", self.quota_keys),
            ("idempotency.quota_bytes", "--quota-bytes", self.quota_bytes),
            ("store.group_max", "--group-max", self.group_max),
            (
                "store.connections",
                "--database-connections",
                self.database_connections,
            ),
            (
                "store.pooled",
                "--database-pooled",
                self.database_pooled.then(|| "true".to_owned()),
            ),
            ("store.schema", "--database-schema", self.database_schema),
            (
                "store.encryption_keys",
                "--encryption-keys",
                self.encryption_keys,
            ),
            ("relay", "--no-relay", switched_off(self.no_relay)),
            ("demo", "--no-demo", switched_off(self.no_demo)),
            ("log.format", "--log", self.log),
            ("log.level", "--log-level", self.log_level),
            (
                "telemetry.otlp_endpoint",
                "--otlp-endpoint",
                self.otlp_endpoint,
            ),
            ("telemetry.sample", "--trace-sample", self.trace_sample),
            ("telemetry.service", "--service", self.service),
        ];
        for (key, flag, text) in texts {
            if let Some(text) = text {
                layers.put(key, flag, Given::Text(text));
            }
        }
        let lists = [
            ("webhook.urls", "--webhook", self.webhook),
            ("webhook.allow_net", "--allow-net", self.allow_net),
            ("tokens", "--token", self.token),
            ("console.tokens", "--console-token", self.console_token),
            ("inbox.secrets", "--inbox-secret", self.inbox_secret),
            ("telemetry.otlp_headers", "--otlp-header", self.otlp_header),
        ];
        for (key, flag, list) in lists {
            if !list.is_empty() {
                layers.put(key, flag, Given::List(list));
            }
        }
    }
}
