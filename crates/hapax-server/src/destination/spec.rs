//! One destination, as it stands in the configuration file, in the admin API and in the database.
//!
//! The type is strict: a setting that nobody knows is refused with the nearest one that somebody
//! does, and an error names the setting it is about. Secrets can be taken out, so that they are
//! kept sealed beside the rest, and put back.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use hapax::{
    delivery::Shards,
    key::Tenant,
    relay::{self, route::Pattern},
    retry::Schedule,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{reach::Reach, sinks::Sink};
use crate::config::{Node, Secret, Span};

/// Bytes of a destination's name: it is a label, a column and a part of paths.
const NAME_BYTES_MAX: usize = 64;
/// Patterns of one destination: each event is held against all of them.
const PATTERNS_MAX: usize = 64;
/// Attempts of one event: more is a loop.
const ATTEMPTS_MAX: usize = 100;
/// The longest that an offer may take: the relay waits for it when it drains.
const TIMEOUT_MAX: Duration = Duration::from_mins(5);
/// Offers on the wire at once.
const CONCURRENCY_MAX: u16 = 1_000;

/// A destination: where its events go, which they are, and how patiently they are offered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    /// Where events go.
    pub(crate) sink: Sink,
    /// The event types that it takes, such as `order.*`; any one suffices.
    #[serde(default = "everything")]
    pub(crate) events: Vec<String>,
    /// The one tenant whose events it takes; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// What CloudEvents say that the events come from, such as `/shop`.
    #[serde(default = "source")]
    pub(crate) source: String,
    /// What order is kept among the events of one aggregate.
    #[serde(default)]
    pub(crate) order: Order,
    /// The wait before each attempt, such as `["0s", "5s", "5m"]`; that of Standard Webhooks when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub(crate) schedule: Option<Vec<Span>>,
    /// Offers on the wire at once; each may be a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) concurrency: Option<u16>,
    /// Events that may be offered per second; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub(crate) per_second: Option<NonZeroU32>,
    /// After this long an offer is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) timeout: Option<Span>,
    /// In how many parts its events are carried: 1, 2, 4, 8 or 16, the same for its life.
    #[serde(default = "one")]
    pub(crate) parts: u8,
    /// Whether nothing is to be offered for now.
    #[serde(default)]
    pub(crate) paused: bool,
    /// The version of what the database says of it, and 0 where it says nothing.
    #[serde(skip)]
    pub(crate) version: i64,
}

/// What order a destination keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// None: events go as they come, in parallel.
    #[default]
    None,
    /// One at a time for each aggregate; a failing event blocks those behind it.
    Key,
    /// As `key`, but an event that dies lets those behind it go on.
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

/// Where a destination was written down, and so what it may ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    /// In the configuration, by whoever runs the relay: anything.
    InConfiguration,
    /// Over the admin API or from the database, by an operator, who is not let near the files of
    /// the relay's machine and gets no further than this.
    AtRunTime(&'a Reach),
}

