//! Tests of a naturally idempotent request: the e-mail address of a customer may be set any number of
//! times, without a key and without a condition.

use futures_util::future::join_all;
use hapax_testkit::http::HttpResponse;
use http::Method;

use crate::{
    phased::count,
    shop::{JSON, Shop, Store, check_replays, lasting, on_both_stores, problem, refuses},
};

const ALICE: (&str, &str) = ("authorization", "Bearer demo-alice");
const EMAIL: &str = r#"{"email":"a@b.com"}"#;
const OTHER: &str = r#"{"email":"ann@b.com"}"#;

on_both_stores! {
    an_address_that_is_set_ten_times_changes_once,
    an_address_that_is_set_ten_times_at_once_changes_once,
    an_address_that_is_set_under_a_key_is_replayed_even_if_it_has_changed,
    an_address_belongs_to_one_customer_of_one_tenant,
    bad_addresses_and_ids_are_refused,
}

async fn an_address_that_is_set_ten_times_changes_once(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let first = set(&shop, "123", EMAIL).await;
    assert_eq!(first.status, 200, "{}", first.text());
    for _ in 1..10 {
        let again = set(&shop, "123", EMAIL).await;
        assert_eq!(lasting(&again), lasting(&first));
        assert_eq!(again.header("idempotency-status"), Some("bypassed"));
    }
    check_changed_once(&shop, &first).await;
}

async fn an_address_that_is_set_ten_times_at_once_changes_once(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let answers = join_all((0..10).map(|_| set(&shop, "123", EMAIL))).await;
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(lasting(answer), lasting(&answers[0]));
    }
    check_changed_once(&shop, &answers[0]).await;
}

async fn an_address_that_is_set_under_a_key_is_replayed_even_if_it_has_changed(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let headers = [JSON, ALICE, ("idempotency-key", "e-1")];
    let path = "/customers/123/email";
    let first = shop.send(Method::PUT, path, &headers, EMAIL).await;
    assert_eq!(first.header("idempotency-status"), Some("stored"));
    let newer = set(&shop, "123", OTHER).await;
    let late = shop.send(Method::PUT, path, &headers, EMAIL).await;
    check_replays(&late, &first);
    // The late retry has not replaced the newer address.
    assert_eq!(shop.get(path).await.body, newer.body);
}

async fn an_address_belongs_to_one_customer_of_one_tenant(on: Store) {
    let shop = Shop::start(on, &[]).await;
    set(&shop, "123", EMAIL).await;
    set(&shop, "124", OTHER).await;
    let found = shop.get("/customers/123/email").await.json().unwrap();
    assert_eq!(found["email"], "a@b.com");
    for answer in [
        shop.get_as("demo-bob", "/customers/123/email").await,
        shop.get("/customers/125/email").await,
    ] {
        problem(&answer, 404, "NOT_FOUND");
    }
}

async fn bad_addresses_and_ids_are_refused(on: Store) {
    let shop = Shop::start(on, &[]).await;
    for body in [r#"{"email":"a"}"#, r#"{"email":null}"#, "{}"] {
        refuses(&set(&shop, "123", body).await, "email");
    }
    let more = r#"{"email":"a@b.com","admin":true}"#;
    refuses(&set(&shop, "123", more).await, "admin");
    problem(&set(&shop, "1%002", EMAIL).await, 404, "NOT_FOUND");
    problem(&shop.get("/customers/123/email").await, 404, "NOT_FOUND");
}

/// Sets the address of a customer, without a key and without a condition.
async fn set(shop: &Shop, id: &str, body: &str) -> HttpResponse {
    let path = format!("/customers/{id}/email");
    shop.send(Method::PUT, &path, &[JSON, ALICE], body).await
}

/// Checks the address, and that there is one event about it.
async fn check_changed_once(shop: &Shop, answer: &HttpResponse) {
    assert_eq!(answer.json().unwrap()["email"], "a@b.com");
    assert_eq!(shop.get("/customers/123/email").await.body, answer.body);
    let is_change = "type = 'customer.email_changed'";
    assert_eq!(count(&shop.home(), "{outbox}", is_change).await, 1);
}
