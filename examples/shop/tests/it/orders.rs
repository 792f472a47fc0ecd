//! Tests of orders: created once per key, read, listed, and updated with a precondition.

use hapax_testkit::http::HttpResponse;
use http::Method;

use crate::shop::{JSON, ORDER, Shop, Store, check_replays, on_both_stores, problem, refuses};

on_both_stores! {
    an_order_is_created_once_and_its_answer_replayed_byte_for_byte,
    the_answer_outlives_a_restart,
    another_payload_under_a_key_is_a_conflict_and_changes_nothing,
    an_order_needs_a_key,
    bad_members_are_refused_by_name_and_the_key_can_be_used_again,
    a_text_that_no_store_can_keep_is_refused_and_an_id_that_none_can_have_is_not_there,
    another_content_type_is_refused,
    a_body_beyond_its_bound_is_refused_before_any_effect,
    orders_are_listed_a_page_at_a_time_and_by_tenant,
    unknown_queries_are_refused,
    a_cursor_that_no_list_gave_is_refused_by_name,
    a_body_that_is_an_array_is_no_order,
    another_tenants_order_is_not_there,
    an_order_changes_only_for_who_has_seen_its_last_version,
}

async fn an_order_is_created_once_and_its_answer_replayed_byte_for_byte(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let first = shop.post("/orders", Some("k-1"), ORDER).await;
    assert_eq!(first.status, 201, "{}", first.text());
    assert_eq!(first.header("idempotency-status"), Some("stored"));
    assert_eq!(first.header("idempotency-key"), Some("k-1"));
    assert_eq!(first.header("etag"), Some("\"1\""));
    let order = first.json().unwrap();
    let id = order["id"].as_str().unwrap();
    assert!(id.starts_with("ord_"), "{id}");
    assert_eq!(
        first.header("location"),
        Some(format!("/orders/{id}").as_str())
    );

    let again = shop.post("/orders", Some("\"k-1\""), ORDER).await;
    check_replays(&again, &first);
    assert_eq!(
        shop.get(&format!("/orders/{id}")).await.json().unwrap(),
        order
    );
    assert_eq!(shop.received("order.created", 1).await.len(), 1);
}

async fn the_answer_outlives_a_restart(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let first = shop.post("/orders", Some("k"), ORDER).await;
    let home = shop.home();
    shop.stop().await;
    let shop = Shop::start_in(home, &[]);
    let again = shop.post("/orders", Some("k"), ORDER).await;
    check_replays(&again, &first);
}

async fn another_payload_under_a_key_is_a_conflict_and_changes_nothing(on: Store) {
    let shop = Shop::start(on, &[]).await;
    shop.post("/orders", Some("k"), ORDER).await;
    let other = ORDER.replace("500", "501");
    let answer = shop.post("/orders", Some("k"), &other).await;
    problem(&answer, 409, "CONFLICT.idempotency.payload_mismatch");
    assert_eq!(answer.header("retry-after"), None);
    let reordered = r#" {"currency":"EUR", "amount":500, "customer_id":"ann"} "#;
    let answer = shop.post("/orders", Some("k"), reordered).await;
    assert_eq!(answer.header("idempotency-status"), Some("replayed"));
    assert_eq!(listed(&shop.get("/orders").await).0.len(), 1);
}

async fn an_order_needs_a_key(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let answer = shop.post("/orders", None, ORDER).await;
    problem(&answer, 400, "VALIDATION.idempotency_key.missing");
    let answer = shop.post("/orders", Some(""), ORDER).await;
    problem(&answer, 400, "VALIDATION.idempotency_key.invalid");
}

