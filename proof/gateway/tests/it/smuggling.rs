//! Request smuggling over HTTP/1.1: the raw requests of `smuggling/requests.http`, and what the service
//! sees of them.
//!
//! Behind each request a plain one follows on the same connection. A request of which the gateway and
//! the service disagree would swallow it, or bring a second one to the service.

use std::io;

use hapax_testkit::wait::{answered, eventually};
use serde_json::Value;

use crate::{
    corpus::{Case, Expected, NEXT, cases},
    gateway::Gateway,
    upstream::Upstream,
    wire::{Connection, PATIENCE},
};

#[tokio::test]
async fn an_ambiguous_request_is_refused_or_is_one_request() {
    let cases = cases();
    assert!(cases.len() >= 100, "{} cases", cases.len());
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut wrong = Vec::new();
    for case in &cases {
        upstream.ask("POST", "/_forget").await;
        let name = &case.name;
        if let Err(problem) = check(case, &gateway, &upstream).await {
            wrong.push(format!("{name}: {problem}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The gateway is as well as before.
    assert_eq!(gateway.order("after", "").await.status, 201);
}

async fn check(case: &Case, gateway: &Gateway, upstream: &Upstream) -> Result<(), String> {
    let mut connection = Connection::open(gateway.address()).await.unwrap();
    connection.send(&case.bytes).await.unwrap();
    if case.expected == Expected::Open {
        drop(connection);
        let mut next = Connection::open(gateway.address()).await.unwrap();
        next.send(NEXT).await.unwrap();
        let answer = answered(PATIENCE, next.answer()).await.unwrap();
        assert_eq!(answer.status, 200);
        return seen_is(upstream, 0, 0, 1).await;
    }
    let first = answered(PATIENCE, connection.answer()).await;
    let status = first.map(|it| it.status);
    let next = answered(PATIENCE, next(&mut connection)).await;
    let nexts = u64::from(next.is_ok());
    if let Ok(status) = next
        && status != 200
    {
        return Err(format!("the next request got {status}"));
    }
    let forwarded = |length: u64| seen_is(upstream, 1, length, nexts);
    match (case.expected, status) {
        (Expected::Forwarded(length) | Expected::Either(length), Ok(200..=299)) => {
            forwarded(length).await
        }
        (Expected::Refused | Expected::Either(_), Err(_) | Ok(400..)) => {
            seen_is(upstream, 0, 0, nexts).await
        }
        (expected, status) => Err(format!("expected {expected:?}, got {status:?}")),
    }
}

/// Sends another request on the same connection, which may be closed.
async fn next(connection: &mut Connection) -> io::Result<u16> {
    connection.send(NEXT).await?;
    Ok(connection.answer().await?.status)
}

/// Checks that the service has seen this number of requests, with a body of this length, and of those
/// that follow.
async fn seen_is(
    upstream: &Upstream,
    requests: usize,
    length: u64,
    nexts: u64,
) -> Result<(), String> {
    let is_next = |it: &&Value| it["target"] == "/next";
    let mut seen = Vec::new();
    // A client that loses its response may be faster than the service.
    eventually(PATIENCE, async || {
        seen = upstream.seen().await;
        seen.iter().filter(is_next).count() as u64 >= nexts
    })
    .await;
    let after = seen.iter().filter(is_next).count() as u64;
    let others: Vec<&Value> = seen.iter().filter(|it| !is_next(it)).collect();
    let is_same = |it: &&Value| it["target"] == "/a" && it["length"] == length;
    if others.len() == requests && others.iter().all(is_same) && after == nexts {
        return Ok(());
    }
    Err(format!(
        "the service has seen {seen:?}, expected {requests} of {length} bytes and {nexts} more"
    ))
}

#[tokio::test]
async fn a_body_that_looks_like_an_upgrade_does_not_end_the_checks() {
    const TWO_LENGTHS: &[u8] = b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\
        Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    let mut client = Connection::open(gateway.address()).await.unwrap();
    let get = b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(get).await.unwrap();
    let head = answered(PATIENCE, client.head()).await.unwrap();
    let length = head.header("content-length").unwrap().parse().unwrap();
    upstream.ask("POST", "/_next").await;
    let body = answered(PATIENCE, client.bytes(length)).await.unwrap();
    assert!(body.starts_with(b"HTTP/1.1 101"));
    client.send(TWO_LENGTHS).await.unwrap();
    let first = answered(PATIENCE, client.answer()).await;
    let second = answered(PATIENCE, client.answer()).await;
    assert!(
        second.is_err(),
        "one request got two answers: {first:?} {second:?}"
    );
    let seen = upstream.seen().await;
    assert!(
        seen.iter().all(|it| it["target"] != "/smuggled"),
        "{seen:?}"
    );
}
