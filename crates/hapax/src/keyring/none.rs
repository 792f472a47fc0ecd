//! Without the feature `encryption` there are no keys: nothing is encrypted, and nothing decrypts.

use super::KeyringError;

/// No keys.
#[derive(Clone, Default)]
pub(super) struct Cipher;

/// A key, of which there is none.
pub(super) enum Key {}

impl Cipher {
    #[expect(clippy::unused_self, reason = "with keys it looks at them")]
    pub(super) const fn first(&self) -> Option<&Key> {
        None
    }

    #[expect(clippy::unused_self, reason = "with keys it looks at them")]
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
