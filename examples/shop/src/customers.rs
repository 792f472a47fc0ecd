//! The part of the shop that is for customers who receive its webhooks: their endpoints, which belong to
//! tenants, and the portal in which they change them.
//!
//! The portal is on in the demo, and otherwise if it has a URL. The service's own pages ask for a link
//! with `POST /admin/portal-links`, as an operator of the console, and redirect the customer to it.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse as _, Response},
    routing::post,
};
use hapax::{
    Timestamp,
    admin::{Actor, Admin, EndpointOperations},
    endpoint::{EndpointSettings, Endpoints, FanOut},
    keyring::Keyring,
    relay::Destination,
    retry::Schedule,
};
use hapax_console::{
    Caller, Settings, Tokens, is_local,
    portal::{BASE, LinkRequest, Portal, PortalLinks, PortalParts},
};
use hapax_http::{
    Json, Problem,
    problem::{AUTH_FORBIDDEN, AUTH_INVALID},
};
use hapax_sinks::endpoints::{
    EndpointTransport, Keys, OperationsSettings, TenantEndpoints, TransportSettings,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::{
    catalogue,
    config::Config,
    database::Database,
    destinations::{self, Described},
    runtime::Runtime,
    secrets,
    server::{Stop, stopped},
};

/// The name of the destination for the endpoints of customers.
const NAME: &str = "customers";
/// Maximum number of endpoints of a tenant.
const PER_TENANT: u32 = hapax::limits::ENDPOINTS_PER_TENANT;
/// Maximum size of a request for a link in bytes.
const BODY_BYTES_MAX: usize = 4 * 1024;

/// Endpoints of customers, and their portal.
pub(crate) struct Customers {
    url: String,
    fan_out: FanOut,
    endpoints: Endpoints,
    portal: Portal,
    operations: Arc<dyn EndpointOperations>,
    issuer: Arc<LinkIssuer>,
}

/// Makes links for operators.
struct LinkIssuer {
    links: PortalLinks,
    admin: Arc<dyn Admin>,
    tokens: Tokens,
    /// Whether local requests without a token are allowed, as in the console.
    is_open: bool,
}

impl std::fmt::Debug for Customers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Customers").finish_non_exhaustive()
    }
}

/// The base URL of the portal; `None` if there is no portal. `own` is that of the listener.
pub(crate) fn url(config: &Config, own: String) -> Option<String> {
    let demo = config.demo.then_some(own);
    config.portal.url.clone().or(demo)
}

/// Adds the destination for the endpoints of customers, if there are any.
pub(crate) fn with_destination(
    mut destinations: Vec<Described>,
    customers: Option<&Customers>,
) -> Vec<Described> {
    destinations.extend(customers.map(Customers::destination));
    destinations
}

/// Lets the console send test events to the endpoints of customers, if there are any.
pub(crate) fn with_operations(
    console: Option<Settings>,
    customers: Option<&Customers>,
) -> Option<Settings> {
    let mut console = console?;
    console.endpoints = customers.map(|it| Arc::clone(&it.operations));
    Some(console)
}

/// Adds the routes of the customer portal, if it is served.
pub(crate) fn with_portal(router: Router, customers: Option<&Customers>) -> Router {
    match customers {
        Some(customers) => router.merge(customers.routes()),
        None => router,
    }
}

impl Customers {
    /// Opens the endpoints and the portal at `url`. `is_open` says whether local requests without a
    /// token may ask for links.
    pub(crate) fn open<D: Database>(
        store: &D,
        config: &Config,
        runtime: &Runtime,
        url: String,
        is_open: bool,
    ) -> anyhow::Result<Self> {
        let admin = store.admin()?;
        let keys = keys(config)?;
        let transport = || {
            let settings = TransportSettings {
                allow: config.webhook.allow_net.clone(),
                timeout: hapax::limits::OFFER,
                ca: None,
                events_url: None,
                mask: hapax::mask::Mask::default(),
            };
            EndpointTransport::new(&settings, keys.clone(), runtime.clock.clone())
        };
        let settings = OperationsSettings {
            per_tenant: PER_TENANT,
            clock: runtime.clock.clone(),
            random: runtime.random.clone(),
            secret_bytes: secrets::bytes,
        };
        let operations =
            TenantEndpoints::new(Arc::clone(&admin), keys.clone(), transport()?, settings);
        let operations: Arc<dyn EndpointOperations> = Arc::new(operations);
        let links = links(config, runtime, &url)?;
        let parts = PortalParts {
            admin: Arc::clone(&admin),
            operations: Arc::clone(&operations),
            links: links.clone(),
            mask: hapax::mask::Mask::default(),
            clock: runtime.clock.clone(),
            offers_thin: false,
        };
        let (options, types) = (&config.portal.options, catalogue::published());
        let portal = Portal::with_catalogue(parts, options, &types, &BTreeSet::new());
        let portal = portal.map_err(|bad| anyhow::anyhow!("portal.{bad}"))?;
        let endpoints = Endpoints::new(
            Arc::new(store.clone()),
            Arc::new(transport()?),
            endpoint_settings(config)?,
            store.relay_clock(&runtime.clock),
            runtime.random.clone(),
            runtime.failpoints.clone(),
        );
        let fan_out = FanOut::unbound();
        fan_out.bind(endpoints.clone());
        let issuer = LinkIssuer {
            links,
            admin,
            tokens: config.operators.clone(),
            is_open,
        };
        Ok(Self {
            url,
            fan_out,
            endpoints,
            portal,
            operations,
            issuer: Arc::new(issuer),
        })
    }

