//! A source of webhooks: its scheme with the keys, and what becomes of its events.
//!
//! A source is built from its settings once. Its secrets are read then, and no error contains one.

use std::{fs::File, io::Read as _, path::Path, time::Duration};

use hapax::{
    key::Tenant,
    limits::{EVENT_TYPE_BYTES_MAX, PAYLOAD_BYTES_MAX},
    signature::{TOLERANCE, Verifier},
};
use hapax_sinks::settings::{SettingError, reveal};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use secrecy::{ExposeSecret as _, SecretString};

use super::{
    settings::{SchemeName, SourceSettings},
    signature::{Adyen, GitHub, PayPal, Scheme, Shopify, Slack, StandardWebhooks, Stripe, Twilio},
};

/// Maximum length of the name of a source in bytes. It is part of the consumer's name.
const NAME_BYTES_MAX: usize = 64;
/// Maximum length of the setting `event_type` in bytes. The rest is for the provider's type.
const EVENT_TYPE_MAX: usize = 64;
/// Maximum size of a file of certificates in bytes.
const CERTIFICATES_BYTES_MAX: u64 = 1024 * 1024;

/// A source whose settings are valid.
#[derive(Debug)]
pub struct Source {
    name: String,
    consumer: String,
    scheme: Scheme,
    tenant: Option<Tenant>,
    event_type: String,
    body_max: usize,
    tolerance: Duration,
}

impl Source {
    /// Creates a source, and reads its secrets.
    ///
    /// The name is part of what identifies an event. If it changes, events that were accepted
    /// before and are delivered again are new.
    ///
    /// # Errors
    /// Fails if a setting is missing, not valid, or does not belong to the scheme, and if a secret
    /// or a certificate cannot be read.
    pub fn new(name: &str, settings: &SourceSettings) -> Result<Self, SettingError> {
        check_word("name", name, NAME_BYTES_MAX)?;
        let event_type = settings.event_type.as_deref().unwrap_or(name);
        check_word("event_type", event_type, EVENT_TYPE_MAX)?;
        let tenant = settings.tenant.as_deref().map(Tenant::new).transpose();
        let tenant = tenant.map_err(|error| SettingError::new("tenant", error))?;
        let body_max = usize::try_from(settings.body_max).ok();
        let body_max = body_max.filter(|bytes| (1..=PAYLOAD_BYTES_MAX).contains(bytes));
        let body_max = body_max.ok_or_else(|| {
            let problem = format!("must be between 1 and {PAYLOAD_BYTES_MAX}");
            SettingError::new("body_max", problem)
        })?;
        let scheme = scheme(settings)?;
        if settings.tolerance.is_some() && !scheme.signs_time() {
            let problem = "does not belong to this scheme, which signs no time";
            return Err(SettingError::new("tolerance", problem));
        }
        Ok(Self {
            consumer: format!("ingest.{name}"),
            name: name.to_owned(),
            scheme,
            tenant,
            event_type: event_type.to_owned(),
            body_max,
            tolerance: settings.tolerance.map_or(TOLERANCE, |span| span.0),
        })
    }

    /// The name, as in the path `/in/{source}`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The consumer that accepts the events in the inbox: `ingest.` and the name.
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    /// How the requests are verified.
    pub const fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// The tenant that the events belong to.
    pub const fn tenant(&self) -> Option<&Tenant> {
        self.tenant.as_ref()
    }

    /// The maximum length of a body in bytes.
    pub const fn body_max(&self) -> usize {
        self.body_max
    }

    /// How far the signed time of a request may differ from the current time.
    pub const fn tolerance(&self) -> Duration {
        self.tolerance
    }

    /// The type of an event whose type at the provider is `kind`. Characters that a type cannot
    /// have are replaced by `_`, and a type that is too long is left out.
    pub(super) fn kind(&self, kind: Option<&str>) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
        let kind = kind.unwrap_or_default().chars();
        let kind: String = kind.map(|c| if allowed(c) { c } else { '_' }).collect();
        let full = format!("{}.{kind}", self.event_type);
        if kind.is_empty() || full.len() > EVENT_TYPE_BYTES_MAX {
            self.event_type.clone()
        } else {
            full
        }
    }
}

