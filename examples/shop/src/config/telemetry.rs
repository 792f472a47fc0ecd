//! The settings of tracing: where spans are exported to, and how many.

use hapax_otlp::{Endpoint, Headers};

use super::{settings::Settings, values};

/// The settings of tracing.
#[derive(Debug)]
pub(crate) struct Telemetry {
    /// The collector that receives spans; nothing is traced without it.
    pub(crate) endpoint: Option<Endpoint>,
    /// The headers of requests to the collector, which often contain tokens.
    pub(crate) headers: Headers,
    /// The name of the shop in traces.
    pub(crate) service: String,
    /// The share of the traces started by the shop that are recorded.
    pub(crate) sample: f64,
}

impl Telemetry {
    pub(super) fn read(settings: &Settings) -> Result<Self, String> {
        let mut headers = Headers::default();
        for (name, value) in settings.pairs("telemetry.otlp_headers")? {
            if !headers.add(&name, &value) {
                return Err(format!("telemetry.otlp_headers: invalid header {name:?}"));
            }
        }
        Ok(Self {
            endpoint: settings.one("telemetry.otlp_endpoint", "", |text| {
                let endpoint = (!text.is_empty()).then(|| text.parse::<Endpoint>());
                endpoint.transpose().map_err(|bad| bad.to_string())
            })?,
            headers,
            service: settings.one("telemetry.service", "shop", |text| Ok(text.to_owned()))?,
            sample: settings.one("telemetry.sample", "1", values::share)?,
        })
    }

    /// Returns the settings of the exporter; `None` if nothing is traced.
    pub(crate) fn export(
        &self,
        now: fn() -> std::time::SystemTime,
    ) -> Option<hapax_otlp::Settings> {
        let endpoint = self.endpoint.clone()?;
        let mut settings = hapax_otlp::Settings::new(endpoint, self.service.clone(), now);
        settings.headers = self.headers.clone();
        Some(settings)
    }
}
