//! The section of the customer portal.

use hapax::Clock;
use hapax_console::portal::{BadPortal, PortalLinks, PortalOptions, check_url};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::{Listen, Secret, Wrong};

/// The error without a portal.
pub(crate) const NO_PORTAL: &str =
    "the customer portal is not configured: set portal.url and portal.key";

/// The customer portal.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Portal {
    pub(crate) listen: Listen,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous_key: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) logo: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) colour: Option<String>,
    #[serde(default)]
    pub(crate) embed: Vec<String>,
}

impl Portal {
    /// How the portal looks, and where it may be shown.
    pub(crate) fn options(&self) -> PortalOptions {
        PortalOptions {
            name: self.name.clone(),
            logo: self.logo.clone(),
            colour: self.colour.clone(),
            embed: self.embed.clone(),
        }
    }

    /// Signs and verifies links; `None` without a portal.
    pub(crate) fn links(&self, clock: Clock) -> Result<Option<PortalLinks>, Wrong> {
        let (Some(url), Some(key)) = (&self.url, &self.key) else {
            return Ok(None);
        };
        let reveal = |path: &str, secret: &Secret| {
            let text = secret.reveal();
            text.map_err(|bad| Wrong::at(format!("portal.{path}"), bad))
        };
        let key = reveal("key", key)?;
        let previous = self.previous_key.as_ref();
        let previous = previous.map(|it| reveal("previous_key", it)).transpose()?;
        let previous = previous.as_ref().map(ExposeSecret::expose_secret);
        let links = PortalLinks::new(url, key.expose_secret(), previous, clock);
        links.map(Some).map_err(wrong)
    }

    pub(super) fn check(&self) -> Result<(), Wrong> {
        let missing = |setting: &str| {
            let problem = "is missing: portal.url and portal.key are needed for links";
            Err(Wrong::at(format!("portal.{setting}"), problem))
        };
        let is_used = self.listen.0.is_some() || self.url.is_some() || self.previous_key.is_some();
        match (&self.url, &self.key) {
            (None, Some(_)) => return missing("url"),
            (_, None) if is_used => return missing("key"),
            _ => {}
        }
        self.options().check().map_err(wrong)?;
        let url = self.url.as_deref();
        url.map_or(Ok(()), |url| check_url(url, &self.embed))
            .map_err(wrong)
    }
}

/// The error of a setting of this section.
pub(crate) fn wrong(bad: BadPortal) -> Wrong {
    Wrong::at(format!("portal.{}", bad.setting), bad.problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn portal() -> Portal {
        Portal {
            listen: Listen(None),
            url: None,
            key: None,
            previous_key: None,
            name: None,
            logo: None,
            colour: None,
            embed: Vec::new(),
        }
    }

    #[test]
    fn a_portal_needs_a_url_and_a_key() {
        let key = || Some(Secret::from("0123456789abcdef0123456789abcdef"));
        let url = || Some("https://a.example".to_owned());
        let path = |portal: Portal| portal.check().unwrap_err().path().to_owned();
        assert!(portal().check().is_ok());
        let (key, url) = (key(), url());
        let only_url = Portal {
            url: url.clone(),
            ..portal()
        };
        assert_eq!(path(only_url), "portal.key");
        let only_key = Portal {
            key: key.clone(),
            ..portal()
        };
        assert_eq!(path(only_key), "portal.url");
        let listens = Portal {
            listen: Listen("127.0.0.1:0".parse().ok()),
            ..portal()
        };
        assert_eq!(path(listens), "portal.key");
        let both = Portal {
            url,
            key,
            ..portal()
        };
        assert!(both.check().is_ok());
        let coloured = Portal {
            colour: Some("red".to_owned()),
            ..both.clone()
        };
        assert_eq!(path(coloured), "portal.colour");
        let framed = Portal {
            embed: vec!["https://app.example".to_owned()],
            url: Some("http://a.example".to_owned()),
            ..both
        };
        assert_eq!(path(framed), "portal.url");
    }
}
