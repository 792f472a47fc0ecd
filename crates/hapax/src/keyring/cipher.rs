//! The keys of a keyring, and encryption with AES-256-GCM.

use std::sync::Arc;

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};

use super::{FORM, HEAD_BYTES, ID_BYTES, KEY_BYTES, KeyringError, NONCE_BYTES, SALT_BYTES};
use crate::key::hex;

const _: () = assert!(NONCE_BYTES == NONCE_LEN, "both nonces have the same length");
/// Purpose string for the derivation of the key of a text.
const PURPOSE: &[u8] = b"hapax at rest 1";

/// The keys. The first one encrypts.
#[derive(Clone, Default)]
pub(super) struct Cipher(Arc<[Key]>);

/// A key of the keyring, with its id.
pub(super) struct Key {
    id: [u8; ID_BYTES],
    derives: hmac::Key,
}

impl Cipher {
    pub(super) fn of(keys: &[[u8; KEY_BYTES]]) -> Self {
        Self(keys.iter().map(Key::of).collect())
    }

    /// The key that encrypts.
    pub(super) fn first(&self) -> Option<&Key> {
        self.0.first()
    }

    /// Decrypts with the key that the text names.
    pub(super) fn decrypt(&self, place: &[u8], encrypted: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let cut = encrypted.split_at_checked(HEAD_BYTES);
        let (head, text) = cut.ok_or(KeyringError::Changed)?;
        if head[0] != FORM {
            return Err(KeyringError::Newer);
        }
        let (id, random) = head[1..].split_at(ID_BYTES);
        let key = self.0.iter().find(|key| key.id == id);
        let missing = || KeyringError::Missing { id: hex(id) };
        let (own, nonce) = key.ok_or_else(missing)?.for_text(random)?;
        let mut text = text.to_vec();
        let opened = own.open_in_place(nonce, Aad::from(place), &mut text);
        let length = opened.map_err(|_| KeyringError::Changed)?.len();
        text.truncate(length);
        Ok(text)
    }
}

impl Key {
    fn of(key: &[u8; KEY_BYTES]) -> Self {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&digest(&SHA256, key).as_ref()[..ID_BYTES]);
        let derives = hmac::Key::new(hmac::HMAC_SHA256, key);
        Self { id, derives }
    }

    /// The id of the key in hex.
    pub(super) fn id(&self) -> String {
        hex(&self.id)
    }

    /// Encrypts a text for a location.
    pub(super) fn encrypt(&self, place: &[u8], text: &[u8]) -> Result<Vec<u8>, KeyringError> {
        let mut out = Vec::with_capacity(HEAD_BYTES + text.len() + AES_256_GCM.tag_len());
        out.push(FORM);
        out.extend_from_slice(&self.id);
        let mut random = [0; SALT_BYTES + NONCE_LEN];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| KeyringError::NoRandom)?;
        out.extend_from_slice(&random);
        out.extend_from_slice(text);
        let (own, nonce) = self.for_text(&random)?;
        let tag = own.seal_in_place_separate_tag(nonce, Aad::from(place), &mut out[HEAD_BYTES..]);
        let tag = tag.map_err(|_| KeyringError::Changed)?;
        out.extend_from_slice(tag.as_ref());
        Ok(out)
    }

    /// The key and the nonce of one text.
    fn for_text(&self, random: &[u8]) -> Result<(LessSafeKey, Nonce), KeyringError> {
        let (salt, nonce) = random.split_at(SALT_BYTES);
        let mut context = hmac::Context::with_key(&self.derives);
        context.update(PURPOSE);
        context.update(salt);
        let own = UnboundKey::new(&AES_256_GCM, context.sign().as_ref());
        let own = own.map_err(|_| KeyringError::Changed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce);
        let nonce = nonce.map_err(|_| KeyringError::Changed)?;
        Ok((LessSafeKey::new(own), nonce))
    }
}
