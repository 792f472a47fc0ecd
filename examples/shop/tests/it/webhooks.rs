//! Tests of received webhooks: verified, accepted once, and recorded once in the ledger.

use std::time::SystemTime;

use hapax::{
    Timestamp,
    signature::{Signer, sign},
};
use hapax_testkit::http::HttpResponse;
use http::Method;

use crate::{
    shop::{JSON, PAYMENT, Shop, Store, on_both_stores, problem},
    uploads::sent::count,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_AAKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// The flags of a shop that accepts webhooks of the source `psp`.
pub(crate) const SOURCE: [&str; 2] = [
    "--inbox-secret",
    "psp=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
];

on_both_stores! {
    a_webhook_is_one_ledger_entry_however_often_it_comes,
    a_refund_under_several_ids_is_one_ledger_entry,
    a_webhook_about_a_known_charge_goes_to_its_tenants_ledger,
    a_known_id_with_another_payload_is_a_conflict,
    two_senders_may_give_their_webhooks_one_id,
    another_type_is_accepted_and_ignored,
    an_unknown_source_is_not_there_and_a_bad_signature_is_no_entry,
    a_malformed_webhook_is_refused_and_can_come_again,
}

async fn a_webhook_is_one_ledger_entry_however_often_it_comes(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let body = succeeded("payment.succeeded", "ch_foreign", 250);
    let first = post(&shop, "psp", "msg_1", &body).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let again = post(&shop, "psp", "msg_1", &body).await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    assert_eq!(post(&shop, "psp", "msg_2", &body).await.status, 200);
    let other = succeeded("refund.succeeded", "ch_foreign", 251);
    problem(
        &post(&shop, "psp", "msg_2", &other).await,
        409,
        "CONFLICT.inbox.payload_mismatch",
    );

    let entries = shop.entries("?charge_id=ch_foreign").await;
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert_eq!(entries[0]["source"], "psp");
    assert_eq!(entries[0]["kind"], "charge");
    assert_eq!(entries[0]["amount"], 250);
    for (outcome, count) in [("accepted", 2.0), ("duplicate", 1.0), ("mismatch", 1.0)] {
        let messages =
            format!("hapax_inbox_messages_total{{consumer=\"ledger\",outcome=\"{outcome}\"");
        let counted = shop.metric(&messages).await;
        assert!((counted - count).abs() < 0.5, "{outcome}: {counted}");
    }
    let rows = "result = 'charge' AND processed_at >= received_at";
    assert_eq!(count(&shop.home(), "hapax.inbox_message", rows).await, 2);
}

async fn a_refund_under_several_ids_is_one_ledger_entry(on: Store) {
    let marketplace = format!("marketplace={OTHER}");
    let flags = [
        "--inbox-secret",
        marketplace.as_str(),
        "--inbox-dedupe",
        "refund.succeeded=/data/refund_id",
    ];
    let shop = Shop::start(on, &[&SOURCE[..], &flags].concat()).await;
    let refund = succeeded("refund.succeeded", "ch_1", 250);
    let later = refund.replace("2026-01-01", "2026-01-02");
    for (id, body, came) in [
        ("msg_1", &refund, None),
        ("msg_2", &refund, Some("replayed")),
        ("msg_3", &later, Some("replayed")),
        ("msg_4", &refund.replace("rf_1", "rf_2"), None),
        // The rest of the payload is not compared, so the shop does not read the other amount.
        ("msg_5", &refund.replace("250", "251"), Some("replayed")),
        // Payments are recognized by the id of the message.
        ("msg_1", &succeeded("payment.succeeded", "ch_1", 900), None),
    ] {
        let answer = post(&shop, "psp", id, body).await;
        assert_eq!(answer.status, 200, "{id}: {}", answer.text());
        assert_eq!(answer.header("idempotency-status"), came, "{id} {body}");
    }
    let without = refund.replace("refund_id", "refund");
    let refused = post(&shop, "psp", "msg_6", &without).await;
    problem(&refused, 400, "VALIDATION.request");
    assert!(
        refused.text().contains("/data/refund_id"),
        "{}",
        refused.text()
    );
    // To the inbox, the message of another source is new. The shop recognizes the refund.
    let again = signed_by(&shop, OTHER, "marketplace", "msg_1", now(), &refund).await;
    assert_eq!(
        (again.status, again.header("idempotency-status")),
        (200, None)
    );
    assert_eq!(shop.entries("?charge_id=ch_1").await.len(), 3);
    for (source, result) in [
        ("psp", "refund"),
        ("marketplace", "refund: recorded before"),
    ] {
        let fact = r#"message_id = '["refund.succeeded","rf_1"]'"#;
        let row = format!("{fact} AND source = '{source}' AND result = '{result}'");
        let found = count(&shop.home(), "hapax.inbox_message", &row).await;
        assert_eq!(found, 1, "{source}");
    }
}

async fn a_webhook_about_a_known_charge_goes_to_its_tenants_ledger(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let paid = shop.post_as("demo-bob", "/payments", Some("p"), PAYMENT);
    let paid = paid.await.json().unwrap();
    let charge = paid["id"].as_str().unwrap();
    let body = succeeded("payment.succeeded", charge, 900);
    post(&shop, "psp", "msg_1", &body).await;
    let query = format!("?charge_id={charge}");
    let of_bob = shop.get_as("demo-bob", &format!("/ledger{query}")).await;
    let of_bob = of_bob.json().unwrap()["entries"].clone();
    assert_eq!(of_bob.as_array().unwrap().len(), 2);
    assert!(shop.entries(&query).await.is_empty());
}

async fn a_known_id_with_another_payload_is_a_conflict(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let refunded = |amount| succeeded("refund.succeeded", "ch_1", amount);
    post(&shop, "psp", "msg_1", &refunded(250)).await;
    let other = post(&shop, "psp", "msg_1", &refunded(251)).await;
    problem(&other, 409, "CONFLICT.inbox.payload_mismatch");
    assert_eq!(shop.entries("?charge_id=ch_1").await.len(), 1);
}

async fn two_senders_may_give_their_webhooks_one_id(on: Store) {
    let (bank, marketplace) = (format!("bank={SECRET}"), format!("marketplace={OTHER}"));
    let secrets = [
        "--inbox-secret",
        bank.as_str(),
        "--inbox-secret",
        marketplace.as_str(),
    ];
    let shop = Shop::start(on, &secrets).await;
    let ping = r#"{"type":"ping","timestamp":"2026-01-01T00:00:00Z","data":{}}"#;
    let one = succeeded("payment.succeeded", "ch_1", 900);
    let two = succeeded("payment.succeeded", "ch_2", 700);
    let sent = [
        ("marketplace", OTHER, "evt_1", ping),
        ("bank", SECRET, "evt_1", &one),
        ("marketplace", OTHER, "evt_2", &two),
        ("bank", SECRET, "evt_2", &two),
    ];
    for came in [None, Some("replayed")] {
        for (source, secret, id, body) in sent {
            let answer = signed_by(&shop, secret, source, id, now(), body).await;
            assert_eq!(answer.status, 200, "{source} {id}: {}", answer.text());
            let status = answer.header("idempotency-status");
            assert_eq!(status, came, "{source} {id}");
        }
    }
    let other = signed_by(&shop, SECRET, "bank", "evt_1", now(), &two).await;
    problem(&other, 409, "CONFLICT.inbox.payload_mismatch");
    for (charge, expected) in [
        ("ch_1", vec!["bank"]),
        ("ch_2", vec!["bank", "marketplace"]),
    ] {
        let entries = shop.entries(&format!("?charge_id={charge}")).await;
        let sources = entries.iter().filter_map(|it| it["source"].as_str());
        let mut sources: Vec<_> = sources.collect();
        sources.sort_unstable();
        assert_eq!(sources, expected, "{entries:?}");
    }
}

async fn another_type_is_accepted_and_ignored(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let body = r#"{"type":"cat.born","timestamp":"2026-01-01T00:00:00Z","data":{"any":[1]}}"#;
    assert_eq!(post(&shop, "psp", "msg_1", body).await.status, 200);
    let again = post(&shop, "psp", "msg_1", body).await;
    assert_eq!(again.header("idempotency-status"), Some("replayed"));
    // No database stores a NUL in a text.
    let hostile = body.replace("cat.born", &format!("a\\u0000{}", "b".repeat(5_000)));
    assert_eq!(post(&shop, "psp", "msg_2", &hostile).await.status, 200);
    assert!(shop.entries("").await.is_empty());
    for result in ["ignored: type \"cat.born\"", "ignored: type \"a__bbb%"] {
        let condition = format!("result LIKE '{result}'");
        let found = count(&shop.home(), "hapax.inbox_message", &condition).await;
        assert_eq!(found, 1, "{result}");
    }
}

async fn an_unknown_source_is_not_there_and_a_bad_signature_is_no_entry(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    let body = succeeded("refund.succeeded", "ch_1", 250);
    assert_eq!(post(&shop, "nobody", "msg_1", &body).await.status, 404);
    let stamp = now().to_string();
    let forged = [
        JSON,
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", &stamp),
        ("webhook-signature", "v1,AAAA"),
    ];
    let answer = shop
        .send(Method::POST, "/webhooks/psp", &forged, &body)
        .await;
    assert_eq!(answer.status, 401, "{}", answer.text());
    let bare = shop
        .send(Method::POST, "/webhooks/psp", &[JSON], &body)
        .await;
    assert!(matches!(bare.status, 400 | 401), "{}", bare.text());
    let old = signed(&shop, "psp", "msg_1", now() - 3600, &body).await;
    assert_eq!(old.status, 401, "{}", old.text());
    assert!(shop.entries("").await.is_empty());
}

async fn a_malformed_webhook_is_refused_and_can_come_again(on: Store) {
    let shop = Shop::start(on, &SOURCE).await;
    for body in [
        "nonsense",
        r#"["refund.succeeded",{"charge_id":"ch","amount":1}]"#,
        r#"{"type":"refund.succeeded","timestamp":"x","data":["ch",1]}"#,
        r#"{"type":"refund.succeeded"}"#,
        r#"{"type":"refund.succeeded","timestamp":"x","data":{"amount":1}}"#,
        r#"{"type":"refund.succeeded","timestamp":"x","data":{"charge_id":"ch","amount":-1}}"#,
    ] {
        let answer = post(&shop, "psp", "msg_1", body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    let good = succeeded("refund.succeeded", "ch_1", 250);
    assert_eq!(post(&shop, "psp?x=1", "msg_1", &good).await.status, 400);
    assert_eq!(post(&shop, "psp", "msg_1", &good).await.status, 200);
}

fn succeeded(kind: &str, charge: &str, amount: i64) -> String {
    format!(
        r#"{{"type":"{kind}","timestamp":"2026-01-01T00:00:00Z","data":{{"refund_id":"rf_1","charge_id":"{charge}","amount":{amount}}}}}"#
    )
}

/// Sends a webhook about a refund.
pub(crate) async fn refunded(shop: &Shop, id: &str) -> HttpResponse {
    post(shop, "psp", id, &succeeded("refund.succeeded", "ch_1", 250)).await
}

/// Sends a signed message.
pub(crate) async fn post(shop: &Shop, source: &str, id: &str, body: &str) -> HttpResponse {
    signed(shop, source, id, now(), body).await
}

async fn signed(shop: &Shop, source: &str, id: &str, stamp: i64, body: &str) -> HttpResponse {
    signed_by(shop, SECRET, source, id, stamp, body).await
}

async fn signed_by(
    shop: &Shop,
    secret: &str,
    source: &str,
    id: &str,
    stamp: i64,
    body: &str,
) -> HttpResponse {
    let signature = sign(
        id,
        stamp,
        body.as_bytes(),
        [&Signer::V1(secret.parse().unwrap())],
    );
    let stamp = stamp.to_string();
    let headers = [
        JSON,
        ("webhook-id", id),
        ("webhook-timestamp", &stamp),
        ("webhook-signature", &signature),
    ];
    shop.send(Method::POST, &format!("/webhooks/{source}"), &headers, body)
        .await
}

#[expect(
    clippy::disallowed_methods,
    reason = "the shop verifies signatures with the system time"
)]
fn now() -> i64 {
    Timestamp::from(SystemTime::now()).as_secs()
}
