//! Tests of a full disk and an unavailable database server, and of the recovery from both.

use std::process::{Command, Stdio};

use hapax_testkit::{http::HttpResponse, postgres::Cluster, wait::eventually};
use http::Method;

use crate::shop::{
    Home, JSON, ORDER, PATIENCE, PAYMENT, Shop, Store, command, lasting, on_both_stores, problem,
};

/// A signup, whose key is derived from its address.
const SIGNUP: &str = r#"{"email":"ann@x.org","name":"Ann"}"#;

on_both_stores! {
    keys_that_cannot_be_used_are_503_and_counted,
    keys_that_cannot_be_used_are_passed_over_by_a_shop_that_fails_open,
}

async fn keys_that_cannot_be_used_are_503_and_counted(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let order = shop.post("/orders", Some("before"), ORDER).await;
    lose_the_keys(&shop, on).await;
    for (operation, refused) in [
        ("POST /signups", shop.post("/signups", None, SIGNUP).await),
        ("PUT /orders/{id}", replace(&shop, &order).await),
        ("POST /orders", shop.post("/orders", Some("k"), ORDER).await),
        (
            "POST /payments",
            shop.post("/payments", Some("k"), PAYMENT).await,
        ),
    ] {
        let problem = problem(&refused, 503, "DEPENDENCY.unavailable");
        assert_eq!(problem["retryable"], true, "{operation}");
        assert_eq!(refused.header("retry-after"), Some("1"), "{operation}");
        check_counted(&shop, operation, "store_error").await;
    }
    assert!(shop.log().contains("DEPENDENCY.unavailable"));
}

async fn keys_that_cannot_be_used_are_passed_over_by_a_shop_that_fails_open(on: Store) {
    let shop = Shop::start(on, &["--on-store-error", "open"]).await;
    let order = shop.post("/orders", Some("before"), ORDER).await;
    lose_the_keys(&shop, on).await;
    for (operation, ran) in [
        ("POST /signups", shop.post("/signups", None, SIGNUP).await),
        ("PUT /orders/{id}", replace(&shop, &order).await),
    ] {
        assert!(ran.status < 300, "{operation}: {}", ran.text());
        assert_eq!(ran.header("idempotency-status"), Some("bypassed"));
        check_counted(&shop, operation, "failed_open").await;
    }
    let refused = shop.post("/payments", Some("k"), PAYMENT).await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(shop.log().contains("the request runs unprotected"));
}

async fn lose_the_keys(shop: &Shop, on: Store) {
    let rename = match on {
        Store::Sqlite => "ALTER TABLE hapax_idempotency_key RENAME TO gone",
        Store::Postgres => "ALTER TABLE hapax.idempotency_key RENAME TO gone",
    };
    shop.home().change(rename).await;
}

/// Replaces an order under a key.
async fn replace(shop: &Shop, order: &HttpResponse) -> HttpResponse {
    let headers = [
        JSON,
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", "replace"),
        ("if-match", "*"),
    ];
    let path = order.header("location").unwrap();
    shop.send(Method::PUT, path, &headers, ORDER).await
}

/// Checks that one request on this operation has ended with this outcome.
pub(crate) async fn check_counted(shop: &Shop, operation: &str, outcome: &str) {
    let line = format!(
        "hapax_idempotency_requests_total{{operation=\"{operation}\",outcome=\"{outcome}\"}}"
    );
    let counted = shop.metric(&line).await;
    assert!((0.5..1.5).contains(&counted), "{line}: {counted}");
}

#[tokio::test]
async fn a_full_disk_is_503_and_a_log_line_until_there_is_room_again() {
    let home = Home::fresh(Store::Sqlite).await;
    let shop = Shop::spawn(patient(&home), home.clone());
    let first = shop.post("/orders", Some("before"), ORDER).await;

    limit_files(&shop, "1024:unlimited");
    let refused = shop.post("/orders", Some("k"), ORDER).await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
    assert!(refused.header("retry-after").is_some());
    assert!(shop.log().contains("ERROR"), "{}", shop.log());
    assert_eq!(shop.post("/payments", Some("p"), PAYMENT).await.status, 503);
    assert_eq!(shop.get("/readyz").await.status, 503);
    assert_eq!(shop.get("/healthz").await.status, 200);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(
        lasting(&again),
        lasting(&first),
        "stored responses must still be replayed"
    );

    limit_files(&shop, "unlimited:unlimited");
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 200).await;
    let retried = shop.post("/orders", Some("k"), ORDER).await;
    assert_eq!(retried.header("idempotency-status"), Some("stored"));
    let orders = shop.get("/orders").await.json().unwrap();
    assert_eq!(orders["items"].as_array().unwrap().len(), 2);
    assert_eq!(shop.received("order.created", 2).await.len(), 2);
    shop.stop().await;

    let shop = Shop::start_in(home, &[]);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(lasting(&again), lasting(&first));
}

#[tokio::test]
async fn a_server_that_is_away_is_503_until_it_is_back() {
    let mut cluster = Cluster::start().await;
    let home = Home::on(&cluster).await;
    let shop = Shop::start_in(home, &[]);
    let first = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(first.status, 201, "{}", first.text());
    shop.received("order.created", 1).await;

    cluster.stop_immediate().await;
    for path in ["/orders", "/payments"] {
        let body = if path == "/orders" { ORDER } else { PAYMENT };
        let refused = shop.post(path, Some("k"), body).await;
        problem(&refused, 503, "DEPENDENCY.unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 503).await;
    assert_eq!(shop.get("/healthz").await.status, 200);
    let again = shop.post("/orders", Some("before"), ORDER).await;
    assert_eq!(
        lasting(&again),
        lasting(&first),
        "responses in memory must still be replayed"
    );

    cluster.start_again().await;
    eventually(PATIENCE, async || shop.get("/readyz").await.status == 200).await;
    for path in ["/orders", "/payments"] {
        let body = if path == "/orders" { ORDER } else { PAYMENT };
        let retried = shop.post(path, Some("k"), body).await;
        assert_eq!(retried.header("idempotency-status"), Some("stored"));
    }
    assert_eq!(shop.received("order.created", 2).await.len(), 2);
    assert_eq!(shop.received("payment.succeeded", 1).await.len(), 1);
    shop.stop().await;
}

/// A shop that gets an error when it writes beyond its file size limit, as on a full disk. The
/// signal `SIGXFSZ` is ignored.
pub(crate) fn patient(home: &Home) -> Command {
    let shop = command(home, &[]);
    let mut patient = Command::new("sh");
    patient
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(shop.get_program())
        .args(shop.get_args())
        .stdin(Stdio::null());
    patient
}

/// Sets the maximum size of the files that a shop writes.
pub(crate) fn limit_files(shop: &Shop, bytes: &str) {
    let (id, limit) = (shop.id().to_string(), format!("--fsize={bytes}"));
    let set = Command::new("prlimit")
        .args(["--pid", &id, &limit])
        .status()
        .unwrap();
    assert!(set.success());
}
