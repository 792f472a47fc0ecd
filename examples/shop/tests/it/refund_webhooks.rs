//! Tests of webhooks about refunds: a refund counts once and against its charge, whether the shop has
//! requested it or not, and in any order of its reports.

use futures_util::future::join_all;
use hapax_testkit::{
    http::{HttpReceiver, HttpReply, HttpResponse},
    wait::eventually,
};
use serde_json::{Value, json};

use crate::{
    cut_off::die_at,
    outages::{charge, close, refund},
    shop::{Home, PATIENCE, PAYMENT, Shop, Store, on_both_stores, problem},
    uploads::sent::count,
    webhooks::{SOURCE, post},
};

on_both_stores! {
    a_webhook_about_a_refund_that_the_shop_made_is_no_second_entry,
    a_refund_under_many_webhook_ids_at_once_counts_once,
    a_refund_that_a_webhook_reports_counts_against_the_charge,
    a_refund_of_a_charge_that_is_recorded_later_counts_against_it,
    a_refund_beyond_the_charge_is_recorded_and_its_excess_shown,
    a_webhook_settles_a_refund_with_an_unknown_outcome,
    a_webhook_without_the_key_and_the_request_are_one_refund,
    a_refund_that_was_cut_off_and_its_webhook_are_one_refund,
    a_webhook_that_names_a_pending_refund_by_the_shops_id_can_come_again,
    a_webhook_that_names_two_refunds_changes_neither,
    a_webhook_and_the_response_at_once_are_one_refund,
    a_refund_that_is_reported_with_another_amount_is_a_conflict,
    a_webhook_about_a_refund_with_bad_members_is_refused,
}