fn scheme(settings: &SourceSettings) -> Result<Scheme, SettingError> {
    check_belongs(settings)?;
    let mut secrets = Vec::with_capacity(settings.secrets.len());
    for (place, secret) in settings.secrets.iter().enumerate() {
        let setting = format!("secrets[{place}]");
        let secret = reveal(&setting, secret)?;
        if secret.expose_secret().is_empty() || secret.expose_secret().starts_with("env:") {
            let problem = "is empty or begins with env:, expected the secret itself or \
                           { file = \"/path\" }";
            return Err(SettingError::new(setting, problem));
        }
        secrets.push(secret);
    }
    let texts = secrets.iter().map(secrecy::ExposeSecret::expose_secret);
    Ok(match settings.scheme {
        SchemeName::StandardWebhooks => {
            Scheme::StandardWebhooks(StandardWebhooks::new(verifiers(&secrets)?))
        }
        SchemeName::Stripe => Scheme::Stripe(Stripe::new(texts)),
        SchemeName::GitHub => Scheme::GitHub(GitHub::new(texts)),
        SchemeName::Shopify => Scheme::Shopify(Shopify::new(texts)),
        SchemeName::Slack => Scheme::Slack(Slack::new(texts)),
        SchemeName::Twilio => {
            let url = settings.url.as_deref().unwrap_or_default();
            let twilio = Twilio::new(texts, url);
            Scheme::Twilio(twilio.map_err(|problem| SettingError::new("url", problem))?)
        }
        SchemeName::Adyen => {
            let keys = hex_keys(&secrets)?;
            Scheme::Adyen(Adyen::new(keys.iter().map(Vec::as_slice)))
        }
        SchemeName::PayPal => Scheme::PayPal(paypal(settings)?),
    })
}

/// Checks that the settings are those of the scheme.
fn check_belongs(settings: &SourceSettings) -> Result<(), SettingError> {
    let is_paypal = settings.scheme == SchemeName::PayPal;
    let is_twilio = settings.scheme == SchemeName::Twilio;
    for (setting, is_set, belongs) in [
        ("secrets", !settings.secrets.is_empty(), !is_paypal),
        ("url", settings.url.is_some(), is_twilio),
        ("webhook_id", settings.webhook_id.is_some(), is_paypal),
        ("certificates", !settings.certificates.is_empty(), is_paypal),
    ] {
        let problem = match (is_set, belongs) {
            (true, false) => "does not belong to this scheme",
            (false, true) => "is missing",
            _ => continue,
        };
        return Err(SettingError::new(setting, problem));
    }
    Ok(())
}

fn verifiers(secrets: &[SecretString]) -> Result<Vec<Verifier>, SettingError> {
    let keys = secrets.iter().enumerate().map(|(place, secret)| {
        let key = secret.expose_secret().parse::<Verifier>();
        key.map_err(|error| SettingError::new(format!("secrets[{place}]"), error))
    });
    keys.collect()
}

fn hex_keys(secrets: &[SecretString]) -> Result<Vec<Vec<u8>>, SettingError> {
    let keys = secrets.iter().enumerate().map(|(place, secret)| {
        let key = Adyen::decode_key(secret.expose_secret());
        key.ok_or_else(|| SettingError::new(format!("secrets[{place}]"), "is not hexadecimal"))
    });
    keys.collect()
}

fn paypal(settings: &SourceSettings) -> Result<PayPal, SettingError> {
    let webhook_id = settings.webhook_id.as_deref().unwrap_or_default();
    if webhook_id.is_empty() || webhook_id.contains('|') {
        let problem = "expected the id of the webhook, such as 5WA18541XW7650922";
        return Err(SettingError::new("webhook_id", problem));
    }
    let mut certificates = Vec::with_capacity(settings.certificates.len());
    for (place, path) in settings.certificates.iter().enumerate() {
        let found = certificate(path);
        let found = found.map_err(|problem| {
            let problem = format!("{}: {problem}", path.display());
            SettingError::new(format!("certificates[{place}]"), problem)
        });
        certificates.push(found?);
    }
    let paypal = PayPal::new(webhook_id, &certificates);
    paypal.map_err(|problem| SettingError::new("certificates", problem))
}

