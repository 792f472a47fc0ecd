//! The sink of a declaration: its kind with the settings of `hapax_sinks`.
//!
//! No connection is opened here. A kind that this build does not include is parsed, and refused by
//! name when the sink is built.

use std::path::PathBuf;

use hapax_sinks::settings::{
    Address as _, AmqpSettings, FileSettings, KafkaSettings, NatsSettings, PostgresSettings,
    PubsubSettings, RedisSettings, S3Settings, SmtpSettings, SnsSettings, SqsSettings,
    WebhookSettings,
};
use ipnet::IpNet;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Secret;

/// The sink of a destination: one kind with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sink {
    /// An HTTP endpoint that receives Standard Webhooks.
    Webhook(Box<WebhookSettings>),
    /// A mail server.
    Smtp(SmtpSettings),
    /// NATS JetStream.
    Nats(NatsSettings),
    /// A RabbitMQ exchange.
    Amqp(AmqpSettings),
    /// A Kafka topic.
    Kafka(KafkaSettings),
    /// A Redis stream.
    Redis(RedisSettings),
    /// The inbox and a table of another PostgreSQL database.
    Postgres(PostgresSettings),
    /// Objects of JSON Lines in S3 or a service with the same API.
    S3(Box<S3Settings>),
    /// A queue of Amazon SQS.
    Sqs(Box<SqsSettings>),
    /// A topic of Amazon SNS.
    Sns(Box<SnsSettings>),
    /// A topic of Google Cloud Pub/Sub.
    Pubsub(Box<PubsubSettings>),
    /// The endpoints of tenants.
    Endpoints(EndpointsSettings),
    /// JSON Lines in a file on the relay's machine, or on its standard output.
    File(FileSettings),
}

/// The settings of endpoints are in the section `[endpoints]`, and in the rows of the endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointsSettings {}

impl Sink {
    /// The kinds that may be declared at run time. The other kinds use files of the relay.
    pub(crate) const KINDS_AT_RUN_TIME: [&'static str; 10] = [
        "webhook", "nats", "amqp", "kafka", "redis", "postgres", "s3", "sqs", "sns", "pubsub",
    ];

