//! Compact form of a signed token: three parts of base64url, and the header in the first one.
//!
//! base64url must be canonical and without padding, so that a token has exactly one spelling. The
//! members of the header that point to keys (`jku`, `jwk`, `x5u`, `x5c`) are never used.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{algorithm::Algorithm, json, refusal::JwtRefusal};

/// Maximum length of a token in bytes: what servers commonly accept for all headers of a request.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Maximum length of a key id in bytes. A hash or a UUID is shorter.
const KEY_ID_BYTES_MAX: usize = 256;

/// A token whose signature is not verified yet.
pub(super) struct Token<'a> {
    /// The signature algorithm.
    pub(super) algorithm: Algorithm,
    /// The id of the key.
    pub(super) key_id: Option<String>,
    /// What is signed.
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
    claims: Vec<u8>,
}

impl<'a> Token<'a> {
    /// Takes a token apart.
    pub(super) fn parse(text: &'a str) -> Result<Self, JwtRefusal> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(JwtRefusal::TooLong);
        }
        let mut parts = text.split('.');
        let (Some(header), Some(claims), Some(signature)) =
            (parts.next(), parts.next(), parts.next())
        else {
            return Err(JwtRefusal::Malformed);
        };
        match parts.count() {
            0 => {}
            2 => return Err(JwtRefusal::Encrypted),
            _ => return Err(JwtRefusal::Malformed),
        }
        let members = json::object(&decode(header)?).ok_or(JwtRefusal::Malformed)?;
        let (algorithm, key_id) = read_header(&members)?;
        Ok(Self {
            algorithm,
            key_id,
            signed: &text[..header.len() + 1 + claims.len()],
            signature: decode(signature)?,
            claims: decode(claims)?,
        })
    }

    /// The claims. They mean nothing before the signature is verified.
    pub(super) fn claims(&self) -> Result<Map<String, Value>, JwtRefusal> {
        json::object(&self.claims).ok_or(JwtRefusal::Malformed)
    }
}

fn decode(part: &str) -> Result<Vec<u8>, JwtRefusal> {
    BASE64_URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| JwtRefusal::Malformed)
}

fn read_header(members: &Map<String, Value>) -> Result<(Algorithm, Option<String>), JwtRefusal> {
    if members.contains_key("enc") || members.contains_key("zip") {
        return Err(JwtRefusal::Encrypted);
    }
    if members.contains_key("crit") || members.contains_key("b64") {
        return Err(JwtRefusal::Critical);
    }
    if members.contains_key("cty") {
        return Err(JwtRefusal::Nested);
    }
    match members.get("typ") {
        None => {}
        Some(Value::String(name)) if is_accepted_type(name) => {}
        Some(_) => return Err(JwtRefusal::Type),
    }
    let Some(Value::String(name)) = members.get("alg") else {
        return Err(JwtRefusal::Algorithm);
    };
    let algorithm = Algorithm::named(name).ok_or(JwtRefusal::Algorithm)?;
    let key_id = match members.get("kid") {
        None => None,
        Some(Value::String(id)) if (1..=KEY_ID_BYTES_MAX).contains(&id.len()) => Some(id.clone()),
        Some(_) => return Err(JwtRefusal::Malformed),
    };
    Ok((algorithm, key_id))
}

/// Access tokens, and tokens without a purpose in their type (RFC 7519, RFC 9068). Types are media
/// types, whose `application/` may be left out.
fn is_accepted_type(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("application/").unwrap_or(&name);
    matches!(name, "jwt" | "at+jwt")
}
