//! Configuration of the gateway: listeners, upstreams and routes.
//!
//! The settings are the section `[gateway]` of the configuration file. `hapax_runtime::config`
//! merges the layers, refuses unknown settings with the nearest known name, and says where a wrong
//! value came from. [`Settings::check`] refuses what the types cannot: a route whose upstream does
//! not exist, or bounds that contradict each other.

mod listener;
mod upstream;
mod route;
mod check;
mod operations;

use std::{collections::BTreeMap, net::SocketAddr};

use hapax::limits;
use hapax_runtime::config::Span;
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{ingest::IngestSettings, tenant::TenantSettings};

pub(crate) use check::parse_instance;
pub use listener::{Listener, ProxyProtocol, Tls};
pub use route::{
    CredentialRule, ForwardedKey, KeyRule, LookUp, LookUpMethod, OnUnknown, Route, RouteProtocol,
    Underscores,
};
pub use upstream::{Protocol, Rate, Upstream};

/// The name of the service in operations, unless the configuration sets another one.
pub const SERVICE: &str = "gateway";

/// The section `[gateway]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The prefix of the operations, which separates the keys of this gateway from those of services
    /// that share its database.
    pub service: String,
    /// How long a duplicate waits for the first request.
    pub wait: Span,
    /// How long the key of a gateway that has died stays with it.
    pub lease: Span,
    /// How long responses are kept, unless the route sets another time.
    pub retention: Span,
    /// The tenant, unless the route sets another source.
    pub tenant: TenantSettings,
    /// Which requests have to present a valid credential, unless the route sets another rule.
    pub credential: CredentialRule,
    /// Proxies whose `Forwarded` and `X-Forwarded-*` headers are kept. Those of all other clients
    /// are replaced.
    pub trusted_proxies: Vec<IpNet>,
    /// The maximum number of client connections of each listener.
    pub connections: usize,
    /// The address of `/metrics`, `/healthz` and `/readyz`, if they are served.
    #[serde(
        deserialize_with = "address_or_off",
        skip_serializing_if = "Option::is_none"
    )]
    pub health: Option<SocketAddr>,
    /// The listeners by name.
    pub listeners: BTreeMap<String, Listener>,
    /// The upstreams by name.
    pub upstreams: BTreeMap<String, Upstream>,
    /// The routes by name.
    pub routes: BTreeMap<String, Route>,
    /// The providers whose webhooks are received at `/in/NAME`.
    pub ingest: IngestSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service: SERVICE.to_owned(),
            wait: Span(limits::WAIT),
            lease: Span(limits::LEASE),
            retention: Span(limits::RETENTION),
            tenant: TenantSettings::default(),
            credential: CredentialRule::default(),
            trusted_proxies: Vec::new(),
            connections: CONNECTIONS,
            health: None,
            listeners: BTreeMap::new(),
            upstreams: BTreeMap::new(),
            routes: BTreeMap::new(),
            ingest: IngestSettings::default(),
        }
    }
}

/// Reads an address, or `off`.
fn address_or_off<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    match Option::<String>::deserialize(from)?.as_deref() {
        None | Some("off") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let problem =
                format!("must be an address such as 127.0.0.1:9467 or \"off\", not {text:?}");
            de::Error::custom(problem)
        }),
    }
}

/// The default maximum number of client connections of a listener.
const CONNECTIONS: usize = 10_000;

impl Settings {
    /// The settings of the quick start: one listener, one upstream, and one route, whose POST and
    /// PATCH requests are protected if they have a key.
    pub fn quick_start(listen: SocketAddr, upstream: &str) -> Self {
        let named = |name: &str| name.to_owned();
        Self {
            listeners: BTreeMap::from([(named("http"), Listener::new(listen))]),
            upstreams: BTreeMap::from([(named("service"), Upstream::new([upstream]))]),
            routes: BTreeMap::from([(named("all"), Route::new("/{*path}", "service"))]),
            ..Self::default()
        }
    }
}
