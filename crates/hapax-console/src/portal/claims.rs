//! The token of a link and of a session: a JWT with HMAC-SHA256 and a constant header.
//!
//! The header is compared with a constant, so a token cannot choose its algorithm. The signature is
//! verified before the claims are read. A token that is not valid says nothing about why.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hapax::{Timestamp, admin::Actor, key::Tenant};

use super::limits::{PORTAL_CLOCK_SKEW, PORTAL_LINK_MAX, PORTAL_TOKEN_BYTES_MAX};
use ring::hmac;
use serde_json::{Value, json};

/// The audience of these tokens. A token for anything else is refused.
const AUDIENCE: &str = "hapax-portal";
/// `{"alg":"HS256","typ":"JWT"}`, encoded.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// The rights of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// See endpoints and deliveries, without secrets.
    Read,
    /// Everything.
    Write,
}

impl Rights {
    /// The word in a token and in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// Parses what [`Rights::as_str`] returns.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "read" => Some(Self::Read),
            "write" => Some(Self::Write),
            _ => None,
        }
    }
}

/// The claims of a verified token.
#[derive(Clone)]
pub(crate) struct Claims {
    /// The tenant.
    pub(crate) tenant: Tenant,
    /// The rights.
    pub(crate) rights: Rights,
    /// The name of the user, for display.
    pub(crate) name: Option<String>,
    /// When the token was made.
    pub(crate) issued_at: Timestamp,
    /// When the session ends.
    pub(crate) expires_at: Timestamp,
}

impl Claims {
    /// The actor in the audit log, who is limited to the tenant.
    pub(crate) fn actor(&self) -> Actor {
        Actor::new(format!("portal:{}", self.tenant.as_str())).of(self.tenant.clone())
    }

    /// Whether the session may change things.
    pub(crate) fn may_write(&self) -> bool {
        self.rights == Rights::Write
    }

