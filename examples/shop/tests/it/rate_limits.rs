//! Tests of the shop's rate limit.

use crate::shop::{ORDER, Shop, Store, on_both_stores, problem};

on_both_stores! {
    a_tenant_beyond_the_rate_limit_is_429_and_claims_no_key,
}

async fn a_tenant_beyond_the_rate_limit_is_429_and_claims_no_key(on: Store) {
    let flags = ["--rate-limit", "1/h", "--rate-limit-burst", "2"];
    let shop = Shop::start(on, &flags).await;
    for status in ["stored", "replayed"] {
        let sent = shop.post("/orders", Some("k"), ORDER).await;
        assert_eq!(sent.header("idempotency-status"), Some(status));
    }
    let refused = shop.post("/orders", Some("l"), ORDER).await;
    let refusal = problem(&refused, 429, "RATE_LIMIT.exceeded");
    assert_eq!(refusal["retryable"], true);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert_eq!(shop.get("/orders").await.status, 429);
    let keys = match on {
        Store::Sqlite => "SELECT count(*) FROM hapax_idempotency_key WHERE tenant = 'alice'",
        Store::Postgres => "SELECT count(*) FROM hapax.idempotency_key WHERE tenant = 'alice'",
    };
    assert_eq!(shop.home().number(keys).await, 1);
    // Other tenants, and routes without a tenant, have their own limit or none.
    let other = shop.post_as("demo-bob", "/orders", Some("k"), ORDER).await;
    assert_eq!(other.status, 201, "{}", other.text());
    for _ in 0..3 {
        assert_eq!(shop.get("/readyz").await.status, 200);
    }
}
