//! The configuration of the shop: defaults, file, environment, flags.
//!
//! `hapax_runtime::config` merges the layers, and [`Settings`] reads them as text. A later layer
//! replaces the whole value of a setting in an earlier one. An unknown key is an error that names
//! the closest known key. A value that cannot be parsed is an error that names its source and never
//! prints a secret. Nothing else in the shop reads the environment, except for the failpoints of
//! tests.

mod flags;
mod settings;
mod effective;
mod portal;
mod storage;
mod telemetry;
mod values;

use std::{
    collections::HashSet, ffi::OsString, net::SocketAddr, num::NonZeroU32, path::PathBuf,
    time::Duration,
};

use hapax::{
    idempotency::{OnExpired, OnFailure, OnStoreError},
    key::Tenant,
    limits::{RETENTION, RETENTION_MAX, WAIT},
    quota::Quota,
    request_log::{LineLevel, RequestLog},
    retry::Schedule,
    signature::{Signer, Verifier},
};
use hapax_console::{BadToken, Given, Role};
use hapax_http::{DedupeKey, FingerprintMode, Profile, Rate};
use hapax_runtime::telemetry::Log;
use http::Uri;
use ipnet::IpNet;
use secrecy::SecretString;

use self::settings::Settings;
pub(crate) use self::{
    portal::Portal,
    storage::{DatabaseLocation, Storage},
    telemetry::Telemetry,
};

/// All settings of the shop.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) storage: Storage,
    pub(crate) webhook: Webhook,
    /// The URL of the mail server, which may hold a password; the demo's mail catcher if absent.
    pub(crate) smtp: Option<SecretString>,
    /// The wait before each attempt of a mail.
    pub(crate) smtp_schedule: Option<Schedule>,
    /// The wait before each attempt to make the thumbnails of an upload.
    pub(crate) thumbnail_schedule: Option<Schedule>,
    pub(crate) providers: Providers,
    pub(crate) tokens: Vec<(SecretString, Tenant)>,
    /// The operators of the web console.
    pub(crate) operators: hapax_console::Tokens,
    pub(crate) inbox: Inbox,
    pub(crate) portal: Portal,
    pub(crate) idempotency: Idempotency,
    /// The limit for the requests of each tenant; none if absent.
    pub(crate) rate_limit: Option<Rate>,
    pub(crate) relay: bool,
    pub(crate) demo: bool,
    pub(crate) log: Log,
    /// Which requests and messages are logged.
    pub(crate) requests: RequestLog,
    pub(crate) telemetry: Telemetry,
    /// The settings in force, without secrets.
    pub(crate) effective: Vec<hapax_console::Setting>,
}

/// The webhook destinations besides the demo's receiver.
#[derive(Debug)]
pub(crate) struct Webhook {
    pub(crate) urls: Vec<String>,
    pub(crate) secret: Option<Signer>,
    /// The retry schedule; if absent, a quick one for the demo's receiver, and the library's
    /// default for all other webhooks.
    pub(crate) schedule: Option<Schedule>,
    pub(crate) allow_net: Vec<IpNet>,
}

/// The URLs of the providers; the demo's providers if absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Providers {
    pub(crate) payment: Option<Uri>,
    pub(crate) shipping: Option<Uri>,
}

/// The sources whose webhooks are accepted.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) secrets: Vec<(String, Verifier)>,
    /// By what repeated messages are recognized, by their type.
    pub(crate) dedupe: Vec<(String, DedupeKey)>,
    /// The tenant whose ledger records messages about unknown charges.
    pub(crate) tenant: Tenant,
}

/// How retried requests are treated.
#[derive(Debug)]
pub(crate) struct Idempotency {
    pub(crate) retention: Duration,
    pub(crate) on_expired: OnExpired,
    pub(crate) on_store_error: OnStoreError,
    pub(crate) on_failure: OnFailure,
    pub(crate) claims: Claims,
    pub(crate) profile: Profile,
    /// How bodies are compared; as the profile says if absent.
    pub(crate) fingerprint: Option<FingerprintMode>,
    pub(crate) wait: Duration,
    /// How long the key of a phased operation stays owned after its owner dies.
    pub(crate) lease: Duration,
    /// Bytes of completed responses kept in memory; the library's default if absent.
    pub(crate) cache_bytes: Option<u64>,
    /// The most keys and bytes that one tenant may have stored.
    pub(crate) quota: Quota,
}

/// When a handler that touches nothing but its transaction claims its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claims {
    /// Together with the response, on PostgreSQL.
    Optimistic,
    /// Before it starts.
    First,
}

/// A wrong flag or setting.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The command line is wrong, or asks for `--help`; clap has formatted the message.
    #[error(transparent)]
    Usage(#[from] clap::Error),
    /// A setting is wrong; the message names it.
    #[error("{0}")]
    Setting(String),
}

