//! Faults of the service: what the first client gets, what a retry gets, and what the ledger has.

use hapax_testkit::on_both_stores;

use crate::{
    gateway::{Gateway, Home, Store, configuration},
    upstream::{Kind, Upstream},
    wire::{Answer, digest},
};

on_both_stores! {
    a_fault_of_the_service_leaves_an_unknown_outcome_and_is_not_repeated,
    a_complete_answer_is_stored_and_replayed_whatever_its_form,
    a_request_that_was_not_sent_is_sent_by_its_retry,
}

/// The response to the first client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    /// A problem that says that the outcome is unknown, with this status.
    Unknown(u16),
    /// The answer of the service with this status, which is not stored.
    Verbatim(u16),
}

/// The faults, what the first client gets, and how often the service acts.
const UNKNOWN: [(&str, First, usize); 16] = [
    ("close", First::Unknown(502), 1),
    ("cut=0", First::Unknown(502), 1),
    ("cut=10", First::Unknown(502), 1),
    ("cut=120", First::Unknown(502), 1),
    ("cut=190", First::Unknown(502), 1),
    ("long-length=9", First::Unknown(502), 1),
    ("endless", First::Unknown(502), 1),
    ("endless-hang", First::Unknown(504), 1),
    ("no-length", First::Unknown(502), 1),
    ("coding", First::Unknown(502), 1),
    ("flood", First::Unknown(502), 1),
    ("hang", First::Unknown(504), 1),
    ("hang-before", First::Unknown(504), 0),
    ("slow-head=1500", First::Unknown(504), 1),
    ("status=500", First::Verbatim(500), 1),
    ("status=503", First::Verbatim(503), 1),
];

async fn a_fault_of_the_service_leaves_an_unknown_outcome_and_is_not_repeated(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let gateway = Gateway::start(&home, &configuration(upstream.address(), "")).await;
    for (at, (fault, expected, acted)) in UNKNOWN.into_iter().enumerate() {
        let key = format!("fault-{at}");
        let first = gateway.order(&key, fault).await;
        let seen = if first.is_unknown() {
            First::Unknown(first.status)
        } else {
            First::Verbatim(first.status)
        };
        assert_eq!(seen, expected, "{fault}: {}", first.text());
        if let First::Verbatim(_) = expected {
            let claimed = first.header("x-answer").map(str::to_owned);
            assert_eq!(claimed, Some(digest(&first.body)), "{fault}");
        }
        for _ in 0..2 {
            let retry = gateway.order(&key, fault).await;
            assert!(retry.is_unknown(), "{fault}: {}", retry.text());
            assert_eq!(retry.status, 409, "{fault}");
        }
        assert_eq!(upstream.lines_of(&key).len(), acted, "{fault}");
    }
}

/// Answers that are complete, although their form is unusual.
const COMPLETE: [(&str, u16); 7] = [
    ("", 201),
    ("early", 201),
    ("trailers", 201),
    ("connection-close", 201),
    ("body-of-204", 204),
    ("status=202", 202),
    ("slow-head=200,slow-body=200", 201),
];

async fn a_complete_answer_is_stored_and_replayed_whatever_its_form(on: Store) {
    let upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let gateway = Gateway::start(&home, &configuration(upstream.address(), "")).await;
    for (at, (faults, status)) in COMPLETE.into_iter().enumerate() {
        let key = format!("complete-{at}");
        let first = gateway.order(&key, faults).await;
        assert_eq!(first.status, status, "{faults}: {}", first.text());
        let said = first.header("idempotency-status");
        assert_eq!(said, Some("stored; upstream=opaque"), "{faults}");
        for _ in 0..2 {
            let replay = gateway.order(&key, "close").await;
            let said = replay.header("idempotency-status");
            assert_eq!(said, Some("replayed; upstream=opaque"), "{faults}");
            assert_eq!(kept(&replay), kept(&first), "{faults}");
        }
        assert_eq!(upstream.lines_of(&key).len(), 1, "{faults}");
        if status != 204 {
            let claimed = first.header("x-answer").map(str::to_owned);
            assert_eq!(claimed, Some(digest(&first.body)), "{faults}");
        }
        // The body of a 204 is what follows it on the connection. It must not become the head of
        // another response.
        assert!(first.trailers.is_empty(), "{faults}");
    }
}

/// The part that a replay has in common with the first answer: all but the mark and the id of the request.
fn kept(answer: &Answer) -> (u16, Vec<(String, String)>, Vec<u8>) {
    // Trailers are not stored, so a replay does not announce them.
    let of_this_exchange = [
        "idempotency-status",
        "idempotent-replayed",
        "date",
        "trailer",
        "x-request-id",
    ];
    let mut headers = answer.headers.clone();
    headers.retain(|(name, _)| !of_this_exchange.contains(&name.as_str()));
    headers.sort();
    (answer.status, headers, answer.body.clone())
}

