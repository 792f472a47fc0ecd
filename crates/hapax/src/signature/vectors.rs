//! Vectors of Standard Webhooks: keys, signatures, and received messages.

use std::time::Duration;

use hapax_testkit::vectors::{Data, Vectors};
use serde::{Deserialize, Serialize};

use super::{KeyTextError, Received, Signer, Verifier, VerifyError, sign, verify};
use crate::clock::Timestamp;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Text {
    role: String,
    text: String,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Parsed {
    #[serde(skip_serializing_if = "Option::is_none")]
    scheme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    public: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[test]
fn the_vectors_of_keys_hold() {
    let vectors: Vectors<Text, Parsed> = Vectors::load("webhook-keys.json");
    let results = vectors.inputs().map(parse).collect();
    vectors.check(results);
}

fn parse(input: &Text) -> Parsed {
    let text = &input.text;
    let (scheme, public) = match &*input.role {
        "signer" => match text.parse::<Signer>() {
            Ok(Signer::V1(_)) => ("v1", None),
            Ok(Signer::V1a(pair)) => ("v1a", Some(pair.verifying_key().to_string())),
            Err(error) => return refused(&error),
        },
        "verifier" => match text.parse::<Verifier>() {
            Ok(Verifier::V1(_)) => ("v1", None),
            Ok(Verifier::V1a(_)) => ("v1a", None),
            Err(error) => return refused(&error),
        },
        other => panic!("unknown role {other}"),
    };
    Parsed {
        scheme: Some(scheme.to_owned()),
        public,
        error: None,
    }
}

fn refused(error: &KeyTextError) -> Parsed {
    let error = match error {
        KeyTextError::Prefix { .. } => "prefix",
        KeyTextError::Base64 => "base64",
        KeyTextError::Length { .. } => "length",
        KeyTextError::NotAKey => "not_a_key",
    };
    Parsed {
        error: Some(error.to_owned()),
        ..Parsed::default()
    }
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Message {
    id: String,
    timestamp: i64,
    body: Data,
    keys: Vec<String>,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Signed {
    signature: String,
}

#[test]
fn the_vectors_of_signatures_hold() {
    let vectors: Vectors<Message, Signed> = Vectors::load("webhook-sign.json");
    let signed = |message: &Message| {
        let keys = message.keys.iter().map(|key| key.parse().unwrap());
        let keys: Vec<Signer> = keys.collect();
        let body = message.body.bytes();
        Signed {
            signature: sign(&message.id, message.timestamp, &body, &keys),
        }
    };
    let results = vectors.inputs().map(signed).collect();
    vectors.check(results);
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Delivery {
    id: String,
    timestamp: String,
    signature: String,
    body: Data,
    keys: Vec<String>,
    now: i64,
    tolerance: u64,
}

#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Verified {
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<String>,
}

#[test]
fn the_vectors_of_received_messages_hold() {
    let vectors: Vectors<Delivery, Verified> = Vectors::load("webhook-verify.json");
    let results = vectors.inputs().map(verified).collect();
    vectors.check(results);
}

fn verified(delivery: &Delivery) -> Verified {
    let keys = delivery.keys.iter().map(|key| key.parse().unwrap());
    let keys: Vec<Verifier> = keys.collect();
    let body = delivery.body.bytes();
    let received = Received {
        id: &delivery.id,
        timestamp: &delivery.timestamp,
        signature: &delivery.signature,
        body: &body,
    };
    let now = Timestamp::from_millis(delivery.now * 1_000);
    let tolerance = Duration::from_secs(delivery.tolerance);
    let (error, header) = match verify(&received, &keys, now, tolerance) {
        Ok(()) => {
            return Verified {
                ok: Some(true),
                ..Verified::default()
            };
        }
        Err(VerifyError::Malformed { header }) => ("malformed", Some(header.to_owned())),
        Err(VerifyError::Stale) => ("stale", None),
        Err(VerifyError::Signature) => ("signature", None),
    };
    Verified {
        ok: None,
        error: Some(error.to_owned()),
        header,
    }
}