/// The first certificate of a PEM file.
fn certificate(path: &Path) -> Result<CertificateDer<'static>, String> {
    let mut pem = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut file = file.take(CERTIFICATES_BYTES_MAX);
    file.read_to_end(&mut pem)
        .map_err(|error| error.to_string())?;
    CertificateDer::from_pem_slice(&pem).map_err(|_| "has no certificate (PEM)".to_owned())
}

/// Checks a name that is part of paths, metrics and event types.
fn check_word(setting: &str, text: &str, max: usize) -> Result<(), SettingError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if (1..=max).contains(&text.len()) && text.chars().all(allowed) {
        return Ok(());
    }
    let problem = format!("expected 1 to {max} letters, digits and . _ -, got {text:?}");
    Err(SettingError::new(setting, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "planted-secret";

    #[test]
    fn the_settings_of_another_scheme_are_refused() {
        let stripe = || SourceSettings::new(SchemeName::Stripe, [SECRET.into()]);
        let refused = |settings: &SourceSettings| {
            let error = Source::new("a", settings).unwrap_err();
            assert!(!error.to_string().contains(SECRET), "{error}");
            error.setting
        };
        assert!(Source::new("a", &stripe()).is_ok());
        let mut with_url = stripe();
        with_url.url = Some("https://a.example/".to_owned());
        assert_eq!(refused(&with_url), "url");
        assert_eq!(
            refused(&SourceSettings::new(SchemeName::Stripe, [])),
            "secrets"
        );
        let twilio = SourceSettings::new(SchemeName::Twilio, [SECRET.into()]);
        assert_eq!(refused(&twilio), "url");
        let mut github = SourceSettings::new(SchemeName::GitHub, [SECRET.into()]);
        github.tolerance = Some(hapax_runtime::config::Span(TOLERANCE));
        assert_eq!(refused(&github), "tolerance");
        let paypal = SourceSettings::new(SchemeName::PayPal, []);
        assert_eq!(refused(&paypal), "webhook_id");
    }

    #[test]
    fn a_secret_that_is_not_of_its_form_is_refused_without_repeating_it() {
        for (scheme, text) in [
            (SchemeName::StandardWebhooks, SECRET),
            (SchemeName::Adyen, SECRET),
            (SchemeName::Stripe, ""),
            (SchemeName::Stripe, "env:PLANTED"),
        ] {
            let good = match scheme {
                SchemeName::StandardWebhooks => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                _ => "44782DEF",
            };
            let settings = SourceSettings::new(scheme, [good.into(), text.into()]);
            let error = Source::new("a", &settings).unwrap_err();
            assert_eq!(error.setting, "secrets[1]");
            assert!(
                text.is_empty() || !error.to_string().contains(text),
                "{error}"
            );
        }
    }

    #[test]
    fn names_and_bounds_are_checked() {
        let settings = SourceSettings::new(SchemeName::Stripe, [SECRET.into()]);
        for name in ["", "a/b", "a b", "é", &"x".repeat(65)] {
            assert_eq!(Source::new(name, &settings).unwrap_err().setting, "name");
        }
        for body_max in [0, PAYLOAD_BYTES_MAX as u64 + 1, u64::MAX] {
            let settings = SourceSettings {
                body_max,
                ..settings.clone()
            };
            assert_eq!(Source::new("a", &settings).unwrap_err().setting, "body_max");
        }
        let tenant = Some("x".repeat(256));
        let settings = SourceSettings { tenant, ..settings };
        assert_eq!(Source::new("a", &settings).unwrap_err().setting, "tenant");
    }

    #[test]
    fn the_type_of_an_event_has_only_allowed_characters() {
        let settings = SourceSettings::new(SchemeName::Stripe, [SECRET.into()]);
        let source = Source::new("shop", &settings).unwrap();
        assert_eq!(source.kind(Some("invoice.paid")), "shop.invoice.paid");
        assert_eq!(source.kind(Some("a b\n\u{e9}")), "shop.a_b__");
        assert_eq!(source.kind(Some(&"x".repeat(300))), "shop");
        assert_eq!(source.kind(Some("")), "shop");
        assert_eq!(source.kind(None), "shop");
    }

    #[test]
    fn debug_prints_no_secret() {
        let settings = SourceSettings::new(SchemeName::Stripe, [SECRET.into()]);
        let source = Source::new("shop", &settings).unwrap();
        let text = format!("{settings:?} {source:?}");
        assert!(!text.contains(SECRET), "{text}");
    }
}
