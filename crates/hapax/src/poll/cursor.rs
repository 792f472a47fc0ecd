//! Cursors: the text in which a consumer holds a position in the outbox.
//!
//! The text contains the frontier, which on PostgreSQL reaches a statement as a snapshot. So it is
//! authenticated: an HMAC under a secret of the endpoint covers all of it, and nothing of a text that
//! the endpoint has not issued is used. A cursor of another endpoint is refused by the same check.
//! What it contains can be decoded by its holder: numbers of events and transactions, no data.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::{delivery::Frontier, limits::POLLING_CURSOR_BYTES};

/// The version of the format, the first byte of every cursor.
const VERSION: u8 = 1;
/// Bytes before the snapshot: the version, whether there is a snapshot, and the highest position.
const HEAD_BYTES: usize = 10;
/// Bytes of the authentication code.
const TAG_BYTES: usize = 16;
/// Separates this use of the secret from any other.
const PURPOSE: &[u8] = b"hapax polling cursor\0";

/// The secret under which the cursors of one endpoint are authenticated.
#[derive(Clone)]
pub struct CursorSecret([u8; 32]);

impl CursorSecret {
    /// Creates a secret from 32 bytes: those that are stored, or of the operating system's
    /// randomness.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the secret.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Writes a frontier as a cursor; `None` if the text would be longer than a URL may carry.
    pub(super) fn write(&self, frontier: &Frontier) -> Option<String> {
        let snapshot = frontier.snapshot.as_deref();
        let mut bytes = vec![VERSION, u8::from(snapshot.is_some())];
        bytes.extend_from_slice(&frontier.high.to_be_bytes());
        bytes.extend_from_slice(snapshot.unwrap_or_default().as_bytes());
        let tag = self.tag(&bytes);
        bytes.extend_from_slice(&tag);
        let text = BASE64_URL_SAFE_NO_PAD.encode(bytes);
        (text.len() <= POLLING_CURSOR_BYTES).then_some(text)
    }

    /// Reads a cursor.
    ///
    /// # Errors
    /// Fails unless this endpoint has issued exactly this text.
    pub(super) fn read(&self, text: &str) -> Result<Frontier, CursorError> {
        if text.len() > POLLING_CURSOR_BYTES {
            return Err(CursorError::TooLong);
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text);
        let bytes = bytes.map_err(|_| CursorError::Text)?;
        let end = bytes.len().checked_sub(TAG_BYTES);
        let (said, tag) = end
            .and_then(|end| bytes.split_at_checked(end))
            .ok_or(CursorError::Text)?;
        let (head, snapshot) = said.split_at_checked(HEAD_BYTES).ok_or(CursorError::Text)?;
        if head[0] != VERSION {
            return Err(CursorError::Text);
        }
        if !bool::from(self.tag(said)[..].ct_eq(tag)) {
            return Err(CursorError::Foreign);
        }
        let mut high = [0; 8];
        high.copy_from_slice(&head[2..]);
        let snapshot = String::from_utf8(snapshot.to_vec()).map_err(|_| CursorError::Text)?;
        Ok(Frontier {
            high: i64::from_be_bytes(high),
            snapshot: (head[1] == 1).then(|| snapshot.into_boxed_str()),
        })
    }

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut keyed = keyed.expect("HMAC takes a key of any length");
        keyed.update(PURPOSE);
        keyed.update(bytes);
        let code: [u8; 32] = keyed.finalize().into_bytes().into();
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&code[..TAG_BYTES]);
        tag
    }
}

impl fmt::Debug for CursorSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CursorSecret")
    }
}

/// Why a text is not a cursor of this endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The text is longer than any cursor.
    #[error("is longer than any cursor: send it as it was received")]
    TooLong,
    /// The text is not in the format of cursors, or of a version that is not known here.
    #[error("is not a cursor: send it as it was received, unchanged and complete")]
    Text,
    /// The text was changed, or another endpoint has issued it.
    #[error("was not issued by this endpoint, or was changed: poll without a cursor")]
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: CursorSecret = CursorSecret::from_bytes([7; 32]);

    fn frontier(high: i64, snapshot: Option<&str>) -> Frontier {
        Frontier {
            high,
            snapshot: snapshot.map(Box::from),
        }
    }

    #[test]
    fn a_cursor_reads_back_as_the_frontier_that_was_written() {
        for snapshot in [None, Some(""), Some("7:9:7 0 77/1/5 = - 4@100 0@0 65535")] {
            for high in [0, 1, i64::MAX] {
                let frontier = frontier(high, snapshot);
                let text = SECRET.write(&frontier).unwrap();
                assert!(
                    text.bytes()
                        .all(|it| it.is_ascii_alphanumeric() || b"-_".contains(&it))
                );
                assert_eq!(SECRET.read(&text), Ok(frontier));
            }
        }
    }

    #[test]
    fn a_cursor_that_was_changed_in_any_place_is_refused() {
        let text = SECRET.write(&frontier(7, Some("7:9:7"))).unwrap();
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&text).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let changed = BASE64_URL_SAFE_NO_PAD.encode(changed);
            assert!(SECRET.read(&changed).is_err(), "byte {place}");
        }
        for length in 0..text.len() {
            assert!(SECRET.read(&text[..length]).is_err(), "{length} characters");
        }
        for wrong in [
            format!("{text}A"),
            format!("{text}="),
            format!(" {text}"),
            "é".to_owned(),
        ] {
            assert!(SECRET.read(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_cursor_of_another_endpoint_is_refused() {
        let other = CursorSecret::from_bytes([8; 32]);
        let text = other.write(&frontier(7, None)).unwrap();
        assert_eq!(SECRET.read(&text), Err(CursorError::Foreign));
    }

    #[test]
    fn a_cursor_is_bounded_in_both_directions() {
        let long = "1".repeat(POLLING_CURSOR_BYTES);
        assert_eq!(SECRET.write(&frontier(7, Some(&long))), None);
        assert_eq!(SECRET.read(&format!("{long}1")), Err(CursorError::TooLong));
    }
}
