//! Fuzz target for the input of a receiver of webhooks: the headers of a signature, keys as text,
//! and a `traceparent`.
//!
//! The lines of the input are the id, the time, the signatures, a key, and a trace; the rest is the
//! body. A message without a valid signature is rejected. A signed message is accepted.
#![no_main]

use hapax::{
    Timestamp,
    signature::{Received, Secret, Signer, SigningKey, TOLERANCE, Verifier, sign, verify},
    trace::TraceContext,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.splitn(6, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let [id, timestamp, signature, key, trace, body] = std::array::from_fn(|_| line());
    let received = Received {
        id,
        timestamp,
        signature,
        body: body.as_bytes(),
    };
    let secret = Secret::mint([7; 32]);
    let pair = SigningKey::mint([7; 32]);
    let keys = [
        Verifier::V1(secret.clone()),
        Verifier::V1a(pair.verifying_key()),
    ];
    let seconds = timestamp.parse().unwrap_or(0);
    let now = Timestamp::from_millis(i64::saturating_mul(seconds, 1000));
    assert!(
        verify(&received, &keys, now, TOLERANCE).is_err(),
        "an unsigned message was accepted"
    );

    let signers = [Signer::V1(secret), Signer::V1a(pair)];
    let ours = sign(id, seconds, received.body, &signers);
    let signed = Received {
        signature: &format!("{signature} {ours}"),
        ..received
    };
    let is_plain = !id.is_empty() && !id.contains('.') && timestamp == seconds.to_string();
    let is_now = now.as_secs() == seconds && seconds >= 0;
    if is_plain && is_now && signature.split(' ').count() < 4 {
        assert_eq!(verify(&signed, &keys, now, TOLERANCE), Ok(()));
    }
    keys_as_text(key);
    traced(trace);
});

fn keys_as_text(text: &str) {
    if let Ok(secret) = text.parse::<Secret>() {
        let again: Secret = secret
            .reveal()
            .parse()
            .expect("a revealed secret can be parsed");
        assert_eq!(again.reveal(), secret.reveal());
    }
    if let Ok(pair) = text.parse::<SigningKey>() {
        let again: SigningKey = pair.reveal().parse().expect("a revealed key can be parsed");
        assert_eq!(again.reveal(), pair.reveal());
    }
}

fn traced(text: &str) {
    if let Some(context) = TraceContext::parse(text) {
        let written = context.to_string();
        assert_eq!(TraceContext::parse(&written), Some(context));
        assert_eq!(text[3..52], written[3..52]);
    }
}
