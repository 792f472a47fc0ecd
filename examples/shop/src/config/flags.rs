//! The command line, with one flag per setting; values are read as text.

use std::path::PathBuf;

use super::layers::{Given, Layers};

/// The key of a setting, its flag, and the text of the flag if it is given.
type GivenText<'a> = (&'static str, &'static str, Option<&'a str>);

/// A small shop in which every retry is safe.
#[derive(Debug, clap::Parser)]
#[command(name = "shop", version, about)]
pub(super) struct Flags {
    /// TOML file with settings; the environment and flags override it
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Address to listen on [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Directory of the database, uploads, caught mail and the webhook secret [default: .]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Database URL, sqlite:// or postgres:// [default: shop.db in the data directory]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Sends every event to this URL; may be repeated
    #[arg(long, value_name = "URL")]
    webhook: Vec<String>,
    /// Secret that signs requests to --webhook [default: created, stored and printed once]
    #[arg(long, value_name = "whsec_...")]
    webhook_secret: Option<String>,
    /// Wait before each attempt of a webhook, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    webhook_schedule: Option<String>,
    /// Private network that webhooks may connect to; may be repeated
    #[arg(long, value_name = "CIDR")]
    allow_net: Vec<String>,
    /// Mail server (smtp:// or smtps://) [default: the demo's mail catcher]
    #[arg(long, value_name = "URL")]
    smtp: Option<String>,
    /// Wait before each attempt of a mail, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    smtp_schedule: Option<String>,
    /// Wait before each attempt to make the thumbnails of an upload, such as "0s,5s,5m"
    #[arg(long, value_name = "WAITS")]
    thumbnail_schedule: Option<String>,
    /// URL of the payment provider [default: the demo's own provider]
    #[arg(long, value_name = "URL")]
    payment_provider: Option<String>,
    /// URL of the shipping provider [default: the demo's own provider]
    #[arg(long, value_name = "URL")]
    shipping_provider: Option<String>,
    /// Bearer token and the tenant it belongs to; may be repeated
    #[arg(long, value_name = "TOKEN=TENANT")]
    token: Vec<String>,
    /// Operator of the web console, by name and token; may be repeated
    #[arg(long, value_name = "NAME=TOKEN")]
    console_token: Vec<String>,
    /// Source that may send webhooks, with its signing secret; may be repeated
    #[arg(long, value_name = "SOURCE=whsec_...")]
    inbox_secret: Vec<String>,
    /// Tenant to whom webhooks about unknown charges belong [default: the first token's tenant]
    #[arg(long, value_name = "TENANT")]
    inbox_tenant: Option<String>,
    /// How long responses are stored [default: 24h]
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// Outcome for an expired key: new or gone [default: new]
    #[arg(long, value_name = "WORD")]
    on_expired: Option<String>,
    /// If the store is down: closed (refuse requests) or open (run unprotected) [default: closed]
    #[arg(long, value_name = "WORD")]
    on_store_error: Option<String>,
    /// If a handler fails: release (the key) or store (the failure) [default: release]
    #[arg(long, value_name = "WORD")]
    on_failure: Option<String>,
    /// Header names and statuses in responses: hapax, ietf or stripe [default: hapax]
    #[arg(long, value_name = "WORD")]
    profile: Option<String>,
    /// How long a duplicate waits for the first request [default: 1s]
    #[arg(long, value_name = "DURATION")]
    wait: Option<String>,
    /// How long the key of a phased operation stays owned after its owner dies [default: 10s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<String>,
    /// Bytes of completed responses kept in memory; 0 keeps none [default: 8388608]
    #[arg(long, value_name = "BYTES")]
    replay_cache: Option<String>,
    /// Maximum number of stored keys per tenant [default: no bound]
    #[arg(long, value_name = "COUNT")]
    quota_keys: Option<String>,
    /// Maximum bytes of stored responses per tenant [default: no bound]
    #[arg(long, value_name = "BYTES")]
    quota_bytes: Option<String>,
    /// Maximum number of requests that share one commit; 1 turns groups off [default: 128]
    #[arg(long, value_name = "COUNT")]
    group_max: Option<String>,
    /// Maximum number of connections to PostgreSQL [default: 16]
    #[arg(long, value_name = "COUNT")]
    database_connections: Option<String>,
    /// Connections go through a pooler in transaction mode
    #[arg(long)]
    database_pooled: bool,
    /// Create missing tables in PostgreSQL, or refuse to start: apply or check [default: apply]
    #[arg(long, value_name = "WORD")]
    database_schema: Option<String>,
    /// File of keys; the first encrypts stored responses, requests and payloads
    #[arg(long, value_name = "FILE")]
    encryption_keys: Option<String>,
    /// Runs no relay; events stay in the outbox
    #[arg(long)]
    no_relay: bool,
    /// No demo tokens, receiver, mail catcher and providers; no console without tokens
    #[arg(long)]
    no_demo: bool,
    /// Format of the log: human or json [default: human]
    #[arg(long, value_name = "WORD")]
    log: Option<String>,
    /// Log level: error, warn, info, debug or trace [default: info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// OTLP collector that spans are sent to, over HTTP [default: nothing is traced]
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Header of requests to the collector; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    otlp_header: Vec<String>,
    /// Share of the traces started by the shop that are recorded, from 0 to 1 [default: 1]
    #[arg(long, value_name = "SHARE")]
    trace_sample: Option<String>,
    /// Name of this service in traces [default: shop]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
}

impl Flags {
    /// Overrides the settings of the other layers with the given flags.
    pub(super) fn write_to(self, layers: &mut Layers) {
        let texts = self
            .outside()
            .into_iter()
            .chain(self.idempotency())
            .chain(self.store())
            .chain(self.operation());
        for (key, flag, text) in texts {
            if let Some(text) = text {
                layers.put(key, flag, Given::Text(text.to_owned()));
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

    /// Addresses, files, and the systems that events and calls go to.
    fn outside(&self) -> [GivenText<'_>; 11] {
        [
            ("listen", "--listen", self.listen.as_deref()),
            ("data_dir", "--data-dir", self.data_dir.as_deref()),
            ("database", "--database", self.database.as_deref()),
            (
                "webhook.secret",
                "--webhook-secret",
                self.webhook_secret.as_deref(),
            ),
            (
                "webhook.schedule",
                "--webhook-schedule",
                self.webhook_schedule.as_deref(),
            ),
            ("smtp.url", "--smtp", self.smtp.as_deref()),
            (
                "smtp.schedule",
                "--smtp-schedule",
                self.smtp_schedule.as_deref(),
            ),
            (
                "thumbnails.schedule",
                "--thumbnail-schedule",
                self.thumbnail_schedule.as_deref(),
            ),
            (
                "providers.payment",
                "--payment-provider",
                self.payment_provider.as_deref(),
            ),
            (
                "providers.shipping",
                "--shipping-provider",
                self.shipping_provider.as_deref(),
            ),
            (
                "inbox.tenant",
                "--inbox-tenant",
                self.inbox_tenant.as_deref(),
            ),
        ]
    }

    /// How requests are protected.
    fn idempotency(&self) -> [GivenText<'_>; 10] {
        [
            (
                "idempotency.retention",
                "--retention",
                self.retention.as_deref(),
            ),
            (
                "idempotency.on_expired",
                "--on-expired",
                self.on_expired.as_deref(),
            ),
            (
                "idempotency.on_store_error",
                "--on-store-error",
                self.on_store_error.as_deref(),
            ),
            (
                "idempotency.on_failure",
                "--on-failure",
                self.on_failure.as_deref(),
            ),
            ("idempotency.profile", "--profile", self.profile.as_deref()),
            ("idempotency.wait", "--wait", self.wait.as_deref()),
            ("idempotency.lease", "--lease", self.lease.as_deref()),
            (
                "idempotency.cache_bytes",
                "--replay-cache",
                self.replay_cache.as_deref(),
            ),
            (
                "idempotency.quota_keys",
                "--quota-keys",
                self.quota_keys.as_deref(),
            ),
            (
                "idempotency.quota_bytes",
                "--quota-bytes",
                self.quota_bytes.as_deref(),
            ),
        ]
    }

    /// How the rows are stored.
    fn store(&self) -> [GivenText<'_>; 5] {
        [
            ("store.group_max", "--group-max", self.group_max.as_deref()),
            (
                "store.connections",
                "--database-connections",
                self.database_connections.as_deref(),
            ),
            (
                "store.pooled",
                "--database-pooled",
                self.database_pooled.then_some("true"),
            ),
            (
                "store.schema",
                "--database-schema",
                self.database_schema.as_deref(),
            ),
            (
                "store.encryption_keys",
                "--encryption-keys",
                self.encryption_keys.as_deref(),
            ),
        ]
    }

    /// Parts that can be turned off, logs and traces.
    fn operation(&self) -> [GivenText<'_>; 7] {
        [
            ("relay", "--no-relay", self.no_relay.then_some("false")),
            ("demo", "--no-demo", self.no_demo.then_some("false")),
            ("log.format", "--log", self.log.as_deref()),
            ("log.level", "--log-level", self.log_level.as_deref()),
            (
                "telemetry.otlp_endpoint",
                "--otlp-endpoint",
                self.otlp_endpoint.as_deref(),
            ),
            (
                "telemetry.sample",
                "--trace-sample",
                self.trace_sample.as_deref(),
            ),
            ("telemetry.service", "--service", self.service.as_deref()),
        ]
    }
}
