//! Differential test of request smuggling: the requests of the corpus, through nginx and through the gateway
//! to the same service.
//!
//! The gateway may refuse what nginx forwards. What it forwards, nginx must forward as well, as the same
//! requests with the same bodies. Differences that are right are listed with their reason.

use std::net::SocketAddr;

use hapax_testkit::wait::answered;
use serde_json::Value;

use crate::{
    corpus::{Case, Expected, NEXT, cases},
    gateway::Gateway,
    nginx::Nginx,
    upstream::Upstream,
    wire::{Connection, PATIENCE},
};

/// Requests that nginx refuses and the gateway forwards, and why the gateway is right.
const ACCEPTED: [(&str, &str); 3] = [
    (
        "transfer-encoding after a tab",
        "RFC 9110 allows tabs before a value. nginx takes the tab for a part of the coding, and answers \
         501. The gateway writes its own Transfer-Encoding, without the tab.",
    ),
    (
        "equal content-lengths",
        "RFC 9110 allows a recipient to replace equal values by one. The gateway forwards one \
         Content-Length.",
    ),
    (
        "content-lengths of the same value in different digits",
        "The values are the same number. The gateway forwards one Content-Length, without the zero.",
    ),
];

#[tokio::test]
async fn the_gateway_forwards_nothing_that_nginx_refuses_or_reads_as_another_request() {
    let upstream = Upstream::python();
    let nginx = Nginx::before(upstream.address()).await;
    let gateway = Gateway::before(upstream.address()).await;
    let mut wrong = Vec::new();
    for case in cases() {
        let by_nginx = forwarded(&case, nginx.address(), &upstream).await;
        let by_gateway = forwarded(&case, gateway.address(), &upstream).await;
        if !is_allowed(&case.name, &by_nginx, &by_gateway) {
            let name = &case.name;
            wrong.push(format!(
                "{name}: nginx forwards {by_nginx:?}, the gateway {by_gateway:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the gateway may forward this, given what nginx forwards.
fn is_allowed(name: &str, by_nginx: &[String], by_gateway: &[String]) -> bool {
    let is_accepted = ACCEPTED.iter().any(|(known, _)| *known == name);
    let is_one_more = by_nginx.is_empty() && by_gateway.len() == 1;
    by_gateway.is_empty() || by_gateway == by_nginx || (is_accepted && is_one_more)
}

/// The requests that the service has read after a proxy got a request of the corpus: method, target, and
/// body. The plain request after it does not count.
async fn forwarded(case: &Case, proxy: SocketAddr, upstream: &Upstream) -> Vec<String> {
    upstream.ask("POST", "/_forget").await;
    let mut connection = Connection::open(proxy).await.unwrap();
    // A proxy that refuses the request may close the connection before it has read everything.
    let _sent = connection.send(&case.bytes).await;
    if case.expected == Expected::Open {
        let _sent = connection.finish().await;
    } else {
        let _first = answered(PATIENCE, connection.answer()).await;
        let _sent = connection.send(NEXT).await;
    }
    answered(PATIENCE, ended(&mut connection)).await;
    let seen = upstream.seen().await;
    let others = seen.iter().filter(|it| it["target"] != "/next");
    others.map(as_text).collect()
}

/// Reads responses until that of the plain request, or until the proxy closes the connection. After
/// either, the proxy forwards nothing more.
async fn ended(connection: &mut Connection) {
    while let Ok(answer) = connection.answer().await {
        if answer.json()["target"] == "/next" {
            return;
        }
    }
}

fn as_text(seen: &Value) -> String {
    if let Some(problem) = seen["malformed"].as_str() {
        return problem.to_owned();
    }
    let [method, target, length, hash] = ["method", "target", "length", "hash"].map(|it| &seen[it]);
    format!("{method} {target} {length} {hash}")
}

#[test]
fn a_difference_is_allowed_only_by_its_name_and_only_for_one_request() {
    let sent = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let (none, one, other) = (sent(&[]), sent(&["a"]), sent(&["b"]));
    let two = sent(&["a", "smuggled"]);
    let (name, _) = ACCEPTED[0];
    assert!(is_allowed("x", &one, &none));
    assert!(is_allowed("x", &one, &one));
    assert!(!is_allowed("x", &none, &one));
    assert!(!is_allowed("x", &one, &other));
    assert!(!is_allowed("x", &one, &two));
    assert!(is_allowed(name, &none, &one));
    assert!(!is_allowed(name, &none, &two));
    assert!(!is_allowed(name, &one, &other));
}

#[test]
fn the_accepted_differences_are_requests_of_the_corpus() {
    let cases = cases();
    for (name, reason) in ACCEPTED {
        let is_there = cases.iter().any(|case| case.name == name);
        assert!(is_there, "no request is named {name:?} ({reason})");
    }
}
