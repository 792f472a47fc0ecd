//! Service account: signs the token with which requests are authenticated.
//!
//! The token is a JSON Web Token (RS256) that the service itself accepts, so there is no token
//! endpoint. It is valid for an hour and replaced after half of it. Neither the key nor a token is
//! printed.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hapax::Timestamp;
use http::HeaderValue;
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_supported_type,
    pki_types::{PrivateKeyDer, pem::PemObject as _},
    sign::{Signer, SigningKey},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use crate::{
    api::visible,
    limits::{PUBSUB_TOKEN, PUBSUB_TOKEN_USED},
    secret::Secret,
    settings::{SettingError, reveal},
};

const SETTING: &str = "service_account";
/// The service that a token is for. A service under another URL expects the same one.
const AUDIENCE: &str = "https://pubsub.googleapis.com/";

/// A service account with its key.
pub(super) struct ServiceAccount {
    email: String,
    key_id: String,
    key: Arc<dyn SigningKey>,
    current: Mutex<Option<Token>>,
}

/// A token.
#[derive(Clone)]
pub(super) struct Token {
    text: SecretString,
    signed_at: Timestamp,
}

/// The document that Google issues for a key, as far as it matters.
#[derive(Deserialize)]
struct Document {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key_id: String,
    private_key: String,
}

impl ServiceAccount {
    /// Reads the key of a service account.
    pub(super) fn read(secret: &Secret) -> Result<Self, SettingError> {
        let text = reveal(SETTING, secret)?;
        // The text of the error could repeat a part of the document.
        let document: Result<Document, _> = serde_json::from_str(text.expose_secret());
        let wrong = |problem: &str| SettingError::new(SETTING, problem);
        let document = document.map_err(|_| {
            wrong("is not the JSON document that Google issues for the key of a service account")
        })?;
        if document.kind != "service_account" {
            return Err(wrong("has another type than service_account"));
        }
        let key = PrivateKeyDer::from_pem_slice(document.private_key.as_bytes());
        let key = key.ok().and_then(|key| any_supported_type(&key).ok());
        let key = key.filter(|key| signer(key).is_some());
        let key = key.ok_or_else(|| wrong("has a private_key that is not an RSA key (PEM)"))?;
        Ok(Self {
            email: document.client_email,
            key_id: document.private_key_id,
            key,
            current: Mutex::default(),
        })
    }

    /// The current token, or a new one if there is none or half of its time is over.
    pub(super) fn token(&self, now: Timestamp) -> Token {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = &*current
            && token.is_valid_at(now)
        {
            return token.clone();
        }
        let token = Token {
            text: self.sign(now),
            signed_at: now,
        };
        *current = Some(token.clone());
        token
    }

    fn sign(&self, now: Timestamp) -> SecretString {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let issued_at = now.as_millis().div_euclid(1_000);
        let until = now.after(PUBSUB_TOKEN).as_millis().div_euclid(1_000);
        let claims = json!({
            "iss": self.email,
            "sub": self.email,
            "aud": AUDIENCE,
            "iat": issued_at,
            "exp": until,
        });
        let encoded = |part: serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let rsa = signer(&self.key).expect("the key is an RSA key");
        let signature = rsa.sign(signed.as_bytes());
        let signature = signature.expect("an RSA key signs every text");
        let signature = URL_SAFE_NO_PAD.encode(signature);
        SecretString::from(format!("{signed}.{signature}"))
    }
}

impl Token {
    /// The value of `authorization`.
    pub(super) fn authorization(&self) -> HeaderValue {
        let mut value = visible(&format!("Bearer {}", self.text.expose_secret()));
        value.set_sensitive(true);
        value
    }

    /// The token itself, so that it can be masked.
    pub(super) fn text(&self) -> &str {
        self.text.expose_secret()
    }

    /// A token that was signed in the future is not valid: the clock was set back.
    fn is_valid_at(&self, now: Timestamp) -> bool {
        (self.signed_at..self.signed_at.after(PUBSUB_TOKEN_USED)).contains(&now)
    }
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("email", &self.email)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// The algorithm of RS256: RSASSA-PKCS1-v1_5 with SHA-256.
fn signer(key: &Arc<dyn SigningKey>) -> Option<Box<dyn Signer>> {
    key.choose_scheme(&[SignatureScheme::RSA_PKCS1_SHA256])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../tests/it/pubsub/service-account.json");
    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn a_token_is_used_for_half_of_its_time_and_not_after_the_clock_was_set_back() {
        let account = ServiceAccount::read(&DOCUMENT.into()).unwrap();
        let at = |now: Timestamp| account.token(now).text().to_owned();
        let first = at(NOW);
        assert_eq!(
            at(Timestamp::from_millis(NOW.as_millis() + 1_799_999)),
            first
        );
        let second = at(Timestamp::from_millis(NOW.as_millis() + 1_800_000));
        assert_ne!(second, first);
        // The same claims have the same signature.
        assert_eq!(at(NOW), first);
    }

    #[test]
    fn a_token_names_the_account_the_key_and_the_time() {
        let account = ServiceAccount::read(&DOCUMENT.into()).unwrap();
        let token = account.token(NOW);
        let parts: Vec<_> = token.text().split('.').collect();
        assert_eq!(parts.len(), 3);
        let decoded = |part: &str| {
            let json = URL_SAFE_NO_PAD.decode(part).unwrap();
            serde_json::from_slice::<serde_json::Value>(&json).unwrap()
        };
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": "key-1"});
        assert_eq!(decoded(parts[0]), header);
        let email = "relay@shop.iam.gserviceaccount.com";
        let claims = json!({
            "iss": email,
            "sub": email,
            "aud": "https://pubsub.googleapis.com/",
            "iat": 1_700_000_000,
            "exp": 1_700_003_600,
        });
        assert_eq!(decoded(parts[1]), claims);
        let shown = format!("{account:?} {:?}", token.authorization());
        assert!(
            !shown.contains(parts[2]) && !shown.contains("PRIVATE"),
            "{shown}"
        );
    }

    #[test]
    fn a_document_that_can_never_work_is_refused_and_not_repeated() {
        let change = |member: &str, value: &str| {
            let mut document: serde_json::Value = serde_json::from_str(DOCUMENT).unwrap();
            document[member] = json!(value);
            document.to_string()
        };
        let elliptic = include_str!("../../tests/it/tls/server-key.pem");
        for (text, problem) in [
            ("hunter2".to_owned(), "JSON document"),
            (change("type", "hunter2"), "another type"),
            (change("private_key", "hunter2"), "RSA"),
            (change("private_key", elliptic), "RSA"),
        ] {
            let Err(error) = ServiceAccount::read(&text.as_str().into()) else {
                panic!("{problem} was accepted");
            };
            assert!(error.problem.contains(problem), "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
