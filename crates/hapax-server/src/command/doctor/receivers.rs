//! Check: whether the receivers of the destinations can be reached from this machine.
//!
//! A TCP connection is opened and closed. No event, password or greeting is sent.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use tokio::{net::TcpStream, time::timeout};

use super::{Context, Finding};
use crate::{
    admin::{Keys, Watch},
    destination::{Spec, build, sinks::Sink},
    environment,
};

const CHECK: &str = "destinations";
/// Time limit of a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);

pub(super) async fn check(context: &Context) -> Vec<Finding> {
    let (destinations, unreadable) = destinations(context).await;
    let mut findings = join_all(
        destinations
            .iter()
            .map(|(name, spec)| check_destination(name, spec)),
    )
    .await;
    if destinations.is_empty() {
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
    let keys = match Keys::of(&context.config) {
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

async fn check_destination(name: &str, spec: &Spec) -> Finding {
    let kind = spec.sink.kind();
    if let Err(error) = build::sink(spec, &environment::clock()) {
        let found = format!("{name}: {error}");
        return Finding::error(CHECK, found, format!("correct [destinations.{name}]"));
    }
    if let Some(blocked) = build::blocked(spec, &environment::clock()) {
        let found = format!("{name}: nothing will be sent: {blocked}");
        let remedy = format!("add the network to allow in [destinations.{name}], if it is meant");
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
                let remedy =
                    "events wait meanwhile; check the address, and the route from this machine";
                return Finding::warning(CHECK, found, remedy);
            }
        }
    }
    let reached = if reached.is_empty() {
        "it can be used".to_owned()
    } else {
        format!("{} can be reached", reached.join(", "))
    };
    Finding::ok(CHECK, format!("{name} ({kind}): {reached}"))
}

/// The addresses that a sink connects to, as far as its settings contain them.
fn addresses(sink: &Sink) -> Vec<(String, u16)> {
    let (urls, default) = sink.urls();
    of_url(&urls, default)
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

    #[track_caller]
    fn check(url: &str, addresses: &[(&str, u16)]) {
        let found = of_url(url, 1);
        let found: Vec<_> = found.iter().map(|(host, port)| (&**host, *port)).collect();
        assert_eq!(found, addresses);
    }
}
