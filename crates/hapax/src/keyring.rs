//! Encryption at rest of stored responses, requests and payloads, with AES-256-GCM.
//!
//! A keyring contains keys of 32 bytes. The first one encrypts, and all of them decrypt. To replace
//! a key, put a new one before it and remove the old one when nothing that it encrypted is stored
//! any more. Rows that were written without a keyring can still be read. An empty keyring does not
//! encrypt, and returns a clear error for a row that is encrypted.
//!
//! Every text is encrypted with a separate key, derived from the keyring's key and 12 random bytes,
//! and with 12 more random bytes as the nonce, so that one key can be used for years and for any
//! number of texts. The location of a text is authenticated with it, so that a text cannot be moved
//! to another row.

use std::{borrow::Cow, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

#[cfg(feature = "encryption")]
mod cipher;
#[cfg(not(feature = "encryption"))]
#[path = "keyring/none.rs"]
mod cipher;

use cipher::{Cipher, Key};

use crate::{
    event::{EventId, Headers},
    idempotency::{StoredResponse, Taken},
    key::{Scope, hex},
};

/// The header of a response or an event that names the key it is encrypted with. Reserved.
pub const ENCRYPTED_UNDER: &str = "hapax-encrypted-under";

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// Keys for encryption at rest. The default has none.
#[derive(Clone, Default)]
pub struct Keyring {
    cipher: Cipher,
    /// Whether the keyring only decrypts.
    reads: bool,
}

impl Keyring {
    /// Creates a keyring from keys in base64, as in a configuration. The first one encrypts.
    ///
    /// # Errors
    /// Fails with the index of the first text that is not 32 bytes in base64. The error does not
    /// contain the text.
    #[cfg(feature = "encryption")]
    pub fn parse<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Result<Self, BadKey> {
        let decode = |(place, key): (usize, K)| {
            let bytes = STANDARD.decode(key.as_ref().trim()).ok();
            let bytes: Option<[u8; KEY_BYTES]> = bytes.and_then(|bytes| bytes.try_into().ok());
            bytes.ok_or(BadKey { place })
        };
        let keys: Result<Vec<_>, _> = keys.into_iter().enumerate().map(decode).collect();
        Ok(Self {
            cipher: Cipher::of(&keys?),
            reads: false,
        })
    }

    /// The same keys for decryption only, for a process that reads rows of others.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self {
            reads: true,
            ..self.clone()
        }
    }

    /// The same keys for encryption too, for a process that rewrites encrypted rows.
    #[must_use]
    pub fn writing(&self) -> Self {
        Self {
            reads: false,
            ..self.clone()
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.cipher.first().is_none()
    }

    fn encrypting(&self) -> Option<&Key> {
        self.cipher.first().filter(|_| !self.reads)
    }

    /// Encrypts a text for a location. Without keys the text is returned unchanged.
    ///
    /// # Errors
    /// Fails if the system provides no random bytes.
    pub fn encrypt(&self, place: &[&str], text: Bytes) -> Result<Bytes, KeyringError> {
        match self.encrypting() {
            Some(key) => key.encrypt(&whole(place), &text).map(Bytes::from),
            None => Ok(text),
        }
    }

    /// Decrypts what [`Keyring::encrypt`] has written for this location.
    ///
    /// # Errors
    /// Fails if the key is missing, or if the text was changed or moved.
    pub fn decrypt(&self, place: &[&str], encrypted: &[u8]) -> Result<Vec<u8>, KeyringError> {
        self.cipher.decrypt(&whole(place), encrypted)
    }

    /// Encrypts a response for its row: the headers and the body, not the status.
    ///
    /// # Errors
    /// Same as [`Keyring::encrypt`].
    pub fn encrypt_response<'a>(
        &self,
        scope: &Scope,
        response: &'a StoredResponse,
    ) -> Result<Cow<'a, StoredResponse>, KeyringError> {
        let Some(key) = self.encrypting() else {
            return Ok(Cow::Borrowed(response));
        };
        let block = response.header_block();
        let length = u32::try_from(block.len()).map_err(|_| KeyringError::Changed)?;
        let mut text = Vec::with_capacity(4 + block.len() + response.body.len());
        text.extend_from_slice(&length.to_be_bytes());
        text.extend_from_slice(&block);
        text.extend_from_slice(&response.body);
        let encrypted = key.encrypt(&whole(&place_of("answer", scope)), &text)?;
        Ok(Cow::Owned(StoredResponse {
            status: response.status,
            headers: vec![(ENCRYPTED_UNDER.to_owned(), Bytes::from(key.id()))],
            body: Bytes::from(encrypted),
        }))
    }

    /// Decrypts the response of a row, if it is encrypted.
    ///
    /// # Errors
    /// Same as [`Keyring::decrypt`].
    pub fn decrypt_response(
        &self,
        scope: &Scope,
        kept: StoredResponse,
    ) -> Result<StoredResponse, KeyringError> {
        if !is_encrypted(&kept) {
            return Ok(kept);
        }
        let text = Bytes::from(self.decrypt(&place_of("answer", scope), &kept.body)?);
        let (length, _) = text.split_first_chunk().ok_or(KeyringError::Changed)?;
        let length = usize::try_from(u32::from_be_bytes(*length));
        let end = length.ok().and_then(|length| length.checked_add(4));
        let end = end.filter(|end| *end <= text.len());
        let end = end.ok_or(KeyringError::Changed)?;
        let headers = StoredResponse::parse_header_block(&text[4..end]);
        Ok(StoredResponse {
            status: kept.status,
            headers: headers.ok_or(KeyringError::Changed)?,
            body: text.slice(end..),
        })
    }

    /// Encrypts a request for its row.
    ///
    /// # Errors
    /// Same as [`Keyring::encrypt`].
    pub fn encrypt_request(&self, scope: &Scope, request: Bytes) -> Result<Bytes, KeyringError> {
        let Some(key) = self.encrypting() else {
            return Ok(request);
        };
        let encrypted = key.encrypt(&whole(&place_of("request", scope)), &request)?;
        Ok([ENCRYPTED_UNDER.as_bytes(), &encrypted].concat().into())
    }

    /// Decrypts the request of a row, if it is encrypted.
    ///
    /// # Errors
    /// Same as [`Keyring::decrypt`].
    pub fn decrypt_request(&self, scope: &Scope, kept: &[u8]) -> Result<Bytes, KeyringError> {
        match kept.strip_prefix(ENCRYPTED_UNDER.as_bytes()) {
            Some(encrypted) => self
                .decrypt(&place_of("request", scope), encrypted)
                .map(Bytes::from),
            None => Ok(Bytes::copy_from_slice(kept)),
        }
    }

    /// Decrypts the response in the state of a key.
    ///
    /// # Errors
    /// Same as [`Keyring::decrypt`].
    pub fn decrypt_taken(&self, scope: &Scope, taken: Taken) -> Result<Taken, KeyringError> {
        Ok(match taken {
            Taken::Replay {
                response,
                fresh_for,
            } => Taken::Replay {
                response: self.decrypt_response(scope, response)?,
                fresh_for,
            },
            other => other,
        })
    }

    /// Encrypts a payload for its column and sets the header that names the key; `None` if the
    /// payload stays unchanged.
    pub(crate) fn encrypt_payload(
        &self,
        event: EventId,
        headers: &mut Headers,
        payload: &str,
    ) -> Result<Option<String>, KeyringError> {
        let Some(key) = self.encrypting() else {
            return Ok(None);
        };
        let place = whole(&["event", &event.to_string()]);
        let encrypted = key.encrypt(&place, payload.as_bytes())?;
        headers.insert(ENCRYPTED_UNDER.to_owned(), key.id());
        Ok(Some(STANDARD.encode(encrypted)))
    }

    /// Decrypts the payload of a column, if its headers say that it is encrypted.
    ///
    /// A payload that no key can decrypt is returned unchanged with its header: no keyring wrote it
    /// for this event, or it was changed later. A missing key is an error, because the key may be
    /// added.
    pub(crate) fn decrypt_payload(
        &self,
        event: EventId,
        headers: &mut Headers,
        payload: String,
    ) -> Result<String, KeyringError> {
        let Some(id) = headers.get(ENCRYPTED_UNDER) else {
            return Ok(payload);
        };
        let Some(encrypted) = encrypted(id, &payload) else {
            return Ok(payload);
        };
        let text = self.decrypt(&["event", &event.to_string()], &encrypted);
        let text = text.and_then(|text| String::from_utf8(text).map_err(|_| KeyringError::Changed));
        match text {
            Err(KeyringError::Changed) => Ok(payload),
            Err(error) => Err(error),
            Ok(text) => {
                headers.remove(ENCRYPTED_UNDER);
                Ok(text)
            }
        }
    }
}

