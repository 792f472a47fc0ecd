//! The keys of a keyring in a build without the feature `encryption`: there are none. Nothing is
//! encrypted, and decryption fails.

use super::KeyringError;

/// No keys.
#[derive(Clone, Default)]
pub(super) struct Cipher;

/// A key. It has no value, because there are no keys.
pub(super) enum Key {}

impl Cipher {
    #[expect(clippy::unused_self, reason = "the version with keys uses `self`")]
    pub(super) const fn first(&self) -> Option<&Key> {
        None
    }

    #[expect(clippy::unused_self, reason = "the version with keys uses `self`")]
    pub(super) const fn decrypt(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, KeyringError> {
        Err(KeyringError::Unsupported)
    }
}

impl Key {
    pub(super) const fn id(&self) -> String {
        match *self {}
    }

    pub(super) const fn encrypt(&self, _: &[u8], _: &[u8]) -> Result<Vec<u8>, KeyringError> {
        match *self {}
    }
}
