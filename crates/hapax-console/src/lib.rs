//! Web console: shows what happened to an event, why it does not move, and what can be done about
//! it.
//!
//! [`Console::router`] returns an axum router whose routes are below [`BASE`]; a service merges it
//! into its own router. Pages are rendered by the server and complete without the script, which
//! adds keyboard shortcuts, a live filter and live figures. Nothing is loaded from other servers.
//!
//! [`Tokens`] control access. A viewer can only read; an operator can also change things. Every
//! action shows its effect and the number of affected rows, requires a reason, and is written to the
//! audit log by the store. A token of a tenant sees only rows of that tenant.
//!
//! Without tokens, every caller is an operator. Requests must then have a local host name and no
//! header of a proxy. This stops web pages and proxies, but not a client on another machine: serve a
//! console without tokens on a loopback address only.
//!
//! ```
//! use hapax::{Clock, admin::Admin};
//! use hapax_console::{Console, Settings};
//!
//! /// Adds the console to the routes of a service.
//! fn with_console(routes: axum::Router, store: impl Admin + 'static) -> axum::Router {
//!     let console = Console::new(store, Settings::new(Clock::system()));
//!     routes.merge(console.router())
//! }
//! ```

mod filter;
mod html;
mod fields;
mod assets;
mod auth;
mod session;
mod rate_limit;
mod guard;
mod queries;
mod navigation;
mod layout;
mod format;
mod table;
mod inputs;
mod endpoint_trial;
mod chart;
mod sample;
mod live;
mod pages;
mod act;
mod markdown;
mod test_events;
#[cfg(feature = "catalogue")]
pub mod catalogue;
pub mod portal;
pub mod serve;

use std::{collections::BTreeMap, fmt, sync::Arc};

use axum::{Router, middleware};
use hapax::{
    Clock,
    admin::{Admin, Configured, DestinationIndex, EndpointOperations},
    limits::{ENDPOINT_TESTS, ENDPOINT_WAITING, TRIALS},
    mask::Mask,
    places::Places,
};
use tokio::sync::{Semaphore, watch};

pub use auth::{BadToken, Caller, Given, Role, Tokens, is_local};
pub use test_events::{TestEvents, test_events};

use queries::Queries;
use rate_limit::RateLimit;
use sample::Samples;
use session::Sessions;
use test_events::TESTS_MAX;

/// The path of the console.
pub const BASE: &str = "/console";

/// Default maximum number of connections with live figures.
const LIVE_MAX: usize = 64;

/// Renders the metrics of this process as Prometheus text.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// An event catalogue, and the flags that are enabled for tenants.
#[cfg(feature = "catalogue")]
pub type ConfiguredCatalogue = (
    hapax::catalogue::Catalogue,
    std::collections::BTreeSet<String>,
);

/// The settings of a console.
#[non_exhaustive]
pub struct Settings {
    /// The wall clock.
    pub clock: Clock,
    /// The tokens. Without any, the console must be served on a loopback address only.
    pub tokens: Tokens,
    /// Whether browsers use TLS: the cookie is then sent over TLS only.
    pub https: bool,
    /// The names whose values are masked in payloads and responses.
    pub mask: Mask,
    /// The effective settings of the host, without secrets.
    pub effective: Vec<Setting>,
    /// The page of the reference that explains these settings: `hapax-configuration` or
    /// `configuration`, which is that of the shop. Without it, they are shown without a meaning.
    pub explained_in: Option<&'static str>,
    /// The destinations of the host's configuration.
    pub configured: BTreeMap<String, Configured>,
    /// The metrics of this process: replays, conflicts and breakers are read from them.
    pub metrics: Option<Metrics>,
    /// Offers test events; without it, the console has no button for them.
    pub test_events: Option<TestEvents>,
    /// Sends test events to endpoints; without it, the console has no button for them.
    pub endpoints: Option<Arc<dyn EndpointOperations>>,
    /// Maximum number of deliveries that wait for an endpoint, as its relays have it: no more are queued.
    pub endpoint_waiting: u32,
    /// The event catalogue of the service; without it, the console has no pages for event types.
    #[cfg(feature = "catalogue")]
    pub catalogue: Option<ConfiguredCatalogue>,
    /// Maximum number of connections with live figures. It must be lower than the limit of the
    /// listener.
    pub live_max: usize,
}

