//! An authorization is captured or voided once, and refunds never exceed the amount taken.

use serde_json::json;

use crate::provider::{Provider, charge};

#[tokio::test]
async fn an_authorization_is_captured_or_voided_and_never_both() {
    let provider = Provider::payment();
    let one = authorized(&provider, "a-1").await;
    let capture = format!("/authorizations/{one}/capture");
    let void = format!("/authorizations/{one}/void");
    let beyond = provider
        .told(409, &capture, "c-0", json!({ "amount": 501 }))
        .await;
    assert_eq!(beyond["code"], "exceeds");
    let captured = provider
        .told(201, &capture, "c-1", json!({ "amount": 400 }))
        .await;
    assert_eq!(
        (&captured["kind"], &captured["authorization"]),
        (&json!("capture"), &json!(one))
    );
    assert_eq!(
        (&captured["amount"], &captured["currency"]),
        (&json!(400), &json!("EUR"))
    );
    let again = provider
        .told(201, &capture, "c-1", json!({ "amount": 400 }))
        .await;
    assert_eq!(again, captured);
    let twice = provider
        .told(409, &capture, "c-2", json!({ "amount": 1 }))
        .await;
    assert_eq!(twice["code"], "captured");
    let voided = provider.told(409, &void, "v-1", json!({})).await;
    assert_eq!(voided["code"], "captured");

    let two = authorized(&provider, "a-2").await;
    let void = format!("/authorizations/{two}/void");
    let voided = provider.told(201, &void, "v-2", json!({})).await;
    assert_eq!(
        (&voided["kind"], &voided["authorization"]),
        (&json!("void"), &json!(two))
    );
    let twice = provider.told(409, &void, "v-3", json!({})).await;
    assert_eq!(twice["code"], "voided");
    let capture = format!("/authorizations/{two}/capture");
    let late = provider
        .told(409, &capture, "c-3", json!({ "amount": 1 }))
        .await;
    assert_eq!(late["code"], "voided");
}

#[tokio::test]
async fn refunds_never_exceed_what_was_taken() {
    let provider = Provider::payment();
    let charged = provider.told(201, "/charges", "k", charge("tok_ok")).await;
    let refunds = format!("/charges/{}/refunds", charged["id"].as_str().unwrap());
    let refunded = provider
        .told(201, &refunds, "r-1", json!({ "amount": 300 }))
        .await;
    assert_eq!(
        (&refunded["kind"], &refunded["charge"]),
        (&json!("refund"), &charged["id"])
    );
    let beyond = provider
        .told(409, &refunds, "r-2", json!({ "amount": 201 }))
        .await;
    assert_eq!(beyond["code"], "exceeds");
    provider
        .told(201, &refunds, "r-3", json!({ "amount": 200 }))
        .await;

    let authorization = authorized(&provider, "a").await;
    let capture = format!("/authorizations/{authorization}/capture");
    let captured = provider
        .told(201, &capture, "c", json!({ "amount": 500 }))
        .await;
    let id = captured["id"].as_str().unwrap();
    let wrong = format!("/charges/{id}/refunds");
    provider
        .told(404, &wrong, "r-4", json!({ "amount": 1 }))
        .await;
    let right = format!("/captures/{id}/refunds");
    let refunded = provider
        .told(201, &right, "r-4", json!({ "amount": 500 }))
        .await;
    assert_eq!(refunded["capture"], id);
}

async fn authorized(provider: &Provider, key: &str) -> String {
    let made = provider
        .told(201, "/authorizations", key, charge("tok_ok"))
        .await;
    assert_eq!(made["kind"], "authorization");
    made["id"].as_str().unwrap().to_owned()
}
