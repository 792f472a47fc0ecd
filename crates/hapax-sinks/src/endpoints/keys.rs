//! Encryption of stored secrets: those of endpoints, and of destinations that are declared at run time.
//!
//! The ciphertext is bound to the name of the row, so the secrets of one row cannot be decrypted in
//! another one. Nothing in this module prints a key or a decrypted secret.

use std::collections::BTreeMap;

use bytes::Bytes;
use hapax::keyring::{Keyring, KeyringError};
use secrecy::{ExposeSecret as _, SecretString};

/// The keys that encrypt and decrypt secrets. The first one encrypts.
#[derive(Clone, Debug)]
pub struct Keys(Keyring);

/// Secrets by the path of their setting.
pub type Secrets = BTreeMap<String, SecretString>;

impl Keys {
    /// Uses the keys of a keyring.
    pub fn new(keyring: Keyring) -> Self {
        Self(keyring)
    }

    /// The keyring that reads the rows that services have encrypted.
    pub fn reading(&self) -> Keyring {
        self.0.reading()
    }

    /// Encrypts secrets under a name. Returns `None` if there are none.
    ///
    /// # Errors
    /// Fails if there is no key. The text says what is missing.
    pub fn encrypt(&self, name: &str, secrets: &Secrets) -> Result<Option<Vec<u8>>, String> {
        if secrets.is_empty() {
            return Ok(None);
        }
        if self.0.is_empty() {
            let how =
                "secrets.key is missing in the configuration: no secret can be stored without it";
            return Err(how.to_owned());
        }
        let plain: BTreeMap<&str, &str> = secrets
            .iter()
            .map(|(path, it)| (path.as_str(), it.expose_secret()))
            .collect();
        let text = serde_json::to_vec(&plain).map_err(|error| error.to_string())?;
        let encrypted = self.0.encrypt(&place(name), Bytes::from(text));
        encrypted
            .map(|encrypted| Some(encrypted.to_vec()))
            .map_err(|error| error.to_string())
    }

    /// Decrypts the secrets of a name.
    ///
    /// # Errors
    /// Fails if no key decrypts them. The text continues a sentence that begins with the secrets.
    pub fn open(&self, name: &str, encrypted: Option<&[u8]>) -> Result<Secrets, String> {
        let Some(encrypted) = encrypted else {
            return Ok(Secrets::new());
        };
        let opened = self.0.decrypt(&place(name), encrypted);
        let opened = opened.map_err(|error| match error {
            KeyringError::Missing { .. } => {
                format!("are {error}: put it into secrets.previous")
            }
            other => format!("are not readable: {other}"),
        })?;
        let plain: BTreeMap<String, String> =
            serde_json::from_slice(&opened).map_err(|_| "are not valid after decryption")?;
        Ok(plain
            .into_iter()
            .map(|(path, it)| (path, SecretString::from(it)))
            .collect())
    }
}

fn place(name: &str) -> [&str; 2] {
    ["secrets", name]
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    #[test]
    fn encrypted_secrets_open_under_their_name_and_key_alone() {
        let (one, two) = (keys(&[1]), keys(&[2]));
        let encrypted = one.encrypt("orders", &secrets()).unwrap().unwrap();
        assert!(!String::from_utf8_lossy(&encrypted).contains("hunter2"));
        let opened = one.open("orders", Some(&encrypted)).unwrap();
        assert_eq!(opened["sink.webhook.secret"].expose_secret(), "hunter2");
        assert!(one.open("other", Some(&encrypted)).is_err());
        assert!(
            two.open("orders", Some(&encrypted))
                .unwrap_err()
                .contains("secrets.previous")
        );
        let mut changed = encrypted.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(one.open("orders", Some(&changed)).is_err());
        for length in 0..encrypted.len() {
            assert!(one.open("orders", Some(&encrypted[..length])).is_err());
        }
        assert_ne!(
            one.encrypt("orders", &secrets()).unwrap().unwrap(),
            encrypted
        );
    }

    #[test]
    fn a_new_key_encrypts_and_the_one_before_still_opens() {
        let encrypted = keys(&[1]).encrypt("orders", &secrets()).unwrap().unwrap();
        let rotated = keys(&[2, 1]);
        assert!(rotated.open("orders", Some(&encrypted)).is_ok());
        let anew = rotated.encrypt("orders", &secrets()).unwrap().unwrap();
        assert!(keys(&[2]).open("orders", Some(&anew)).is_ok());
    }

    #[test]
    fn without_a_key_no_secret_is_kept_and_none_is_needed() {
        let none = Keys::new(Keyring::default());
        assert!(
            none.encrypt("orders", &secrets())
                .unwrap_err()
                .contains("secrets.key")
        );
        assert!(none.encrypt("orders", &Secrets::new()).unwrap().is_none());
        assert!(none.open("orders", None).unwrap().is_empty());
    }

    fn keys(seeds: &[u8]) -> Keys {
        let texts = seeds.iter().map(|seed| STANDARD.encode([*seed; 32]));
        Keys::new(Keyring::parse(texts).unwrap())
    }

    fn secrets() -> Secrets {
        let secret = SecretString::from("hunter2".to_owned());
        Secrets::from([("sink.webhook.secret".to_owned(), secret)])
    }
}