    /// The kind, which is also the name of the feature.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Smtp(_) => "smtp",
            Self::Nats(_) => "nats",
            Self::Amqp(_) => "amqp",
            Self::Kafka(_) => "kafka",
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
            Self::S3(_) => "s3",
            Self::Sqs(_) => "sqs",
            Self::Sns(_) => "sns",
            Self::Pubsub(_) => "pubsub",
            Self::Endpoints(_) => "endpoints",
            Self::File(_) => "file",
        }
    }

    /// The URLs of the receiver, separated by commas, and the port of a URL without a port. A
    /// secret that cannot be read is omitted.
    pub(crate) fn urls(&self) -> (String, u16) {
        let (secret, tls, port, tls_port) = match self {
            Self::Webhook(it) => return (it.url.clone(), http_port(&it.url)),
            Self::Kafka(it) => return (it.brokers.join(","), 9092),
            Self::S3(it) => return (it.endpoint.clone(), http_port(&it.endpoint)),
            Self::Sqs(it) => return (it.queue_url.clone(), http_port(&it.queue_url)),
            Self::Sns(it) => return (it.url(), http_port(&it.url())),
            Self::Pubsub(it) => return (it.url().to_owned(), http_port(it.url())),
            Self::Endpoints(_) | Self::File(_) => return (String::new(), 0),
            Self::Smtp(it) => (&it.url, "smtps", 587, 465),
            Self::Nats(it) => (&it.url, "tls", 4222, 4222),
            Self::Amqp(it) => (&it.url, "amqps", 5672, 5671),
            Self::Redis(it) => (&it.url, "rediss", 6379, 6379),
            Self::Postgres(it) => (&it.url, "postgres", 5432, 5432),
        };
        let url = secret.reveal().unwrap_or_default();
        let url = url.expose_secret().to_owned();
        let port = if url.starts_with(tls) { tls_port } else { port };
        (url, port)
    }

    /// The URL of the token endpoint, and the port of a URL without a port.
    pub(crate) fn token_url(&self) -> Option<(&str, u16)> {
        let Self::Webhook(webhook) = self else {
            return None;
        };
        let url = webhook.oauth.as_ref()?.token_url.as_str();
        Some((url, http_port(url)))
    }

    /// The file of trusted certificates.
    pub(crate) fn ca(&self) -> Option<&PathBuf> {
        match self {
            Self::Webhook(it) => it.ca.as_ref(),
            Self::Smtp(it) => it.ca.as_ref(),
            Self::Nats(it) => it.ca.as_ref(),
            Self::Amqp(it) => it.ca.as_ref(),
            Self::Redis(it) => it.ca.as_ref(),
            Self::Postgres(it) => it.ca.as_ref(),
            Self::S3(it) => it.ca.as_ref(),
            Self::Sqs(it) => it.ca.as_ref(),
            Self::Sns(it) => it.ca.as_ref(),
            Self::Pubsub(it) => it.ca.as_ref(),
            Self::Kafka(_) | Self::Endpoints(_) | Self::File(_) => None,
        }
    }

    /// The networks outside the public internet that a sink with a guard may connect to.
    pub(crate) fn allow(&self) -> &[IpNet] {
        match self {
            Self::Webhook(it) => &it.allow,
            Self::S3(it) => &it.allow,
            Self::Sqs(it) => &it.allow,
            Self::Sns(it) => &it.allow,
            Self::Pubsub(it) => &it.allow,
            _ => &[],
        }
    }

    /// The setting whose URL is shown, its text, and the settings to use instead of a user and a
    /// password in it.
    pub(crate) fn shown_url(&self) -> Option<(&'static str, &str, &'static str)> {
        const KEY: &str = "access_key_id and secret_access_key";
        match self {
            Self::Webhook(it) => Some(("url", it.url.as_str(), "basic")),
            Self::S3(it) => Some(("endpoint", it.endpoint.as_str(), KEY)),
            Self::Sqs(it) => Some(("queue_url", it.queue_url.as_str(), KEY)),
            Self::Sns(it) => Some(("endpoint", it.endpoint.as_deref()?, KEY)),
            Self::Pubsub(it) => Some(("endpoint", it.endpoint.as_deref()?, "service_account")),
            _ => None,
        }
    }

    /// All secrets by the name of their setting.
    pub(crate) fn secrets_mut(&mut self) -> Vec<(String, &mut Secret)> {
        let named = |name: &str, secret| (name.to_owned(), secret);
        let mut all = Vec::new();
        match self {
            Self::Webhook(it) => all.extend(of_webhook(it)),
            Self::Nats(it) => {
                all.push(named("url", &mut it.url));
                all.extend(it.password.iter_mut().map(|it| named("password", it)));
                all.extend(it.token.iter_mut().map(|it| named("token", it)));
            }
            Self::Kafka(it) => {
                let properties = it.properties.iter_mut();
                all.extend(properties.map(|(name, it)| (format!("properties.{name}"), it)));
            }
            Self::S3(it) => {
                all.extend(of_amazon(&mut it.secret_access_key, &mut it.session_token));
            }
            Self::Sqs(it) => {
                all.extend(of_amazon(&mut it.secret_access_key, &mut it.session_token));
            }
            Self::Sns(it) => {
                all.extend(of_amazon(&mut it.secret_access_key, &mut it.session_token));
            }
            Self::Pubsub(it) => {
                let account = it.service_account.iter_mut();
                all.extend(account.map(|it| named("service_account", it)));
            }
            Self::Smtp(it) => all.push(named("url", &mut it.url)),
            Self::Amqp(it) => all.push(named("url", &mut it.url)),
            Self::Redis(it) => all.push(named("url", &mut it.url)),
            Self::Postgres(it) => all.push(named("url", &mut it.url)),
            Self::Endpoints(_) | Self::File(_) => {}
        }
        all
    }

    /// The first setting that decides where secrets are sent and differs from `before`; `None` if
    /// they go to the same receiver. The secrets of `before` must have been put back, because URLs
    /// are among them.
    pub(crate) fn changed_address(&self, before: &Self) -> Option<String> {
        let compared = match (self, before) {
            (Self::Webhook(now), Self::Webhook(before)) => now.compare_address(before),
            (Self::Smtp(now), Self::Smtp(before)) => now.compare_address(before),
            (Self::Nats(now), Self::Nats(before)) => now.compare_address(before),
            (Self::Amqp(now), Self::Amqp(before)) => now.compare_address(before),
            (Self::Kafka(now), Self::Kafka(before)) => now.compare_address(before),
            (Self::Redis(now), Self::Redis(before)) => now.compare_address(before),
            (Self::Postgres(now), Self::Postgres(before)) => now.compare_address(before),
            (Self::S3(now), Self::S3(before)) => now.compare_address(before),
            (Self::Sqs(now), Self::Sqs(before)) => now.compare_address(before),
            (Self::Sns(now), Self::Sns(before)) => now.compare_address(before),
            (Self::Pubsub(now), Self::Pubsub(before)) => now.compare_address(before),
            // A sink of another kind has none of the secrets of before, and two kinds have no
            // secrets at all. The kinds are listed, so that a new one does not compile without one
            // of these lines.
            (
                Self::Webhook(_)
                | Self::Smtp(_)
                | Self::Nats(_)
                | Self::Amqp(_)
                | Self::Kafka(_)
                | Self::Redis(_)
                | Self::Postgres(_)
                | Self::S3(_)
                | Self::Sqs(_)
                | Self::Sns(_)
                | Self::Pubsub(_)
                | Self::Endpoints(_)
                | Self::File(_),
                _,
            ) => Vec::new(),
        };
        let kind = self.kind();
        let changed = compared.into_iter().find(|(_, is_same)| !is_same);
        changed.map(|(setting, _)| format!("sink.{kind}.{setting}"))
    }
}

