//! `[gateway.ingest.sources.NAME]`: who sends webhooks, and how they are signed.
//!
//! [`Source::new`] refuses what the types cannot: a setting that does not belong to the scheme, a
//! missing one, and a secret that is not of its form.

use std::{collections::BTreeMap, path::PathBuf};

use hapax::limits::BODY_BYTES_MAX;
use hapax_runtime::config::Span;
use hapax_sinks::{secret::Secret, settings::SettingError};
use serde::{Deserialize, Serialize};

use super::source::Source;

/// The section `[gateway.ingest]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct IngestSettings {
    /// The sources by name. The name is the last part of the path: `/in/NAME`.
    pub sources: BTreeMap<String, SourceSettings>,
}

impl IngestSettings {
    /// Creates the sources, and reads their secrets.
    ///
    /// # Errors
    /// Fails if a source cannot be created. The error names the setting, such as
    /// `sources.stripe.secrets[0]`.
    pub fn build(&self) -> Result<Vec<Source>, SettingError> {
        let sources = self.sources.iter().map(|(name, settings)| {
            let source = Source::new(name, settings);
            source.map_err(|error| {
                let setting = format!("sources.{name}.{}", error.setting);
                SettingError::new(setting, error.problem)
            })
        });
        sources.collect()
    }
}

/// A source of webhooks.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SourceSettings {
    /// How the provider signs.
    pub scheme: SchemeName,
    /// The secrets that the provider may have signed with. There is more than one while a secret is
    /// rotated. `paypal` has none.
    #[serde(default)]
    pub secrets: Vec<Secret>,
    /// The tenant that the events belong to. Without it they belong to none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The first part of the type of the events, by which destinations select them. The provider's
    /// own type follows after a full stop. Without it, it is the name of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The maximum length of a body in bytes, at most that of an event.
    #[serde(default = "body_max")]
    pub body_max: u64,
    /// How far the signed time of a request may differ from the current time, if the scheme signs
    /// it. Without it, five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<Span>,
    /// The public URL of this source, which `twilio` signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The id of the webhook, which `paypal` signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_id: Option<String>,
    /// Files of certificates (PEM), one of which has to have signed a request of `paypal`. The
    /// first certificate of a file counts.
    #[serde(default)]
    pub certificates: Vec<PathBuf>,
}

impl SourceSettings {
    /// The default settings of a scheme with these secrets.
    pub fn new(scheme: SchemeName, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            scheme,
            secrets: secrets.into_iter().collect(),
            tenant: None,
            event_type: None,
            body_max: body_max(),
            tolerance: None,
            url: None,
            webhook_id: None,
            certificates: Vec::new(),
        }
    }
}

/// The name of a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SchemeName {
    /// Standard Webhooks.
    #[serde(rename = "standard-webhooks")]
    StandardWebhooks,
    /// Stripe.
    Stripe,
    /// GitHub.
    GitHub,
    /// Shopify.
    Shopify,
    /// Slack.
    Slack,
    /// Twilio.
    Twilio,
    /// Adyen.
    Adyen,
    /// `PayPal`.
    PayPal,
}

fn body_max() -> u64 {
    BODY_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Root {
        gateway: Gateway,
    }

    #[derive(Deserialize)]
    struct Gateway {
        ingest: IngestSettings,
    }

    #[test]
    fn the_sources_of_the_guide_are_read() {
        let page = include_str!("../../../../docs/guides/ingest.md");
        let blocks = page.split("```toml\n").skip(1);
        let blocks = blocks.filter_map(|rest| rest.split("```").next());
        let mut names = Vec::new();
        for block in blocks.filter(|block| block.contains("[gateway.ingest.sources.")) {
            let root: Root = toml::from_str(block).unwrap();
            for (name, settings) in root.gateway.ingest.sources {
                assert_eq!(settings.body_max, BODY_BYTES_MAX);
                let scheme = serde_json::to_value(settings.scheme).unwrap();
                assert_eq!(scheme, name);
                names.push(name);
            }
        }
        assert_eq!(names, ["stripe", "twilio", "paypal"]);
    }

    #[test]
    fn the_table_of_the_guide_has_every_scheme() {
        let page = include_str!("../../../../docs/guides/ingest.md");
        for scheme in [
            SchemeName::StandardWebhooks,
            SchemeName::Stripe,
            SchemeName::GitHub,
            SchemeName::Shopify,
            SchemeName::Slack,
            SchemeName::Twilio,
            SchemeName::Adyen,
            SchemeName::PayPal,
        ] {
            let name = serde_json::to_value(scheme).unwrap();
            let row = format!("| `{}` |", name.as_str().unwrap());
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn an_unknown_setting_or_scheme_is_refused() {
        for text in [
            "[sources.a]\nscheme = \"stripe\"\nsecret = \"x\"",
            "[sources.a]\nscheme = \"strip\"",
            "[sources.a]\nsecrets = [\"x\"]",
            "[source.a]\nscheme = \"stripe\"",
        ] {
            assert!(toml::from_str::<IngestSettings>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_setting_of_its_source() {
        let settings = SourceSettings::new(SchemeName::Stripe, []);
        let sources = BTreeMap::from([("shop".to_owned(), settings)]);
        let error = IngestSettings { sources }.build().unwrap_err();
        assert_eq!(error.to_string(), "sources.shop.secrets is missing");
    }
}