async fn a_webhook_about_a_refund_that_the_shop_made_is_no_second_entry(on: Store) {
    let shop = start(on, &[]).await;
    let charge = charge(&shop).await;
    let refunded = refund(&shop, "r", &charge, 250).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    let (theirs, key) = made(&shop).await;
    let ours = refunded.json().unwrap()["id"].clone();
    let reports = [
        json!({ "refund_id": theirs }),
        json!({ "refund_id": theirs, "idempotency_key": key }),
        json!({ "refund_id": "re_other", "idempotency_key": key }),
        json!({ "refund_id": ours }),
    ];
    for (number, data) in reports.into_iter().enumerate() {
        let answer = report(&shop, &format!("msg_{number}"), &charge, 250, data).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    check_refunds(&shop, &charge, &[(250, "shop", 0)]).await;
    assert_eq!(results(&shop, "refund: recorded before").await, 4);
    let rest = refund(&shop, "s", &charge, 650).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
}

async fn a_refund_under_many_webhook_ids_at_once_counts_once(on: Store) {
    let shop = start(on, &[]).await;
    for charge in [charge(&shop).await, "ch_unknown".to_owned()] {
        let reports = (0..10).map(|number| {
            let (shop, charge) = (&shop, &charge);
            async move {
                let id = format!("msg_{charge}_{number}");
                report(shop, &id, charge, 250, json!({ "refund_id": "re_1" })).await
            }
        });
        for answer in join_all(reports).await {
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let entries = refunds(&shop, &charge).await;
        assert_eq!(entries, [(250, "psp".to_owned(), 0)]);
    }
    assert_eq!(shop.received("refund.succeeded", 2).await.len(), 2);
    assert_eq!(results(&shop, "refund").await, 2);
    assert_eq!(results(&shop, "refund: recorded before").await, 18);
}

async fn a_refund_that_a_webhook_reports_counts_against_the_charge(on: Store) {
    let shop = start(on, &[]).await;
    let charge = charge(&shop).await;
    report(&shop, "1", &charge, 600, json!({ "refund_id": "re_1" })).await;
    let beyond = refund(&shop, "r", &charge, 301).await;
    let beyond = problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    assert_eq!(beyond["detail"], "300 of the charge can still be refunded");
    report(&shop, "2", &charge, 300, json!({ "refund_id": "re_2" })).await;
    let beyond = refund(&shop, "s", &charge, 1).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    check_refunds(&shop, &charge, &[(600, "psp", 0), (300, "psp", 0)]).await;
    assert!(shop.home().providers().made("refund").await.is_empty());
}

async fn a_refund_of_a_charge_that_is_recorded_later_counts_against_it(on: Store) {
    let provider = HttpReceiver::start().await;
    let made = r#"{"id":"ch_1","kind":"charge","amount":900,"currency":"EUR"}"#;
    provider.reply(HttpReply::status(201).body(made));
    let url = provider.url("");
    let flags = [SOURCE[0], SOURCE[1], "--payment-provider", &url];
    let shop = Shop::start(on, &flags).await;
    report(&shop, "1", "ch_1", 900, json!({ "refund_id": "re_1" })).await;
    let paid = shop.post("/payments", Some("p"), PAYMENT).await;
    assert_eq!(paid.status, 201, "{}", paid.text());
    let beyond = refund(&shop, "r", "ch_1", 1).await;
    problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
}

async fn a_refund_beyond_the_charge_is_recorded_and_its_excess_shown(on: Store) {
    let shop = start(on, &[]).await;
    let charge = charge(&shop).await;
    assert_eq!(refund(&shop, "r", &charge, 600).await.status, 201);
    for (id, amount) in [("re_1", 700), ("re_2", 50)] {
        let answer = report(&shop, id, &charge, amount, json!({ "refund_id": id })).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let entries = [(600, "shop", 0), (700, "psp", 400), (50, "psp", 50)];
    check_refunds(&shop, &charge, &entries).await;
    let beyond = refund(&shop, "s", &charge, 1).await;
    let beyond = problem(&beyond, 409, "CONFLICT.refund.exceeds_charge");
    assert_eq!(beyond["detail"], "0 of the charge can still be refunded");
}

async fn a_webhook_settles_a_refund_with_an_unknown_outcome(on: Store) {
    let shop = start(on, &["--lease", "1m"]).await;
    let charge = unknown(&shop).await;
    let (theirs, key) = made(&shop).await;
    let data = json!({ "refund_id": theirs, "idempotency_key": key });
    let answer = report(&shop, "1", &charge, 500, data).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    check_refunds(&shop, &charge, &[(500, "shop", 0)]).await;
    assert_eq!(results(&shop, "refund").await, 1);
    // The provider still loses every response: the retry does not need one.
    let refunded = refund(&shop, "r", &charge, 500).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    check_refunds(&shop, &charge, &[(500, "shop", 0)]).await;
}

async fn a_webhook_without_the_key_and_the_request_are_one_refund(on: Store) {
    let shop = start(on, &["--lease", "1m"]).await;
    let charge = unknown(&shop).await;
    let (theirs, key) = made(&shop).await;
    report(&shop, "1", &charge, 500, json!({ "refund_id": theirs })).await;
    check_refunds(&shop, &charge, &[(500, "psp", 0)]).await;
    shop.home().providers().misbehave("any", "ok", 1).await;
    let refunded = refund(&shop, "r", &charge, 500).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    let named = json!({ "refund_id": "re_other", "idempotency_key": key });
    assert_eq!(report(&shop, "2", &charge, 500, named).await.status, 200);
    check_refunds(&shop, &charge, &[(500, "psp", 0)]).await;
    let id = refunded.json().unwrap()["id"].as_str().unwrap().to_owned();
    let row = format!("SELECT count(*) FROM shop_refund WHERE id = '{id}'");
    assert_eq!(shop.home().number(&row).await, 1);
    let rest = refund(&shop, "s", &charge, 400).await;
    assert_eq!(rest.status, 201, "{}", rest.text());
}

async fn a_refund_that_was_cut_off_and_its_webhook_are_one_refund(on: Store) {
    for (has_key, source) in [(true, "shop"), (false, "psp")] {
        let (home, charge) = die_at(on, "refunds.call.after:1").await;
        let flags = [SOURCE[0], SOURCE[1], "--lease", "1m"];
        let shop = Shop::start_in(home, &flags);
        let (theirs, key) = made(&shop).await;
        let key = has_key.then_some(key);
        let data = json!({ "refund_id": theirs, "idempotency_key": key });
        let answer = report(&shop, "1", &charge, 400, data).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let body = format!(r#"{{"charge_id":"{charge}","amount":400}}"#);
        shop.until_answered("/refunds", "r", &body).await;
        check_refunds(&shop, &charge, &[(400, source, 0)]).await;
        let rest = refund(&shop, "s", &charge, 500).await;
        assert_eq!(rest.status, 201, "{}", rest.text());
    }
}

async fn a_webhook_that_names_a_pending_refund_by_the_shops_id_can_come_again(on: Store) {
    let shop = start(on, &["--lease", "1m"]).await;
    let charge = unknown(&shop).await;
    shop.home()
        .change("UPDATE shop_refund SET id = 'rf_known'")
        .await;
    let named = || json!({ "refund_id": "rf_known" });
    let early = report(&shop, "1", &charge, 500, named()).await;
    problem(&early, 409, "CONFLICT.idempotency.in_progress");
    assert!(early.header("retry-after").is_some());
    assert!(refunds(&shop, &charge).await.is_empty());
    shop.home().providers().misbehave("any", "ok", 1).await;
    assert_eq!(refund(&shop, "r", &charge, 500).await.status, 201);
    let again = report(&shop, "1", &charge, 500, named()).await;
    assert_eq!(again.status, 200, "{}", again.text());
    check_refunds(&shop, &charge, &[(500, "shop", 0)]).await;
}

async fn a_webhook_that_names_two_refunds_changes_neither(on: Store) {
    let shop = start(on, &["--lease", "1m"]).await;
    let charge = charge(&shop).await;
    assert_eq!(refund(&shop, "q", &charge, 400).await.status, 201);
    let (_, key) = made(&shop).await;
    close(&shop.home().providers(), "refund").await;
    problem(
        &refund(&shop, "r", &charge, 400).await,
        504,
        "DEPENDENCY.timeout",
    );
    let named = "UPDATE shop_refund SET id = 'rf_known' WHERE state = 'pending'";
    shop.home().change(named).await;
    let data = json!({ "refund_id": "rf_known", "idempotency_key": key });
    let answer = report(&shop, "1", &charge, 400, data).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    shop.home().providers().misbehave("any", "ok", 1).await;
    let refunded = refund(&shop, "r", &charge, 400).await;
    assert_eq!(refunded.status, 201, "{}", refunded.text());
    check_refunds(&shop, &charge, &[(400, "shop", 0), (400, "shop", 0)]).await;
}

async fn a_webhook_and_the_response_at_once_are_one_refund(on: Store) {
    let shop = start(on, &[]).await;
    let charge = charge(&shop).await;
    let providers = shop.home().providers();
    for number in 1..=6_usize {
        // The provider has made the refund three seconds before it responds.
        let is_slow = number % 3 == 1;
        if is_slow {
            providers.misbehave("refund", "slow", 1).await;
        }
        let key = format!("r-{number}");
        let reporting = async {
            let found = async || providers.made("refund").await.len() == number;
            eventually(PATIENCE, found).await;
            let (theirs, key) = made(&shop).await;
            let key = number.is_multiple_of(2).then_some(key);
            let data = json!({ "refund_id": theirs, "idempotency_key": key });
            report(&shop, &format!("msg_{number}"), &charge, 150, data).await
        };
        let (refunded, reported) = tokio::join!(refund(&shop, &key, &charge, 150), reporting);
        assert_eq!(refunded.status, 201, "{}", refunded.text());
        assert_eq!(reported.status, 200, "{}", reported.text());
    }
    let entries = refunds(&shop, &charge).await;
    assert_eq!(entries.len(), 6, "{entries:?}");
    assert!(
        entries
            .iter()
            .all(|(amount, _, excess)| (*amount, *excess) == (150, 0))
    );
    assert_eq!(shop.received("refund.succeeded", 6).await.len(), 6);
    let rows = "SELECT count(*) FROM shop_refund WHERE state = 'done'";
    assert_eq!(shop.home().number(rows).await, 6);
}

async fn a_refund_that_is_reported_with_another_amount_is_a_conflict(on: Store) {
    let shop = start(on, &[]).await;
    let charge = charge(&shop).await;
    assert_eq!(refund(&shop, "r", &charge, 250).await.status, 201);
    let (theirs, key) = made(&shop).await;
    for data in [
        json!({ "refund_id": theirs }),
        json!({ "refund_id": "re_other", "idempotency_key": key }),
    ] {
        let other = report(&shop, "1", &charge, 251, data).await;
        problem(&other, 409, "CONFLICT.refund.differs");
    }
    check_refunds(&shop, &charge, &[(250, "shop", 0)]).await;
}

async fn a_webhook_about_a_refund_with_bad_members_is_refused(on: Store) {
    let shop = start(on, &[]).await;
    let long = "r".repeat(65);
    for data in [
        json!({}),
        json!({ "refund_id": null }),
        json!({ "refund_id": "" }),
        json!({ "refund_id": 1 }),
        json!({ "refund_id": "re_\u{0}" }),
        json!({ "refund_id": "re_1' OR '1'='1" }),
        json!({ "refund_id": long }),
        json!({ "refund_id": "re_1", "idempotency_key": "" }),
        json!({ "refund_id": "re_1", "idempotency_key": "k\u{0}" }),
        json!({ "refund_id": "re_1", "idempotency_key": ["k"] }),
        json!({ "refund_id": "re_1", "amount": 0 }),
        json!({ "refund_id": "re_1", "amount": 100_000_000 }),
        json!({ "refund_id": "re_1", "amount": 1.5 }),
        json!({ "refund_id": "re_1", "amount": "250" }),
        json!({ "refund_id": "re_1", "charge_id": "c h" }),
    ] {
        let answer = report(&shop, "1", "ch_1", 250, data.clone()).await;
        problem(&answer, 400, "VALIDATION.member");
    }
    assert!(shop.entries("").await.is_empty());
    let good = report(&shop, "1", "ch_1", 250, json!({ "refund_id": "re_1" })).await;
    assert_eq!(good.status, 200, "{}", good.text());
}

/// A shop with separate providers that accepts webhooks.
async fn start(on: Store, flags: &[&str]) -> Shop {
    let flags = [&SOURCE[..], flags].concat();
    Shop::start_in(Home::with_providers(on).await, &flags)
}

/// Requests a refund of 500 that the provider makes without the shop learning of it; returns the id
/// of the charge.
async fn unknown(shop: &Shop) -> String {
    let charge = charge(shop).await;
    close(&shop.home().providers(), "refund").await;
    let unknown = refund(shop, "r", &charge, 500).await;
    problem(&unknown, 504, "DEPENDENCY.timeout");
    charge
}

/// The provider's id of the last refund, and the key under which the shop requested it.
async fn made(shop: &Shop) -> (Value, Value) {
    let made = shop.home().providers().made("refund").await;
    let last = made.last().unwrap();
    (last["id"].clone(), last["key"].clone())
}

/// Sends a webhook about a refund. The members of `data` replace the others.
async fn report(shop: &Shop, id: &str, charge: &str, amount: i64, data: Value) -> HttpResponse {
    let mut all = json!({ "charge_id": charge, "amount": amount });
    let Value::Object(data) = data else {
        panic!("the data is an object");
    };
    for (name, value) in data {
        all[name] = value;
    }
    let body = json!({
        "type": "refund.succeeded", "timestamp": "2026-01-01T00:00:00Z", "data": all,
    });
    post(shop, "psp", id, &body.to_string()).await
}

/// Checks the amount, source and excess of each refund in the ledger, and that each has one event,
/// of the tenant of the charge.
async fn check_refunds(shop: &Shop, charge: &str, expected: &[(i64, &str, i64)]) {
    let entries = refunds(shop, charge).await;
    let entries = entries
        .iter()
        .map(|(amount, source, excess)| (*amount, source.as_str(), *excess));
    let (mut found, mut expected) = (entries.collect::<Vec<_>>(), expected.to_vec());
    // Ids of one millisecond have no order.
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let events = shop.received("refund.succeeded", expected.len()).await;
    assert_eq!(events.len(), expected.len(), "{events:?}");
    let theirs = "type = 'refund.succeeded' AND tenant = 'alice'";
    let theirs = count(&shop.home(), "hapax.outbox_event", theirs).await;
    assert_eq!(usize::try_from(theirs).unwrap(), expected.len());
}

/// The number of messages with this result.
async fn results(shop: &Shop, result: &str) -> i64 {
    let has_it = format!("result = '{result}'");
    count(&shop.home(), "hapax.inbox_message", &has_it).await
}

/// The amount, source and excess of each refund of a charge in the ledger.
async fn refunds(shop: &Shop, charge: &str) -> Vec<(i64, String, i64)> {
    let entries = shop.entries(&format!("?charge_id={charge}")).await;
    let refunds = entries.iter().filter(|entry| entry["kind"] == "refund");
    let number = |entry: &Value, name: &str| entry[name].as_i64().unwrap();
    refunds
        .map(|entry| {
            let source = entry["source"].as_str().unwrap().to_owned();
            (number(entry, "amount"), source, number(entry, "excess"))
        })
        .collect()
}
