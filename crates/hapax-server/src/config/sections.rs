//! The sections of the configuration as types. The settings are documented in `hapax.default.toml`.

use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf, time::Duration};

use hapax_postgres::TableSource;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{
    DatabaseLocation, Endpoints, OperationalEvents, Portal, Secret, Span, Telemetry, Wrong,
    feeds::Feed, networks, sources,
};
use crate::destination::{NetworkPolicy, Spec, Written, sinks::Sink};

/// All settings.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) relay: Relay,
    pub(crate) admin: Admin,
    pub(crate) poll: Poll,
    pub(crate) catalogue: Catalogue,
    pub(crate) endpoints: Endpoints,
    pub(crate) portal: Portal,
    pub(crate) operational_events: OperationalEvents,
    pub(crate) secrets: Secrets,
    pub(crate) retention: Retention,
    pub(crate) log: Log,
    pub(crate) telemetry: Telemetry,
    #[serde(default)]
    pub(crate) destinations: BTreeMap<String, Spec>,
    #[serde(default)]
    pub(crate) sources: BTreeMap<String, TableSource>,
    #[serde(default)]
    pub(crate) feeds: BTreeMap<String, Feed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gateway: Option<hapax_gateway::config::Settings>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Database {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) connections: u16,
    pub(crate) pooled: bool,
    pub(crate) schema: Schema,
    pub(crate) connect_timeout: Span,
    pub(crate) statement_timeout: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Schema {
    Check,
    Apply,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relay {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    pub(crate) lease: Span,
    pub(crate) poll: Span,
    pub(crate) listen: Listen,
    #[serde(deserialize_with = "networks")]
    pub(crate) allow: Vec<IpNet>,
    pub(crate) kinds_at_run_time: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    pub(crate) listen: Listen,
    pub(crate) console: bool,
    pub(crate) https: bool,
    #[serde(default)]
    pub(crate) mask: Vec<String>,
    #[serde(default)]
    pub(crate) tokens: BTreeMap<String, Token>,
}

/// The listener of consumers who poll.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Poll {
    pub(crate) listen: Listen,
}

/// The event catalogue.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Catalogue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
}

/// The access to the admin API.
#[expect(
    clippy::struct_field_names,
    reason = "the settings are named as people write them"
)]
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    pub(crate) token: Secret,
    pub(crate) role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Viewer,
    Operator,
}

/// The keys that encrypt the secrets of destinations declared at run time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Secrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Secret>,
    #[serde(default)]
    pub(crate) previous: Vec<Secret>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retention {
    pub(crate) events: Span,
    pub(crate) inbox: Span,
    pub(crate) sagas: Span,
    pub(crate) every: Span,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Human,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Log {
    /// The settings in the form that logging expects.
    pub(crate) fn settings(&self) -> hapax_runtime::telemetry::Log {
        hapax_runtime::telemetry::Log {
            json: self.format == LogFormat::Json,
            level: match self.level {
                Level::Error => tracing::Level::ERROR,
                Level::Warn => tracing::Level::WARN,
                Level::Info => tracing::Level::INFO,
                Level::Debug => tracing::Level::DEBUG,
                Level::Trace => tracing::Level::TRACE,
            },
        }
    }
}

/// An address to listen on, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "off" {
            return Ok(Self(None));
        }
        let address = text.parse().map(|address| Self(Some(address)));
        address.map_err(|_| {
            let problem =
                format!("must be an address such as 127.0.0.1:9464 or \"off\", not {text:?}");
            de::Error::custom(problem)
        })
    }
}

impl Config {
    /// Finds the first setting that is not valid.
    pub(super) fn check(&self) -> Result<(), Wrong> {
        self.database.check()?;
        self.relay.check()?;
        self.admin.check()?;
        self.endpoints.check()?;
        self.portal.check()?;
        self.operational_events.check()?;
        self.retention.check()?;
        self.telemetry.check()?;
        for (name, source) in &self.sources {
            sources::check(name, source)?;
        }
        for (name, feed) in &self.feeds {
            feed.check(name, self.database.pooled)?;
        }
        Feed::check_slots(&self.feeds)?;
        if let Some(gateway) = &self.gateway {
            gateway.check()?;
        }
        self.check_endpoint_destinations()?;
        for (name, spec) in &self.destinations {
            let checked = spec.check(name, Written::InConfiguration);
            checked.map_err(|wrong| {
                Wrong::at(
                    format!("destinations.{name}.{}", wrong.field),
                    wrong.problem,
                )
            })?;
        }
        Ok(())
    }