/// The number of the format: format, key id, salt, nonce, and the text with its tag.
const FORM: u8 = 1;
/// The highest number of a later format. Data that starts with a higher byte is not in any format.
const FORM_MAX: u8 = 15;
const ID_BYTES: usize = 8;
const SALT_BYTES: usize = 12;
const NONCE_BYTES: usize = 12;
const HEAD_BYTES: usize = 1 + ID_BYTES + SALT_BYTES + NONCE_BYTES;

/// The bytes of a column's text, if a keyring may have written them with the key of this id.
fn encrypted(id: &str, text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text).ok()?;
    let (head, _) = bytes.split_at_checked(HEAD_BYTES)?;
    let is_written = match head[0] {
        FORM => hex(&head[1..=ID_BYTES]) == id,
        form => form <= FORM_MAX,
    };
    is_written.then_some(bytes)
}

/// Whether a response was encrypted by a keyring.
pub fn is_encrypted(kept: &StoredResponse) -> bool {
    matches!(&kept.headers[..], [(name, _)] if name == ENCRYPTED_UNDER)
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").finish_non_exhaustive()
    }
}

/// The text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not 32 bytes in base64: create one with `openssl rand -base64 32`")]
pub struct BadKey {
    /// The index of the text, starting at 0.
    pub place: usize,
}

/// Why a text cannot be encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// The text is encrypted with a key that the keyring does not contain.
    #[error("encrypted under key {id}, which is not among the keys here")]
    Missing {
        /// The id of the key: the first 8 bytes of its SHA-256, in hex.
        id: String,
    },
    /// The text was not encrypted for this location.
    #[error("does not decrypt: it was changed, or belongs to another row")]
    Changed,
    /// The text is in a format that this version does not know.
    #[error("encrypted by a newer version")]
    Newer,
    /// This build has no support for encryption.
    #[error("encrypted, but this build does not have the feature `encryption`")]
    Unsupported,
    /// The system provides no random bytes.
    #[error("the system provides no random bytes")]
    NoRandom,
}

fn place_of<'a>(what: &'a str, scope: &'a Scope) -> [&'a str; 4] {
    [
        what,
        scope.tenant.as_str(),
        scope.operation.as_str(),
        scope.key.as_str(),
    ]
}

/// The location as bytes. Every part is preceded by its length, so that different locations have
/// different bytes.
fn whole(place: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in place {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

#[cfg(test)]
#[cfg(feature = "encryption")]
mod tests;