/// What is wrong with a destination, and in which of its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(crate) struct SpecError {
    /// The setting, such as `sink.webhook.url`.
    pub(crate) field: String,
    /// What is wrong with it; it continues a sentence that begins with the setting.
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
    /// Reads a destination as the admin API and the database write it, strictly; [`check`] it too.
    ///
    /// [`check`]: Self::check
    pub(crate) fn read(json: &Value) -> Result<Self, SpecError> {
        let read: Result<Self, _> = Node::from_json(json).read();
        read.map_err(|wrong| {
            let field = Some(wrong.path()).filter(|path| !path.is_empty());
            SpecError::new(field.unwrap_or("spec"), wrong.problem())
        })
    }

    /// Writes it as JSON; what is secret is written `***`.
    pub(crate) fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("a destination has text keys alone")
    }

    /// Finds the first setting that can never work, or that may not be written there.
    pub(crate) fn check(&self, name: &str, written: Written<'_>) -> Result<(), SpecError> {
        check_name(name)?;
        self.check_events()?;
        self.tenant()?;
        if Shards::of_part(0, self.parts.try_into().map_err(|_| parts())?).is_err() {
            return Err(parts());
        }
        let attempts = self.schedule.as_ref().map_or(1, Vec::len);
        if !(1..=ATTEMPTS_MAX).contains(&attempts) {
            let problem = format!("has 1 to {ATTEMPTS_MAX} waits, not {attempts}");
            return Err(SpecError::new("schedule", problem));
        }
        if self
            .timeout
            .is_some_and(|it| it.0.is_zero() || it.0 > TIMEOUT_MAX)
        {
            let problem = format!("is more than 0s and at most {}", Span(TIMEOUT_MAX));
            return Err(SpecError::new("timeout", problem));
        }
        if self
            .concurrency
            .is_some_and(|it| !(1..=CONCURRENCY_MAX).contains(&it))
        {
            let problem = format!("is 1 to {CONCURRENCY_MAX}");
            return Err(SpecError::new("concurrency", problem));
        }
        if let Sink::Webhook(webhook) = &self.sink
            && holds_user(&webhook.url)
        {
            let problem = "holds a user or a password, and is shown to whoever may look: put what \
                           the far side checks into its path, or let it check the signature";
            return Err(SpecError::new("sink.webhook.url", problem));
        }
        match written {
            Written::InConfiguration => Ok(()),
            Written::AtRunTime(reach) => self.check_reach(reach),
        }
    }

    /// The patterns of the events that it takes.
    pub(crate) fn patterns(&self) -> Vec<Pattern> {
        self.events.iter().map(Pattern::new).collect()
    }

    /// The tenant whose events it takes.
    pub(crate) fn tenant(&self) -> Result<Option<Tenant>, SpecError> {
        let tenant = self.tenant.as_ref().map(|name| Tenant::new(name.clone()));
        let wrong = |error| SpecError::new("tenant", format!("is wrong: {error}"));
        tenant.transpose().map_err(wrong)
    }

    /// The schedule of its attempts.
    pub(crate) fn schedule(&self) -> Schedule {
        match &self.schedule {
            Some(waits) => Schedule::new(waits.iter().map(|wait| wait.0), 20),
            None => Schedule::default(),
        }
    }

    /// Takes the secrets out, by the path of their settings: what is left may be kept in the open.
    ///
    /// A secret that was apart already is not among them.
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

    /// Puts secrets back where one is apart; fails when one is missing.
    pub(crate) fn put_secrets(
        &mut self,
        kept: &BTreeMap<String, SecretString>,
    ) -> Result<(), SpecError> {
        let kind = self.sink.kind();
        for (setting, secret) in self.sink.secrets_mut() {
            let path = format!("sink.{kind}.{setting}");
            if *secret == Secret::Apart {
                let Some(text) = kept.get(&path) else {
                    return Err(SpecError::new(path, "is missing: give the secret itself"));
                };
                *secret = Secret::text(text.expose_secret());
            }
        }
        Ok(())
    }

    /// What tells this destination from a changed one, files of secrets included.
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

    fn check_events(&self) -> Result<(), SpecError> {
        let count = self.events.len();
        if !(1..=PATTERNS_MAX).contains(&count) {
            let problem = format!("has 1 to {PATTERNS_MAX} patterns, not {count}");
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
                let problem = format!("is a pattern of 1 to {longest} bytes");
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
    let problem = format!("is 1 to {NAME_BYTES_MAX} of A-Z a-z 0-9 _ - .");
    Err(SpecError::new("name", problem))
}

/// Whether a URL names a user before its host, however it spells the slashes.
fn holds_user(url: &str) -> bool {
    let Some((_, rest)) = url.split_once(':') else {
        return false;
    };
    let rest = rest.trim_start_matches(['/', '\\', '\t', '\r', '\n']);
    let authority = rest.split(['/', '\\', '?', '#']).next();
    authority.is_some_and(|it| it.contains('@'))
}

fn parts() -> SpecError {
    SpecError::new("parts", "is 1, 2, 4, 8 or 16")
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let spec = Spec::read(&webhook()).unwrap();
        assert_eq!(spec.events, ["*"]);
        assert_eq!(
            (spec.order, spec.parts, spec.paused),
            (Order::None, 1, false)
        );
        spec.check("orders", Written::InConfiguration).unwrap();
    }

    #[test]
    fn a_list_or_a_word_is_no_destination() {
        let settings = "is a table of settings";
        let sink = webhook()["sink"].clone();
        check(&json!([sink]), "spec", settings);
        check(&json!("webhook"), "spec", settings);
        let listed = json!({"sink": {"file": ["-"]}});
        check(&listed, "sink.file", settings);
    }

    #[test]
    fn a_setting_that_nobody_knows_is_refused_with_the_nearest() {
        let mut json = webhook();
        json["evnts"] = json!(["order.*"]);
        check(&json, "evnts", "is unknown: did you mean events?");
        let json = json!({"sink": {"webhook": {"ulr": "https://example.com/"}}});
        check(&json, "sink.webhook.ulr", "is unknown: did you mean url?");
        let json = json!({"sink": {"webook": {"url": "https://example.com/"}}});
        check(&json, "sink.webook", "is unknown: did you mean webhook?");
    }

    #[test]
    fn a_value_that_cannot_work_is_refused_by_its_setting() {
        let cases = [
            ("parts", json!(3), "parts"),
            ("parts", json!(0), "parts"),
            ("parts", json!("two"), "parts"),
            ("events", json!([]), "events"),
            ("events", json!([""]), "events[0]"),
            ("events", json!([7]), "events[0]"),
            ("tenant", json!(""), "tenant"),
            ("order", json!("keys"), "order"),
            ("schedule", json!(["0s", "5"]), "schedule[1]"),
            ("schedule", json!([]), "schedule"),
            ("timeout", json!("0s"), "timeout"),
            ("timeout", json!("6m"), "timeout"),
            ("concurrency", json!(0), "concurrency"),
            ("per_second", json!(0), "per_second"),
            ("paused", json!("true"), "paused"),
        ];
        for (setting, value, field) in cases {
            let mut json = webhook();
            json[setting] = value.clone();
            let error = read(&json).unwrap_err();
            assert_eq!(error.field, field, "{setting} = {value}: {error}");
        }
    }

    #[test]
    fn a_name_is_a_label_and_never_a_part() {
        let spec = Spec::read(&webhook()).unwrap();
        for bad in ["", "a/b", "a b", "é", &"a".repeat(65)] {
            let error = spec.check(bad, Written::InConfiguration).unwrap_err();
            assert_eq!(error.field, "name", "{bad:?}");
        }
    }

    #[test]
    fn secrets_are_taken_out_and_put_back() {
        let mut spec = Spec::read(&webhook()).unwrap();
        let whole = spec.clone();
        let secrets = spec.take_secrets().unwrap();
        assert_eq!(secrets.keys().collect::<Vec<_>>(), ["sink.webhook.secret"]);
        assert_eq!(spec.to_json()["sink"]["webhook"]["secret"], "***");
        let mut kept = Spec::read(&spec.to_json()).unwrap();
        assert_eq!(
            kept.put_secrets(&BTreeMap::new()).unwrap_err().field,
            "sink.webhook.secret"
        );
        kept.put_secrets(&secrets).unwrap();
        assert_eq!(kept, whole);
    }

    #[test]
    fn the_url_of_a_webhook_holds_no_password() {
        for bad in [
            "https://user:hunter2@example.com/",
            "https://user@example.com",
            "https:user:hunter2@example.com/",
            "https:///user:hunter2@example.com/",
            "https:\\\\user:hunter2@example.com/",
            "https://user:hunter2@example.com?a",
        ] {
            let mut json = webhook();
            json["sink"]["webhook"]["url"] = json!(bad);
            let error = read(&json).unwrap_err();
            assert_eq!(error.field, "sink.webhook.url", "{bad}");
            assert!(!error.problem.contains("hunter2"));
        }
        for good in [
            "https://example.com/@user",
            "https://example.com?to=a@b",
            "https://example.com/#a@b",
        ] {
            let mut json = webhook();
            json["sink"]["webhook"]["url"] = json!(good);
            read(&json).unwrap();
        }
    }

    #[test]
    fn the_url_of_a_nats_is_a_secret() {
        let json = json!({"sink": {"nats": {"url": "nats://user:hunter2@h:4222"}}});
        let mut spec = Spec::read(&json).unwrap();
        assert!(!format!("{spec:?} {}", spec.to_json()).contains("hunter2"));
        let secrets = spec.take_secrets().unwrap();
        assert_eq!(secrets.keys().collect::<Vec<_>>(), ["sink.nats.url"]);
    }

    #[test]
    fn a_changed_secret_changes_the_mark() {
        let spec = Spec::read(&webhook()).unwrap();
        let mut other = webhook();
        other["sink"]["webhook"]["secret"] = json!("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        let other = Spec::read(&other).unwrap();
        assert_eq!(spec.mark(), spec.clone().mark());
        assert_ne!(spec.mark(), other.mark());
    }

    fn webhook() -> Value {
        json!({"sink": {"webhook": {
            "url": "https://example.com/hooks",
            "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }}})
    }

    fn read(json: &Value) -> Result<Spec, SpecError> {
        let spec = Spec::read(json)?;
        spec.check("orders", Written::InConfiguration)
            .map(|()| spec)
    }

    #[track_caller]
    fn check(json: &Value, field: &str, problem: &str) {
        assert_eq!(
            Spec::read(json).unwrap_err(),
            SpecError::new(field, problem)
        );
    }
}
