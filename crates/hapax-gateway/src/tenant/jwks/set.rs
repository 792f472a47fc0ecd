//! Key set: the public keys that verify signatures, and how one of them is found.
//!
//! Keys that cannot be used are left out, as RFC 7517 asks for: other kinds and curves, keys for
//! encryption, symmetric keys, keys that contain their private part, and malformed ones. If two
//! different keys of one kind have the same id, both are left out, because the id names neither. A
//! set without any usable key is an error, so that it does not replace a good one.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::RsaPublicKeyComponents;
use serde_json::{Map, Value};

use crate::tenant::jwt::{self, Algorithm, Material};

/// Maximum number of keys in a set. Large issuers publish about ten.
const KEYS_MAX: usize = 256;

/// A key that verifies signatures.
#[derive(Debug)]
pub(in crate::tenant) struct VerificationKey {
    /// The id, if the set has one.
    pub(in crate::tenant) id: Option<String>,
    /// The only algorithm that the key is meant for, if the set names one.
    pub(in crate::tenant) algorithm: Option<Algorithm>,
    /// The key material.
    pub(in crate::tenant) material: Material,
}

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tenant) enum KeyLookupError {
    /// No key has the id.
    Unknown,
    /// There is no id, and several keys fit the algorithm.
    Ambiguous,
    /// The key with the id does not fit the algorithm.
    Unfit,
    /// There are no keys, or they are too old.
    Unavailable,
}

/// Why a content is not a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeySetError {
    #[error("expected a JSON object without duplicate members")]
    Json,
    #[error("expected a member \"keys\" with a list of at most {KEYS_MAX} keys")]
    Keys,
    #[error("no key of the set can verify signatures")]
    Unusable,
}

/// Keys that verify signatures; at least one.
#[derive(Debug)]
pub(super) struct KeySet(Vec<Arc<VerificationKey>>);

impl KeySet {
    /// Parses a key set.
    pub(super) fn parse(content: &[u8]) -> Result<Self, KeySetError> {
        let members = jwt::object(content).ok_or(KeySetError::Json)?;
        let keys = members.get("keys").and_then(Value::as_array);
        let keys = keys.filter(|keys| keys.len() <= KEYS_MAX);
        let keys = keys.ok_or(KeySetError::Keys)?.iter();
        let usable: Vec<_> = keys
            .filter_map(|key| VerificationKey::parse(key.as_object()?))
            .map(Arc::new)
            .collect();
        let unique = without_ambiguous(&usable);
        if unique.is_empty() {
            return Err(KeySetError::Unusable);
        }
        Ok(Self(unique))
    }

    /// The key with this id that fits the algorithm. Without an id: the only one that fits.
    pub(super) fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<VerificationKey>, KeyLookupError> {
        let mut named = self
            .0
            .iter()
            .filter(|key| id.is_none() || key.id.as_deref() == id)
            .peekable();
        if named.peek().is_none() {
            return Err(KeyLookupError::Unknown);
        }
        let mut fitting = named.filter(|key| key.fits(algorithm));
        let found = fitting.next().ok_or(KeyLookupError::Unfit)?;
        if fitting.next().is_some() {
            return Err(KeyLookupError::Ambiguous);
        }
        Ok(Arc::clone(found))
    }
}

/// Leaves out keys that share their id and kind with another key. Of equal keys, one stays.
fn without_ambiguous(keys: &[Arc<VerificationKey>]) -> Vec<Arc<VerificationKey>> {
    let mut unique: Vec<Arc<VerificationKey>> = Vec::with_capacity(keys.len());
    for key in keys {
        let mut namesakes = keys.iter().filter(|other| key.is_namesake(other));
        let is_ambiguous = namesakes.any(|other| !key.material.is_same(&other.material));
        let is_repeated = unique
            .iter()
            .any(|other| other.id == key.id && key.material.is_same(&other.material));
        if !is_ambiguous && !is_repeated {
            unique.push(Arc::clone(key));
        }
    }
    if unique.len() < keys.len() {
        tracing::warn!("the key set has several keys with one id; those that differ are not used");
    }
    unique
}

impl VerificationKey {
    /// Parses a key. `None` if it cannot be used to verify signatures.
    fn parse(key: &Map<String, Value>) -> Option<Self> {
        let is_for_signatures = match (key.get("use"), key.get("key_ops")) {
            (Some(usage), _) if usage != "sig" => false,
            (_, Some(operations)) => operations.as_array()?.iter().any(|it| it == "verify"),
            _ => true,
        };
        if !is_for_signatures || key.contains_key("d") {
            return None;
        }
        let material = material(key)?;
        let algorithm = match key.get("alg") {
            None => None,
            Some(name) => {
                let algorithm = Algorithm::named(name.as_str()?)?;
                if !algorithm.fits(&material) {
                    return None;
                }
                Some(algorithm)
            }
        };
        let id = match key.get("kid") {
            None => None,
            Some(id) => Some(id.as_str()?.to_owned()),
        };
        Some(Self {
            id,
            algorithm,
            material,
        })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        let is_meant = self.algorithm.is_none_or(|only| only == algorithm);
        is_meant && algorithm.fits(&self.material)
    }

    /// Whether a token that names this key could mean the other one. Keys without an id are
    /// left to the look-up, which refuses when several fit.
    fn is_namesake(&self, other: &Self) -> bool {
        self.id.is_some() && self.id == other.id && self.material.is_like(&other.material)
    }
}

