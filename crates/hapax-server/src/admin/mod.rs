//! The admin API over HTTP: keys, destinations, polling endpoints, endpoints of tenants, events,
//! deliveries, dead letters, the inbox, sagas, unknown outcomes of the gateway, jobs, the audit log,
//! stalled work with its cause, and the timeline of a request.
//!
//! All routes are below `/admin/v1` and are described in `/admin/v1/openapi.json`. A bearer token
//! determines the actor, the role and the tenant. A viewer can only read; an operator can also
//! change things. Without tokens the API is served on loopback only and refuses requests from web
//! pages. The commands of the CLI use the same functions. Errors are the problems of `hapax-http`,
//! with the id of their request.

mod encryption;
mod watch;
mod auth;
pub(crate) mod arguments;
mod list_query;
mod declare;
pub(crate) mod command_context;
mod destinations;
pub(crate) mod test_event;
pub(crate) mod filters;
pub(crate) mod events;
pub(crate) mod deliveries;
mod retry;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod inbox;
pub(crate) mod polling;
pub(crate) mod tenant_endpoints;
pub(crate) mod endpoints;
pub(crate) mod endpoint_trial;
pub(crate) mod portal;
pub(crate) mod sagas;
mod unknown;
mod timeline;
mod stalled;
mod openapi;

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{MethodRouter, get, post},
};
use hapax::{
    Random,
    admin::{Admin, DestinationIndex, EndpointOperations},
    limits::{ENDPOINT_TESTS, TRIALS},
    mask::Mask,
    places::Places,
};
use hapax_console::portal::PortalLinks;
use hapax_http::{Problem, RequestIds, problem::METHOD};
use hapax_sinks::endpoints::Keys;
use tokio::sync::{Semaphore, watch::Receiver};

pub(crate) use auth::tokens;
pub(crate) use declare::{Declare, configured};
pub(crate) use encryption::keys_of;
pub(crate) use list_query::{ListQuery, Many};
pub(crate) use watch::Watch;

use crate::{
    config::{Config, Wrong},
    destination_set::Declared,
    endpoints::operations_of,
    environment,
};
use hapax_console::Tokens;

/// Maximum size of a request body in bytes: the declaration of a destination, or filters.
const BODY_BYTES_MAX: usize = 64 * 1024;
const NO_ROUTE: &str = "there is no such route: see /admin/v1/openapi.json";
const NO_METHOD: &str = "the route has no such method: see /admin/v1/openapi.json";

/// The short path of `/admin/v1/portal-links`.
const PORTAL_LINKS: &str = "/admin/portal-links";

/// A path with its methods.
type Route = (&'static str, MethodRouter<AdminApi>);

/// The state that all routes share.
#[derive(Clone)]
pub(crate) struct AdminApi(Arc<Inner>);

struct Inner {
    tokens: Tokens,
    declare: Declare,
    endpoints: Arc<dyn EndpointOperations>,
    /// Maximum number of deliveries that wait for an endpoint.
    waiting_max: u32,
    /// Makes links to the customer portal; `None` without one.
    portal: Option<PortalLinks>,
    /// The destinations of the configuration, as a relay uses them now.
    configured: Receiver<Declared>,
    mask: Mask,
    /// Limits the test events that are offered to destinations at the same time.
    tests: Semaphore,
    /// Limits the test events that are sent to endpoints at the same time.
    endpoint_tests: Places,
    /// Limits the trials of filters and of the settings of endpoints that run at the same time.
    trials: Places,
}

impl AdminApi {
    /// Creates the API for a store, as configured. `configured` changes when the configuration is
    /// reloaded.
    pub(crate) fn new(
        store: Arc<dyn Admin>,
        config: &Config,
        keys: Keys,
        configured: Receiver<Declared>,
    ) -> Result<Self, Wrong> {
        let tokens = tokens(&config.admin.tokens)?;
        let endpoints = operations_of(Arc::clone(&store), config, keys.clone())?;
        let endpoints: Arc<dyn EndpointOperations> = Arc::new(endpoints);
        let declare = Declare::new(store, config, keys);
        Ok(Self(Arc::new(Inner {
            tokens,
            declare,
            endpoints,
            waiting_max: config.endpoints.waiting,
            portal: config.portal.links(environment::clock())?,
            configured,
            mask: Mask::with(&config.admin.mask),
            tests: Semaphore::new(test_event::TESTS_MAX),
            endpoint_tests: Places::new(ENDPOINT_TESTS),
            trials: Places::new(TRIALS),
        })))
    }

    fn store(&self) -> &dyn Admin {
        self.index().store()
    }

    fn index(&self) -> &DestinationIndex {
        self.0.declare.index()
    }
}

/// Finds the first key or token that is not valid.
pub(crate) fn check(config: &Config) -> Result<(), Wrong> {
    keys_of(config)?;
    tokens(&config.admin.tokens).map(drop)
}

/// The routes, with authentication and request ids.
pub(crate) fn router(admin: AdminApi, random: Random) -> Router {
    let routes = routes()
        .into_iter()
        .fold(Router::new(), |router, (path, route)| {
            router.route(path, route)
        });
    routes
        .route(PORTAL_LINKS, post(portal::create))
        .fallback(|| async { Problem::not_found().detail(NO_ROUTE) })
        .method_not_allowed_fallback(|| async { Problem::new(METHOD).detail(NO_METHOD) })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(admin.clone(), auth::pass))
        .layer(RequestIds::new(random))
        .with_state(admin)
}