fn http_port(url: &str) -> u16 {
    if url.starts_with("https") { 443 } else { 80 }
}

/// The secrets of S3, SQS and SNS by the name of their setting.
fn of_amazon<'a>(
    key: &'a mut Secret,
    token: &'a mut Option<Secret>,
) -> impl Iterator<Item = (String, &'a mut Secret)> {
    let named = |name: &str, secret| (name.to_owned(), secret);
    let token = token.iter_mut().map(move |it| named("session_token", it));
    std::iter::once(named("secret_access_key", key)).chain(token)
}

/// The secrets of a webhook by the name of their setting.
fn of_webhook(settings: &mut WebhookSettings) -> Vec<(String, &mut Secret)> {
    let named = |name: &str, secret| (name.to_owned(), secret);
    let mut all = vec![named("secret", &mut settings.secret)];
    let previous = settings.previous_secret.iter_mut();
    all.extend(previous.map(|it| named("previous_secret", it)));
    let headers = settings.headers.iter_mut();
    all.extend(headers.map(|(name, it)| (format!("headers.{name}"), it)));
    let basic = settings.basic.iter_mut();
    all.extend(basic.map(|it| named("basic.password", &mut it.password)));
    let oauth = settings.oauth.iter_mut();
    all.extend(oauth.map(|it| named("oauth.client_secret", &mut it.client_secret)));
    if let Some(it) = &mut settings.client_certificate {
        all.push(named("client_certificate.certificate", &mut it.certificate));
        all.push(named("client_certificate.key", &mut it.key));
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::destination::Spec;

    #[test]
    fn what_does_not_decide_where_secrets_go_can_be_changed() {
        for (kind, setting, value) in [
            ("webhook", "mapping", json!({"text": "$.type"})),
            ("webhook", "previous_secret", json!("whsec_b")),
            ("webhook", "headers", json!({"a": "***", "b": "c"})),
            ("webhook", "basic", Value::Null),
            ("webhook", "oauth", Value::Null),
            ("smtp", "recipient", json!("c@b.c")),
            ("nats", "subject", json!("s")),
            ("nats", "url", json!("***")),
            ("amqp", "exchange", json!("e")),
            ("kafka", "format", json!("structured")),
            ("kafka", "properties", json!({"sasl.password": "***"})),
            ("redis", "length_max", json!(7)),
            ("postgres", "table", json!("u")),
            ("s3", "prefix", json!("p")),
            ("sqs", "format", json!("raw")),
            ("sns", "format", json!("raw")),
            ("pubsub", "ordering", json!(true)),
            ("pubsub", "format", json!("structured")),
        ] {
            assert_eq!(changed(kind, setting, value), None, "{kind} {setting}");
        }
    }

    #[test]
    fn what_decides_where_secrets_go_is_named() {
        let added = json!({"sasl.password": "***", "ssl.ca.location": "/tmp"});
        for (kind, setting, value) in [
            ("webhook", "url", json!("https://evil.example/")),
            ("webhook", "allow", json!(["10.0.0.0/8"])),
            ("webhook", "ca", json!("/tmp/ca.pem")),
            ("smtp", "url", json!("smtp://evil")),
            ("nats", "url", json!("nats://evil")),
            ("nats", "user", json!("v")),
            ("amqp", "ca", json!("/tmp/ca.pem")),
            ("kafka", "brokers", json!(["evil:9092"])),
            ("kafka", "properties", added),
            ("kafka", "properties", json!({"sasl.password": "b"})),
            ("redis", "url", json!("redis://evil")),
            ("postgres", "url", json!("postgres://u@evil/d")),
            ("s3", "endpoint", json!("https://evil.example")),
            ("s3", "region", json!("b")),
            ("s3", "bucket", json!("evil")),
            ("s3", "path_style", json!(true)),
            ("sqs", "queue_url", json!("https://evil.example/1/a")),
            ("sqs", "access_key_id", json!("b")),
            ("sns", "topic_arn", json!("arn:aws:sns:us-east-1:1:t")),
            ("sns", "endpoint", json!("https://evil.example")),
            ("pubsub", "topic", json!("projects/b/topics/t")),
            ("pubsub", "endpoint", json!("https://evil.example")),
        ] {
            let path = format!("sink.{kind}.{setting}");
            assert_eq!(changed(kind, setting, value), Some(path));
        }
    }

    #[test]
    fn the_user_of_a_password_and_the_server_of_a_token_are_named() {
        let basic = json!({"user": "v", "password": "***"});
        let path = Some("sink.webhook.basic.user".to_owned());
        assert_eq!(changed("webhook", "basic", basic), path);
        let oauth = |token_url: &str, client_id: &str| {
            let oauth = json!({"token_url": token_url, "client_id": client_id,
                "client_secret": "***", "scope": "all"});
            changed("webhook", "oauth", oauth)
        };
        assert_eq!(oauth("https://a.example/token", "c"), None);
        let path = Some("sink.webhook.oauth.token_url".to_owned());
        assert_eq!(oauth("https://evil.example/", "c"), path);
        let path = Some("sink.webhook.oauth.client_id".to_owned());
        assert_eq!(oauth("https://a.example/token", "d"), path);
    }

    /// The setting that is named if one setting of a sink is changed and its secrets are kept.
    #[track_caller]
    fn changed(kind: &str, setting: &str, value: Value) -> Option<String> {
        let before = Spec::read(&json!({"sink": {kind: settings(kind)}})).unwrap();
        let mut kept = before.clone();
        kept.take_secrets().unwrap();
        let mut json = kept.to_json();
        let settings = json["sink"][kind].as_object_mut().unwrap();
        if value.is_null() {
            settings.remove(setting).unwrap();
        } else {
            settings.insert(setting.to_owned(), value);
        }
        let after = Spec::read(&json).unwrap();
        after.sink.changed_address(&before.sink)
    }

    fn settings(kind: &str) -> Value {
        match kind {
            "webhook" => json!({
                "url": "https://a.example/",
                "secret": "whsec_a",
                "headers": {"a": "b"},
                "basic": {"user": "u", "password": "p"},
                "oauth": {"token_url": "https://a.example/token", "client_id": "c",
                    "client_secret": "s"},
            }),
            "smtp" => json!({"url": "smtp://u:p@a", "from": "a@b.c", "recipient": "a@b.c",
                "templates": "/tmp", "mails": {}}),
            "nats" => json!({"url": "nats://a", "user": "u", "password": "p"}),
            "amqp" => json!({"url": "amqp://u:p@a"}),
            "kafka" => json!({"brokers": ["a:9092"], "topic": "t",
                "properties": {"sasl.password": "a"}}),
            "redis" => json!({"url": "redis://u:p@a"}),
            "postgres" => json!({"url": "postgres://u:p@a/d", "consumer": "c", "table": "t"}),
            "s3" => json!({"endpoint": "https://a.example", "region": "a", "bucket": "b",
                "access_key_id": "a", "secret_access_key": "s"}),
            "sqs" => json!({"queue_url": "https://a.example/1/a", "region": "a",
                "access_key_id": "a", "secret_access_key": "s"}),
            "sns" => json!({"topic_arn": "arn:aws:sns:eu-central-1:1:t", "access_key_id": "a",
                "secret_access_key": "s"}),
            "pubsub" => json!({"topic": "projects/a/topics/t", "service_account": "s"}),
            _ => panic!("{kind}: add its settings"),
        }
    }
}
