//! Tests of authentication.

use http::Method;

use crate::shop::{ORDER, Shop, Store, on_both_stores, problem};

on_both_stores! {
    every_route_of_a_tenant_wants_a_known_token,
    configured_tokens_take_the_place_of_the_demos,
    one_key_of_two_tenants_is_two_keys,
}

async fn every_route_of_a_tenant_wants_a_known_token(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for (method, path) in [
        (Method::POST, "/orders"),
        (Method::GET, "/orders"),
        (Method::GET, "/orders/ord_1"),
        (Method::PUT, "/orders/ord_1"),
        (Method::PUT, "/customers/1/email"),
        (Method::GET, "/customers/1/email"),
        (Method::POST, "/payments"),
        (Method::POST, "/refunds"),
        (Method::GET, "/ledger"),
        (Method::POST, "/signups"),
        (Method::POST, "/idempotency-keys"),
    ] {
        let answer = shop.send(method.clone(), path, &[], "").await;
        problem(&answer, 401, "AUTH.missing");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{path}");
        for token in [
            "Bearer demo-carol",
            "Bearer ",
            "Basic demo-alice",
            "demo-alice",
        ] {
            let answer = shop
                .send(method.clone(), path, &[("authorization", token)], "")
                .await;
            problem(&answer, 401, "AUTH.invalid");
        }
    }
}

async fn configured_tokens_take_the_place_of_the_demos(on: Store) {
    let shop = Shop::start(on, &["--token", "s3cret=alice", "--token", "rotated=alice"]).await;
    let first = shop.post_as("s3cret", "/orders", Some("k"), ORDER).await;
    let again = shop.post_as("rotated", "/orders", Some("k"), ORDER).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    assert_eq!(again.body, first.body);
    assert_eq!(shop.get("/orders").await.status, 401);
    assert!(!shop.log().contains("s3cret"));
}

async fn one_key_of_two_tenants_is_two_keys(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let alice = shop.post("/orders", Some("k"), ORDER).await;
    let bob = shop.post_as("demo-bob", "/orders", Some("k"), ORDER).await;
    assert_eq!(bob.header("idempotency-status"), Some("stored"));
    assert_ne!(alice.body, bob.body);
}
