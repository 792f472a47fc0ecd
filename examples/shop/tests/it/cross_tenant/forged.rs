//! Tokens that the portal has not issued.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The block of SHA-256 in bytes.
const BLOCK: usize = 64;

/// The three parts of a token, as text.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) header: String,
    pub(super) claims: String,
    /// The signature, encoded.
    pub(super) signature: String,
}

impl Token {
    /// Reads a token that the portal has issued.
    pub(super) fn read(token: &str) -> Self {
        let parts: Vec<_> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else {
            panic!("a token has three parts: {token}");
        };
        Self {
            header: decoded(header),
            claims: decoded(claims),
            signature: signature.to_owned(),
        }
    }

    /// The token with another header.
    pub(super) fn with_header(&self, header: &str) -> Self {
        Self {
            header: header.to_owned(),
            ..self.clone()
        }
    }

    /// The token with other claims.
    pub(super) fn with_claims(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut claims = serde_json::from_str(&self.claims).unwrap();
        change(&mut claims);
        Self {
            claims: claims.to_string(),
            ..self.clone()
        }
    }

    /// The token with this text as its claims.
    pub(super) fn with_raw_claims(&self, claims: String) -> Self {
        Self {
            claims,
            ..self.clone()
        }
    }

    /// The token signed with this key.
    pub(super) fn signed(&self, key: &[u8]) -> String {
        let signature = encoded(&hmac(key, self.unsigned().as_bytes()));
        format!("{}.{signature}", self.unsigned())
    }

    /// The token with the signature that it had before it was changed.
    pub(super) fn with_its_signature(&self) -> String {
        format!("{}.{}", self.unsigned(), self.signature)
    }

    /// The first two parts.
    pub(super) fn unsigned(&self) -> String {
        let (header, claims) = (self.header.as_bytes(), self.claims.as_bytes());
        format!("{}.{}", encoded(header), encoded(claims))
    }
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new()
        .chain_update(block.map(|it| it ^ 0x36))
        .chain_update(text)
        .finalize();
    let outer = Sha256::new()
        .chain_update(block.map(|it| it ^ 0x5c))
        .chain_update(inner);
    outer.finalize().into()
}

/// Base64 for URLs, without padding.
fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0_usize, |bits, at| {
            (bits << 8) | usize::from(chunk.get(at).copied().unwrap_or_default())
        });
        for digit in 0..=chunk.len() {
            let index = (bits >> (18 - 6 * digit)) & 63;
            text.push(char::from(ALPHABET[index]));
        }
    }
    text
}

fn decoded(text: &str) -> String {
    let (mut bits, mut count, mut bytes) = (0_usize, 0, Vec::new());
    for digit in text.bytes() {
        let value = ALPHABET.iter().position(|it| *it == digit);
        let value = value.unwrap_or_else(|| panic!("{text} is not base64"));
        bits = ((bits << 6) | value) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 255).unwrap());
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_token_is_read_and_signed() {
    // The first example of RFC 7515, appendix A.1, with its key as text.
    let token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4\
        MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_\
        wW1gFWFOEjXk";
    let read = Token::read(token);
    assert!(read.claims.contains("\"iss\":\"joe\""), "{read:?}");
    assert_eq!(read.with_its_signature(), token);
    let key = [
        3, 35, 53, 75, 43, 15, 165, 188, 131, 126, 6, 101, 119, 123, 166, 143, 90, 179, 40, 230,
        240, 84, 201, 40, 169, 15, 132, 178, 210, 80, 46, 191, 211, 251, 90, 146, 210, 6, 71, 239,
        150, 138, 180, 195, 119, 98, 61, 34, 61, 46, 33, 114, 5, 46, 79, 8, 192, 205, 154, 245,
        103, 208, 128, 163,
    ];
    assert_eq!(read.signed(&key), token);
}