    /// The base URL of the portal.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The destination that reads the outbox for all endpoints.
    fn destination(&self) -> Described {
        let destination = Destination::new(NAME, self.fan_out.sink());
        (destination, format!("endpoints of customers, in {BASE}"))
    }

    /// The routes of the portal, and the route that makes links to it.
    fn routes(&self) -> Router {
        Router::new()
            .route("/admin/portal-links", post(link))
            .route("/admin/v1/portal-links", post(link))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&self.issuer))
            .merge(self.portal.router())
    }

    /// Sends what waits for endpoints, until `stop` is set.
    pub(crate) async fn dispatch(self, mut stop: Stop) {
        let stop = async move { stopped(&mut stop).await };
        self.endpoints.run(&self.fan_out, stop).await;
    }
}

/// How endpoints are delivered to: quickly in the demo, so that retries can be watched.
fn endpoint_settings(config: &Config) -> anyhow::Result<EndpointSettings> {
    let schedule = match (&config.webhook.schedule, config.demo) {
        (Some(schedule), _) => schedule.clone(),
        (None, true) => destinations::DEMO_SCHEDULE.parse()?,
        (None, false) => Schedule::default(),
    };
    Ok(EndpointSettings {
        schedule,
        ..EndpointSettings::default()
    })
}

/// The keys that encrypt the secrets of endpoints: those of the configuration, or one in the data
/// directory.
fn keys(config: &Config) -> anyhow::Result<Keys> {
    let keyring = &config.storage.keyring;
    if !keyring.is_empty() {
        return Ok(Keys::new(keyring.clone()));
    }
    let key = kept(&config.data_dir, "endpoints.key")?;
    let key = key.expose_secret();
    let key = key.strip_prefix("whsec_").unwrap_or(key);
    let keyring = Keyring::parse([key]);
    let keyring = keyring.map_err(|bad| anyhow::anyhow!("endpoints.key {bad}"))?;
    Ok(Keys::new(keyring))
}

fn links(config: &Config, runtime: &Runtime, url: &str) -> anyhow::Result<PortalLinks> {
    let section = &config.portal;
    let key = match &section.key {
        Some(key) => key.clone(),
        None => kept(&config.data_dir, "portal.key")?,
    };
    let previous = section.previous_key.as_ref();
    let previous = previous.map(ExposeSecret::expose_secret);
    let links = PortalLinks::new(url, key.expose_secret(), previous, runtime.clock.clone());
    links.map_err(|bad| anyhow::anyhow!("portal.{bad}"))
}

/// A secret of the data directory, which is created once and never printed.
fn kept(folder: &Path, name: &str) -> anyhow::Result<SecretString> {
    let path = folder.join(name);
    let kept = secrets::kept(&path)
        .with_context(|| format!("cannot read or write the key {}", path.display()))?;
    Ok(SecretString::from(kept.secret.reveal()))
}

/// A request for a link.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskLink {
    tenant: String,
    rights: Option<String>,
    expires_in: Option<String>,
    name: Option<String>,
}

/// A link to the portal.
#[derive(Serialize)]
struct Link {
    url: String,
    expires_at: Timestamp,
}

/// Makes a link that opens the portal for a tenant.
async fn link(
    State(issuer): State<Arc<LinkIssuer>>,
    headers: HeaderMap,
    Json(ask): Json<AskLink>,
) -> Result<Response, Problem> {
    let actor = issuer.actor(&headers)?;
    let (rights, expires_in) = (ask.rights.as_deref(), ask.expires_in.as_deref());
    let request = LinkRequest::read(ask.tenant, rights, expires_in, ask.name)?;
    let link = issuer.links.create(&*issuer.admin, &actor, request).await?;
    let link = Link {
        url: link.url,
        expires_at: link.expires_at,
    };
    let keep = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    Ok((StatusCode::CREATED, keep, Json(link)).into_response())
}

impl LinkIssuer {
    /// The operator who asks, by the rules of the console.
    fn actor(&self, headers: &HeaderMap) -> Result<Actor, Problem> {
        if self.tokens.is_empty() {
            let is_allowed =
                self.is_open && is_local(headers) && !headers.contains_key(header::ORIGIN);
            let how = "set --console-token, and send it as a bearer token";
            return is_allowed
                .then(|| Caller::local().actor)
                .ok_or_else(|| Problem::new(AUTH_FORBIDDEN).detail(how));
        }
        let value = headers.get(header::AUTHORIZATION);
        let value = value.and_then(|it| it.as_bytes().split_at_checked("Bearer ".len()));
        let token = value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
        let caller = token.and_then(|(_, token)| self.tokens.find(token));
        let caller = caller.ok_or_else(|| {
            let scheme = HeaderValue::from_static("Bearer");
            Problem::new(AUTH_INVALID)
                .detail("send Authorization: Bearer and a token of --console-token")
                .header(header::WWW_AUTHENTICATE, scheme)
        })?;
        Ok(caller.actor.clone())
    }
}
