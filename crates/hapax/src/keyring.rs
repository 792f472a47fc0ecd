//! Encryption at rest: what tables keep of answers, requests and payloads, with AES-256-GCM.
//!
//! A keyring holds keys of 32 bytes: the first one encrypts, all of them decrypt, so that a key is
//! replaced by putting a new one before it and taking it away once nothing that it encrypted is
//! kept. What was written without a keyring is read as ever. An empty keyring encrypts nothing,
//! and says so clearly where it meets what one with keys wrote.
//!
//! Every text is encrypted under a key of its own, made of the keyring's and 12 random bytes, with
//! 12 more as its nonce: one key may encrypt for years, however many answers that is. The place
//! that a text belongs to is authenticated with it, so that no row's text opens in another row.

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
    idempotency::{Answer, Known},
    key::{Scope, hex},
};

/// The header of an answer or an event that names the key it is encrypted under. Reserved.
pub const ENCRYPTED_UNDER: &str = "hapax-encrypted-under";

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// Keys for what is kept in tables. The default holds none.
#[derive(Clone, Default)]
pub struct Keyring {
    cipher: Cipher,
    /// Whether it decrypts alone.
    reads: bool,
}

impl Keyring {
    /// Of keys in base64, as configurations have them: the first one encrypts.
    ///
    /// # Errors
    /// Fails with the place of the first that is no 32 bytes in base64; the error does not say it.
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

    /// The same keys, to decrypt with: for whoever reads what others keep encrypted.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self {
            reads: true,
            ..self.clone()
        }
    }

    /// The same keys, to encrypt with as well: for whoever writes anew what was kept encrypted.
    #[must_use]
    pub fn writing(&self) -> Self {
        Self {
            reads: false,
            ..self.clone()
        }
    }

    /// Whether it holds no key.
    pub fn is_empty(&self) -> bool {
        self.cipher.first().is_none()
    }

    fn encrypting(&self) -> Option<&Key> {
        self.cipher.first().filter(|_| !self.reads)
    }

    /// Encrypts a text that belongs to a place; with no key, it stays as it is.
    ///
    /// # Errors
    /// Fails when the system gives no random bytes.
    pub fn encrypt(&self, place: &[&str], text: Bytes) -> Result<Bytes, KeyringError> {
        match self.encrypting() {
            Some(key) => key.encrypt(&whole(place), &text).map(Bytes::from),
            None => Ok(text),
        }
    }

    /// Decrypts what [`Keyring::encrypt`] wrote for this place.
    ///
    /// # Errors
    /// Fails when the key is missing, or the text was changed or moved.
    pub fn decrypt(&self, place: &[&str], encrypted: &[u8]) -> Result<Vec<u8>, KeyringError> {
        self.cipher.decrypt(&whole(place), encrypted)
    }

    /// An answer as its row keeps it: headers and body are encrypted, the status is not.
    ///
    /// # Errors
    /// As [`Keyring::encrypt`].
    pub fn encrypt_answer<'a>(
        &self,
        scope: &Scope,
        answer: &'a Answer,
    ) -> Result<Cow<'a, Answer>, KeyringError> {
        let Some(key) = self.encrypting() else {
            return Ok(Cow::Borrowed(answer));
        };
        let block = answer.header_block();
        let length = u32::try_from(block.len()).map_err(|_| KeyringError::Changed)?;
        let mut text = Vec::with_capacity(4 + block.len() + answer.body.len());
        text.extend_from_slice(&length.to_be_bytes());
        text.extend_from_slice(&block);
        text.extend_from_slice(&answer.body);
        let encrypted = key.encrypt(&whole(&place_of("answer", scope)), &text)?;
        Ok(Cow::Owned(Answer {
            status: answer.status,
            headers: vec![(ENCRYPTED_UNDER.to_owned(), Bytes::from(key.id()))],
            body: Bytes::from(encrypted),
        }))
    }

    /// The answer that a row keeps, decrypted where it is encrypted.
    ///
    /// # Errors
    /// As [`Keyring::decrypt`].
    pub fn decrypt_answer(&self, scope: &Scope, kept: Answer) -> Result<Answer, KeyringError> {
        if !is_encrypted(&kept) {
            return Ok(kept);
        }
        let text = Bytes::from(self.decrypt(&place_of("answer", scope), &kept.body)?);
        let (length, _) = text.split_first_chunk().ok_or(KeyringError::Changed)?;
        let length = usize::try_from(u32::from_be_bytes(*length));
        let end = length.ok().and_then(|length| length.checked_add(4));
        let end = end.filter(|end| *end <= text.len());
        let end = end.ok_or(KeyringError::Changed)?;
        let headers = Answer::parse_header_block(&text[4..end]);
        Ok(Answer {
            status: kept.status,
            headers: headers.ok_or(KeyringError::Changed)?,
            body: text.slice(end..),
        })
    }

    /// A request as its row keeps it.
    ///
    /// # Errors
    /// As [`Keyring::encrypt`].
    pub fn encrypt_request(&self, scope: &Scope, request: Bytes) -> Result<Bytes, KeyringError> {
        let Some(key) = self.encrypting() else {
            return Ok(request);
        };
        let encrypted = key.encrypt(&whole(&place_of("request", scope)), &request)?;
        Ok([ENCRYPTED_UNDER.as_bytes(), &encrypted].concat().into())
    }

    /// The request that a row keeps, decrypted where it is encrypted.
    ///
    /// # Errors
    /// As [`Keyring::decrypt`].
    pub fn decrypt_request(&self, scope: &Scope, kept: &[u8]) -> Result<Bytes, KeyringError> {
        match kept.strip_prefix(ENCRYPTED_UNDER.as_bytes()) {
            Some(encrypted) => self
                .decrypt(&place_of("request", scope), encrypted)
                .map(Bytes::from),
            None => Ok(Bytes::copy_from_slice(kept)),
        }
    }

    /// What is known about a key, its answer decrypted.
    ///
    /// # Errors
    /// As [`Keyring::decrypt`].
    pub fn decrypt_known(&self, scope: &Scope, known: Known) -> Result<Known, KeyringError> {
        Ok(match known {
            Known::Replay { answer, fresh_for } => Known::Replay {
                answer: self.decrypt_answer(scope, answer)?,
                fresh_for,
            },
            other => other,
        })
    }

    /// A payload in the words of its column, encrypted and with the header that says so; `None`
    /// when it stays as it is.
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

    /// The payload that a column keeps, decrypted where its headers say that it is encrypted.
    ///
    /// A payload that no key will ever decrypt stays as it is, and keeps the header: no keyring wrote
    /// it for this event, or it was changed since. A key that is missing is an error: it may come.
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

