//! Check: whether the receivers of the destinations can be reached from this machine.
//!
//! A TCP connection is opened and closed, and one with TLS to a URL that begins with `https://`. No
//! event, password or greeting is sent.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures_util::future::join_all;
use hapax_sinks::webhook::handshake;
use tokio::{net::TcpStream, time::timeout};

use super::{Context, Finding};
use crate::{
    admin::{Watch, keys_of},
    destination::{Spec, build, sinks::Sink, warnings},
    environment,
};

const CHECK: &str = "destinations";
/// Time limit of a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

pub(super) async fn check(context: &Context) -> Vec<Finding> {
    let (destinations, unreadable) = destinations(context).await;
    let checks = destinations.iter();
    let checks = checks.map(|(name, spec)| check_destination(name, spec));
    let mut findings = join_all(checks).await.concat();
    // The configuration of a gateway needs none.
    if destinations.is_empty() && context.config.gateway.is_none() {
        let remedy = "add [destinations.NAME] to the configuration, or `hapax destinations create`";
        findings.push(Finding::note(CHECK, "there are no destinations", remedy));
    }
    findings.extend(unreadable);
    findings
}

/// The destinations of the configuration and of the database, and a finding if the latter cannot be
/// read.
async fn destinations(context: &Context) -> (BTreeMap<String, Spec>, Option<Finding>) {
    let configured = &context.config.destinations;
    // If the database or its tables are missing, no destinations are declared there. Another check
    // reports that.
    let Some(admin) = super::admin(context).await else {
        return (configured.clone(), None);
    };
    let unreadable = |problem| {
        let remedy = "run `hapax doctor` with the configuration of the relays, including the key in [secrets]";
        Some(Finding::warning(
            CHECK,
            format!("destinations that are declared in the database cannot be read: {problem}"),
            remedy,
        ))
    };
    let keys = match keys_of(&context.config) {
        Ok(keys) => keys,
        Err(error) => return (configured.clone(), unreadable(error.to_string())),
    };
    let mut watch = Watch::new(admin, keys, context.config.relay.reach());
    let read = watch.look().await;
    let problem = read
        .err()
        .and_then(|error| unreadable(environment::error_chain(&error)));
    (watch.over(configured), problem)
}

async fn check_destination(name: &str, spec: &Spec) -> Vec<Finding> {
    let warnings = warnings(spec).into_iter().map(|it| {
        let found = format!("{name}: {} {}", it.field, it.problem);
        Finding::warning(CHECK, found, it.remedy)
    });
    let mut findings: Vec<Finding> = warnings.collect();
    findings.push(check_connections(name, spec).await);
    findings
}

async fn check_connections(name: &str, spec: &Spec) -> Finding {
    let kind = spec.sink.kind();
    if let Err(error) = build::sink(spec, &environment::clock()) {
        let found = format!("{name}: {error}");
        return Finding::error(CHECK, found, format!("correct [destinations.{name}]"));
    }
    if let Some(blocked) = build::blocked(spec, &environment::clock()) {
        let found = format!("{name}: nothing will be sent: {blocked}");
        let remedy = format!("if intended, add the network to allow in [destinations.{name}]");
        return Finding::error(CHECK, found, remedy);
    }
    if spec.paused {
        return Finding::note(CHECK, format!("{name} ({kind}) is paused"), "");
    }
    let addresses = addresses(&spec.sink);
    let mut reached = Vec::new();
    for (host, port) in &addresses {
        match timeout(CONNECT_MAX, TcpStream::connect((host.as_str(), *port))).await {
            Ok(Ok(_)) => reached.push(format!("{host}:{port}")),
            failed => {
                let why = failed.map_or("no response".to_owned(), |failed| {
                    failed.map_or_else(|error| error.to_string(), |_| String::new())
                });
                let found = format!("{name} ({kind}): {host}:{port} cannot be reached: {why}");
                let remedy = "check the address, and the route from this machine; events wait \
                              until it can be reached";
                return Finding::warning(CHECK, found, remedy);
            }
        }
    }
    if let Some(why) = without_tls(&spec.sink).await {
        let remedy = "check the URL, and ca if the certificate is from a private authority; \
                      events wait until TLS works";
        return Finding::warning(CHECK, format!("{name} ({kind}): {why}"), remedy);
    }
    let reached = if reached.is_empty() {
        "it can be used".to_owned()
    } else {
        format!("{} can be reached", reached.join(", "))
    };
    Finding::ok(CHECK, format!("{name} ({kind}): {reached}"))
}

/// Why a connection with TLS cannot be opened, if a URL of the sink needs one.
async fn without_tls(sink: &Sink) -> Option<String> {
    let ca = sink.ca().map(PathBuf::as_path);
    for url in https_urls(sink) {
        if let Err(error) = handshake(&url, sink.allow(), ca, CONNECT_MAX).await {
            let (host, port) = of_url(&url, 443).into_iter().next()?;
            let why = environment::error_chain(&*error);
            return Some(format!("no TLS connection to {host}:{port}: {why}"));
        }
    }
    None
}

/// The addresses that a sink connects to, as far as its settings contain them.
fn addresses(sink: &Sink) -> Vec<(String, u16)> {
    let (urls, default) = sink.urls();
    let mut addresses = of_url(&urls, default);
    if let Some((url, default)) = sink.token_url() {
        addresses.extend(of_url(url, default));
    }
    addresses
}

