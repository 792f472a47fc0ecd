//! The server from outside, as a client sees it: with its promise, and with a few of its bugs.
//!
//! Then the probe against it: each bug is found by the checks that `bugs.toml` names, and by no others.

mod server;
mod probed;
mod table;
mod long;
mod whole;

use server::Server;

const PAYLOAD: &str = r#"{"amount": 12.50, "note": "a"}"#;

#[test]
fn a_retry_replays_on_both_nodes_and_after_a_kill() {
    let mut server = Server::start("hapax", None);
    let first = server.post(0, "k", PAYLOAD);
    assert_eq!(first.status, 201);
    for node in [0, 1] {
        let retry = server.post(node, "\"k\"", r#"{"note":"a","amount":12.50}"#);
        assert_eq!((retry.status, &retry.body), (201, &first.body));
        assert_eq!(retry.headers("link"), first.headers("link"));
        assert_eq!(retry.headers("x-opaque"), first.headers("x-opaque"));
        assert_eq!(retry.headers("location"), first.headers("location"));
    }
    server.restart();
    assert_eq!(server.post(1, "k", PAYLOAD).body, first.body);
    assert_eq!(server.effects(), 1);
}

#[test]
fn another_payload_is_a_mismatch_with_the_status_of_the_profile() {
    for (profile, status) in [("hapax", 409), ("ietf", 422), ("stripe", 400), ("ucp", 409)] {
        let server = Server::start(profile, None);
        assert_eq!(server.post(0, "k", PAYLOAD).status, 201);
        assert_eq!(server.post(1, "k", r#"{"amount": 13}"#).status, status);
        assert_eq!(server.effects(), 1);
    }
}

#[test]
fn a_body_that_was_cut_has_no_effect_and_leaves_the_key_free() {
    let server = Server::start("acp", None);
    server.send_cut(0, "k", PAYLOAD);
    assert_eq!(server.effects(), 0);
    assert_eq!(server.post(0, "k", PAYLOAD).status, 201);
}

#[test]
fn a_failure_frees_the_key_and_a_refusal_is_stored() {
    let server = Server::start("hapax", None);
    let crash = r#"{"amount": 1, "item": "crash"}"#;
    assert_eq!(server.post(0, "crash", crash).status, 500);
    assert_eq!(server.post(0, "crash", crash).status, 201);
    let declined = r#"{"amount": 1, "item": "declined"}"#;
    let first = server.post(0, "declined", declined);
    let retry = server.post(0, "declined", declined);
    assert_eq!((first.status, &first.body), (402, &retry.body));
    let stripe = Server::start("stripe", None);
    let first = stripe.post(0, "crash", crash);
    assert_eq!(
        (first.status, first.body),
        (500, stripe.post(0, "crash", crash).body)
    );
}

#[test]
fn bugs_break_the_promise() {
    let server = Server::start("ietf", Some("key-ignored"));
    server.post(0, "k", PAYLOAD);
    server.post(0, "k", PAYLOAD);
    assert_eq!(server.effects(), 2);

    let mut server = Server::start("ietf", Some("replay-from-memory-only"));
    server.post(0, "k", PAYLOAD);
    server.post(1, "k", PAYLOAD);
    assert_eq!(server.effects(), 1);
    server.restart();
    server.post(0, "k", PAYLOAD);
    assert_eq!(server.effects(), 2);

    let server = Server::start("ietf", Some("cut-body-executes"));
    server.send_cut(0, "k", PAYLOAD);
    assert_eq!(server.effects(), 1);
}