impl Providers {
    /// Fills in the absent URLs from `other`.
    pub(crate) fn or(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or_default();
        Self {
            payment: self.payment.or(other.payment),
            shipping: self.shipping.or(other.shipping),
        }
    }

    /// Returns the name and URL of each provider.
    pub(crate) fn named(&self) -> Vec<(&'static str, String)> {
        let named = [("payment", &self.payment), ("shipping", &self.shipping)];
        named
            .into_iter()
            .filter_map(|(name, place)| Some((name, place.as_ref()?.to_string())))
            .collect()
    }
}

impl Config {
    /// Reads all settings.
    pub(crate) fn load(
        arguments: impl Iterator<Item = OsString>,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let flags = flags::command().try_get_matches_from(arguments)?;
        let settings = Settings::read(&flags, environment);
        let settings = settings.map_err(|wrong| ConfigError::Setting(wrong.to_string()))?;
        Self::read(&settings).map_err(ConfigError::Setting)
    }

    fn read(settings: &Settings) -> Result<Self, String> {
        let data_dir = settings.one("data_dir", ".", |text| Ok(PathBuf::from(text)))?;
        let demo = settings.one("demo", "true", values::switch)?;
        let tokens = read_tokens(settings, demo)?;
        Ok(Self {
            listen: settings.one("listen", "127.0.0.1:8080", values::address)?,
            storage: Storage::read(settings, data_dir.join("shop.db"))?,
            webhook: read_webhook(settings)?,
            smtp: settings.maybe("smtp.url", values::smtp)?,
            smtp_schedule: settings.maybe("smtp.schedule", values::schedule)?,
            thumbnail_schedule: settings.maybe("thumbnails.schedule", values::schedule)?,
            providers: Providers {
                payment: settings.maybe("providers.payment", values::provider)?,
                shipping: settings.maybe("providers.shipping", values::provider)?,
            },
            operators: read_operators(settings)?,
            inbox: read_inbox(settings, &tokens)?,
            portal: Portal::read(settings)?,
            idempotency: read_idempotency(settings)?,
            rate_limit: read_rate_limit(settings)?,
            relay: settings.one("relay", "true", values::switch)?,
            log: Log {
                json: settings.one("log.format", "human", |text| {
                    values::word(text, &[("human", false), ("json", true)])
                })?,
                level: settings.one("log.level", "info", values::level)?,
            },
            requests: read_requests(settings)?,
            telemetry: Telemetry::read(settings)?,
            effective: effective::all(settings),
            data_dir,
            demo,
            tokens,
        })
    }
}

fn read_requests(settings: &Settings) -> Result<RequestLog, String> {
    let levels = [
        ("info", LineLevel::Info),
        ("debug", LineLevel::Debug),
        ("off", LineLevel::Off),
    ];
    Ok(RequestLog {
        level: settings.one("log.requests", "info", |text| values::word(text, &levels))?,
        sample: settings.one("log.requests_sample", "1", values::share)?,
    })
}

fn read_tokens(settings: &Settings, demo: bool) -> Result<Vec<(SecretString, Tenant)>, String> {
    let mut pairs = settings.pairs("tokens")?;
    if pairs.is_empty() && demo {
        pairs = vec![
            ("demo-alice".to_owned(), "alice".to_owned()),
            ("demo-bob".to_owned(), "bob".to_owned()),
        ];
    }
    if pairs.is_empty() {
        return Err(
            "no tokens are configured, and the demo is off: set --token TOKEN=TENANT, \
                    HAPAX__TOKENS, or [tokens] in the configuration file"
                .to_owned(),
        );
    }
    let mut seen = HashSet::new();
    if pairs.iter().any(|(token, _)| !seen.insert(token.as_str())) {
        return Err("tokens: a token is listed twice, but must have one tenant".to_owned());
    }
    pairs
        .into_iter()
        .map(|(token, tenant)| {
            if !token.bytes().all(|byte| byte.is_ascii_graphic()) || token.is_empty() {
                return Err("tokens: a token must be visible ASCII without spaces".to_owned());
            }
            let tenant = Tenant::new(tenant).map_err(|error| format!("tokens: tenant: {error}"))?;
            Ok((SecretString::from(token), tenant))
        })
        .collect()
}

fn read_operators(settings: &Settings) -> Result<hapax_console::Tokens, String> {
    let pairs = settings.pairs("console.tokens")?;
    let given = pairs.iter().map(|(name, token)| Given {
        name,
        token,
        role: Role::Operator,
        tenant: None,
    });
    let bad = |bad: BadToken| {
        format!(
            "console.tokens: the {} of {} {}",
            bad.setting, bad.name, bad.problem
        )
    };
    hapax_console::Tokens::of(given).map_err(bad)
}