/// The URLs of a sink to which a connection with TLS can be opened without a request.
fn https_urls(sink: &Sink) -> Vec<String> {
    // A server that asks for the certificate of the client may refuse the connection without it.
    if matches!(sink, Sink::Webhook(webhook) if webhook.client_certificate.is_some()) {
        return Vec::new();
    }
    let (url, _) = sink.urls();
    let token_url = sink.token_url().map(|(url, _)| url.to_owned());
    let urls = [url].into_iter().chain(token_url);
    urls.filter(|url| url.starts_with("https://")).collect()
}

/// The hosts and ports of one or more URLs, separated by commas. Users and passwords are removed
/// first, because they may contain commas.
fn of_url(urls: &str, default: u16) -> Vec<(String, u16)> {
    // NATS uses a list of URLs, PostgreSQL a URL with a list of hosts.
    let urls: Vec<&str> = if urls.matches("://").count() > 1 {
        urls.split(',').collect()
    } else {
        vec![urls]
    };
    let authority = |url: &'_ str| {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let whole = rest.split(['/', '?']).next().unwrap_or_default();
        let hosts = whole.rsplit_once('@').map_or(whole, |(_, hosts)| hosts);
        hosts.to_owned()
    };
    let hosts = urls.into_iter().map(authority);
    let hosts: Vec<String> = hosts.collect();
    let hosts = hosts.iter().flat_map(|hosts| hosts.split(','));
    hosts
        .filter_map(|host| address(host.trim(), default))
        .collect()
}

/// The host and the port of `host:port`.
fn address(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (text, default),
    };
    let host = host.trim_matches(['[', ']']);
    (!host.is_empty() && !host.contains('%')).then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_address_of_a_url_is_its_host_and_port() {
        check("https://example.com/hooks?a=b", &[("example.com", 1)]);
        check("nats://user:pa@ss@127.0.0.1:4222", &[("127.0.0.1", 4222)]);
        check("redis://[::1]:6379/0", &[("::1", 6379)]);
        check("redis://[::1]/0", &[("::1", 1)]);
        check("broker-1:9093", &[("broker-1", 9093)]);
        check("postgres://%2Frun%2Fpostgresql/db", &[]);
        check("", &[]);
    }

    #[test]
    fn a_password_with_a_comma_is_no_host() {
        let two = [("one", 5432), ("two", 1)];
        check("postgres://u:hunter,2@one:5432,two/db", &two);
        check("tls://u:p@one:5432, tls://two", &two);
        check("amqp://u:hunter,2:3@one", &[("one", 1)]);
    }

    #[test]
    fn a_url_without_a_port_has_that_of_its_scheme() {
        let of = |kind: &str, url: &str| {
            let json = json!({kind: {"url": url, "from": "", "recipient": "", "templates": "",
                "mails": {}}});
            let amqp = json!({kind: {"url": url}});
            let json = if kind == "smtp" { json } else { amqp };
            let sink: Sink = serde_json::from_value(json).unwrap();
            addresses(&sink)[0].1
        };
        assert_eq!(of("smtp", "smtps://h"), 465);
        assert_eq!(of("smtp", "smtp://h"), 587);
        assert_eq!(of("smtp", "smtp://h:25"), 25);
        assert_eq!(of("amqp", "amqps://h"), 5671);
        assert_eq!(of("amqp", "amqp://h"), 5672);
    }

    #[test]
    fn the_token_endpoint_of_a_webhook_is_an_address_too() {
        let json = json!({"webhook": {"url": "https://h", "secret": "a", "oauth": {
            "token_url": "http://t", "client_id": "a", "client_secret": "a"}}});
        let sink: Sink = serde_json::from_value(json).unwrap();
        let expected = [("h".to_owned(), 443), ("t".to_owned(), 80)];
        assert_eq!(addresses(&sink), expected);
    }

    #[test]
    fn an_object_store_a_queue_and_a_topic_have_the_address_of_their_url() {
        let key = |mut json: serde_json::Value, kind: &str| {
            json[kind]["region"] = json!("auto");
            json[kind]["access_key_id"] = json!("key");
            json[kind]["secret_access_key"] = json!("secret");
            let sink: Sink = serde_json::from_value(json).unwrap();
            addresses(&sink)
        };
        let s3 = json!({"s3": {"endpoint": "http://minio:9000", "bucket": "logs"}});
        assert_eq!(key(s3, "s3"), [("minio".to_owned(), 9000)]);
        let sqs = json!({"sqs": {"queue_url": "https://sqs.example.com/1/events"}});
        assert_eq!(key(sqs, "sqs"), [("sqs.example.com".to_owned(), 443)]);
        let sns = json!({"sns": {"topic_arn": "arn:aws:sns:eu-central-1:123456789012:events",
            "access_key_id": "key", "secret_access_key": "secret"}});
        let of = |json| {
            let sink: Sink = serde_json::from_value(json).unwrap();
            addresses(&sink)
        };
        let amazon = "sns.eu-central-1.amazonaws.com".to_owned();
        assert_eq!(of(sns.clone()), [(amazon, 443)]);
        let mut other = sns;
        other["sns"]["endpoint"] = json!("http://localstack:4566");
        assert_eq!(of(other), [("localstack".to_owned(), 4566)]);
        let pubsub = json!({"pubsub": {"topic": "projects/shop/topics/events"}});
        let google = "pubsub.googleapis.com".to_owned();
        assert_eq!(of(pubsub), [(google, 443)]);
    }

    #[track_caller]
    fn check(url: &str, addresses: &[(&str, u16)]) {
        let found = of_url(url, 1);
        let found: Vec<_> = found.iter().map(|(host, port)| (&**host, *port)).collect();
        assert_eq!(found, addresses);
    }
}