async fn a_request_that_was_not_sent_is_sent_by_its_retry(on: Store) {
    let mut upstream = Upstream::python();
    let home = Home::fresh(on).await;
    let gateway = Gateway::start(&home, &configuration(upstream.address(), "")).await;
    // A connection is left idle, so that the next request meets one that has been closed.
    assert_eq!(gateway.order("before", "").await.status, 201);
    upstream.kill();
    let first = gateway.order("k", "").await;
    let is_unknown = first.is_unknown();
    assert!(
        is_unknown || first.status == 503,
        "{} {}",
        first.status,
        first.text()
    );
    let second = gateway.order("l", "").await;
    assert_eq!(second.status, 503, "{}", second.text());
    assert!(!second.is_unknown(), "{}", second.text());
    upstream.restart();
    assert_eq!(gateway.decided("l").await.status, 201);
    assert_eq!(upstream.lines_of("l").len(), 1);
    let decided = gateway.decided("k").await;
    assert_eq!(decided.is_unknown(), is_unknown, "{}", decided.text());
    assert_eq!(upstream.lines_of("k").len(), usize::from(!is_unknown));
    assert_eq!(gateway.order("before", "").await.status, 201);
    assert_eq!(upstream.lines_of("before").len(), 1);
}

#[tokio::test]
async fn a_service_that_dies_before_or_after_its_effect_leaves_an_unknown_outcome() {
    for kind in [Kind::Python, Kind::Node] {
        let mut upstream = Upstream::start(kind);
        let gateway = Gateway::before(upstream.address()).await;
        for (fault, acted) in [("kill-before", 0), ("kill-after", 1)] {
            let first = gateway.order(fault, fault).await;
            assert!(first.is_unknown(), "{kind:?} {fault}: {}", first.text());
            upstream.restart();
            let retry = gateway.order(fault, "").await;
            assert!(retry.is_unknown(), "{kind:?} {fault}: {}", retry.text());
            assert_eq!(upstream.lines_of(fault).len(), acted, "{kind:?} {fault}");
        }
        assert_eq!(gateway.order("after", "").await.status, 201, "{kind:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_shorter_than_what_follows_poisons_no_other_request() {
    let upstream = Upstream::python();
    let gateway = Gateway::before(upstream.address()).await;
    for round in 0..20 {
        let (liar, other) = (format!("liar-{round}"), format!("other-{round}"));
        let lied = gateway.order(&liar, "short-length=12").await;
        assert_eq!(lied.status, 201, "{}", lied.text());
        let answer = gateway.order(&other, "").await;
        if answer.is_unknown() {
            // The rest of the lie arrived on the connection after the request was written.
            continue;
        }
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.json()["key"], other.as_str());
    }
}

#[tokio::test]
async fn a_service_that_knows_keys_gets_the_same_key_again() {
    let upstream = Upstream::python();
    let home = Home::fresh(Store::Sqlite).await;
    let settings = configuration(upstream.address(), "unknown = \"forward\"");
    let gateway = Gateway::start(&home, &settings).await;
    let first = gateway.order("k", "close").await;
    assert_eq!(first.status, 502, "{}", first.text());
    assert!(!first.is_unknown(), "{}", first.text());
    assert_eq!(gateway.order("k", "").await.status, 201);
    // The ledger does not know keys, so it shows that the same key was sent twice, by permission.
    assert_eq!(upstream.lines_of("k").len(), 2);
}

#[tokio::test]
async fn a_look_up_finds_the_answer_that_was_lost() {
    let upstream = Upstream::python();
    let home = Home::fresh(Store::Sqlite).await;
    let route = "unknown = \"look_up\"\n\
                 look_up = { path = \"/by-key/{key}\", status = 201, settle = \"0s\" }";
    let gateway = Gateway::start(&home, &configuration(upstream.address(), route)).await;
    let lost = gateway.order("k", "close").await;
    assert_eq!(lost.status, 502, "{}", lost.text());
    let found = gateway.decided("k").await;
    assert_eq!(found.status, 201, "{}", found.text());
    let lines = upstream.lines_of("k");
    assert_eq!(lines.len(), 1);
    assert_eq!(digest(&found.body), lines[0].answer);
    let replay = gateway.order("k", "").await;
    assert_eq!(kept(&replay), kept(&found));
    assert_eq!(upstream.lines_of("k").len(), 1);
}
