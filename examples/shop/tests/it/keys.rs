//! Tests of keys: reserved prefixes, expiry, and the profiles of responses.

use hapax_testkit::wait::eventually;

use crate::shop::{Home, ORDER, PATIENCE, Shop, Store, on_both_stores, problem};

on_both_stores! {
    a_reserved_key_can_be_used,
    an_expired_key_runs_as_new,
    a_shop_that_has_just_started_deletes_what_expired,
    an_expired_key_is_gone_where_that_is_asked_for,
    a_profile_changes_names_and_statuses,
    a_mode_of_the_fingerprint_can_be_chosen,
}

async fn a_reserved_key_can_be_used(on: Store) {
    let shop = Shop::start(on, &[]).await;
    let answer = shop.post("/idempotency-keys", None, "").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let key = answer.json().unwrap()["key"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("idempotency-key"), Some(key.as_str()));
    assert_eq!(shop.post("/orders", Some(&key), ORDER).await.status, 201);
}

async fn an_expired_key_runs_as_new(on: Store) {
    let shop = Shop::start(on, &["--retention", "1s"]).await;
    let first = shop.post("/orders", Some("k"), ORDER).await;
    eventually(PATIENCE, async || {
        let again = shop.post("/orders", Some("k"), ORDER).await;
        again.header("idempotency-status") == Some("stored") && again.body != first.body
    })
    .await;
    assert!(
        shop.log().contains("retention"),
        "a short retention must cause a warning"
    );
}

/// The first purge happens at the start, so a shop that never runs for half a minute purges as
/// well.
async fn a_shop_that_has_just_started_deletes_what_expired(on: Store) {
    let home = Home::fresh(on).await;
    let shop = Shop::start_in(home.clone(), &[]);
    shop.post("/orders", Some("k"), ORDER).await;
    shop.stop().await;
    let table = if home.is_in_a_file() {
        "hapax_idempotency_key"
    } else {
        "hapax.idempotency_key"
    };
    home.change(&format!("UPDATE {table} SET expires_at = created_at"))
        .await;
    let _shop = Shop::start_in(home.clone(), &[]);
    let left = format!("SELECT count(*) FROM {table}");
    eventually(PATIENCE, async || home.number(&left).await == 0).await;
}

async fn an_expired_key_is_gone_where_that_is_asked_for(on: Store) {
    let shop = Shop::start(on, &["--retention", "1s", "--on-expired", "gone"]).await;
    shop.post("/orders", Some("k"), ORDER).await;
    eventually(PATIENCE, async || {
        shop.post("/orders", Some("k"), ORDER).await.status == 410
    })
    .await;
    let answer = shop.post("/orders", Some("k"), ORDER).await;
    problem(&answer, 410, "CONFLICT.idempotency.expired");
}

async fn a_profile_changes_names_and_statuses(on: Store) {
    let own = "CONFLICT.idempotency.payload_mismatch";
    check_mismatch(on, "ietf", 422, own).await;
    check_mismatch(on, "stripe", 400, own).await;
    check_mismatch(on, "acp", 422, "idempotency_conflict").await;
    check_mismatch(on, "ucp", 409, own).await;
    check_mismatch(on, "adcp", 409, "IDEMPOTENCY_CONFLICT").await;
    check_mismatch(on, "iceberg", 409, own).await;
}

async fn check_mismatch(on: Store, profile: &str, status: u16, code: &str) {
    const UUID: &str = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    let shop = Shop::start(on, &["--profile", profile]).await;
    shop.post("/orders", Some(UUID), ORDER).await;
    let again = shop.post("/orders", Some(UUID), ORDER).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    let marked = matches!(profile, "stripe" | "acp").then_some("true");
    assert_eq!(again.header("idempotent-replayed"), marked);
    let other = shop
        .post("/orders", Some(UUID), &ORDER.replace("500", "501"))
        .await;
    problem(&other, status, code);
}

async fn a_mode_of_the_fingerprint_can_be_chosen(on: Store) {
    for (mode, number, order) in [
        ("raw", false, false),
        ("json", false, true),
        ("json-semantic", true, true),
    ] {
        let shop = Shop::start(on, &["--fingerprint", mode]).await;
        for (key, body, is_equal) in [
            ("number", ORDER.replace("500", "5e2"), number),
            ("order", ORDER.replace(':', " : "), order),
        ] {
            shop.post("/orders", Some(key), ORDER).await;
            let again = shop.post("/orders", Some(key), &body).await;
            let is_replayed = again.header("idempotency-status") == Some("replayed");
            assert_eq!(is_replayed, is_equal, "{mode}: {body}");
        }
    }
}
