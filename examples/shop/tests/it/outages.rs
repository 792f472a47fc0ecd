//! Tests of a provider that fails, loses responses or has unknown outcomes: one charge, one refund.

use std::time::{Duration, Instant};

use hapax_testkit::{http::HttpResponse, wait::eventually};
use serde_json::json;

use crate::{
    shop::{Home, PATIENCE, PAYMENT, Shop, Store, check_replays, lasting, on_both_stores, problem},
    simulated_providers::Providers,
};

/// The maximum time for a payment if the provider fails.
const BOUND: Duration = Duration::from_secs(15);

on_both_stores! {
    a_charge_whose_answers_are_all_lost_is_looked_up,
    a_charge_that_was_lost_on_its_way_is_made_by_the_next_attempt,
    a_provider_that_only_fails_is_502_and_the_key_is_let_go,
    a_charge_that_the_provider_calls_a_duplicate_shows_the_one_there_is,
    a_charge_with_an_unknown_outcome_is_504_and_found_out_by_the_retry,
    a_charge_with_an_unknown_outcome_is_found_out_without_its_client,
    a_shop_without_a_provider_says_so_and_keeps_nothing,
    a_refund_whose_answer_is_lost_happens_once,
    a_refund_that_the_provider_refuses_gives_its_reservation_back,
    a_refund_at_a_provider_that_only_fails_is_502_and_leaves_nothing,
    a_refund_with_an_unknown_outcome_keeps_its_reservation_until_it_is_found_out,
    a_refund_whose_reservation_cannot_be_given_back_goes_on_with_it,
}

async fn a_charge_whose_answers_are_all_lost_is_looked_up(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let began = Instant::now();
    let paid = pay(&shop, "tok_timeout_applied").await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    assert!(began.elapsed() < BOUND);
    assert!(providers.calls("lookup").await >= 1);
    check_paid_once(&shop, &providers, "tok_timeout_applied", &paid).await;
}

async fn a_charge_that_was_lost_on_its_way_is_made_by_the_next_attempt(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let paid = pay(&shop, "tok_timeout_not_applied").await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    assert_eq!(providers.calls("charge").await, 2);
    check_paid_once(&shop, &providers, "tok_timeout_not_applied", &paid).await;
}

async fn a_provider_that_only_fails_is_502_and_the_key_is_let_go(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let failed = pay(&shop, "tok_5xx").await;
    problem(&failed, 502, "TRANSIENT.provider");
    assert!(failed.header("retry-after").is_some());
    assert!(failed.header("idempotency-status").is_none());
    assert!(providers.calls("charge").await > 1);
    assert!(providers.entries().await.is_empty());
    // A different request under the same key is accepted, because the first one has left nothing.
    let paid = pay(&shop, "tok_ok").await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    check_paid_once(&shop, &providers, "tok_ok", &paid).await;
}

async fn a_charge_that_the_provider_calls_a_duplicate_shows_the_one_there_is(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    providers.misbehave("charge", "applied_then_lost", 1).await;
    providers.misbehave("charge", "duplicate", 1).await;
    let paid = pay(&shop, "tok_ok").await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    assert_eq!(paid.header("problem-code"), Some("PROVIDER.duplicate"));
    check_paid_once(&shop, &providers, "tok_ok", &paid).await;
}

async fn a_charge_with_an_unknown_outcome_is_504_and_found_out_by_the_retry(on: Store) {
    let (shop, providers) = shop(on, &["--lease", "1m"]).await;
    close(&providers, "charge").await;
    let unknown = pay(&shop, "tok_ok").await;
    problem(&unknown, 504, "DEPENDENCY.timeout");
    let other = pay(&shop, "tok_slow").await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
    providers.misbehave("any", "ok", 1).await;
    let paid = pay(&shop, "tok_ok").await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    check_paid_once(&shop, &providers, "tok_ok", &paid).await;
}