    /// Refuses a second destination for endpoints, which would send each event twice.
    fn check_endpoint_destinations(&self) -> Result<(), Wrong> {
        let destinations = self.destinations.iter();
        let mut of_endpoints = destinations.filter(|(_, spec)| spec.is_for_endpoints());
        match (of_endpoints.next(), of_endpoints.next()) {
            (Some((one, _)), Some((other, _))) => {
                let problem = format!("is the second destination for endpoints, after {one}");
                Err(Wrong::at(
                    format!("destinations.{other}.sink.endpoints"),
                    problem,
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Database {
    /// Where the database is.
    pub(crate) fn place(&self) -> Result<DatabaseLocation, Wrong> {
        let Some(url) = &self.url else {
            let how = "is missing: set --database, HAPAX__DATABASE__URL, or [database] url in the \
                       file of --config, to a PostgreSQL URL or sqlite:PATH";
            return Err(Wrong::at("database.url", how));
        };
        let url = url.reveal();
        let place = url.and_then(|url| DatabaseLocation::parse(&url));
        place.map_err(|bad| Wrong::at("database.url", bad))
    }

    fn check(&self) -> Result<(), Wrong> {
        if self.connections < 2 || self.connections > 1_000 {
            return Err(Wrong::at("database.connections", "must be 2 to 1000"));
        }
        // A URL in a file is read when it is needed.
        if let Some(Secret::Text(url)) = &self.url {
            DatabaseLocation::parse(url).map_err(|bad| Wrong::at("database.url", bad))?;
        }
        let (least, most) = (Duration::from_millis(100), Duration::from_hours(1));
        within(
            "database.connect_timeout",
            self.connect_timeout,
            least,
            most,
        )?;
        within(
            "database.statement_timeout",
            self.statement_timeout,
            least,
            most,
        )
    }
}

impl Relay {
    /// The limits for destinations declared at run time.
    pub(crate) fn reach(&self) -> NetworkPolicy {
        NetworkPolicy {
            allow: self.allow.clone(),
            kinds: self.kinds_at_run_time.clone(),
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        let bad = |name: &String| name.is_empty() || name.len() > 200 || !name.is_ascii();
        if self.node.as_ref().is_some_and(bad) {
            return Err(Wrong::at("relay.node", "must be 1 to 200 ASCII characters"));
        }
        let may = |kind: &String| Sink::KINDS_AT_RUN_TIME.contains(&kind.as_str());
        if !self.kinds_at_run_time.iter().all(may) {
            let problem = format!(
                "may contain {}: file, smtp and endpoints can be declared in the configuration \
                 file only",
                Sink::KINDS_AT_RUN_TIME.join(", ")
            );
            return Err(Wrong::at("relay.kinds_at_run_time", problem));
        }
        within(
            "relay.lease",
            self.lease,
            Duration::from_secs(1),
            Duration::from_mins(10),
        )?;
        within(
            "relay.poll",
            self.poll,
            Duration::from_millis(1),
            Duration::from_mins(1),
        )
    }
}

impl Admin {
    fn check(&self) -> Result<(), Wrong> {
        let Some(address) = self.listen.0 else {
            return Ok(());
        };
        if self.tokens.is_empty() && !address.ip().is_loopback() {
            let how = "is open to the network, but there are no [admin.tokens]: add tokens, or \
                       listen on 127.0.0.1";
            return Err(Wrong::at("admin.listen", how));
        }
        Ok(())
    }
}

impl Retention {
    fn check(&self) -> Result<(), Wrong> {
        let (second, years) = (Duration::from_secs(1), Duration::from_hours(24 * 3660));
        within("retention.events", self.events, second, years)?;
        within("retention.inbox", self.inbox, second, years)?;
        within("retention.sagas", self.sagas, second, years)?;
        within(
            "retention.every",
            self.every,
            second,
            Duration::from_hours(24),
        )
    }
}

pub(super) fn within(path: &str, span: Span, least: Duration, most: Duration) -> Result<(), Wrong> {
    if (least..=most).contains(&span.0) {
        return Ok(());
    }
    let problem = format!(
        "must be between {} and {}, not {span}",
        Span(least),
        Span(most)
    );
    Err(Wrong::at(path, problem))
}
