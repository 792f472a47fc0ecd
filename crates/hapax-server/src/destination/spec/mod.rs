//! Declaration of a destination, as in the configuration file, the admin API and the database.
//!
//! Unknown settings are refused with the nearest known name, and errors name the setting. Secrets
//! can be taken out, so that they are stored encrypted and separately, and put back.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use hapax::{
    delivery::{Shards, Start},
    filter::Filter,
    key::Tenant,
    relay::{self, route::Pattern},
    retry::Schedule,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{filter::FilterSetting, network_policy::NetworkPolicy, sinks::Sink};
use crate::config::{Node, Secret, Span};

/// Maximum length of a destination's name in bytes. Names are used as metric labels, in columns and
/// in URL paths.
const NAME_BYTES_MAX: usize = 64;
/// Maximum number of patterns of a destination. Every event is compared with all of them.
const PATTERNS_MAX: usize = 64;
/// Maximum number of attempts per event.
const ATTEMPTS_MAX: usize = 100;
/// Maximum timeout of a delivery attempt. A partition that moves to another relay waits that long for its
/// attempts in flight; a process that stops waits for at most `limits::DRAIN`.
const TIMEOUT_MAX: Duration = Duration::from_mins(5);
/// Maximum number of concurrent deliveries.
const CONCURRENCY_MAX: u16 = 1_000;

/// A destination: the sink, the events that are routed to it, and how they are delivered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// The sink.
    pub(crate) sink: Sink,
    /// The event types that are routed to the destination, such as `order.*`. An event has to match
    /// one of them.
    #[serde(default = "everything")]
    pub(crate) events: Vec<String>,
    /// Conditions on the content of events, which an event has to match too: an object such as
    /// `{"/amount": {"$gte": 100}}`, or the same as JSON in a string.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub(crate) filter: Option<FilterSetting>,
    /// The tenant whose events are routed to the destination; all events if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The `source` attribute of CloudEvents, such as `/shop`.
    #[serde(default = "source")]
    pub(crate) source: String,
    /// The order that is kept among the events of one aggregate.
    #[serde(default)]
    pub(crate) order: Order,
    /// The wait before each attempt, such as `["0s", "5s", "5m"]`; the schedule of Standard
    /// Webhooks if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) schedule: Option<Vec<Span>>,
    /// Maximum number of concurrent deliveries. Each may be a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u16>,
    /// Maximum number of events per second; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub(crate) per_second: Option<NonZeroU32>,
    /// Timeout of a delivery attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) timeout: Option<Span>,
    /// Number of partitions: 1, 2, 4, 8 or 16. It cannot be changed later.
    #[serde(default = "one")]
    pub(crate) partitions: u8,
    /// The event with which the new destination starts: `beginning` (the oldest event in the
    /// outbox), `now`, or a time in RFC 3339. If absent, a destination of the configuration file
    /// starts at the `beginning`, and one that is declared at run time starts `now`. It cannot be
    /// changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) start: Option<Start>,
    /// Whether the destination is paused.
    #[serde(default)]
    pub(crate) paused: bool,
    /// The version in the database; 0 if it is not declared there.
    #[serde(skip)]
    pub(crate) version: i64,
}

/// The order that a destination keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// No order: events are delivered in parallel.
    #[default]
    None,
    /// One event at a time per aggregate. A failing event blocks the later ones.
    Key,
    /// Like `key`, but a dead letter does not block the later events.
    KeySkip,
}

impl From<Order> for relay::Order {
    fn from(order: Order) -> Self {
        match order {
            Order::None => Self::None,
            Order::Key => Self::Key,
            Order::KeySkip => Self::KeySkip,
        }
    }
}

/// Origin of a declaration, which determines what it may contain.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    /// In the configuration file: no limits.
    InConfiguration,
    /// Over the admin API or in the database: no files of the relay's machine, and only what this
    /// policy permits.
    AtRunTime(&'a NetworkPolicy),
}

/// An error in a declaration, with the name of the setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(crate) struct SpecError {
    /// The setting, such as `sink.webhook.url`.
    pub(crate) field: String,
    /// What is wrong; continues a sentence that begins with the setting.
    pub(crate) problem: String,
}

