//! Handlers that fail: nothing is stored, the key is free, and permanent errors are not retryable.

use crate::{
    answers::check_problem,
    kind::{EXPRESS, FASTAPI, Kind},
    shop::{Shop, body},
};

const CONSTRAINTS: &str = "ALTER TABLE shop_order
    ADD CONSTRAINT shop_order_item_key UNIQUE (item),
    ADD CONSTRAINT shop_order_amount_check CHECK (amount < 1000)";
const UNCONSTRAINED: &str = "ALTER TABLE shop_order
    DROP CONSTRAINT shop_order_item_key, DROP CONSTRAINT shop_order_amount_check";

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_express_that_throws_releases_the_key() {
    check_throws(EXPRESS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_fastapi_that_raises_releases_the_key() {
    check_throws(FASTAPI).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violated_constraint_is_not_retryable_with_pg_and_releases_the_key() {
    check_violations(EXPRESS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_violated_constraint_is_not_retryable_with_psycopg_and_releases_the_key() {
    check_violations(FASTAPI).await;
}

/// Checks handlers that throw before and after their first statement.
pub(crate) async fn check_throws(kind: Kind) {
    let shop = Shop::open(&[kind]).await;
    for (number, item) in ["throw before", "throw after"].into_iter().enumerate() {
        let key = format!("thrown-{number}");
        let failed = shop.order(0, &key, &body(item, 1)).await;
        check_problem(&failed, 500, "TRANSIENT.internal");
        assert_eq!(failed.header("idempotency-status"), None, "{item}");
        let said = failed.text();
        assert!(!said.contains("first statement"), "{item}: {said}");
        shop.check_effects(number).await;
        // The key is free, even for another payload.
        let taken = shop.order(0, &key, &body("socks", 2)).await;
        assert_eq!(
            (taken.status, taken.header("idempotency-status")),
            (201, Some("stored")),
            "{item}"
        );
        shop.check_effects(number + 1).await;
    }
}

pub(crate) async fn check_violations(kind: Kind) {
    let shop = Shop::open(&[kind]).await;
    let alter = async |sql: &str| shop.client.batch_execute(sql).await.expect("valid DDL");
    alter(CONSTRAINTS).await;
    assert_eq!(shop.order(0, "first", &body("socks", 1)).await.status, 201);
    for (key, body) in [
        ("unique", body("socks", 1)),
        ("check", body("shoes", 1000)),
        (
            "range",
            r#"{"item": "hats", "amount": 9007199254740991}"#.to_owned(),
        ),
    ] {
        let refused = shop.order(0, key, &body).await;
        check_problem(&refused, 500, "INTERNAL.statement");
        assert_eq!(refused.json().expect("JSON")["retryable"], false);
        assert_eq!(refused.header("retry-after"), None);
        assert_eq!(refused.header("idempotency-status"), None);
        let said = refused.text();
        assert!(!said.contains("shop_order"), "{said}");
    }
    shop.check_effects(1).await;
    // The keys are free: a rejected request can be sent again, even with another payload.
    alter(UNCONSTRAINED).await;
    for key in ["unique", "check"] {
        let taken = shop.order(0, key, &body("socks", 2)).await;
        assert_eq!(
            (taken.status, taken.header("idempotency-status")),
            (201, Some("stored"))
        );
    }
    shop.check_effects(3).await;
}
