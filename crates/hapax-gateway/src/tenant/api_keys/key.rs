//! Form of an API key: `hapax_` + 12 digits of its id + `_` + 43 characters of base64url.
//!
//! The prefix lets scanners find keys that were published by mistake. The id is shown in the
//! configuration; the rest is 32 random bytes, which exist only in the key.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hapax::key::{Tenant, hex};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::entry::ApiKeyEntry;

/// The prefix of every API key.
pub const KEY_PREFIX: &str = "hapax_";
/// Number of hexadecimal digits of an id.
pub(super) const ID_DIGITS: usize = 12;
/// Length of the secret part: 32 bytes in base64url.
const SECRET_CHARACTERS: usize = 43;

/// A key that was just made. It is shown once; only its entry is kept.
pub struct NewApiKey {
    /// The key, for the client.
    pub key: String,
    /// The entry, for the configuration.
    pub entry: ApiKeyEntry,
}

impl NewApiKey {
    /// Makes a key of a tenant, with random numbers of the system. `None` if there are none.
    pub fn random(tenant: &Tenant) -> Option<Self> {
        Self::make(tenant, &SystemRandom::new())
    }

    /// Makes a key of a tenant. `random` is a source for secrets, `ring::rand::SystemRandom`:
    /// `hapax::Random` is for ids and jitter, and does not make secrets. `None` if the source
    /// fails.
    pub fn make(tenant: &Tenant, random: &dyn SecureRandom) -> Option<Self> {
        let (mut id, mut secret) = ([0; ID_DIGITS / 2], [0; 32]);
        random.fill(&mut id).ok()?;
        random.fill(&mut secret).ok()?;
        let (id, secret) = (hex(&id), BASE64_URL_SAFE_NO_PAD.encode(secret));
        let key = format!("{KEY_PREFIX}{id}_{secret}");
        let entry = ApiKeyEntry {
            hash: format!("sha256:{}", hex(&hash(&key))),
            id,
            tenant: tenant.as_str().to_owned(),
            expires: None,
            disabled: false,
        };
        Some(Self { key, entry })
    }

    /// The entry as `[[keys]]` in TOML, for the file of keys.
    pub fn lines(&self) -> String {
        // A string of JSON is one of TOML, except for DEL, which JSON does not escape.
        let tenant = serde_json::Value::from(self.entry.tenant.as_str()).to_string();
        let tenant = tenant.replace('\u{7f}', "\\u007f");
        let (id, hash) = (&self.entry.id, &self.entry.hash);
        format!("[[keys]]\nid = \"{id}\"\nhash = \"{hash}\"\ntenant = {tenant}\n")
    }
}

impl fmt::Debug for NewApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewApiKey")
            .field("entry", &self.entry)
            .finish_non_exhaustive()
    }
}

/// The hash of a whole key.
pub(super) fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// The id in a key. `None` if the text does not have the form of a key.
pub(super) fn id_of(key: &str) -> Option<&str> {
    let rest = key.strip_prefix(KEY_PREFIX)?;
    let (id, secret) = rest.split_at_checked(ID_DIGITS)?;
    let secret = secret.strip_prefix('_')?;
    (is_id(id) && secret.len() == SECRET_CHARACTERS).then_some(id)
}

/// Whether a text has the form of an id.
pub(super) fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == ID_DIGITS && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use ring::rand::SystemRandom;

    use super::*;

    #[test]
    fn a_new_key_has_its_id_in_it_and_never_prints_itself() {
        let tenant = Tenant::new("the \"first\" one").unwrap();
        let made = NewApiKey::make(&tenant, &SystemRandom::new()).unwrap();
        assert_eq!(id_of(&made.key), Some(made.entry.id.as_str()));
        let secret = &made.key[KEY_PREFIX.len() + ID_DIGITS + 1..];
        assert!(!format!("{made:?}{}", made.lines()).contains(secret));
        let other = NewApiKey::make(&tenant, &SystemRandom::new()).unwrap();
        assert_ne!(made.key, other.key);
        let read: toml::Table = made.lines().parse().unwrap();
        let tenant = read["keys"][0]["tenant"].as_str();
        assert_eq!(tenant, Some("the \"first\" one"));
    }

    #[test]
    fn a_text_of_another_form_has_no_id() {
        let secret = "s".repeat(SECRET_CHARACTERS);
        assert_eq!(
            id_of(&format!("hapax_0123456789ab_{secret}")),
            Some("0123456789ab")
        );
        for text in [
            String::new(),
            "hapax_".to_owned(),
            "hapax_0123456789ab".to_owned(),
            "hapax_0123456789ab_".to_owned(),
            format!("hapax_0123456789AB_{secret}"),
            format!("hapax_0123456789ab_{secret}s"),
            format!("hapax_0123456789a_{secret}"),
            format!("HAPAX_0123456789ab_{secret}"),
            format!(" hapax_0123456789ab_{secret}"),
            format!("hapax_01234567\u{e9}\u{e9}_{secret}"),
            format!("hapax_0123456789a\u{e9}_{secret}"),
        ] {
            assert_eq!(id_of(&text), None, "{text:?}");
        }
    }
}
