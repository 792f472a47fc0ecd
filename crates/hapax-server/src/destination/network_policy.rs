//! Network policy: limits for operators who declare destinations at run time and have no access to
//! the relay's machine.
//!
//! Such destinations cannot use files or sockets of that machine. They can be webhooks, and those
//! other kinds that the configuration of the relay allows. Webhooks, S3, SQS, SNS
//! and Pub/Sub are guarded.

use ipnet::IpNet;
use secrecy::ExposeSecret as _;

use super::{
    sinks::Sink,
    spec::{Spec, SpecError},
};
use crate::config::Secret;

/// The limits for destinations declared at run time.
#[derive(Clone, Debug, Default)]
pub(crate) struct NetworkPolicy {
    /// Networks that the guard blocks by default and that `[relay] allow` permits.
    pub(crate) allow: Vec<IpNet>,
    /// The kinds of sinks that `[relay] kinds_at_run_time` permits. Webhooks, S3, SQS, SNS
    /// and Pub/Sub have a guard.
    pub(crate) kinds: Vec<String>,
}

impl Spec {
    /// Refuses what operators without access to the relay's machine may not declare.
    pub(super) fn check_network_policy(&self, reach: &NetworkPolicy) -> Result<(), SpecError> {
        let kind = self.sink.kind();
        let field = |setting: &str| format!("sink.{kind}.{setting}");
        let only_here = "is allowed in the configuration file only: it names a file of the relay";
        for (setting, secret) in self.sink.clone().secrets_mut() {
            if matches!(secret, Secret::File(_)) {
                return Err(SpecError::new(field(&setting), only_here));
            }
        }
        if self.sink.ca().is_some() {
            return Err(SpecError::new(field("ca"), only_here));
        }
        // These two kinds always use files of the relay.
        match &self.sink {
            Sink::File(_) => return Err(SpecError::new(field("path"), only_here)),
            Sink::Smtp(_) => return Err(SpecError::new(field("templates"), only_here)),
            _ => {}
        }
        if !reach.kinds.iter().any(|it| it == kind) {
            let problem = "is not in [relay] kinds_at_run_time: it is allowed in the configuration file \
                           only";
            return Err(SpecError::new(format!("sink.{kind}"), problem));
        }
        let no_socket = "is not a network address: sockets of the relay's machine are allowed in the \
                         configuration file only";
        match &self.sink {
            Sink::Redis(redis) if is_redis_socket(&redis.url) => {
                Err(SpecError::new(field("url"), no_socket))
            }
            Sink::Postgres(postgres) if is_postgres_socket(&postgres.url) => {
                Err(SpecError::new(field("url"), no_socket))
            }
            Sink::Kafka(kafka) if !kafka.properties.is_empty() => {
                let problem =
                    "are allowed in the configuration file only: some name files of the relay";
                Err(SpecError::new(field("properties"), problem))
            }
            sink => {
                let is_open = |net: &&IpNet| reach.allow.iter().any(|open| open.contains(*net));
                match sink.allow().iter().find(|net| !is_open(net)) {
                    None => Ok(()),
                    Some(net) => {
                        let problem =
                            format!("contains {net}, which [relay] allow does not permit");
                        Err(SpecError::new(field("allow"), problem))
                    }
                }
            }
        }
    }
}

/// Whether the URL of a Redis server uses anything but TCP. A secret that is stored separately is
/// not checked.
fn is_redis_socket(url: &Secret) -> bool {
    let url = url.reveal();
    url.is_ok_and(|url| {
        let url = url.expose_secret();
        !["redis://", "rediss://"]
            .iter()
            .any(|it| url.starts_with(it))
    })
}

