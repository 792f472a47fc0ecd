//! Links: an operator or the service asks for one, and the customer opens the portal with it.
//!
//! Links are stateless: nothing is stored but the line in the audit log, so there is nothing that a
//! crash could leave behind. The token is never logged.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hapax::{
    Clock, Timestamp,
    admin::{Actor, Admin, AdminError, check_endpoint_tenant},
    key::{Tenant, hex},
    retry::parse_duration,
};

use super::limits::{
    PORTAL_KEY_BYTES_MIN, PORTAL_LINK, PORTAL_LINK_MAX, PORTAL_LINK_MIN, PORTAL_NAME_BYTES_MAX,
    PORTAL_TOKEN_BYTES_MAX,
};
use ring::hmac;
use serde_json::json;

use super::{
    OPEN, address,
    brand::BadPortal,
    claims::{Claims, Rights},
};
use crate::session::mint;

/// Signs links and verifies them.
#[derive(Clone)]
pub struct PortalLinks {
    url: String,
    /// The current key, which signs, and the one before it.
    keys: Vec<hmac::Key>,
    clock: Clock,
}

/// A request for a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkRequest {
    /// The tenant that the link opens.
    pub tenant: String,
    /// The rights of the session.
    pub rights: Rights,
    /// How long the link and its session are valid.
    pub lifetime: Duration,
    /// The name of the user, for display.
    pub name: Option<String>,
}

/// A link. Its URL opens the portal, so it must not be logged.
#[derive(Clone)]
pub struct PortalLink {
    /// The URL.
    pub url: String,
    /// When the link and the session that it opens end.
    pub expires_at: Timestamp,
}

impl fmt::Debug for PortalLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortalLinks")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PortalLink {
    /// Omits the URL, which contains the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortalLink")
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl LinkRequest {
    /// Reads the members of a request as they are written: `rights` is `write` if absent, and
    /// `expires_in` is an hour.
    ///
    /// # Errors
    /// `Invalid` with the first member that is not valid.
    pub fn read(
        tenant: String,
        rights: Option<&str>,
        expires_in: Option<&str>,
        name: Option<String>,
    ) -> Result<Self, AdminError> {
        let rights = Rights::parse(rights.unwrap_or("write"))
            .ok_or_else(|| AdminError::invalid("rights", "must be read or write"))?;
        let lifetime = expires_in.map_or(Ok(PORTAL_LINK), parse_duration);
        let lifetime =
            lifetime.map_err(|error| AdminError::invalid("expires_in", error.to_string()))?;
        if !(PORTAL_LINK_MIN..=PORTAL_LINK_MAX).contains(&lifetime) {
            return Err(AdminError::invalid("expires_in", "must be 1m to 24h"));
        }
        let name = name.filter(|it| !it.is_empty());
        let is_odd =
            |it: &String| it.len() > PORTAL_NAME_BYTES_MAX || it.contains(char::is_control);
        if name.as_ref().is_some_and(is_odd) {
            let problem =
                format!("must be at most {PORTAL_NAME_BYTES_MAX} bytes without control characters");
            return Err(AdminError::invalid("name", problem));
        }
        Ok(Self {
            tenant,
            rights,
            lifetime,
            name,
        })
    }
}