/// A setting for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, such as `relay.lease`.
    pub name: String,
    /// The value.
    pub value: String,
    /// The source.
    pub origin: String,
}

/// A console for a store.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    queries: Queries,
    tokens: Tokens,
    sessions: Sessions,
    rate_limit: RateLimit,
    https: bool,
    clock: Clock,
    effective: Vec<Setting>,
    explained_in: Option<&'static str>,
    samples: Samples,
    test_events: Option<TestEvents>,
    endpoints: Option<Arc<dyn EndpointOperations>>,
    endpoint_waiting: u32,
    #[cfg(feature = "catalogue")]
    catalogue: Option<ConfiguredCatalogue>,
    has_catalogue: bool,
    /// Limits the test events that are offered at the same time.
    tests: Semaphore,
    /// Limits the test events that are sent to endpoints at the same time.
    endpoint_tests: Places,
    /// Limits the trials of the settings of endpoints that run at the same time.
    trials: Places,
    live: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Settings {
    /// The settings of a console for this machine only.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            tokens: Tokens::default(),
            https: false,
            mask: Mask::default(),
            effective: Vec::new(),
            explained_in: None,
            configured: BTreeMap::new(),
            metrics: None,
            test_events: None,
            endpoints: None,
            endpoint_waiting: ENDPOINT_WAITING,
            #[cfg(feature = "catalogue")]
            catalogue: None,
            live_max: LIVE_MAX,
        }
    }

    /// Limits live figures to half of a listener's connections.
    pub fn bounded_by(&mut self, bounds: &serve::Bounds) {
        self.live_max = self.live_max.min(bounds.connections.div_ceil(2));
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}

impl Console {
    /// Creates a console for a store.
    pub fn new(store: impl Admin + 'static, settings: Settings) -> Self {
        Self::for_admin(Arc::new(store), settings)
    }

    /// Creates a console for a store that is shared with other parts of the process.
    pub fn for_admin(admin: Arc<dyn Admin>, settings: Settings) -> Self {
        let Settings {
            clock,
            tokens,
            https,
            mask,
            effective,
            explained_in,
            configured,
            metrics,
            test_events,
            endpoints,
            endpoint_waiting,
            #[cfg(feature = "catalogue")]
            catalogue,
            live_max,
        } = settings;
        #[cfg(feature = "catalogue")]
        let has_catalogue = catalogue.is_some();
        #[cfg(not(feature = "catalogue"))]
        let has_catalogue = false;
        let index = DestinationIndex::new(admin, configured);
        Self(Arc::new(Inner {
            queries: Queries::new(index, mask),
            tokens,
            sessions: Sessions::new(clock.clone()),
            rate_limit: RateLimit::new(),
            https,
            clock,
            effective,
            explained_in,
            samples: Samples::new(metrics),
            test_events,
            endpoints,
            endpoint_waiting,
            #[cfg(feature = "catalogue")]
            catalogue,
            has_catalogue,
            tests: Semaphore::new(TESTS_MAX),
            endpoint_tests: Places::new(ENDPOINT_TESTS),
            trials: Places::new(TRIALS),
            live: Arc::new(Semaphore::new(live_max)),
            closing: watch::Sender::new(false),
        }))
    }

    /// All routes, below [`BASE`], with authentication.
    pub fn router(&self) -> Router {
        let pass = middleware::from_fn_with_state(self.clone(), guard::pass);
        pages::routes()
            .route("/console/live", axum::routing::get(live::stream))
            .layer(pass)
            .with_state(self.clone())
    }

    /// Collects the data of the charts in the background, until [`Console::close`] is called.
    pub async fn watch(&self) {
        let mut closing = self.0.closing.subscribe();
        let closed = async move {
            let _told = closing.wait_for(|closing| *closing).await;
        };
        tokio::select! {
            () = closed => {},
            () = sample::keep(self) => {},
        }
    }

    /// Closes the connections with live figures, so that the server can stop.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    fn queries(&self) -> &Queries {
        &self.0.queries
    }

    fn store(&self) -> &dyn Admin {
        self.0.queries.store()
    }

    fn index(&self) -> &DestinationIndex {
        self.0.queries.index()
    }
}
