//! The settings of the customer portal.

use hapax_console::portal::{BadPortal, PortalOptions, check_url};
use secrecy::SecretString;

use super::settings::Settings;

/// The customer portal.
#[derive(Debug)]
pub(crate) struct Portal {
    /// The public base URL; that of the listener in the demo if absent, and no portal otherwise.
    pub(crate) url: Option<String>,
    /// The key that signs links; one in the data directory if absent.
    pub(crate) key: Option<SecretString>,
    /// The key before the last change.
    pub(crate) previous_key: Option<SecretString>,
    /// How the portal looks, and where it may be shown.
    pub(crate) options: PortalOptions,
}

impl Portal {
    pub(super) fn read(settings: &Settings) -> Result<Self, String> {
        let text = |key| settings.maybe(key, |text| Ok(text.to_owned()));
        let secret = |key| settings.maybe(key, |text| Ok(SecretString::from(text)));
        let url = text("portal.url")?;
        let options = PortalOptions {
            name: text("portal.name")?,
            logo: text("portal.logo")?,
            colour: text("portal.colour")?,
            embed: settings.list("portal.embed")?,
        };
        let bad = |bad: BadPortal| format!("portal.{bad}");
        options.check().map_err(bad)?;
        let checked = url.as_deref().map(|url| check_url(url, &options.embed));
        checked.transpose().map_err(bad)?;
        Ok(Self {
            url,
            key: secret("portal.key")?,
            previous_key: secret("portal.previous_key")?,
            options,
        })
    }
}
