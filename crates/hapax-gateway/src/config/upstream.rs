//! `[gateway.upstreams.NAME]`: a service in one or several instances.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use hapax_runtime::config::Span;
use serde::{Deserialize, Serialize};

/// A service in one or several instances, each of which can serve every request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The instances, such as `http://10.0.0.7:8000`.
    pub instances: Vec<String>,
    /// The protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// The PEM file with the authority of `https` instances. Without it, public authorities are
    /// trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// How long a connection may take to be established, including TLS.
    #[serde(default = "connect_timeout")]
    pub connect_timeout: Span,
    /// How long an idle connection is kept. It should be shorter than the time after which the
    /// service closes it.
    #[serde(default = "idle")]
    pub idle: Span,
    /// The maximum number of requests in flight.
    #[serde(default = "concurrency")]
    pub concurrency: usize,
    /// The maximum number of requests in flight of one tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_concurrency: Option<usize>,
    /// The maximum rate of requests. Without it, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The maximum rate of requests of one tenant. Without it, there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_rate: Option<Rate>,
    /// How long an instance is avoided after a connection to it has failed. The time doubles with
    /// every failure, up to `eject_max`.
    #[serde(default = "eject")]
    pub eject: Span,
    /// The longest time for which an instance is avoided.
    #[serde(default = "eject_max")]
    pub eject_max: Span,
    /// The path of a health check. Without it, only failed connections count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_path: Option<String>,
    /// The interval of health checks.
    #[serde(default = "health_every")]
    pub health_every: Span,
}

impl Upstream {
    /// Creates an upstream with the default settings.
    pub fn new<'a>(instances: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            instances: instances.into_iter().map(str::to_owned).collect(),
            protocol: Protocol::default(),
            ca: None,
            connect_timeout: connect_timeout(),
            idle: idle(),
            concurrency: concurrency(),
            tenant_concurrency: None,
            rate: None,
            tenant_rate: None,
            eject: eject(),
            eject_max: eject_max(),
            health_path: None,
            health_every: health_every(),
        }
    }
}

/// A maximum rate of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Requests in each period, in the long run.
    pub requests: NonZeroU32,
    /// The period.
    #[serde(default = "per")]
    pub per: Span,
    /// Requests that may come at once after a pause; without it, those of one period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
}

/// The protocol towards an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2; without TLS, with prior knowledge.
    Http2,
}

fn connect_timeout() -> Span {
    Span(Duration::from_secs(2))
}

/// Less than the 5 s after which Node.js closes an idle connection.
fn idle() -> Span {
    Span(Duration::from_secs(4))
}

fn concurrency() -> usize {
    1_024
}

fn per() -> Span {
    Span(Duration::from_secs(1))
}

fn eject() -> Span {
    Span(Duration::from_millis(500))
}

fn eject_max() -> Span {
    Span(Duration::from_secs(30))
}

fn health_every() -> Span {
    Span(Duration::from_secs(5))
}
