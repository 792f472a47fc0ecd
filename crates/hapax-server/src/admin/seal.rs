//! Secrets at rest: AES-256-GCM under a key of the configuration.
//!
//! What is sealed begins with the number of this form and the id of the key, so that a key can be
//! replaced while the old one still opens what it sealed. The destination's name is sealed in: a
//! row's secrets open in no other row. Nothing here prints a key or what it opened.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{SHA256, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{Config, Secret, Wrong};

/// The number of the form: version, key id, nonce, then what is sealed with its tag.
const FORM: u8 = 1;
const ID_BYTES: usize = 8;
const HEAD_BYTES: usize = 1 + ID_BYTES + NONCE_LEN;

/// The keys that seal and open secrets; the first one seals.
#[derive(Clone)]
pub(crate) struct Keys(Arc<Vec<Key>>);

struct Key {
    id: [u8; ID_BYTES],
    key: LessSafeKey,
}

/// The secrets of a destination, by the path of their settings.
pub(crate) type Secrets = BTreeMap<String, SecretString>;

impl Keys {
    /// The keys of the configuration.
    pub(crate) fn of(config: &Config) -> Result<Self, Wrong> {
        let section = &config.secrets;
        let mut keys = Vec::new();
        if let Some(first) = &section.key {
            keys.push(key("secrets.key", first)?);
            for (number, previous) in section.previous.iter().enumerate() {
                keys.push(key(&format!("secrets.previous[{number}]"), previous)?);
            }
        } else if !section.previous.is_empty() {
            let problem = "is missing, and there are earlier ones";
            return Err(Wrong::at("secrets.key", problem));
        }
        Ok(Self(Arc::new(keys)))
    }

    /// Seals secrets for a destination; `None` where there are none.
    pub(crate) fn seal(&self, name: &str, secrets: &Secrets) -> Result<Option<Vec<u8>>, String> {
        if secrets.is_empty() {
            return Ok(None);
        }
        let Some(Key { id, key }) = self.0.first() else {
            let how = "secrets.key is missing in the configuration: without one no secret is kept";
            return Err(how.to_owned());
        };
        let plain: BTreeMap<&str, &str> = secrets
            .iter()
            .map(|(path, it)| (path.as_str(), it.expose_secret()))
            .collect();
        let mut text = serde_json::to_vec(&plain).map_err(|error| error.to_string())?;
        let mut nonce = [0; NONCE_LEN];
        let drawn = SystemRandom::new().fill(&mut nonce);
        drawn.map_err(|_| "the system gives no random numbers".to_owned())?;
        let sealed = key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(name.as_bytes()),
            &mut text,
        );
        sealed.map_err(|_| "cannot be sealed".to_owned())?;
        let mut out = Vec::with_capacity(HEAD_BYTES + text.len());
        out.push(FORM);
        out.extend_from_slice(id);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&text);
        Ok(Some(out))
    }

    /// Opens what was sealed for a destination.
    pub(crate) fn open(&self, name: &str, sealed: Option<&[u8]>) -> Result<Secrets, String> {
        let Some(sealed) = sealed else {
            return Ok(Secrets::new());
        };
        let (head, text) = sealed.split_at_checked(HEAD_BYTES).ok_or("are cut off")?;
        if head[0] != FORM {
            return Err("were sealed by a newer version".to_owned());
        }
        let known = self.0.iter().find(|key| key.id == head[1..=ID_BYTES]);
        let Key { key, .. } = known.ok_or(
            "were sealed under a key that is not in the configuration: put it into secrets.previous",
        )?;
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&head[1 + ID_BYTES..]);
        let mut text = text.to_vec();
        let aad = Aad::from(name.as_bytes());
        let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut text);
        let opened = opened.map_err(|_| "do not open: the row was changed or moved")?;
        let plain: BTreeMap<String, String> =
            serde_json::from_slice(opened).map_err(|_| "are not what was sealed")?;
        Ok(plain
            .into_iter()
            .map(|(path, it)| (path, SecretString::from(it)))
            .collect())
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").field(&self.0.len()).finish()
    }
}

fn key(path: &str, secret: &Secret) -> Result<Key, Wrong> {
    let text = secret.reveal().map_err(|bad| Wrong::at(path, bad))?;
    let bytes = STANDARD.decode(text.expose_secret().trim());
    let key = bytes
        .ok()
        .filter(|bytes| bytes.len() == AES_256_GCM.key_len());
    let key = key.ok_or_else(|| {
        let problem = "is no 32 bytes in base64: make one with `openssl rand -base64 32`";
        Wrong::at(path, problem)
    })?;
    let hash = digest(&SHA256, &key);
    let mut id = [0; ID_BYTES];
    id.copy_from_slice(&hash.as_ref()[..ID_BYTES]);
    let unbound = UnboundKey::new(&AES_256_GCM, &key);
    let unbound = unbound.map_err(|_| Wrong::at(path, "is no key"))?;
    Ok(Key {
        id,
        key: LessSafeKey::new(unbound),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_under_its_name_and_key_alone() {
        let (one, two) = (keys(&[1]), keys(&[2]));
        let sealed = one.seal("orders", &secrets()).unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("hunter2"));
        let opened = one.open("orders", Some(&sealed)).unwrap();
        assert_eq!(opened["sink.webhook.secret"].expose_secret(), "hunter2");
        assert!(one.open("other", Some(&sealed)).is_err());
        assert!(
            two.open("orders", Some(&sealed))
                .unwrap_err()
                .contains("secrets.previous")
        );
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(one.open("orders", Some(&changed)).is_err());
        for length in 0..sealed.len() {
            assert!(one.open("orders", Some(&sealed[..length])).is_err());
        }
        assert_ne!(one.seal("orders", &secrets()).unwrap().unwrap(), sealed);
    }

    #[test]
    fn a_new_key_seals_and_the_one_before_still_opens() {
        let sealed = keys(&[1]).seal("orders", &secrets()).unwrap().unwrap();
        let rotated = keys(&[2, 1]);
        assert!(rotated.open("orders", Some(&sealed)).is_ok());
        let anew = rotated.seal("orders", &secrets()).unwrap().unwrap();
        assert!(keys(&[2]).open("orders", Some(&anew)).is_ok());
    }

    #[test]
    fn without_a_key_no_secret_is_kept_and_none_is_needed() {
        let none = Keys(Arc::new(Vec::new()));
        assert!(
            none.seal("orders", &secrets())
                .unwrap_err()
                .contains("secrets.key")
        );
        assert!(none.seal("orders", &Secrets::new()).unwrap().is_none());
        assert!(none.open("orders", None).unwrap().is_empty());
    }

    #[test]
    fn a_key_is_32_bytes_and_its_error_does_not_say_it() {
        for bad in ["hunter2", "", "aGVsbG8="] {
            let wrong = key("secrets.key", &Secret::text(bad)).err().unwrap();
            assert!(bad.is_empty() || !wrong.to_string().contains(bad));
        }
    }

    fn keys(seeds: &[u8]) -> Keys {
        let text = |seed: &u8| Secret::text(STANDARD.encode([*seed; 32]));
        let all = seeds
            .iter()
            .map(|seed| key("secrets.key", &text(seed)).unwrap());
        Keys(Arc::new(all.collect()))
    }

    fn secrets() -> Secrets {
        let secret = SecretString::from("hunter2".to_owned());
        Secrets::from([("sink.webhook.secret".to_owned(), secret)])
    }
}