    /// Signs the claims. `id` makes the token unique.
    pub(crate) fn sign(&self, key: &hmac::Key, id: &str) -> String {
        let claims = json!({
            "aud": AUDIENCE,
            "sub": self.tenant.as_str(),
            "rights": self.rights.as_str(),
            "name": self.name,
            "iat": self.issued_at.as_secs(),
            "exp": self.expires_at.as_secs(),
            "jti": id,
        });
        let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
        let signed = format!("{HEADER}.{claims}");
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(key, signed.as_bytes()));
        format!("{signed}.{tag}")
    }

    /// The claims of a token that one of the keys has signed and that is valid now.
    pub(crate) fn verify(token: &str, keys: &[hmac::Key], now: Timestamp) -> Option<Self> {
        if token.len() > PORTAL_TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, tag) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        if header != HEADER {
            return None;
        }
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        let is_by = |key: &hmac::Key| hmac::verify(key, signed.as_bytes(), &tag).is_ok();
        if !keys.iter().any(is_by) {
            return None;
        }
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        Self::read(&claims)?.at(now)
    }

    fn read(claims: &Value) -> Option<Self> {
        if claims["aud"] != AUDIENCE {
            return None;
        }
        let time = |name: &str| {
            let seconds = claims[name].as_i64()?;
            Some(Timestamp::from_millis(seconds.checked_mul(1_000)?))
        };
        Some(Self {
            tenant: Tenant::new(claims["sub"].as_str()?).ok()?,
            rights: Rights::parse(claims["rights"].as_str()?)?,
            name: claims["name"].as_str().map(str::to_owned),
            issued_at: time("iat")?,
            expires_at: time("exp")?,
        })
    }

    /// The claims, if they are valid now.
    fn at(self, now: Timestamp) -> Option<Self> {
        let is_current = now < self.expires_at && self.issued_at <= now.after(PORTAL_CLOCK_SKEW);
        let is_short = self.expires_at.since(self.issued_at) <= PORTAL_LINK_MAX;
        (is_current && is_short).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn key(seed: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &[seed; 32])
    }

    fn claims() -> Claims {
        Claims {
            tenant: Tenant::new("alice").unwrap(),
            rights: Rights::Write,
            name: Some("Alice <b>".to_owned()),
            issued_at: NOW,
            expires_at: NOW.after(Duration::from_hours(1)),
        }
    }

    fn encoded(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    /// A token with any header and claims, signed with the right key.
    fn forged(header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encoded(header), encoded(claims));
        let tag = URL_SAFE_NO_PAD.encode(hmac::sign(&key(1), signed.as_bytes()));
        format!("{signed}.{tag}")
    }

    fn is_valid(token: &str) -> bool {
        Claims::verify(token, &[key(1)], NOW).is_some()
    }

    #[test]
    fn the_constant_header_is_hs256() {
        let header = URL_SAFE_NO_PAD.decode(HEADER).unwrap();
        assert_eq!(header, br#"{"alg":"HS256","typ":"JWT"}"#);
    }

    #[test]
    fn a_token_reads_back_and_names_the_actor_and_its_tenant() {
        let token = claims().sign(&key(1), "1");
        let read = Claims::verify(&token, &[key(1)], NOW).unwrap();
        assert_eq!(read.tenant.as_str(), "alice");
        assert_eq!(read.name.as_deref(), Some("Alice <b>"));
        assert_eq!(read.rights, Rights::Write);
        let actor = read.actor();
        assert_eq!(
            (actor.name.as_str(), actor.tenant()),
            ("portal:alice", Some("alice"))
        );
    }

    #[test]
    fn a_token_of_the_previous_key_is_valid_during_a_rotation_and_of_no_other() {
        let token = claims().sign(&key(1), "1");
        assert!(Claims::verify(&token, &[key(2), key(1)], NOW).is_some());
        assert!(Claims::verify(&token, &[key(2)], NOW).is_none());
        assert!(Claims::verify(&token, &[], NOW).is_none());
    }

    #[test]
    fn a_token_ends_with_its_time_and_none_begins_in_the_future_or_lasts_for_ever() {
        let token = claims().sign(&key(1), "1");
        let at = |now| Claims::verify(&token, &[key(1)], now).is_some();
        let hour = 3_600_000;
        assert!(at(Timestamp::from_millis(NOW.as_millis() + hour - 1)));
        assert!(!at(Timestamp::from_millis(NOW.as_millis() + hour)));
        assert!(at(Timestamp::from_millis(NOW.as_millis() - 60_000)));
        assert!(!at(Timestamp::from_millis(NOW.as_millis() - 61_000)));
        let long = Claims {
            expires_at: NOW.after(2 * PORTAL_LINK_MAX),
            ..claims()
        };
        assert!(!is_valid(&long.sign(&key(1), "1")));
    }

    #[test]
    fn a_header_or_an_audience_of_another_kind_is_refused_even_with_a_valid_signature() {
        let good = claims().sign(&key(1), "1");
        let part = good.split('.').nth(1).unwrap();
        let good = String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        let header = r#"{"alg":"HS256","typ":"JWT"}"#;
        assert!(is_valid(&forged(header, &good)));
        for header in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"HS512","typ":"JWT"}"#,
            r#"{"typ":"JWT","alg":"HS256"}"#,
            r#"{"alg":"RS256","typ":"JWT"}"#,
            "",
        ] {
            assert!(!is_valid(&forged(header, &good)), "{header}");
        }
        for (from, to) in [
            ("hapax-portal", "hapax-poll"),
            ("\"aud\"", "\"aud2\""),
            ("\"write\"", "\"admin\""),
            ("\"alice\"", "\"\""),
            ("\"alice\"", "7"),
            ("\"exp\"", "\"exp2\""),
            ("\"iat\"", "\"iat2\""),
        ] {
            let other = good.replacen(from, to, 1);
            assert_ne!(other, good);
            assert!(!is_valid(&forged(header, &other)), "{from} {to}");
        }
    }

    #[test]
    fn an_altered_token_is_refused_at_every_place() {
        let token = claims().sign(&key(1), "1");
        assert!(is_valid(&token));
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let altered = String::from_utf8(bytes).unwrap();
            assert!(!is_valid(&altered), "{at}");
            assert!(!is_valid(&token[..at]), "{at}");
        }
        let unsigned = token.rsplit_once('.').unwrap().0;
        for text in [
            format!("{token}="),
            format!("{token}."),
            format!("{unsigned}."),
            format!("{token}{}", "A".repeat(PORTAL_TOKEN_BYTES_MAX)),
            String::new(),
            "..".to_owned(),
        ] {
            assert!(!is_valid(&text), "{text}");
        }
    }
}