/// Whether the URL of a PostgreSQL server uses a Unix socket, or cannot be parsed. A secret that is
/// stored separately is not checked.
fn is_postgres_socket(url: &Secret) -> bool {
    use hapax_postgres::tokio_postgres::{Config, config::Host};

    let Ok(url) = url.reveal() else { return false };
    // The sink accepts two more values than the driver.
    let url = url
        .expose_secret()
        .replace("sslmode=verify-full", "sslmode=require");
    let url = url.replace("sslmode=verify-ca", "sslmode=require");
    let is_tcp = |host: &Host| matches!(host, Host::Tcp(name) if !name.starts_with(['/', '@']));
    !url.parse::<Config>()
        .is_ok_and(|config| config.get_hosts().iter().all(is_tcp))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Value, json};
    use utoipa::{PartialSchema as _, ToSchema as _};

    use super::*;
    use crate::destination::Written;

    const FILE: &str = "/etc/passwd";
    const ALL: [&str; 12] = [
        "webhook", "smtp", "nats", "amqp", "kafka", "redis", "postgres", "s3", "sqs", "sns",
        "pubsub", "file",
    ];

    #[test]
    fn no_setting_that_names_a_file_is_accepted_at_run_time() {
        let mut schemas = Vec::new();
        Sink::schemas(&mut schemas);
        let schemas: Schemas = schemas
            .into_iter()
            .map(|(name, schema)| (name, serde_json::to_value(schema).unwrap()))
            .collect();
        let sink = serde_json::to_value(Sink::schema()).unwrap();
        let mut refused = BTreeSet::new();
        for kind in sink["oneOf"].as_array().unwrap() {
            let kinds = kind["properties"].as_object().unwrap();
            let (kind, settings) = kinds.iter().next().unwrap();
            let settings = &resolved(settings, &schemas)["properties"];
            for (setting, schema) in settings.as_object().into_iter().flatten() {
                for (value, within) in files(schema, &schemas) {
                    let mut declared = required(kind);
                    declared[setting] = value;
                    let spec = Spec::read(&json!({"sink": {kind: declared}})).unwrap();
                    spec.check("a", Written::InConfiguration).unwrap();
                    let error = spec.check("a", Written::AtRunTime(&reach(&ALL)));
                    let error = error.unwrap_err();
                    let path = format!("sink.{kind}.{setting}{within}");
                    assert_eq!(error.field, path, "{error}");
                    assert!(error.problem.contains("a file of the relay"), "{error}");
                    refused.insert(path);
                }
            }
        }
        for path in [
            "sink.file.path",
            "sink.smtp.templates",
            "sink.redis.ca",
            "sink.nats.token",
            "sink.webhook.headers.a",
            "sink.webhook.basic.password",
            "sink.webhook.oauth.client_secret",
            "sink.webhook.client_certificate.certificate",
            "sink.webhook.client_certificate.key",
            "sink.s3.secret_access_key",
            "sink.s3.ca",
            "sink.sqs.session_token",
            "sink.sns.secret_access_key",
            "sink.sns.ca",
            "sink.pubsub.service_account",
            "sink.pubsub.ca",
        ] {
            assert!(refused.contains(path), "{path} is not in {refused:?}");
        }
        assert_eq!(refused.len(), 34, "{refused:?}");
    }

    type Schemas = BTreeMap<String, Value>;

    /// The values of a setting that name a file, each with the path of the file's name in it; none if
    /// the setting cannot name one.
    fn files(schema: &Value, schemas: &Schemas) -> Vec<(Value, String)> {
        let schema = resolved(schema, schemas);
        let of_members = &schema["additionalProperties"];
        if of_members.is_object() {
            let of_members = files(of_members, schemas).into_iter();
            return of_members
                .map(|(value, within)| (json!({ "a": value }), format!(".a{within}")))
                .collect();
        }
        if let Some(alternatives) = schema["oneOf"].as_array() {
            let mut found = alternatives.iter().map(|it| files(it, schemas));
            return found.find(|it| !it.is_empty()).unwrap_or_default();
        }
        if let Some(properties) = schema["properties"].as_object() {
            let of_property = |(name, of_property): (&String, &Value)| {
                let found = files(of_property, schemas).into_iter();
                let whole = |(value, within): (Value, String)| {
                    let mut whole = needed(schema);
                    whole[name] = value;
                    (whole, format!(".{name}{within}"))
                };
                found.map(whole).collect::<Vec<_>>()
            };
            return properties.iter().flat_map(of_property).collect();
        }
        match schema["format"].as_str() {
            Some("path") => vec![(json!(FILE), String::new())],
            // A secret may be in a file.
            Some("password") => vec![(json!({ "file": FILE }), String::new())],
            _ => Vec::new(),
        }
    }

    /// The required members of an object within a setting, which are texts.
    fn needed(schema: &Value) -> Value {
        let names = schema["required"].as_array().into_iter().flatten();
        let members = names.map(|name| (name.as_str().unwrap().to_owned(), json!("a")));
        Value::Object(members.collect())
    }

    fn resolved<'a>(schema: &'a Value, schemas: &'a Schemas) -> &'a Value {
        match schema["$ref"].as_str() {
            Some(reference) => &schemas[reference.rsplit('/').next().unwrap()],
            None => schema,
        }
    }

    /// The required settings of a kind.
    fn required(kind: &str) -> Value {
        match kind {
            "webhook" => webhook()["sink"]["webhook"].clone(),
            "smtp" => json!({"url": "smtp://h", "from": "a@b.c", "recipient": "a@b.c",
                "templates": FILE, "mails": {}}),
            "nats" => json!({"url": "nats://h"}),
            "amqp" => json!({"url": "amqp://h"}),
            "kafka" => json!({"brokers": ["h:9092"], "topic": "t"}),
            "redis" => json!({"url": "redis://h"}),
            "postgres" => json!({"url": "postgres://u@h/d", "consumer": "c", "table": "t"}),
            "s3" => s3()["sink"]["s3"].clone(),
            "sqs" => sqs()["sink"]["sqs"].clone(),
            "sns" => sns()["sink"]["sns"].clone(),
            "pubsub" => pubsub()["sink"]["pubsub"].clone(),
            "endpoints" => json!({}),
            "file" => json!({"path": FILE}),
            _ => panic!("{kind}: add its required settings"),
        }
    }

    #[test]
    fn an_operator_is_kept_from_the_files_and_networks_of_the_relay() {
        let webhook = |more: Value| {
            let mut json = webhook();
            let Value::Object(more) = more else {
                unreachable!()
            };
            for (name, value) in more {
                json["sink"]["webhook"][name] = value;
            }
            json
        };
        let file = json!({"sink": {"file": {"path": "/etc/passwd"}}});
        for (json, field) in [
            (file, "sink.file.path"),
            (
                webhook(json!({"secret": {"file": "/etc/passwd"}})),
                "sink.webhook.secret",
            ),
            (
                webhook(json!({"allow": ["10.0.0.0/8"]})),
                "sink.webhook.allow",
            ),
            (
                webhook(json!({"allow": ["0.0.0.0/0"]})),
                "sink.webhook.allow",
            ),
            (webhook(json!({"ca": "/etc/passwd"})), "sink.webhook.ca"),
        ] {
            let spec = Spec::read(&json).unwrap();
            spec.check("a", Written::InConfiguration).unwrap();
            let error = spec
                .check("a", Written::AtRunTime(&reach(&["webhook", "file"])))
                .unwrap_err();
            assert_eq!(error.field, field);
        }
        for (kind, mut json) in [
            ("s3", s3()),
            ("sqs", sqs()),
            ("sns", sns()),
            ("pubsub", pubsub()),
        ] {
            let reach = reach(&[kind]);
            json["sink"][kind]["allow"] = json!(["127.0.0.1/32"]);
            let open = Spec::read(&json).unwrap();
            open.check("a", Written::AtRunTime(&reach)).unwrap();
            json["sink"][kind]["allow"] = json!(["10.0.0.0/8"]);
            let closed = Spec::read(&json).unwrap();
            let error = closed.check("a", Written::AtRunTime(&reach)).unwrap_err();
            assert_eq!(error.field, format!("sink.{kind}.allow"));
        }
        let open = Spec::read(&webhook(json!({"allow": ["127.0.0.1/32"]}))).unwrap();
        open.check("a", Written::AtRunTime(&reach(&["webhook"])))
            .unwrap();
    }

    #[test]
    fn another_kind_than_a_webhook_is_declared_at_run_time_only_where_the_setting_names_it() {
        let all = [
            "webhook", "nats", "amqp", "kafka", "redis", "postgres", "s3", "sqs", "sns", "pubsub",
            "smtp",
        ];
        for (kind, settings) in [
            ("nats", json!({"url": "nats://10.0.0.1"})),
            ("amqp", json!({"url": "amqp://10.0.0.1"})),
            ("kafka", json!({"brokers": ["10.0.0.1:9092"], "topic": "t"})),
            ("redis", json!({"url": "redis://10.0.0.1"})),
            (
                "postgres",
                json!({"url": "postgres://u@10.0.0.1/d", "consumer": "c", "table": "t"}),
            ),
            ("s3", required("s3")),
            ("sqs", required("sqs")),
            ("sns", required("sns")),
            ("pubsub", required("pubsub")),
        ] {
            let spec = Spec::read(&json!({"sink": {kind: settings}})).unwrap();
            spec.check("a", Written::InConfiguration).unwrap();
            let few = reach(&["webhook"]);
            let error = spec.check("a", Written::AtRunTime(&few)).unwrap_err();
            assert_eq!(error.field, format!("sink.{kind}"));
            assert!(error.problem.contains("kinds_at_run_time"), "{error}");
            spec.check("a", Written::AtRunTime(&reach(&all))).unwrap();
        }
        let mail = json!({"url": "smtp://h", "from": "a@b.c", "recipient": "a@b.c",
            "templates": "/etc", "mails": {}});
        let mail = Spec::read(&json!({"sink": {"smtp": mail}})).unwrap();
        let error = mail.check("a", Written::AtRunTime(&reach(&all)));
        assert_eq!(error.unwrap_err().field, "sink.smtp.templates");
    }

    #[test]
    fn no_socket_of_the_relays_machine_is_opened_at_run_time() {
        let redis = |url: &str| json!({"sink": {"redis": {"url": url}}});
        let postgres =
            |url: &str| json!({"sink": {"postgres": {"url": url, "consumer": "c", "table": "t"}}});
        for json in [
            redis("unix:///run/redis.sock"),
            redis("redis+unix:///run/redis.sock"),
            postgres("postgres://u@%2Frun%2Fpostgresql/d"),
            postgres("postgres://u@/d?host=/run/postgresql"),
            postgres("postgres://u@db,%2Frun%2Fpostgresql/d"),
            postgres("host=/run/postgresql user=u"),
            postgres("postgres://u@%2Frun%2Fpostgresql/d?sslmode=verify-full"),
        ] {
            let spec = Spec::read(&json).unwrap();
            spec.check("a", Written::InConfiguration).unwrap();
            let reach = reach(&["redis", "postgres"]);
            let error = spec.check("a", Written::AtRunTime(&reach)).unwrap_err();
            assert!(error.field.contains("url"), "{json}: {error}");
            assert!(!error.problem.contains("/run"), "{error}");
        }
    }

    fn reach(kinds: &[&str]) -> NetworkPolicy {
        NetworkPolicy {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            kinds: kinds.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    fn s3() -> Value {
        json!({"sink": {"s3": {
            "endpoint": "https://s3.example.com",
            "region": "auto",
            "bucket": "logs",
            "access_key_id": "key",
            "secret_access_key": "hunter2",
        }}})
    }

    fn sqs() -> Value {
        json!({"sink": {"sqs": {
            "queue_url": "https://sqs.example.com/1/events",
            "region": "auto",
            "access_key_id": "key",
            "secret_access_key": "hunter2",
        }}})
    }

    fn sns() -> Value {
        json!({"sink": {"sns": {
            "topic_arn": "arn:aws:sns:eu-central-1:123456789012:events",
            "access_key_id": "key",
            "secret_access_key": "hunter2",
        }}})
    }

    fn pubsub() -> Value {
        json!({"sink": {"pubsub": {
            "topic": "projects/shop/topics/events",
            "service_account": "hunter2",
        }}})
    }

    fn webhook() -> Value {
        json!({"sink": {"webhook": {
            "url": "https://example.com/hooks",
            "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }}})
    }
}
