//! `[telemetry]`: the export of spans and their sampling.

use std::{collections::BTreeMap, time::SystemTime};

use hapax_otlp::{Endpoint, Headers, Settings};
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::{Secret, Wrong};

/// The settings of tracing. Without an endpoint nothing is traced.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Telemetry {
    otlp_endpoint: String,
    #[serde(default)]
    otlp_headers: BTreeMap<String, Secret>,
    pub(crate) sample: f64,
    service: String,
}

impl Telemetry {
    pub(super) fn check(&self) -> Result<(), Wrong> {
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(Wrong::at(
                "telemetry.sample",
                "must be a number from 0 to 1",
            ));
        }
        self.endpoint().map(|_| ())
    }

    /// The settings of the exporter, if there is an endpoint. Files with secrets are read now.
    pub(crate) fn export(&self, now: fn() -> SystemTime) -> Result<Option<Settings>, Wrong> {
        let Some(endpoint) = self.endpoint()? else {
            return Ok(None);
        };
        let mut settings = Settings::new(endpoint, self.service.clone(), now);
        settings.headers = self.headers()?;
        Ok(Some(settings))
    }

    fn endpoint(&self) -> Result<Option<Endpoint>, Wrong> {
        let endpoint = &self.otlp_endpoint;
        let endpoint = (!endpoint.is_empty()).then(|| endpoint.parse());
        let wrong =
            |bad: hapax_otlp::EndpointError| Wrong::at("telemetry.otlp_endpoint", bad.to_string());
        endpoint.transpose().map_err(wrong)
    }

    fn headers(&self) -> Result<Headers, Wrong> {
        let mut headers = Headers::default();
        for (name, value) in &self.otlp_headers {
            let wrong = |bad: String| Wrong::at(format!("telemetry.otlp_headers.{name}"), bad);
            let value = value.reveal().map_err(wrong)?;
            if !headers.add(name, value.expose_secret()) {
                return Err(wrong("is not a valid header".to_owned()));
            }
        }
        Ok(headers)
    }
}