impl PortalLinks {
    /// Links to the portal at `url`, signed with `key`. Those that `previous` has signed stay valid.
    ///
    /// # Errors
    /// Fails if the URL is not one without a path, or if a key is too short.
    pub fn new(
        url: &str,
        key: &str,
        previous: Option<&str>,
        clock: Clock,
    ) -> Result<Self, BadPortal> {
        let url = address::base(url)?;
        let read = |setting, text: &str| {
            if text.len() < PORTAL_KEY_BYTES_MIN {
                let problem = format!("has fewer than {PORTAL_KEY_BYTES_MIN} bytes");
                return Err(BadPortal::new(setting, problem));
            }
            Ok(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
        };
        let mut keys = vec![read("key", key)?];
        if let Some(previous) = previous {
            keys.push(read("previous_key", previous)?);
        }
        Ok(Self { url, keys, clock })
    }

    /// The base URL, without a slash at its end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes a link, and records it in the audit log of the store.
    ///
    /// # Errors
    /// `NotFound` if the actor is limited to another tenant, and `Invalid` if the tenant is not valid.
    pub async fn create(
        &self,
        store: &dyn Admin,
        actor: &Actor,
        request: LinkRequest,
    ) -> Result<PortalLink, AdminError> {
        check_endpoint_tenant(actor, &request.tenant)?;
        let tenant = Tenant::new(request.tenant.as_str());
        let issued_at = self.clock.now();
        let claims = Claims {
            tenant: tenant.map_err(|error| AdminError::invalid("tenant", error.to_string()))?,
            rights: request.rights,
            name: request.name,
            issued_at,
            expires_at: issued_at.after(request.lifetime),
        };
        let id = mint();
        let token = claims.sign(&self.keys[0], &id);
        if token.len() > PORTAL_TOKEN_BYTES_MAX {
            return Err(AdminError::invalid("tenant", "is too long for a link"));
        }
        // A link that was given out and is in no log would be worse than a line too many.
        let object = format!("portal {}", request.tenant);
        let detail = json!({
            "tenant": request.tenant,
            "rights": claims.rights.as_str(),
            "name": claims.name,
            "expires_at": claims.expires_at,
            "jti": id,
        });
        store.record(actor, "link", &object, &detail).await?;
        Ok(PortalLink {
            url: format!("{}{OPEN}?token={token}", self.url),
            expires_at: claims.expires_at,
        })
    }

    /// The claims of a token that is valid now.
    pub(crate) fn verify(&self, token: &str) -> Option<Claims> {
        Claims::verify(token, &self.keys, self.clock.now())
    }

    /// How long a session still lasts.
    pub(crate) fn rest(&self, claims: &Claims) -> Duration {
        claims.expires_at.since(self.clock.now())
    }

    /// The CSRF token for forms of the session with this token. It is the same in all processes.
    pub(crate) fn seal(&self, token: &str) -> String {
        let tag = hmac::sign(&self.keys[0], &sealed(token));
        URL_SAFE_NO_PAD.encode(tag)
    }

    /// Checks a CSRF token in constant time.
    pub(crate) fn is_seal(&self, token: &str, seal: &str) -> bool {
        let tag = URL_SAFE_NO_PAD.decode(seal).unwrap_or_default();
        let is_by = |key| hmac::verify(key, &sealed(token), &tag).is_ok();
        self.keys.iter().any(is_by)
    }

    /// The id of the endpoint that a form creates. The same form always creates the same one.
    pub(crate) fn endpoint_id(&self, tenant: &Tenant, nonce: &str) -> String {
        let text = format!("endpoint\0{}\0{nonce}", tenant.as_str());
        let tag = hmac::sign(&self.keys[0], text.as_bytes());
        format!("ep_{}", hex(&tag.as_ref()[..16]))
    }
}

/// The bytes that the CSRF token of a session signs. No JWT contains a zero byte.
fn sealed(token: &str) -> Vec<u8> {
    format!("seal\0{token}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    fn links(key: &str, previous: Option<&str>) -> PortalLinks {
        let clock = Clock::new(|| Timestamp::from_millis(1_800_000_000_000));
        PortalLinks::new("https://a.example/", key, previous, clock).unwrap()
    }

    #[test]
    fn a_short_key_is_refused_and_is_not_in_the_error() {
        let clock = || Clock::new(|| Timestamp::from_millis(0));
        let bad = PortalLinks::new("https://a.example", "hunter2", None, clock()).unwrap_err();
        assert_eq!(bad.setting, "key");
        assert!(!bad.problem.contains("hunter2"));
        let bad = PortalLinks::new("https://a.example", KEY, Some("x"), clock()).unwrap_err();
        assert_eq!(bad.setting, "previous_key");
    }

    #[test]
    fn the_members_of_a_request_are_checked() {
        let read = |rights, expires_in, name: Option<&str>| {
            let name = name.map(str::to_owned);
            LinkRequest::read("alice".to_owned(), rights, expires_in, name)
        };
        let plain = read(None, None, None).unwrap();
        assert_eq!(
            (plain.rights, plain.lifetime),
            (Rights::Write, Duration::from_hours(1))
        );
        assert_eq!(read(Some("read"), None, None).unwrap().rights, Rights::Read);
        assert!(read(None, Some("1m"), Some("Alice")).is_ok());
        assert!(read(None, Some("24h"), None).is_ok());
        let long = "a".repeat(PORTAL_NAME_BYTES_MAX + 1);
        for (rights, expires_in, name) in [
            (Some("admin"), None, None),
            (None, Some("59s"), None),
            (None, Some("25h"), None),
            (None, Some("soon"), None),
            (None, None, Some("a\nb")),
            (None, None, Some(long.as_str())),
        ] {
            let read = read(rights, expires_in, name);
            assert!(matches!(read, Err(AdminError::Invalid { .. })), "{read:?}");
        }
    }

    #[test]
    fn the_seal_of_a_form_is_that_of_its_session_and_survives_a_rotation() {
        let (before, after) = (links(KEY, None), links(OTHER, Some(KEY)));
        let seal = before.seal("token");
        assert!(before.is_seal("token", &seal) && after.is_seal("token", &seal));
        assert!(!before.is_seal("other", &seal));
        assert!(!before.is_seal("token", ""));
        assert!(!links(OTHER, None).is_seal("token", &seal));
    }

    #[test]
    fn a_form_makes_one_id_for_each_tenant() {
        let links = links(KEY, None);
        let (alice, bob) = (Tenant::new("alice").unwrap(), Tenant::new("bob").unwrap());
        let id = links.endpoint_id(&alice, "1");
        assert_eq!(id.len(), 3 + 32);
        assert_eq!(id, links.endpoint_id(&alice, "1"));
        assert_ne!(id, links.endpoint_id(&alice, "2"));
        assert_ne!(id, links.endpoint_id(&bob, "1"));
    }
}
