//! Settings of every kind of sink, and what they have in common.
//!
//! A sink is created from its settings and those of its destination. The settings of a kind are in
//! the folder of the kind. They need no feature, so that a program can parse a configuration that
//! names a sink which it does not include. What cannot be checked without a connection is not
//! checked when a sink is created: an unreachable server, a missing queue or a wrong password is
//! reported by each delivery.

use std::{fmt, time::Duration};

use hapax::limits::OFFER;
use secrecy::SecretString;

use crate::{resolve::Resolver, secret::Secret};

#[path = "webhook/settings.rs"]
mod webhook;
#[path = "smtp/settings.rs"]
mod smtp;
#[path = "file/settings.rs"]
mod file;
#[path = "nats/settings.rs"]
mod nats;
#[path = "amqp/settings.rs"]
mod amqp;
#[path = "kafka/settings.rs"]
mod kafka;
#[path = "redis/settings.rs"]
mod redis;
#[path = "postgres/settings.rs"]
mod postgres;
#[path = "s3/settings.rs"]
mod s3;
#[path = "sqs/settings.rs"]
mod sqs;
#[path = "sns/settings.rs"]
mod sns;
#[path = "pubsub/settings.rs"]
mod pubsub;

pub use crate::{json_setting::JsonSetting, network::networks};
pub use amqp::AmqpSettings;
pub use file::FileSettings;
pub use kafka::KafkaSettings;
pub use nats::NatsSettings;
pub use postgres::{Field, PostgresSettings};
pub use pubsub::PubsubSettings;
pub use redis::RedisSettings;
pub use s3::S3Settings;
pub use smtp::{SmtpSettings, StartTls};
pub use sns::SnsSettings;
pub use sqs::SqsSettings;
pub use webhook::{
    AuthStyle, BasicSettings, ClientCertificateSettings, OauthSettings, WebhookSettings,
};

/// Settings of a destination that apply to every kind of sink.
#[derive(Clone, Debug)]
pub struct DestinationSettings {
    /// The CloudEvents attribute `source`, such as `/shop`. The default is `hapax`. For the
    /// PostgreSQL sink it must never change, because the inbox identifies an event by source, id
    /// and consumer. Webhooks and mails do not contain it.
    pub source: String,
    /// Timeout of a whole batch, from the DNS lookup to the last response. The default is
    /// [`OFFER`].
    pub timeout: Duration,
    /// Resolver of host names. The default is the resolver of the process. Kafka's client does not
    /// use it.
    pub resolver: Resolver,
}

impl DestinationSettings {
    /// The settings of a destination whose events have this `source`.
    pub fn new(source: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }
}

impl Default for DestinationSettings {
    fn default() -> Self {
        Self::new("hapax")
    }
}

/// Settings by their paths, such as `basic.user`, and whether they are those of before.
pub type Compared = Vec<(&'static str, bool)>;

/// The settings of a sink that decide where its secrets are sent.
///
/// A change may keep a secret without naming it ([`Secret::Apart`]), so an operator who does not
/// know the secret must not be able to have it sent to another receiver. These settings are the
/// address of the receiver, the networks and certificates that are trusted on the way to it, and
/// the account to which the secret belongs. An implementation names every setting of its type,
/// without `..`, so that a new one does not compile until it has been decided.
pub trait Address {
    /// Compares these settings with those of before, whose secrets have been put back. A URL that
    /// is a secret is the same if it is kept.
    fn compare_address(&self, before: &Self) -> Compared;
}

/// A setting with which no sink can be created. The error never contains a URL or a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {problem}")]
pub struct SettingError {
    /// The path of the setting, such as `url`.
    pub setting: String,
    /// What is wrong; continues a sentence that begins with the setting.
    pub problem: String,
}

impl SettingError {
    /// Creates an error.
    pub fn new(setting: impl Into<String>, problem: impl fmt::Display) -> Self {
        Self {
            setting: setting.into(),
            problem: problem.to_string(),
        }
    }
}

/// Returns the secret of a setting.
///
/// # Errors
/// Fails if its file cannot be read, or if it is stored separately.
pub fn reveal(setting: &str, secret: &Secret) -> Result<SecretString, SettingError> {
    let text = secret.reveal();
    text.map_err(|problem| SettingError::new(setting, problem))
}

/// Whether a secret is kept, or is given again as it was.
fn is_same(now: &Secret, before: &Secret) -> bool {
    *now == Secret::Apart || now == before
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn an_address_is_the_same_if_it_is_kept_or_given_again() {
        let with = |url: Secret| AmqpSettings {
            url,
            ..AmqpSettings::default()
        };
        let before = with("amqp://u:p@a".into());
        for (url, is_same) in [
            (Secret::Apart, true),
            ("amqp://u:p@a".into(), true),
            ("amqp://u:p@evil".into(), false),
        ] {
            let compared = with(url).compare_address(&before);
            assert_eq!(compared, [("url", is_same), ("ca", true)]);
        }
    }

    /// `hapax-server` refuses these settings in declarations at run time, and tests that by their
    /// schema.
    #[test]
    fn every_setting_that_is_a_path_has_this_format_in_the_schema() {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut paths = 0;
        for entry in fs::read_dir(sources).unwrap() {
            let settings = entry.unwrap().path().join("settings.rs");
            let text = fs::read_to_string(settings).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            for lines in lines.windows(2) {
                let (attribute, field) = (lines[0], lines[1]);
                if field.contains(": ") && field.contains("PathBuf") {
                    assert!(attribute.contains("format = \"path\""), "{field}");
                    paths += 1;
                }
            }
        }
        assert_eq!(paths, 12);
    }
}