impl SpecError {
    pub(super) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

impl Spec {
    /// Parses a declaration from the admin API or the database. Unknown settings are refused. Call
    /// [`check`] as well.
    ///
    /// [`check`]: Self::check
    pub(crate) fn read(json: &Value) -> Result<Self, SpecError> {
        let read: Result<Self, _> = Node::from_json(json).read();
        read.map_err(|wrong| {
            let field = Some(wrong.path()).filter(|path| !path.is_empty());
            SpecError::new(field.unwrap_or("spec"), wrong.problem())
        })
    }

    /// The declaration as JSON. Secrets are written as `***`.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a destination has text keys alone")
    }

    /// Finds the first setting that is not valid, or is not allowed where it was written.
    pub(crate) fn check(&self, name: &str, written: Written<'_>) -> Result<(), SpecError> {
        check_name(name)?;
        self.check_events()?;
        self.filter()?;
        self.tenant()?;
        if Shards::of_partition(0, self.partitions.try_into().map_err(|_| partitions())?).is_err() {
            return Err(partitions());
        }
        let attempts = self.schedule.as_ref().map_or(1, Vec::len);
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            let problem = format!("must have 1 to {ATTEMPTS_MAX} waits, not {attempts}");
            return Err(SpecError::new("schedule", problem));
        }
        if self
            .timeout
            .is_some_and(|it| it.0.is_zero() || it.0 > TIMEOUT_MAX)
        {
            let problem = format!("must be more than 0s and at most {}", Span(TIMEOUT_MAX));
            return Err(SpecError::new("timeout", problem));
        }
        if self.timeout.is_some() && self.is_for_endpoints() {
            let problem = "does not concern the sink endpoints: set endpoints.timeout";
            return Err(SpecError::new("timeout", problem));
        }
        if self
            .concurrency
            .is_some_and(|it| !(1..=CONCURRENCY_MAX).contains(&it))
        {
            let problem = format!("must be 1 to {CONCURRENCY_MAX}");
            return Err(SpecError::new("concurrency", problem));
        }
        self.check_urls()?;
        match written {
            Written::InConfiguration => Ok(()),
            Written::AtRunTime(reach) => self.check_network_policy(reach),
        }
    }

    /// Whether the destination sends events to the endpoints of tenants.
    pub(crate) fn is_for_endpoints(&self) -> bool {
        matches!(self.sink, Sink::Endpoints(_))
    }

    /// The patterns of event types.
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        self.events.iter().map(Pattern::new).collect()
    }

    /// The filter, compiled.
    pub(crate) fn filter(&self) -> Result<Option<Filter>, SpecError> {
        let filter = self.filter.as_ref();
        filter.map(FilterSetting::compile).transpose()
    }

    /// The tenant.
    pub(crate) fn tenant(&self) -> Result<Option<Tenant>, SpecError> {
        let tenant = self.tenant.as_ref().map(|name| Tenant::new(name.clone()));
        let wrong = |error| SpecError::new("tenant", format!("is not valid: {error}"));
        tenant.transpose().map_err(wrong)
    }

    /// The retry schedule.
    pub(crate) fn schedule(&self) -> Schedule {
        match &self.schedule {
            Some(waits) => Schedule::new(waits.iter().map(|wait| wait.0), 20),
            None => Schedule::default(),
        }
    }

    /// Takes the secrets out, by the path of their setting. The rest may be stored unencrypted.
    ///
    /// Secrets that are already stored separately are not included.
    pub(crate) fn take_secrets(&mut self) -> Result<BTreeMap<String, SecretString>, SpecError> {
        let kind = self.sink.kind();
        let mut taken = BTreeMap::new();
        for (setting, secret) in self.sink.secrets_mut() {
            let path = format!("sink.{kind}.{setting}");
            if *secret != Secret::Apart {
                let text = secret.reveal();
                taken.insert(path.clone(), text.map_err(|bad| SpecError::new(path, bad))?);
                *secret = Secret::Apart;
            }
        }
        Ok(taken)
    }

    /// The first secret that is given as `***`, by the path of its setting.
    pub(crate) fn kept_secret(&mut self) -> Option<String> {
        let kind = self.sink.kind();
        let mut secrets = self.sink.secrets_mut().into_iter();
        let kept = secrets.find(|(_, secret)| **secret == Secret::Apart);
        kept.map(|(setting, _)| format!("sink.{kind}.{setting}"))
    }

    /// Puts the secrets back that are stored separately. Fails if one of them is missing.
    pub(crate) fn put_secrets(
        &mut self,
        kept: &BTreeMap<String, SecretString>,
    ) -> Result<(), SpecError> {
        let kind = self.sink.kind();
        for (setting, secret) in self.sink.secrets_mut() {
            let path = format!("sink.{kind}.{setting}");
            if *secret == Secret::Apart {
                let Some(text) = kept.get(&path) else {
                    let problem = "is ***, and no such secret is stored: give the secret itself";
                    return Err(SpecError::new(path, problem));
                };
                *secret = Secret::from(text.expose_secret());
            }
        }
        Ok(())
    }

    /// A hash of the declaration and its secrets, which changes if any of them changes. Secrets in
    /// files are read.
    pub(crate) fn mark(&self) -> Result<String, SpecError> {
        let mut open = self.clone();
        let secrets = open.take_secrets()?;
        let mut mark =
            hapax::key::FingerprintBuilder::new(1).part(open.to_json().to_string().as_bytes());
        for (path, secret) in &secrets {
            mark = mark
                .part(path.as_bytes())
                .part(secret.expose_secret().as_bytes());
        }
        Ok(hapax::key::hex(mark.finish().as_bytes()))
    }

    /// Refuses a password in a URL that output shows.
    fn check_urls(&self) -> Result<(), SpecError> {
        if let Some((setting, url, instead)) = self.sink.shown_url()
            && holds_user(url)
        {
            let kind = self.sink.kind();
            let problem =
                format!("contains a user or a password, and is not a secret: use {instead}");
            return Err(SpecError::new(format!("sink.{kind}.{setting}"), problem));
        }
        let Sink::Webhook(webhook) = &self.sink else {
            return Ok(());
        };
        let oauth = webhook.oauth.as_ref();
        if oauth.is_some_and(|oauth| holds_user(&oauth.token_url)) {
            let problem = "contains a user or a password, and is not a secret: use client_id and \
                           client_secret";
            return Err(SpecError::new("sink.webhook.oauth.token_url", problem));
        }
        Ok(())
    }

    fn check_events(&self) -> Result<(), SpecError> {
        let count = self.events.len();
        if !(1..=PATTERNS_MAX).contains(&count) {
            let problem = format!("must have 1 to {PATTERNS_MAX} patterns, not {count}");
            return Err(SpecError::new("events", problem));
        }
        let longest = hapax::limits::EVENT_TYPE_BYTES_MAX;
        match self
            .events
            .iter()
            .position(|it| it.is_empty() || it.len() > longest)
        {
            None => Ok(()),
            Some(at) => {
                let problem = format!("must be a pattern of 1 to {longest} bytes");
                Err(SpecError::new(format!("events[{at}]"), problem))
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), SpecError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    let problem = format!("must be 1 to {NAME_BYTES_MAX} characters of A-Z a-z 0-9 _ - .");
    Err(SpecError::new("name", problem))
}

/// Whether a URL contains a user name before its host, in any spelling of the slashes.
fn holds_user(url: &str) -> bool {
    let Some((_, rest)) = url.split_once(':') else {
        return false;
    };
    let rest = rest.trim_start_matches(['/', '\\', '\t', '\r', '\n']);
    let authority = rest.split(['/', '\\', '?', '#']).next();
    authority.is_some_and(|it| it.contains('@'))
}

fn partitions() -> SpecError {
    SpecError::new("partitions", "must be 1, 2, 4, 8 or 16")
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

fn source() -> String {
    "/hapax".to_owned()
}

fn one() -> u8 {
    1
}

#[cfg(test)]
mod tests;
