//! Sample claims, responses, events, messages and keys.
//!
//! Each function returns the simplest value of its kind. A test changes the field that it is about,
//! so that the difference is visible in the test.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hapax::{
    event::{Headers, NewEvent},
    idempotency::{Claim, OnExpired, PlannedRequest, StoredResponse},
    inbox::Message,
    key::{Fingerprint, IdempotencyKey, Operation, Scope, Tenant},
    keyring::{KEY_BYTES, Keyring},
};

/// The retention of a sample claim.
pub const RETENTION: Duration = Duration::from_hours(1);

/// The scope of `key` for `tenant` and `operation`.
///
/// # Panics
/// Panics if a part is empty, too long or malformed.
pub fn scope(tenant: &str, operation: &str, key: &str) -> Scope {
    Scope {
        tenant: Tenant::new(tenant).expect("a sample tenant is well formed"),
        operation: Operation::new(operation).expect("a sample operation is well formed"),
        key: IdempotencyKey::new(key).expect("a sample key is well formed"),
    }
}

/// A claim of `key` for `POST /orders` by tenant Alice, with a correlation id.
pub fn claim(key: &str) -> Claim {
    claim_of(scope("alice", "POST /orders", key))
}

/// A claim of a scope.
pub fn claim_of(scope: Scope) -> Claim {
    Claim {
        scope,
        fingerprint: fingerprint(1),
        retention: RETENTION,
        on_expired: OnExpired::New,
        context: Headers::from([("correlation_id".to_owned(), "corr-1".to_owned())]),
    }
}

/// A fingerprint that is different for each number.
pub fn fingerprint(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number; 32])
}

/// `201 Created` with this body.
pub fn response(body: &str) -> StoredResponse {
    StoredResponse {
        status: 201,
        headers: vec![(
            "content-type".to_owned(),
            Bytes::from_static(b"application/json"),
        )],
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

/// An `order.created` event about the order `id`.
pub fn event(id: &str) -> NewEvent {
    NewEvent::json("order.created", &serde_json::json!({ "id": id })).about("order", id)
}

/// The message `message_id` from the provider to `consumer`, with this payload.
///
/// # Panics
/// Panics if a name is empty or too long.
pub fn message(consumer: &str, message_id: &str, payload: &str) -> Message {
    Message::new(consumer, "provider", message_id, payload.as_bytes())
        .expect("a sample message is well formed")
}

/// Encryption keys, different for each number.
///
/// # Panics
/// Never: the keys have the right length.
pub fn keyring(numbers: &[u8]) -> Keyring {
    let key = |number: &u8| STANDARD.encode([*number; KEY_BYTES]);
    Keyring::parse(numbers.iter().map(key)).expect("sample keys are long enough")
}

/// A single-shot request that runs `statements` and responds with `body`.
pub fn single_shot<S>(claim: Claim, statements: Vec<S>, body: &str) -> PlannedRequest<S> {
    PlannedRequest {
        claim,
        statements,
        events: Vec::new(),
        response: response(body),
        deadline: None,
    }
}
