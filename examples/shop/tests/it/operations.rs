//! Tests of health checks, metrics, and requests that no route accepts.

use hapax_testkit::wait::eventually;
use http::Method;

use crate::shop::{ORDER, PATIENCE, Shop, Store, on_both_stores, problem};

on_both_stores! {
    a_shop_is_alive_and_ready,
    the_metrics_tell_what_became_of_requests_and_events,
    a_head_without_end_is_not_read_to_its_end,
    what_no_route_takes_is_a_problem,
    without_the_demo_there_is_no_receiver_and_no_demo_token,
    the_console_is_the_demos_or_whose_token_it_knows,
}

async fn a_shop_is_alive_and_ready(on: Store) {
    let shop = Shop::start(on, &[]).await;
    assert_eq!(
        shop.send(Method::GET, "/healthz", &[], "").await.status,
        200
    );
    let ready = shop.send(Method::GET, "/readyz", &[], "").await;
    assert_eq!(ready.status, 200, "{}", ready.text());
    let ready = ready.json().unwrap();
    assert_eq!(
        (&ready["store"], &ready["relay"]),
        (&"writable".into(), &"running".into())
    );
}

async fn the_metrics_tell_what_became_of_requests_and_events(on: Store) {
    let shop = Shop::start(on, &[]).await;
    shop.post("/orders", Some("k"), ORDER).await;
    shop.post("/orders", Some("k"), ORDER).await;
    shop.post("/orders", Some("k"), &ORDER.replace("500", "501"))
        .await;
    shop.received("order.created", 1).await;
    let start = |outcome| {
        format!(
            "hapax_idempotency_requests_total{{operation=\"POST /orders\",outcome=\"{outcome}\"}}"
        )
    };
    for outcome in ["created", "replayed", "mismatch"] {
        let counted = shop.metric(&start(outcome)).await;
        assert!((0.5..1.5).contains(&counted), "{outcome}: {counted}");
    }
    let metrics = async || shop.send(Method::GET, "/metrics", &[], "").await.text();
    for name in [
        "hapax_outbox_lag_seconds",
        "hapax_outbox_backlog_events",
        "hapax_relay_delivery_seconds_bucket",
        "hapax_relay_attempts_total",
        "hapax_relay_lease_epoch",
        "hapax_inbox_messages_total",
    ] {
        eventually(PATIENCE, async || metrics().await.contains(name)).await;
    }
    assert!(
        !metrics().await.contains("ord_"),
        "an id must not be a label"
    );
}

async fn a_head_without_end_is_not_read_to_its_end(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for (length, status) in [(30 * 1024, 200), (70 * 1024, 431)] {
        let padding = "x".repeat(length);
        let headers = [("x-padding", &*padding)];
        let answer = shop.send(Method::GET, "/healthz", &headers, "").await;
        assert_eq!(answer.status, status, "{length}");
    }
}

async fn what_no_route_takes_is_a_problem(on: Store) {
    let shop = Shop::start(on, &[]).await;
    problem(&shop.get("/nowhere").await, 404, "NOT_FOUND");
    let answer = shop.send(Method::DELETE, "/healthz", &[], "").await;
    problem(&answer, 405, "VALIDATION.method");
}

async fn without_the_demo_there_is_no_receiver_and_no_demo_token(on: Store) {
    let shop = Shop::start(on, &["--no-demo", "--token", "t=alice"]).await;
    assert_eq!(shop.get("/demo/receiver").await.status, 404);
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 401);
    assert_eq!(
        shop.post_as("t", "/orders", Some("k"), ORDER).await.status,
        201
    );
    assert!(!shop.file("receiver.db").exists() && !shop.file("mail").exists());
}

async fn the_console_is_the_demos_or_whose_token_it_knows(on: Store) {
    let asked = async |flags: &[&str], headers: &[(&str, &str)]| {
        let shop = Shop::start(on, flags).await;
        let page = shop.send(Method::GET, "/console", headers, "").await;
        (page.status, page.header("location").map(str::to_owned))
    };
    assert_eq!(asked(&[], &[]).await, (200, None));
    // A proxy on this machine may forward requests of any client.
    let passed_on = [("x-forwarded-for", "192.0.2.1")];
    assert_eq!(asked(&[], &passed_on).await, (403, None));
    let own = ["--no-demo", "--token", "t=alice"];
    assert_eq!(asked(&own, &[]).await, (404, None));
    let operators = ["--console-token", "ops=0123456789abcdef"];
    let login = Some("/console/login".to_owned());
    let asked = asked(&[&own[..], &operators].concat(), &passed_on).await;
    assert_eq!(asked, (303, login));
}
