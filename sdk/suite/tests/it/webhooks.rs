//! The inbox: a message is accepted once, even if it is delivered repeatedly and to both nodes.

use futures_util::future::join_all;
use hapax::signature::{Signer, sign};
use hapax_testkit::{clock::system_clock, http::HttpResponse, relay::SECRET};

use crate::{
    kind::{EXPRESS, FASTAPI, Kind},
    shop::Shop,
};

const DELIVERIES: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn express_and_fastapi_take_a_webhook_once() {
    check_webhooks([EXPRESS, FASTAPI]).await;
}

pub(crate) async fn check_webhooks(kinds: [Kind; 2]) {
    let shop = Shop::open(&kinds).await;
    let deliveries = (0..DELIVERIES).map(|number| deliver(&shop, number % 2, "msg_1", 5));
    for answer in join_all(deliveries).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    check_ledger(&shop, 1, 5).await;
    for place in 0..2 {
        let other = deliver(&shop, place, "msg_1", 6).await;
        assert_eq!(other.status, 409, "{}", other.text());
        let code = &other.json().expect("a problem is JSON")["code"];
        assert_eq!(code, "CONFLICT.inbox.payload_mismatch");
        let forged = send(&shop, place, "msg_2", &payment(6), "v1,AAAA").await;
        assert_eq!(forged.status, 401, "{}", forged.text());
    }
    check_ledger(&shop, 1, 5).await;
    assert_eq!(deliver(&shop, 1, "msg_2", 6).await.status, 200);
    assert_eq!(deliver(&shop, 0, "msg_2", 6).await.status, 200);
    check_ledger(&shop, 2, 11).await;
}

/// Checks the number of entries in the ledger and in the inbox, and the sum of the amounts.
pub(crate) async fn check_ledger(shop: &Shop, entries: i64, sum: i64) {
    for (sql, expected) in [
        ("SELECT count(*) FROM ledger_entry", entries),
        ("SELECT count(*) FROM hapax.inbox_message", entries),
        (
            "SELECT coalesce(sum(amount), 0)::bigint FROM ledger_entry",
            sum,
        ),
    ] {
        assert_eq!(shop.count(sql).await, expected, "{sql}");
    }
}

fn payment(amount: u32) -> String {
    format!(r#"{{"type": "payment.received", "data": {{"amount": {amount}}}}}"#)
}

/// Delivers a payment with a valid signature.
async fn deliver(shop: &Shop, place: usize, id: &str, amount: u32) -> HttpResponse {
    let payment = payment(amount);
    let key: Signer = SECRET.parse().expect("a secret");
    let signature = sign(id, now(), payment.as_bytes(), &[key]);
    send(shop, place, id, &payment, &signature).await
}

async fn send(shop: &Shop, place: usize, id: &str, body: &str, signature: &str) -> HttpResponse {
    let timestamp = now().to_string();
    let headers = [
        ("content-type", "application/json"),
        ("webhook-id", id),
        ("webhook-timestamp", timestamp.as_str()),
        ("webhook-signature", signature),
    ];
    let url = format!("{}/webhooks", shop.urls()[place]);
    let answer = shop.http.post(&url, &headers, body.to_owned()).await;
    answer.expect("the service responds")
}

fn now() -> i64 {
    system_clock().now().as_secs()
}