async fn a_charge_with_an_unknown_outcome_is_found_out_without_its_client(on: Store) {
    let (shop, providers) = shop(on, &["--lease", "1s"]).await;
    close(&providers, "charge").await;
    let unknown = pay(&shop, "tok_ok").await;
    problem(&unknown, 504, "DEPENDENCY.timeout");
    providers.misbehave("any", "ok", 1).await;
    eventually(PATIENCE, async || shop.count_entries("charge").await == 1).await;
    let paid = pay(&shop, "tok_ok").await;
    assert_eq!(paid.header("idempotency-status"), Some("replayed"));
    check_paid_once(&shop, &providers, "tok_ok", &paid).await;
}

async fn a_shop_without_a_provider_says_so_and_keeps_nothing(on: Store) {
    let flags = ["--no-demo", "--token", "demo-alice=alice"];
    let shop = Shop::start(on, &flags).await;
    let refused = pay(&shop, "tok_ok").await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
    let other = pay(&shop, "tok_slow").await;
    problem(&other, 503, "DEPENDENCY.unavailable");
    let refund = r#"{"charge_id":"ch_1","amount":1}"#;
    let refused = shop.post("/refunds", Some("r"), refund).await;
    problem(&refused, 503, "DEPENDENCY.unavailable");
}

async fn a_refund_whose_answer_is_lost_happens_once(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let charge = charge(&shop).await;
    providers.misbehave("refund", "applied_then_lost", 99).await;
    let refunded = refund(&shop, "r", &charge, 400).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    let again = refund(&shop, "r", &charge, 400).await;
    assert_eq!(lasting(&again), lasting(&refunded));
    check_refunded(&shop, &providers, &[400]).await;
}

async fn a_refund_that_the_provider_refuses_gives_its_reservation_back(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let charge = charge(&shop).await;
    // Another system refunds a part of the charge at the provider.
    let path = format!("/charges/{charge}/refunds");
    let other = providers
        .pay(&path, "other", &json!({ "amount": 100 }))
        .await;
    assert_eq!(other.0, 201);
    let refused = refund(&shop, "r", &charge, 900).await;
    problem(&refused, 409, "PROVIDER.refused");
    assert_eq!(refused.header("idempotency-status"), Some("stored"));
    let again = refund(&shop, "r", &charge, 900).await;
    assert_eq!(lasting(&again), lasting(&refused));
    assert_eq!(shop.count_entries("refund").await, 0);
    let rest = refund(&shop, "s", &charge, 800).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
    check_refunded(&shop, &providers, &[100, 800]).await;
}

async fn a_refund_at_a_provider_that_only_fails_is_502_and_leaves_nothing(on: Store) {
    let (shop, providers) = shop(on, &[]).await;
    let charge = charge(&shop).await;
    providers.misbehave("refund", "error_before", 99).await;
    let failed = refund(&shop, "r", &charge, 900).await;
    problem(&failed, 502, "TRANSIENT.provider");
    providers.misbehave("refund", "ok", 1).await;
    // Neither the key nor the reserved amount is taken any more.
    let refunded = refund(&shop, "r", &charge, 899).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    let rest = refund(&shop, "s", &charge, 1).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
    check_refunded(&shop, &providers, &[899, 1]).await;
}

async fn a_refund_with_an_unknown_outcome_keeps_its_reservation_until_it_is_found_out(on: Store) {
    let (shop, providers) = shop(on, &["--lease", "1m"]).await;
    let charge = charge(&shop).await;
    close(&providers, "refund").await;
    let unknown = refund(&shop, "r", &charge, 500).await;
    problem(&unknown, 504, "DEPENDENCY.timeout");
    let beyond = refund(&shop, "s", &charge, 401).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    providers.misbehave("any", "ok", 1).await;
    let refunded = refund(&shop, "r", &charge, 500).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    check_refunded(&shop, &providers, &[500]).await;
}