/// The number of the form: form, key id, salt, nonce, then the text with its tag.
const FORM: u8 = 1;
/// What the number of a later form may be. Whatever begins with another byte is no form.
const FORM_MAX: u8 = 15;
const ID_BYTES: usize = 8;
const SALT_BYTES: usize = 12;
const NONCE_BYTES: usize = 12;
const HEAD_BYTES: usize = 1 + ID_BYTES + SALT_BYTES + NONCE_BYTES;

/// The bytes that a column's text stands for, if a keyring may have written them under the key of
/// this id.
fn encrypted(id: &str, text: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(text).ok()?;
    let (head, _) = bytes.split_at_checked(HEAD_BYTES)?;
    let is_written = match head[0] {
        FORM => hex(&head[1..=ID_BYTES]) == id,
        form => form <= FORM_MAX,
    };
    is_written.then_some(bytes)
}

/// Whether an answer is one that a keyring encrypted.
pub fn is_encrypted(kept: &Answer) -> bool {
    matches!(&kept.headers[..], [(name, _)] if name == ENCRYPTED_UNDER)
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").finish_non_exhaustive()
    }
}

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no 32 bytes in base64: make one with `openssl rand -base64 32`")]
pub struct BadKey {
    /// Which of those that were given, counted from 0.
    pub place: usize,
}

/// Why something is not encrypted or decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// It was encrypted under a key that the keyring does not hold.
    #[error("encrypted under key {id}, which is not among the keys here")]
    Missing {
        /// The key's id: the first 8 bytes of its SHA-256, in hex.
        id: String,
    },
    /// It is not what was encrypted for this place.
    #[error("does not decrypt: it was changed, or belongs to another row")]
    Changed,
    /// Written in a form that this version does not know.
    #[error("encrypted by a newer version")]
    Newer,
    /// This build knows no encryption.
    #[error("encrypted, and this build is without the feature `encryption`")]
    Unsupported,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
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

/// A place as bytes: no two places are written alike.
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