fn material(key: &Map<String, Value>) -> Option<Material> {
    let text = |name: &str| key.get(name)?.as_str();
    match (text("kty")?, text("crv")) {
        ("RSA", None) => Some(Material::Rsa(RsaPublicKeyComponents {
            n: number(text("n")?)?,
            e: number(text("e")?)?,
        })),
        ("EC", Some("P-256")) => point(text("x")?, text("y")?).map(Material::P256),
        ("EC", Some("P-384")) => point(text("x")?, text("y")?).map(Material::P384),
        ("OKP", Some("Ed25519")) => {
            let bytes = decode(text("x")?)?.try_into().ok()?;
            Some(Material::Ed25519(bytes))
        }
        _ => None,
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// A positive number. Some issuers write leading zeros, which ring refuses.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = decode(text)?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    Some(bytes[first..].to_vec())
}

/// An uncompressed point of `N` bytes. Both coordinates have their full length.
fn point<const N: usize>(x: &str, y: &str) -> Option<[u8; N]> {
    let (x, y) = (decode(x)?, decode(y)?);
    if x.len() != y.len() {
        return None;
    }
    [&[4][..], &x, &y].concat().try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ed25519(id: &str, byte: u8) -> Value {
        let x = BASE64_URL_SAFE_NO_PAD.encode([byte; 32]);
        json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": x})
    }

    fn with(mut key: Value, name: &str, value: Value) -> Value {
        key[name] = value;
        key
    }

    fn parse(keys: &[Value]) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn a_key_that_is_not_for_signatures_is_left_out() {
        let good = || ed25519("a", 1);
        assert!(parse(&[with(good(), "use", json!("sig"))]).is_ok());
        assert!(parse(&[with(good(), "key_ops", json!(["verify"]))]).is_ok());
        for bad in [
            with(good(), "use", json!("enc")),
            with(good(), "use", json!(1)),
            with(good(), "key_ops", json!(["sign"])),
            with(good(), "key_ops", json!("verify")),
            with(good(), "d", json!("AA")),
            with(good(), "alg", json!("RS256")),
            with(good(), "alg", json!("HS256")),
            with(good(), "alg", json!("none")),
            with(good(), "kid", json!(7)),
            with(good(), "crv", json!("X25519")),
            with(good(), "kty", json!("oct")),
            with(good(), "x", json!("AAAA")),
            with(good(), "x", json!("not base64")),
            json!({"kty": "oct", "kid": "a", "k": "AAAA", "alg": "HS256"}),
            json!({"kty": "RSA", "kid": "a", "n": "AAAA", "e": "AQAB"}),
            json!(null),
        ] {
            let error = parse(std::slice::from_ref(&bad)).unwrap_err();
            assert_eq!(error, KeySetError::Unusable, "{bad}");
        }
    }

    #[test]
    fn two_keys_with_one_id_are_both_left_out_unless_they_are_equal() {
        let set = parse(&[ed25519("a", 1), ed25519("a", 2), ed25519("b", 3)]).unwrap();
        let find = |id| {
            set.find(Some(id), Algorithm::EdDsa)
                .map(|key| key.id.clone())
        };
        assert_eq!(find("a"), Err(KeyLookupError::Unknown));
        assert_eq!(find("b"), Ok(Some("b".to_owned())));
        let set = parse(&[ed25519("a", 1), ed25519("a", 1)]).unwrap();
        assert!(set.find(Some("a"), Algorithm::EdDsa).is_ok());
        assert!(set.find(None, Algorithm::EdDsa).is_ok());
    }

    #[test]
    fn a_token_without_a_key_id_is_verified_only_if_one_key_fits() {
        let set = parse(&[ed25519("a", 1), ed25519("b", 2)]).unwrap();
        let find = |id, algorithm| set.find(id, algorithm).err();
        assert_eq!(
            find(None, Algorithm::EdDsa),
            Some(KeyLookupError::Ambiguous)
        );
        assert_eq!(find(None, Algorithm::Es256), Some(KeyLookupError::Unfit));
        assert_eq!(
            find(Some("a"), Algorithm::Hs256),
            Some(KeyLookupError::Unfit)
        );
        for id in [
            "",
            "A",
            "a\0",
            "../a",
            "a' OR 1=1",
            "/dev/null",
            "file:///a",
        ] {
            let unknown = Some(KeyLookupError::Unknown);
            assert_eq!(find(Some(id), Algorithm::EdDsa), unknown, "{id:?}");
        }
    }

    #[test]
    fn a_content_that_is_not_a_key_set_is_an_error() {
        for content in ["", "null", "<html>", "[]", "{\"keys\":[],\"keys\":[]}"] {
            let error = KeySet::parse(content.as_bytes()).unwrap_err();
            assert_eq!(error, KeySetError::Json, "{content}");
        }
        for content in ["{}", "{\"keys\":{}}", "{\"keys\":null}"] {
            let error = KeySet::parse(content.as_bytes()).unwrap_err();
            assert_eq!(error, KeySetError::Keys, "{content}");
        }
        let many: Vec<_> = (0..=KEYS_MAX).map(|i| ed25519(&i.to_string(), 1)).collect();
        assert_eq!(parse(&many).unwrap_err(), KeySetError::Keys);
        assert_eq!(parse(&[]).unwrap_err(), KeySetError::Unusable);
    }
}
