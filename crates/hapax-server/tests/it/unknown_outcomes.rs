//! Tests of the admin API for unknown outcomes of the gateway, on both stores.
//!
//! The rows are those that a gateway leaves: one that waits for a decision, one of a gateway that
//! still waits for the response, and the key of another service.

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{ALICE, Served, VIEWER, check},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    unknown_outcomes_are_listed_shown_and_decided_about_over_http,
    a_token_of_a_tenant_decides_about_its_own_outcomes,
}

const CUT: &str = "/unknown-outcomes/gateway%3APOST%20%2Forders/k-cut";
const RUNS: &str = "/unknown-outcomes/gateway%3APOST%20%2Forders/k-runs";
const COLUMNS: &str = "tenant, operation, key, fingerprint, state, epoch, lease_until, \
    recovery_point, on_expired, created_at, expires_at";
/// The tenant, the key, the seconds until the lease expires, and the recovery point.
const ROWS: [(&str, &str, i64, &str); 3] = [
    (
        "acme",
        "k-cut",
        -1,
        "unknown reason=cut at=1764294000000 noted=1764294000009 status=201 received=17 \
         upstream=http://10.0.0.7:8000",
    ),
    (
        "other",
        "k-runs",
        3600,
        "sent at=1764294000000 upstream=orders",
    ),
    ("acme", "k-other", -1, "charged"),
];

/// A database with the rows.
async fn stage(on: Store) -> Home {
    let database = Home::migrated(on).await;
    for (tenant, key, seconds, point) in ROWS {
        let now = "(CAST(strftime('%s', 'now') AS INTEGER) * 1000)";
        let sqlite = format!(
            "INSERT INTO hapax_idempotency_key ({COLUMNS}) VALUES ('{tenant}', \
             'gateway:POST /orders', '{key}', zeroblob(32), 'in_progress', 1, \
             {now} + {seconds} * 1000, '{point}', 'new', {now}, {now} + 86400000)"
        );
        let postgres = format!(
            "INSERT INTO hapax.idempotency_key ({COLUMNS}) VALUES ('{tenant}', \
             'gateway:POST /orders', '{key}', sha256('a'), 'in_progress', 1, \
             now() + {seconds} * interval '1 second', '{point}', 'new', \
             date_trunc('milliseconds', now()), now() + interval '1 day')"
        );
        database.change(&sqlite, &postgres).await;
    }
    database
}

async fn unknown_outcomes_are_listed_shown_and_decided_about_over_http(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    let cases: [(&str, &[&str]); 6] = [
        ("", &["k-cut", "k-runs"]),
        ("?waiting=true", &["k-cut"]),
        ("?waiting=false", &["k-runs"]),
        ("?reason=cut", &["k-cut"]),
        ("?upstream=orders", &["k-runs"]),
        ("?tenant=other", &["k-runs"]),
    ];
    for (query, keys) in cases {
        let listed = served.get(&format!("/unknown-outcomes{query}")).await;
        let items = listed["items"].as_array().unwrap().iter();
        let mut found: Vec<&str> = items.map(|it| it["key"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, keys, "{query}: {listed}");
    }
    let wrong = served.ask(VIEWER, Method::GET, "/unknown-outcomes?reason=odd", None);
    check(&wrong.await, 400, "VALIDATION.member");
    let shown = served.get(CUT).await;
    assert_eq!(shown["reason"], "cut");
    assert_eq!(
        (&shown["response_status"], &shown["is_waiting"]),
        (&json!(201), &json!(true))
    );
    let path = format!("{CUT}/decide");
    let happened = |body: &str| {
        let headers = json!([["Content-Type", "application/json"]]);
        let response = json!({"status": 201, "headers": headers, "body": body});
        json!({"version": shown["version"], "outcome": "happened", "response": response,
            "reason": "in the ledger"})
    };
    let empty = happened("{}");
    let viewer = served.ask(VIEWER, Method::POST, &path, Some(&empty));
    check(&viewer.await, 403, "AUTH.forbidden");
    for _ in 0..2 {
        let decided = served.post(&path, &happened("{\"id\":7}")).await;
        assert_eq!(decided.status, 204, "{}", decided.text());
    }
    let other = served.post(&path, &empty).await;
    assert_eq!(other.status, 409, "{}", other.text());
    let key = served.get("/keys/gateway%3APOST%20%2Forders/k-cut").await;
    assert_eq!(
        (&key["state"], &key["status"]),
        (&json!("completed"), &json!(201))
    );
    let running = served.get(RUNS).await;
    let decision = json!({"version": running["version"], "outcome": "did_not_happen",
        "reason": "no row"});
    let early = served.post(&format!("{RUNS}/decide"), &decision).await;
    assert_eq!(early.status, 409, "{}", early.text());
    served.relay.stop().await;
}

async fn a_token_of_a_tenant_decides_about_its_own_outcomes(on: Store) {
    let database = stage(on).await;
    let served = Served::with_tokens(&database).await;
    let listed = served.get_as_alice("/unknown-outcomes").await;
    assert!(!listed.text().contains("k-runs"), "{}", listed.text());
    let decision = |version: &Value| json!({"version": version, "outcome": "did_not_happen", "reason": "no row"});
    let of_runs = decision(&served.get(RUNS).await["version"]);
    for path in [RUNS.to_owned(), format!("{RUNS}?tenant=other")] {
        check(&served.get_as_alice(&path).await, 404, "NOT_FOUND");
    }
    let path = format!("{RUNS}/decide?tenant=other");
    let stolen = served.ask(ALICE, Method::POST, &path, Some(&of_runs));
    check(&stolen.await, 404, "NOT_FOUND");
    let of_cut = decision(&served.get(CUT).await["version"]);
    let path = format!("{CUT}/decide");
    for _ in 0..2 {
        let decided = served.ask(ALICE, Method::POST, &path, Some(&of_cut)).await;
        assert_eq!(decided.status, 204, "{}", decided.text());
    }
    served.relay.stop().await;
}
