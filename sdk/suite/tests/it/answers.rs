//! Responses in each case of the HTTP contract; hostile requests never get a 500.

use hapax_testkit::{http::HttpResponse, wait::Patience};

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{LONG, Shop, body, order_until_answered},
};

#[tokio::test(flavor = "multi_thread")]
async fn express_answers_by_the_http_contract() {
    check_answers(EXPRESS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fastapi_answers_by_the_http_contract() {
    check_answers(FASTAPI).await;
}

pub(crate) async fn check_answers(kind: Kind) {
    let shop = Shop::open(&[kind]).await;
    check_replay(&shop).await;
    check_refusal(&shop).await;
    check_correction(&shop).await;
    check_in_progress(&shop).await;
    check_conditions(&shop).await;
    check_keys(&shop).await;
    check_bodies(&shop).await;
    check_dead_database(&shop).await;
}

/// Checks that two spellings of a key are the same request, and that another body is a mismatch.
async fn check_replay(shop: &Shop) {
    let first = shop.order(0, "\"a \\\" key\"", &body("socks", 500)).await;
    assert_eq!(
        (first.status, first.header("idempotency-status")),
        (201, Some("stored"))
    );
    assert_eq!(first.header("idempotency-key"), Some("\"a \\\" key\""));
    let again = shop
        .order(0, "\"a \\\" key\";v=1", &body("socks", 500))
        .await;
    assert_eq!(
        (again.status, again.header("idempotency-status")),
        (201, Some("replayed"))
    );
    assert_eq!(
        (again.body, again.headers.get("location")),
        (first.body, first.headers.get("location"))
    );
    let other = shop.order(0, "\"a \\\" key\"", &body("socks", 501)).await;
    check_problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(other.header("retry-after"), None);
}

/// Checks that a conditional header is part of the fingerprint.
async fn check_conditions(shop: &Shop) {
    let url = format!("{}/orders", shop.urls()[0]);
    let send = async |condition: &str| {
        let headers = [
            ("idempotency-key", "conditional"),
            ("content-type", "application/json"),
            ("authorization", "Bearer alice"),
            ("if-match", condition),
        ];
        let sent = shop.http.post(&url, &headers, body("socks", 1)).await;
        sent.expect("the service responds")
    };
    assert_eq!(send("\"1\"").await.status, 201);
    let again = send(" \"1\"").await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    for other in [
        send("\"2\"").await,
        shop.order(0, "conditional", &body("socks", 1)).await,
    ] {
        check_problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    }
}

/// Checks that a refusal is stored without an effect.
async fn check_refusal(shop: &Shop) {
    let orders = shop.count("SELECT count(*) FROM shop_order").await;
    let refused = shop.order(0, "refused", &body("sold out", 1)).await;
    check_problem(&refused, 409, "CONFLICT.state");
    assert_eq!(refused.header("idempotency-status"), Some("stored"));
    let again = shop.order(0, "refused", &body("sold out", 1)).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    assert_eq!((again.status, again.body), (409, refused.body));
    assert_eq!(shop.count("SELECT count(*) FROM shop_order").await, orders);
}

/// Checks that a client error releases the key, so that the corrected request can use it.
async fn check_correction(shop: &Shop) {
    let mistaken = shop.order(0, "corrected", &body("socks", 0)).await;
    check_problem(&mistaken, 400, "VALIDATION.member");
    assert_eq!(mistaken.header("idempotency-status"), None);
    assert_eq!(
        shop.order(0, "corrected", &body("socks", 1)).await.status,
        201
    );
}

/// Checks that a request whose key another transaction has is in progress, and a mismatch if that
/// transaction runs another payload. The lock alone does not show a payload.
async fn check_in_progress(shop: &Shop) {
    let mut other = shop.another_client().await;
    let lock = "SELECT pg_advisory_xact_lock(hapax.key_lock('alice', 'POST /orders', 'busy'))";
    let claim = "SELECT hapax.claim('alice', 'POST /orders', 'busy', sha256('x'))";
    for (runs, code, is_retryable) in [
        (lock, "CONFLICT.idempotency.in_progress", true),
        (claim, "CONFLICT.idempotency.payload_mismatch", false),
    ] {
        let tx = other.transaction().await.expect("a transaction");
        tx.query(runs, &[]).await.expect("the key is free");
        let busy = shop.order(0, "busy", &body("socks", 1)).await;
        check_problem(&busy, 409, code);
        assert_eq!(busy.header("retry-after").is_some(), is_retryable, "{code}");
        tx.rollback().await.expect("a rollback");
    }
    let patience = Patience::within(LONG);
    while shop.order(0, "busy", &body("socks", 1)).await.status != 201 {
        patience.pause().await;
    }
}

async fn check_keys(shop: &Shop) {
    for bad in [
        "",
        "\"open",
        "a b",
        "\"\"",
        "\"a\" b",
        "a\"b",
        "\"\\n\"",
        "derived:00",
        "\"derived:00\"",
        &"k".repeat(256),
    ] {
        let refused = shop.order(0, bad, &body("socks", 1)).await;
        check_problem(&refused, 400, "VALIDATION.idempotency_key.invalid");
        assert_eq!(refused.header("idempotency-key"), None, "{bad}");
    }
    let url = format!("{}/orders", shop.urls()[0]);
    let json = ("content-type", "application/json");
    let without = shop.http.post(&url, &[json], body("socks", 1)).await;
    let without = without.expect("the service responds");
    check_problem(&without, 400, "VALIDATION.idempotency_key.missing");
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b"), json];
    let twice = shop.http.post(&url, &twice, body("socks", 1)).await;
    let twice = twice.expect("the service responds");
    check_problem(&twice, 400, "VALIDATION.idempotency_key.invalid");
    let longest = shop.order(0, &"k".repeat(255), &body("socks", 1)).await;
    assert_eq!(longest.status, 201);
}

async fn check_bodies(shop: &Shop) {
    let keys = shop
        .count("SELECT count(*) FROM hapax.idempotency_key")
        .await;
    let deep = "[".repeat(100_000);
    for bad in [
        "",
        "{",
        "[]",
        "null",
        "\u{0}",
        "{\"item\": \"socks\"}",
        &deep,
        r#"{"item": "a\u0000b", "amount": 1}"#,
        r#"{"item": "\ud800", "amount": 1}"#,
        r#"{"item": "socks", "amount": true}"#,
        r#"{"item": "socks", "amount": 1e400}"#,
        r#"{"item": "socks", "amount": 9223372036854775808}"#,
        r#"{"item": "'; DROP TABLE shop_order; --", "amount": -1}"#,
    ] {
        let refused = shop.order(0, "hostile", bad).await;
        assert_eq!(refused.status, 400, "{bad:.40}: {}", refused.text());
    }
    let large = shop.order(0, "hostile", &" ".repeat(1024 * 1024 + 1)).await;
    check_problem(&large, 413, "VALIDATION.body.too_large");
    let after = shop
        .count("SELECT count(*) FROM hapax.idempotency_key")
        .await;
    assert_eq!(after, keys, "rejected requests must not store keys");
}

/// Checks that requests get 503 while the database accepts no connections, and run afterwards.
async fn check_dead_database(shop: &Shop) {
    let gone = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name LIKE 'shop%'";
    shop.allow_connections(false).await;
    shop.client
        .query(gone, &[])
        .await
        .expect("the sessions can be terminated");
    let refused = shop.order(0, "dead", &body("socks", 1)).await;
    check_problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(refused.header("retry-after").is_some());
    shop.allow_connections(true).await;
    let urls = shop.urls();
    let answer = order_until_answered(&shop.http, &urls, 0, "dead", &body("socks", 1)).await;
    assert_eq!(answer.header("idempotency-status"), Some("stored"));
}

#[track_caller]
pub(crate) fn check_problem(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem = answer.json().expect("a problem is JSON");
    assert_eq!(problem["code"], code);
    assert_eq!(problem["status"], status);
    let page = format!("https://hapax.dev/problems/{}", code.to_lowercase());
    assert_eq!(problem["type"], page);
    for member in ["title", "detail", "retryable", "request_id"] {
        assert!(!problem[member].is_null(), "{member}");
    }
}
