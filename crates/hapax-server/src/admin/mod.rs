//! The admin API over HTTP: keys, destinations, events, deliveries, dead letters, the inbox, sagas,
//! jobs, the audit log, stalled work with its cause, and the timeline of a request.
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
pub(crate) mod events;
pub(crate) mod deliveries;
mod retry;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod inbox;
pub(crate) mod sagas;
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
    admin::{Admin, DestinationIndex},
    mask::Mask,
};
use hapax_http::{Problem, RequestIds, problem::METHOD};
use tokio::sync::{Semaphore, watch::Receiver};

pub(crate) use auth::tokens;
pub(crate) use declare::{Declare, configured};
pub(crate) use encryption::Keys;
pub(crate) use list_query::{ListQuery, Many};
pub(crate) use watch::Watch;

use crate::{
    config::{Config, Wrong},
    destination_set::Declared,
};
use hapax_console::Tokens;

/// Maximum size of a request body in bytes: the declaration of a destination, or a filter.
const BODY_BYTES_MAX: usize = 64 * 1024;
const NO_ROUTE: &str = "there is no such route: see /admin/v1/openapi.json";
const NO_METHOD: &str = "the route has no such method: see /admin/v1/openapi.json";

/// The state that all routes share.
#[derive(Clone)]
pub(crate) struct AdminApi(Arc<Inner>);

struct Inner {
    tokens: Tokens,
    declare: Declare,
    /// The destinations of the configuration, as a relay uses them now.
    configured: Receiver<Declared>,
    mask: Mask,
    /// Limits the test events that are offered at the same time.
    tests: Semaphore,
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
        let declare = Declare::new(store, config, keys);
        Ok(Self(Arc::new(Inner {
            tokens,
            declare,
            configured,
            mask: Mask::with(&config.admin.mask),
            tests: Semaphore::new(test_event::TESTS_MAX),
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
    Keys::of(config)?;
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
        .fallback(|| async { Problem::not_found().detail(NO_ROUTE) })
        .method_not_allowed_fallback(|| async { Problem::new(METHOD).detail(NO_METHOD) })
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(admin.clone(), auth::pass))
        .layer(RequestIds::new(random))
        .with_state(admin)
}

fn routes() -> Vec<(&'static str, MethodRouter<AdminApi>)> {
    vec![
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
        ("/admin/v1/keys", get(keys::list)),
        ("/admin/v1/keys/{operation}/{key}", get(keys::show)),
        ("/admin/v1/keys/{operation}/{key}/purge", post(keys::purge)),
        ("/admin/v1/inbox", get(inbox::list)),
        ("/admin/v1/sagas", get(sagas::list)),
        ("/admin/v1/sagas/{id}", get(sagas::show)),
        ("/admin/v1/sagas/{id}/decide", post(sagas::decide)),
        ("/admin/v1/timeline", get(timeline::show)),
        ("/admin/v1/stalled", get(stalled::stalled)),
        ("/admin/v1/overview", get(stalled::overview)),
    ]
}