fn routes() -> Vec<Route> {
    let mut routes = vec![
        ("/admin/v1/openapi.json", get(openapi::show)),
        (
            "/admin/v1/destinations",
            get(destinations::list).post(destinations::create),
        ),
        (
            "/admin/v1/destinations/{name}",
            get(destinations::show)
                .put(destinations::change)
                .delete(destinations::remove),
        ),
        (
            "/admin/v1/destinations/{name}/pause",
            post(destinations::pause),
        ),
        (
            "/admin/v1/destinations/{name}/resume",
            post(destinations::resume),
        ),
        ("/admin/v1/destinations/{name}/test", post(test_event::send)),
        ("/admin/v1/filters/try", post(filters::run)),
        ("/admin/v1/endpoints/try", post(endpoint_trial::run)),
        ("/admin/v1/events", get(events::list)),
        ("/admin/v1/events/{id}", get(events::show)),
        ("/admin/v1/events/replay", post(jobs::replay_events)),
        ("/admin/v1/deliveries", get(deliveries::list)),
        (
            "/admin/v1/deliveries/{partition}/{position}/retry",
            post(retry::retry),
        ),
        ("/admin/v1/dead-letters", get(deliveries::dead)),
        (
            "/admin/v1/dead-letters/{partition}/{position}/replay",
            post(deliveries::replay),
        ),
        (
            "/admin/v1/dead-letters/{partition}/{position}/edit",
            post(deliveries::edit),
        ),
        (
            "/admin/v1/dead-letters/{partition}/{position}/discard",
            post(deliveries::discard),
        ),
        (
            "/admin/v1/dead-letters/replay",
            post(jobs::replay_dead_letters),
        ),
        (
            "/admin/v1/dead-letters/discard",
            post(jobs::discard_dead_letters),
        ),
        ("/admin/v1/jobs", get(jobs::list)),
        ("/admin/v1/jobs/{id}", get(jobs::show)),
        ("/admin/v1/jobs/{id}/cancel", post(jobs::cancel)),
        ("/admin/v1/audit", get(jobs::audit)),
        ("/admin/v1/inbox", get(inbox::list)),
        ("/admin/v1/sagas", get(sagas::list)),
        ("/admin/v1/sagas/{id}", get(sagas::show)),
        ("/admin/v1/sagas/{id}/decide", post(sagas::decide)),
        ("/admin/v1/timeline", get(timeline::show)),
        ("/admin/v1/stalled", get(stalled::stalled)),
        ("/admin/v1/overview", get(stalled::overview)),
        ("/admin/v1/portal-links", post(portal::create)),
    ];
    routes.extend(key_routes());
    routes.extend(polling_routes());
    routes.extend(endpoints::routes());
    routes.extend(unknown::routes());
    routes
}

fn polling_routes() -> [Route; 4] {
    [
        (
            "/admin/v1/polling-endpoints",
            get(polling::list).post(polling::create),
        ),
        (
            "/admin/v1/polling-endpoints/{name}",
            get(polling::show).delete(polling::remove),
        ),
        (
            "/admin/v1/polling-endpoints/{name}/rotate",
            post(polling::rotate),
        ),
        (
            "/admin/v1/polling-endpoints/{name}/seek",
            post(polling::seek),
        ),
    ]
}

fn key_routes() -> [Route; 3] {
    [
        ("/admin/v1/keys", get(keys::list)),
        ("/admin/v1/keys/{operation}/{key}", get(keys::show)),
        ("/admin/v1/keys/{operation}/{key}/purge", post(keys::purge)),
    ]
}
