//! Signing keys of a webhook: those of the settings, some of which may expire.

use hapax::{Timestamp, signature::Signer, telemetry::error_chain};
use secrecy::ExposeSecret as _;

use crate::{
    secret::Secret,
    settings::{SettingError, WebhookSettings, reveal},
};

/// A signing key and its expiry.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) signer: Signer,
    until: Option<Timestamp>,
}

impl Key {
    fn new(setting: &str, secret: &Secret, until: Option<Timestamp>) -> Result<Self, SettingError> {
        let signer = reveal(setting, secret)?.expose_secret().parse::<Signer>();
        let signer = signer.map_err(|error| {
            SettingError::new(
                setting,
                format_args!("is not valid: {}", error_chain(&error)),
            )
        })?;
        Ok(Self { signer, until })
    }

    /// Whether requests of this time are signed with the key.
    pub(super) fn signs_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// The keys of the settings.
pub(super) fn keys(settings: &WebhookSettings) -> Result<Vec<Key>, SettingError> {
    let mut keys = vec![Key::new("secret", &settings.secret, None)?];
    for secret in &settings.further_secrets {
        keys.push(Key::new("further_secrets", secret, None)?);
    }
    for (secret, until) in &settings.further_previous {
        keys.push(Key::new("further_previous", secret, Some(*until))?);
    }
    match (&settings.previous_secret, settings.previous_until) {
        (Some(secret), Some(until)) => {
            let until = Timestamp::from_millis(until.as_millisecond());
            keys.push(Key::new("previous_secret", secret, Some(until))?);
        }
        (None, None) => {}
        _ => {
            return Err(SettingError::new(
                "previous_secret",
                "requires previous_until",
            ));
        }
    }
    Ok(keys)
}