async fn bad_members_are_refused_by_name_and_the_key_can_be_used_again(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let note = format!(
        r#"{{"customer_id":"a","amount":1,"currency":"EUR","note":"{}"}}"#,
        "x".repeat(501)
    );
    for (body, member) in [
        (r#"{"amount":1,"currency":"EUR"}"#, "customer_id"),
        (
            r#"{"customer_id":"a b","amount":1,"currency":"EUR"}"#,
            "customer_id",
        ),
        (
            r#"{"customer_id":"","amount":1,"currency":"EUR"}"#,
            "customer_id",
        ),
        (
            r#"{"customer_id":"a","amount":0,"currency":"EUR"}"#,
            "amount",
        ),
        (
            r#"{"customer_id":"a","amount":100000000,"currency":"EUR"}"#,
            "amount",
        ),
        (
            r#"{"customer_id":"a","amount":1.5,"currency":"EUR"}"#,
            "amount",
        ),
        (
            r#"{"customer_id":"a","amount":"1","currency":"EUR"}"#,
            "amount",
        ),
        (
            r#"{"customer_id":"a","amount":1,"currency":"eur"}"#,
            "currency",
        ),
        (
            r#"{"customer_id":"a","amount":1,"currency":"XXX"}"#,
            "currency",
        ),
        (
            r#"{"customer_id":"a","amount":1,"currency":"EUR","tip":1}"#,
            "tip",
        ),
        (note.as_str(), "note"),
    ] {
        refuses(&shop.post("/orders", Some("k"), body).await, member);
    }
    let twice = r#"{"customer_id":"a","amount":1,"amount":2,"currency":"EUR"}"#;
    assert_eq!(shop.post("/orders", Some("k"), twice).await.status, 400);
    assert_eq!(shop.post("/orders", Some("k"), "{").await.status, 400);
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
}

async fn a_text_that_no_store_can_keep_is_refused_and_an_id_that_none_can_have_is_not_there(
    on: Store,
) {
    let shop = Shop::start(on, &[]).await;
    let note = r#"{"customer_id":"ann","amount":500,"currency":"EUR","note":"a\u0000b"}"#;
    refuses(&shop.post("/orders", Some("k"), note).await, "note");
    assert_eq!(shop.post("/orders", Some("k"), ORDER).await.status, 201);
    for id in ["%00", "a%00b", "%F0%9F%98%80", "a%20b"] {
        let path = format!("/orders/{id}");
        problem(&shop.get(&path).await, 404, "NOT_FOUND");
        let changed = replace(&shop, &path, Some("*"), ORDER).await;
        problem(&changed, 404, "NOT_FOUND");
        let entries = shop.get(&format!("/ledger?charge_id={id}")).await;
        refuses(&entries, "charge_id");
    }
}

async fn another_content_type_is_refused(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let headers = [
        ("authorization", "Bearer demo-alice"),
        ("idempotency-key", "k"),
    ];
    let answer = shop.send(Method::POST, "/orders", &headers, ORDER).await;
    problem(&answer, 415, "VALIDATION.content_type");
}

async fn a_body_beyond_its_bound_is_refused_before_any_effect(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let note = "x".repeat(1024 * 1024);
    let body = format!(r#"{{"customer_id":"a","amount":1,"currency":"EUR","note":"{note}"}}"#);
    let answer = shop.post("/orders", Some("k"), &body).await;
    problem(&answer, 413, "VALIDATION.body.too_large");
    let created = shop
        .post("/orders", Some("k2"), ORDER)
        .await
        .json()
        .unwrap();
    let path = format!("/orders/{}", created["id"].as_str().unwrap());
    problem(
        &replace(&shop, &path, Some("*"), &body).await,
        413,
        "VALIDATION.body.too_large",
    );
}

async fn orders_are_listed_a_page_at_a_time_and_by_tenant(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for key in ["1", "2", "3"] {
        shop.post("/orders", Some(key), ORDER).await;
    }
    shop.post_as("demo-bob", "/orders", Some("1"), ORDER).await;
    let (all, next) = listed(&shop.get("/orders").await);
    assert_eq!((all.len(), next), (3, None));
    let (first, next) = listed(&shop.get("/orders?limit=2").await);
    assert_eq!(first, all[..2]);
    let next = next.unwrap();
    let (rest, end) = listed(&shop.get(&format!("/orders?limit=2&after={next}")).await);
    assert_eq!((rest, end), (all[2..].to_vec(), None));
    assert_eq!(listed(&shop.get_as("demo-bob", "/orders").await).0.len(), 1);
}

async fn unknown_queries_are_refused(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for path in [
        "/orders?x=1",
        "/orders?limit=0",
        "/orders?limit=201",
        "/orders?limit=x",
        "/ledger?x=1",
        "/healthz?x=1",
        "/readyz?x=1",
        "/metrics?x=1",
    ] {
        assert_eq!(shop.get(path).await.status, 400, "{path}");
    }
    assert_eq!(shop.post("/orders?x=1", Some("k"), ORDER).await.status, 400);
    assert_eq!(shop.get("/orders/ord_1?x=1").await.status, 400);
    let reserved = shop.post("/idempotency-keys?x=1", None, "").await;
    assert_eq!(reserved.status, 400);
}

async fn a_cursor_that_no_list_gave_is_refused_by_name(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let order = shop.post("/orders", Some("k"), ORDER).await;
    let id = order.json().unwrap()["id"].as_str().unwrap().to_owned();
    for path in [
        "/orders?after=garbage".to_owned(),
        "/orders?after=%ff".to_owned(),
        format!("/orders?after={}", &id[..id.len() - 1]),
        format!("/orders?after={}", id.replace("ord_", "le_")),
        format!("/ledger?after={id}"),
        format!("/ledger?charge_id=ch_1&after={id}"),
    ] {
        refuses(&shop.get(&path).await, "after");
    }
    assert_eq!(listed(&shop.get("/orders?after=").await).0.len(), 1);
    let beyond = shop.get(&format!("/orders?after={id}")).await;
    assert_eq!(listed(&beyond).0.len(), 0);
}

async fn a_body_that_is_an_array_is_no_order(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let answer = shop
        .post("/orders", Some("k"), r#"["ann",500,"EUR",null]"#)
        .await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert_eq!(listed(&shop.get("/orders").await).0.len(), 0);
}

async fn another_tenants_order_is_not_there(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let created = shop.post("/orders", Some("k"), ORDER).await;
    let path = created.header("location").unwrap().to_owned();
    problem(&shop.get_as("demo-bob", &path).await, 404, "NOT_FOUND");
    problem(&shop.get("/orders/ord_none").await, 404, "NOT_FOUND");
    let headers = [
        JSON,
        ("authorization", "Bearer demo-bob"),
        ("if-match", "*"),
    ];
    problem(
        &shop.send(Method::PUT, &path, &headers, ORDER).await,
        404,
        "NOT_FOUND",
    );
}

async fn an_order_changes_only_for_who_has_seen_its_last_version(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let created = shop.post("/orders", Some("k"), ORDER).await;
    let path = created.header("location").unwrap().to_owned();
    let changed = ORDER.replace("500", "700");

    problem(
        &replace(&shop, &path, None, &changed).await,
        428,
        "CONFLICT.precondition",
    );
    problem(
        &replace(&shop, &path, Some("\"2\""), &changed).await,
        412,
        "CONFLICT.precondition",
    );
    refuses(
        &replace(&shop, &path, Some("\"1\""), &ORDER.replace("EUR", "EUX")).await,
        "currency",
    );

    let answer = replace(&shop, &path, Some("\"1\""), &changed).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("etag"), Some("\"2\""));
    assert_eq!(answer.json().unwrap()["amount"], 700);
    assert_eq!(
        shop.get(&path).await.json().unwrap(),
        answer.json().unwrap()
    );
    problem(
        &replace(&shop, &path, Some("\"1\""), &changed).await,
        412,
        "CONFLICT.precondition",
    );
    assert_eq!(shop.received("order.updated", 1).await.len(), 1);
}

async fn replace(shop: &Shop, path: &str, if_match: Option<&str>, body: &str) -> HttpResponse {
    let mut headers = vec![JSON, ("authorization", "Bearer demo-alice")];
    headers.extend(if_match.map(|tag| ("if-match", tag)));
    shop.send(Method::PUT, path, &headers, body).await
}

fn listed(answer: &HttpResponse) -> (Vec<serde_json::Value>, Option<String>) {
    let page = answer.json().unwrap();
    let next = page["next"].as_str().map(str::to_owned);
    (page["items"].as_array().unwrap().clone(), next)
}
