//! HTTP requests of intents.

use bytes::Bytes;
use hapax::signature::{self, Signer};
use serde_json::{Value, json};

use super::{
    client::Client,
    journal::{Intent, Operation, Outcome},
    receiver::now,
    shop::INBOX_SECRET,
};

/// Sends `body` once, with the key of `intent`.
pub(super) async fn send(client: &Client, intent: &Intent, body: Bytes) -> Outcome {
    let Intent {
        tenant,
        operation,
        key,
        ..
    } = intent;
    let path = operation.path();
    match operation {
        Operation::Order | Operation::Payment | Operation::Refund => {
            client
                .post(tenant, path, &[("idempotency-key", key)], body)
                .await
        }
        // The key of a signup is derived from the email address.
        Operation::Signup => client.post(tenant, path, &[], body).await,
        Operation::Message => {
            let signer: Signer = INBOX_SECRET.parse().expect("the secret is valid");
            let seconds = now().as_secs();
            let headers = [
                (signature::ID_HEADER, key.as_str()),
                (signature::TIMESTAMP_HEADER, &seconds.to_string()),
                (
                    signature::SIGNATURE_HEADER,
                    &signature::sign(key, seconds, &body, [&signer]),
                ),
            ];
            client.post(tenant, path, &headers, body).await
        }
    }
}

/// Changes the body, so that a request with the same key must be rejected.
pub(super) fn altered(body: &Value) -> Value {
    let mut altered = body.clone();
    if let Some(amount) = altered.pointer_mut("/amount") {
        *amount = json!(amount.as_i64().unwrap_or_default() + 1);
    } else if let Some(amount) = altered.pointer_mut("/data/amount") {
        *amount = json!(amount.as_i64().unwrap_or_default() + 1);
    } else {
        altered["name"] = json!("Bea");
    }
    altered
}