fn read_webhook(settings: &Settings) -> Result<Webhook, String> {
    Ok(Webhook {
        urls: settings.list("webhook.urls")?,
        secret: settings.maybe("webhook.secret", values::signer)?,
        schedule: settings.maybe("webhook.schedule", values::schedule)?,
        allow_net: settings
            .list("webhook.allow_net")?
            .iter()
            .map(|net| values::network(net).map_err(|bad| format!("webhook.allow_net {bad}")))
            .collect::<Result<_, _>>()?,
    })
}

fn read_inbox(settings: &Settings, tokens: &[(SecretString, Tenant)]) -> Result<Inbox, String> {
    let first = tokens.first().map_or("shop", |(_, tenant)| tenant.as_str());
    let secrets = settings
        .pairs("inbox.secrets")?
        .into_iter()
        .map(|(source, secret)| {
            let bad = |error| format!("inbox.secrets: the secret of {source:?} {error}");
            let secret = values::verifier(&secret).map_err(bad)?;
            values::source(&source)?;
            Ok((source, secret))
        })
        .collect::<Result<_, String>>()?;
    let dedupe = settings
        .pairs("inbox.dedupe")?
        .into_iter()
        .map(|(kind, key)| match key.parse::<DedupeKey>() {
            Ok(key) => Ok((kind, key)),
            Err(error) => Err(format!("inbox.dedupe: {kind:?}: {error}")),
        })
        .collect::<Result<_, String>>()?;
    let tenant = settings.one("inbox.tenant", first, |text| {
        Tenant::new(text).map_err(|error| error.to_string())
    })?;
    Ok(Inbox {
        secrets,
        dedupe,
        tenant,
    })
}

fn read_rate_limit(settings: &Settings) -> Result<Option<Rate>, String> {
    let burst = settings.maybe("rate_limit.burst", |text| {
        values::count(text, NonZeroU32::MIN, NonZeroU32::MAX)
    })?;
    match settings.maybe("rate_limit.rate", values::rate)? {
        Some((requests, period)) => Ok(Some(Rate {
            requests,
            period,
            burst: burst.unwrap_or(requests),
        })),
        None if burst.is_some() => Err("rate_limit.burst needs rate_limit.rate".to_owned()),
        None => Ok(None),
    }
}

fn bound(text: &str) -> Result<u64, String> {
    values::count(text, 0, u64::MAX)
}

fn read_idempotency(settings: &Settings) -> Result<Idempotency, String> {
    let duration = |key, default, least, most| {
        let read = settings.maybe(key, |text| values::duration(text, least, most))?;
        Ok::<_, String>(read.unwrap_or(default))
    };
    let second = Duration::from_secs(1);
    Ok(Idempotency {
        retention: duration("idempotency.retention", RETENTION, second, RETENTION_MAX)?,
        wait: duration(
            "idempotency.wait",
            WAIT,
            Duration::ZERO,
            Duration::from_mins(1),
        )?,
        lease: duration(
            "idempotency.lease",
            10 * second,
            second,
            Duration::from_hours(1),
        )?,
        cache_bytes: settings.maybe("idempotency.cache_bytes", |text| {
            values::count(text, 0, 1 << 40)
        })?,
        quota: Quota {
            keys: settings.maybe("idempotency.quota_keys", bound)?,
            bytes: settings.maybe("idempotency.quota_bytes", bound)?,
        },
        on_expired: settings.one("idempotency.on_expired", "new", |text| {
            values::word(text, &[("new", OnExpired::New), ("gone", OnExpired::Gone)])
        })?,
        on_store_error: settings.one("idempotency.on_store_error", "closed", |text| {
            values::word(
                text,
                &[
                    ("closed", OnStoreError::Closed),
                    ("open", OnStoreError::Open),
                ],
            )
        })?,
        on_failure: settings.one("idempotency.on_failure", "release", |text| {
            values::word(
                text,
                &[("release", OnFailure::Release), ("store", OnFailure::Store)],
            )
        })?,
        claims: settings.one("idempotency.claims", "optimistic", |text| {
            let claims = [("optimistic", Claims::Optimistic), ("first", Claims::First)];
            values::word(text, &claims)
        })?,
        profile: settings.one("idempotency.profile", "hapax", |text| {
            let profiles = Profile::ALL.map(|profile| (profile.as_str(), profile));
            values::word(text, &profiles)
        })?,
        fingerprint: settings.maybe("idempotency.fingerprint", |text| {
            let modes = FingerprintMode::ALL.map(|mode| (mode.as_str(), mode));
            values::word(text, &modes)
        })?,
    })
}
