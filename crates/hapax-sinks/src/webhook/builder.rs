//! Builder of a webhook, which checks the settings.
//!
//! Settings that are not valid are refused: another scheme, a user in the URL, no key, a
//! certificate that cannot be parsed. An address that the guard blocks is accepted: the destination
//! exists, and each delivery reports why nothing is sent.

use std::{fmt, time::Duration};

use hapax::{Clock, Timestamp, limits::OFFER, signature::Signer};
use http::Uri;
use ipnet::IpNet;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};

use super::{
    Key, Webhook, client,
    connect::Dial,
    guard::{Guard, Host},
};
use crate::resolve::Resolver;

/// The settings of a [`Webhook`].
#[derive(Clone)]
pub struct WebhookBuilder {
    url: String,
    keys: Vec<Key>,
    allow: Vec<IpNet>,
    roots: Vec<Vec<u8>>,
    timeout: Duration,
    resolver: Resolver,
}

impl WebhookBuilder {
    pub(super) fn new(url: String) -> Self {
        Self {
            url,
            keys: Vec::new(),
            allow: Vec::new(),
            roots: Vec::new(),
            timeout: OFFER,
            resolver: Resolver::system(),
        }
    }

    /// Adds a signing key. At least one is required, and all keys sign.
    #[must_use]
    pub fn sign_with(mut self, signer: Signer) -> Self {
        let until = None;
        self.keys.push(Key { signer, until });
        self
    }

    /// Adds a signing key that is used until `moment`: the old key of a rotation, usually for 24
    /// hours.
    #[must_use]
    pub fn sign_until(mut self, moment: Timestamp, signer: Signer) -> Self {
        let until = Some(moment);
        self.keys.push(Key { signer, until });
        self
    }

    /// Permits these addresses, such as `127.0.0.0/8`, in the guard.
    #[must_use]
    pub fn allow(mut self, nets: impl IntoIterator<Item = IpNet>) -> Self {
        self.allow.extend(nets);
        self
    }

    /// Trusts the certificates in this PEM or DER text in addition to the public ones.
    #[must_use]
    pub fn trust(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.roots.push(certificates.into());
        self
    }

    /// Sets the timeout of the whole exchange, from the DNS lookup to the last byte read.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Uses this resolver for names instead of the resolver of the process.
    #[must_use]
    pub fn resolver(mut self, resolver: Resolver) -> Self {
        self.resolver = resolver;
        self
    }

    /// Builds the webhook.
    ///
    /// # Errors
    /// Fails if a setting is not valid. The error names it.
    pub fn build(self, clock: Clock) -> Result<Webhook, WebhookError> {
        let url: Uri = self.url.parse().map_err(|_| WebhookError::Url)?;
        let default_port = match url.scheme_str() {
            Some("http") => 80,
            Some("https") => 443,
            _ => return Err(WebhookError::Scheme),
        };
        let authority = url.authority().ok_or(WebhookError::Url)?;
        if authority.as_str().contains('@') {
            return Err(WebhookError::UserInfo);
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() == authority.host() => default_port,
            None => return Err(WebhookError::Url),
        };
        if !self.keys.iter().any(|key| key.until.is_none()) {
            return Err(WebhookError::Key);
        }
        let dial = Dial::new(
            Host::parse(authority.host()),
            port,
            Guard::allowing(self.allow),
            self.resolver,
        );
        let mut roots = Vec::new();
        for text in &self.roots {
            roots.extend(certificates(text)?);
        }
        Ok(Webhook {
            refusal: dial.refusal(),
            client: client::new(dial, roots, self.timeout)?,
            url,
            keys: self.keys,
            timeout: self.timeout,
            clock,
        })
    }
}

impl fmt::Debug for WebhookBuilder {
    /// Omits the URL, because paths and queries of webhooks contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookBuilder")
            .field("keys", &self.keys)
            .field("allow", &self.allow)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Why a webhook cannot be built. The error never contains the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// The URL is not valid.
    #[error("webhook url is not an absolute url")]
    Url,
    /// The URL is not HTTP.
    #[error("webhook url begins with neither https:// nor http://")]
    Scheme,
    /// The URL contains a user or a password.
    #[error("webhook url contains a user or a password")]
    UserInfo,
    /// There is no signing key, or all keys expire.
    #[error("webhook has no signing key without an expiry")]
    Key,
    /// A trusted certificate is not valid.
    #[error("certificate to trust is neither PEM nor DER")]
    Certificate,
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, WebhookError> {
    if !text.starts_with(b"-----") && !text.is_ascii() {
        return Ok(vec![CertificateDer::from(text.to_vec())]);
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(WebhookError::Certificate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn a_url_that_can_never_work_is_refused_by_name() {
        for url in [
            "",
            "example.com/x",
            "/x",
            "ftp://example.com/",
            "file:///etc/passwd",
        ] {
            let error = build(url).unwrap_err();
            assert!(
                matches!(error, WebhookError::Url | WebhookError::Scheme),
                "{url}"
            );
        }
        for url in ["http://user:pass@example.com/", "https://@example.com/"] {
            assert!(build(url).is_err(), "{url}");
        }
        let error = build("http://user@example.com/").unwrap_err();
        assert_eq!(error, WebhookError::UserInfo);
        for url in [
            "http://h:99999/",
            "http://h:/",
            "http://h:x/",
            "http://[::1/",
        ] {
            assert_eq!(build(url).unwrap_err(), WebhookError::Url, "{url}");
        }
        assert!(build("https://example.com:8443/a?b=c").is_ok());
    }

    #[test]
    fn a_webhook_without_a_lasting_key_or_with_a_false_certificate_is_refused() {
        let clock = || Clock::new(|| Timestamp::from_millis(0));
        let builder = Webhook::to("https://example.com/");
        let retiring = builder
            .clone()
            .sign_until(Timestamp::from_millis(1), SECRET.parse().unwrap());
        assert_eq!(retiring.build(clock()).unwrap_err(), WebhookError::Key);
        let signed = builder.sign_with(SECRET.parse().unwrap());
        for text in ["", "-----BEGIN CERTIFICATE-----\nAA\n", "\u{80}\u{81}"] {
            let error = signed.clone().trust(text).build(clock()).unwrap_err();
            assert_eq!(error, WebhookError::Certificate, "{text}");
        }
    }

    #[test]
    fn debug_shows_neither_path_nor_query_nor_key() {
        let webhook = build("https://example.com/secret?token=secret").unwrap();
        let builder = Webhook::to("https://example.com/secret").sign_with(SECRET.parse().unwrap());
        let text = format!("{webhook:?} {builder:?}");
        assert!(!text.contains("secret") && !text.contains("MfKQ"), "{text}");
    }

    fn build(url: &str) -> Result<Webhook, WebhookError> {
        Webhook::to(url)
            .sign_with(SECRET.parse().unwrap())
            .build(Clock::new(|| Timestamp::from_millis(0)))
    }
}
