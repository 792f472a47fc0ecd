//! Standard Webhooks signatures: signing and verification.
//!
//! The signed text is `id.timestamp.body`, so that neither the body nor the time of the attempt can
//! be changed, and a message cannot be sent under another id. A sender signs with every configured
//! key, which makes key rotation possible. A receiver accepts a message if any listed signature
//! matches any of its keys and the attempt is recent. Comparisons take constant time, and hostile
//! input is an error, never a panic.

use std::time::Duration;

use base64::Engine as _;
use subtle::ConstantTimeEq as _;

use crate::{clock::Timestamp, limits::SIGNATURES_MAX};
use key::BASE64;
pub use key::{KeyTextError, Secret, Signer, SigningKey, Verifier, VerifyingKey};

mod key;

/// The header with the id of the message, which is the event id.
pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with the signatures, separated by spaces.
pub const SIGNATURE_HEADER: &str = "webhook-signature";
/// Maximum difference between the time of an attempt and the current time. The published libraries
/// use the same value.
pub const TOLERANCE: Duration = Duration::from_mins(5);

/// Signs a message with every key and returns the value of [`SIGNATURE_HEADER`].
///
/// `timestamp` is in seconds since the Unix epoch and is sent as [`TIMESTAMP_HEADER`]. While a key
/// is rotated, pass both keys. Without keys the value is empty, and no receiver accepts it.
///
/// ```
/// use hapax::signature::{Signer, sign};
///
/// let keys = [Signer::V1("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?)];
/// let value = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, br#"{"test": 2432232314}"#, &keys);
/// assert_eq!(value, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
/// # Ok::<(), hapax::signature::KeyTextError>(())
/// ```
pub fn sign<'k>(
    id: &str,
    timestamp: i64,
    body: &[u8],
    keys: impl IntoIterator<Item = &'k Signer>,
) -> String {
    let timestamp = timestamp.to_string();
    let parts = signed_parts(id, &timestamp, body);
    let mut value = String::with_capacity(48);
    for key in keys {
        if !value.is_empty() {
            value.push(' ');
        }
        match key {
            Signer::V1(secret) => {
                value.push_str("v1,");
                BASE64.encode_string(secret.tag(&parts), &mut value);
            }
            Signer::V1a(key) => {
                value.push_str("v1a,");
                BASE64.encode_string(key.sign(&parts), &mut value);
            }
        }
    }
    value
}

/// A received message: the values of three headers, and the body.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The value of [`ID_HEADER`].
    pub id: &'a str,
    /// The value of [`TIMESTAMP_HEADER`].
    pub timestamp: &'a str,
    /// The value of [`SIGNATURE_HEADER`].
    pub signature: &'a str,
    /// The body, byte for byte.
    pub body: &'a [u8],
}

/// Verifies that a message was signed with one of `keys`, and that its time is close to `now`.
///
/// # Errors
/// Fails if a header is malformed, if the time of the attempt differs from `now` by more than
/// `tolerance`, or if no listed signature matches any key.
pub fn verify(
    received: &Received<'_>,
    keys: &[Verifier],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), VerifyError> {
    if received.id.is_empty() || received.id.contains('.') {
        return Err(VerifyError::Malformed { header: ID_HEADER });
    }
    check_timestamp(received.timestamp, now, tolerance)?;
    if received.signature.split(' ').count() > SIGNATURES_MAX {
        return Err(VerifyError::Malformed {
            header: SIGNATURE_HEADER,
        });
    }
    let parts = signed_parts(received.id, received.timestamp, received.body);
    let fits = |key: &Verifier| match key {
        Verifier::V1(secret) => {
            let tag = secret.tag(&parts);
            listed(received.signature, "v1").any(|given: [u8; 32]| tag.ct_eq(&given).into())
        }
        Verifier::V1a(key) => {
            listed(received.signature, "v1a").any(|given| key.fits(&parts, &given))
        }
    };
    if keys.iter().any(fits) {
        Ok(())
    } else {
        Err(VerifyError::Signature)
    }
}

/// Why a message is not accepted. The response to its sender need not contain the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A header is empty or malformed.
    #[error("{header} is malformed")]
    Malformed {
        /// The header.
        header: &'static str,
    },
    /// The attempt is too old or in the future. The message may be a replay.
    #[error("time of the attempt is too far from the current time")]
    Stale,
    /// No listed signature matches any key.
    #[error("no signature matches")]
    Signature,
}

fn signed_parts<'a>(id: &'a str, timestamp: &'a str, body: &'a [u8]) -> [&'a [u8]; 5] {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body]
}

fn check_timestamp(text: &str, now: Timestamp, tolerance: Duration) -> Result<(), VerifyError> {
    let malformed = VerifyError::Malformed {
        header: TIMESTAMP_HEADER,
    };
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    let seconds: i64 = text.parse().map_err(|_| malformed)?;
    if seconds.abs_diff(now.as_secs()) > tolerance.as_secs() {
        Err(VerifyError::Stale)
    } else {
        Ok(())
    }
}

/// The listed signatures of one scheme with the expected length. Others are ignored.
fn listed<'a, const N: usize>(
    header: &'a str,
    scheme: &'a str,
) -> impl Iterator<Item = [u8; N]> + 'a {
    header.split(' ').filter_map(move |entry| {
        let (version, text) = entry.split_once(',')?;
        // The length of the text is checked first, so that a long entry costs nothing.
        if version != scheme || text.len() > N * 2 {
            return None;
        }
        BASE64.decode(text).ok()?.try_into().ok()
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod vectors;
