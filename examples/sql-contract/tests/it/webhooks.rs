//! Tests of the inbox: a message is accepted once, even if it is delivered repeatedly.

use futures_util::future::join_all;
use hapax_testkit::http::HttpAnswer;

use crate::{service::Language, shop::Shop};

#[tokio::test(flavor = "multi_thread")]
async fn python_takes_a_webhook_once() {
    check_webhooks(Language::Python).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_takes_a_webhook_once() {
    check_webhooks(Language::Node).await;
}

async fn check_webhooks(language: Language) {
    let shop = Shop::open(&[language; 2]).await;
    let urls = shop.urls();
    let posts =
        (0..100).map(|number| post(&shop, &urls[number % 2], "bank", "msg_1", "{\"amount\": 5}"));
    for answer in join_all(posts).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let other = post(&shop, &urls[0], "bank", "msg_1", "{\"amount\": 6}").await;
    assert_eq!(other.status, 409);
    let code = &other.json().expect("a problem is JSON")["code"];
    assert_eq!(code, "CONFLICT.inbox.payload_mismatch");
    assert_eq!(
        post(&shop, &urls[1], "bank", "msg_2", "{\"amount\": 6}")
            .await
            .status,
        200
    );
    for (id, body) in [
        ("", "{\"amount\": 1}"),
        ("x", "[]"),
        ("x", "{\"amount\": 1.5}"),
    ] {
        assert_eq!(
            post(&shop, &urls[1], "bank", id, body).await.status,
            400,
            "{id} {body}"
        );
    }
    let long = "m".repeat(256);
    assert_eq!(
        post(&shop, &urls[1], "bank", &long, "{\"amount\": 1}")
            .await
            .status,
        400
    );
    // A message of another source with the same id is another message.
    for (id, amount) in [("msg_1", 20), ("msg_2", 6)] {
        let body = format!("{{\"amount\": {amount}}}");
        for url in &urls {
            let answer = post(&shop, url, "marketplace", id, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
    let nobody = post(&shop, &urls[0], "nobody", "msg_9", "{\"amount\": 1}").await;
    assert_eq!(nobody.status, 404, "{}", nobody.text());
    let entries = shop
        .count("SELECT count(*) + 10 * sum(amount)::bigint FROM ledger_entry")
        .await;
    assert_eq!(entries, 4 + 10 * (5 + 6 + 20 + 6));
    assert_eq!(
        shop.count("SELECT count(*) FROM hapax.inbox_message").await,
        4
    );
}

async fn post(shop: &Shop, url: &str, source: &str, id: &str, body: &str) -> HttpAnswer {
    let headers = [("webhook-id", id), ("content-type", "application/json")];
    let url = format!("{url}/webhooks/{source}");
    let answer = shop.http.post(&url, &headers, body.to_owned()).await;
    answer.expect("the service responds")
}
