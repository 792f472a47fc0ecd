//! Payload locks: the advisory lock that shows which payload runs under a key.
//!
//! A transaction that runs a key holds two locks: that of the key, exclusively, and that of its
//! payload, shared. A claim that does not get the key first tries its payload lock exclusively, for
//! the short time of its transaction. If it does not get that lock either, the same payload is
//! running or waiting. If it does, it looks in `pg_locks` for a payload lock of the transaction that
//! has the key. Only a payload lock of this key with another number is a conflict: never the absence
//! of a lock, never a lock of another transaction.
//!
//! An optimistic claim has no payload lock, because it holds the key during its last pipeline only.

use hapax::{idempotency::Claim, key::FingerprintBuilder};

use crate::idempotency::parts;

/// Version of the hash over the parts of a scope.
const VERSION: u8 = 1;

/// The number of a claim's payload lock, as `hapax.payload_lock` computes it: 48 bits of the SHA-256
/// of its scope and 16 of its fingerprint.
///
/// The numbers of two payloads under one key differ, except for one pair in 65,536: then a conflict
/// counts as in progress. A conflict that is not one requires that two scopes agree in these 48 bits
/// and in the 64 bits of `hapax.key_lock`, which is another hash.
pub(crate) fn payload_lock(claim: &Claim) -> i64 {
    let start = FingerprintBuilder::new(VERSION);
    let hash = parts(&claim.scope)
        .into_iter()
        .fold(start, |hash, part| hash.part(part.as_bytes()))
        .finish();
    let mut number = [0; 8];
    number[..6].copy_from_slice(&hash.as_bytes()[..6]);
    number[6..].copy_from_slice(&claim.fingerprint.as_bytes()[..2]);
    i64::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use hapax::key::Fingerprint;
    use hapax_testkit::events::{claim, fingerprint};

    use super::*;

    #[test]
    fn payloads_of_one_key_differ_in_the_last_bits_and_keys_in_the_first() {
        let of = |key: &str, payload| {
            let mut claim = claim(key);
            claim.fingerprint = payload;
            payload_lock(&claim)
        };
        let (one, other) = (of("k", fingerprint(1)), of("k", fingerprint(2)));
        assert_ne!(one, other);
        assert_eq!(one >> 16, other >> 16);
        assert_ne!(one >> 16, of("l", fingerprint(1)) >> 16);
        // Two payloads that begin alike have one number.
        let mut alike = [2; 32];
        alike[..2].copy_from_slice(&[1, 1]);
        assert_eq!(one, of("k", Fingerprint::from_bytes(alike)));
    }
}