async fn a_refund_whose_reservation_cannot_be_given_back_goes_on_with_it(on: Store) {
    let (shop, providers) = shop(on, &["--lease", "1m"]).await;
    let charge = charge(&shop).await;
    providers.misbehave("refund", "error_before", 99).await;
    let (refuse, allow) = match on {
        Store::Sqlite => (
            "CREATE TRIGGER kept BEFORE DELETE ON shop_refund
             BEGIN SELECT RAISE(ABORT, 'no'); END",
            "DROP TRIGGER kept",
        ),
        Store::Postgres => (
            "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE check_violation; END $$;
             CREATE TRIGGER kept BEFORE DELETE ON shop_refund
             FOR EACH ROW EXECUTE FUNCTION kept()",
            "DROP TRIGGER kept ON shop_refund",
        ),
    };
    let home = shop.home();
    home.change(refuse).await;
    let failed = refund(&shop, "r", &charge, 400).await;
    problem(&failed, 500, "TRANSIENT.internal");
    home.change(allow).await;
    providers.misbehave("refund", "ok", 1).await;
    let refunded = refund(&shop, "r", &charge, 400).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    let reserved = "SELECT CAST(sum(amount) AS bigint) FROM shop_refund";
    assert_eq!(home.number(reserved).await, 400);
    assert_eq!(home.number("SELECT count(*) FROM shop_refund").await, 1);
    check_refunded(&shop, &providers, &[400]).await;
}

/// A shop that uses separate simulated providers.
async fn shop(on: Store, flags: &[&str]) -> (Shop, std::sync::Arc<Providers>) {
    let home = Home::with_providers(on).await;
    let providers = home.providers();
    (Shop::start_in(home, flags), providers)
}

/// Makes the provider apply an operation and lose every response, and makes lookups fail.
pub(crate) async fn close(providers: &Providers, operation: &str) {
    providers
        .misbehave(operation, "applied_then_lost", 99)
        .await;
    providers.misbehave("lookup", "error_before", 99).await;
}

async fn pay(shop: &Shop, card: &str) -> HttpResponse {
    let body = PAYMENT.replace("tok_ok", card);
    shop.post("/payments", Some("p"), &body).await
}

/// Pays 900, and returns the id of the charge.
pub(crate) async fn charge(shop: &Shop) -> String {
    let paid = pay(shop, "tok_ok").await.json().unwrap();
    paid["id"].as_str().unwrap().to_owned()
}

/// Refunds a part of a charge.
pub(crate) async fn refund(shop: &Shop, key: &str, charge: &str, amount: i64) -> HttpResponse {
    let body = format!(r#"{{"charge_id":"{charge}","amount":{amount}}}"#);
    shop.post("/refunds", Some(key), &body).await
}

/// Checks that there is one charge at the provider, one entry, one event, and that this response is
/// replayed.
async fn check_paid_once(shop: &Shop, providers: &Providers, card: &str, paid: &HttpResponse) {
    let again = pay(shop, card).await;
    check_replays(&again, paid);
    let charges = providers.made("charge").await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    assert_eq!(charges[0]["id"], paid.json().unwrap()["id"]);
    assert_eq!(shop.count_entries("charge").await, 1);
    assert_eq!(shop.received("payment.succeeded", 1).await.len(), 1);
}

/// Checks that the provider has these refunds, and that the shop has an entry and an event for each
/// refund that it has made itself.
async fn check_refunded(shop: &Shop, providers: &Providers, amounts: &[i64]) {
    let made = providers.made("refund").await;
    let made: Vec<_> = made
        .iter()
        .map(|it| it["amount"].as_i64().unwrap())
        .collect();
    assert_eq!(made, amounts);
    let ledger = shop.get("/ledger").await.json().unwrap();
    let entries = ledger["entries"].as_array().unwrap().iter();
    let entries = entries.filter(|entry| entry["kind"] == "refund");
    let own: Vec<_> = entries.map(|it| it["amount"].as_i64().unwrap()).collect();
    assert!(
        own.iter().all(|amount| amounts.contains(amount)) && !own.is_empty(),
        "{own:?}"
    );
    let events = shop.received("refund.succeeded", own.len()).await;
    assert_eq!(events.len(), own.len());
}
