//! The web console: what happened to an event, why it does not move, and what to do about it.
//!
//! [`Console::router`] is an axum router whose routes stand below [`BASE`]; a service merges it
//! into its own. Pages are rendered by the server and complete without a script; the script adds
//! the keyboard, the filter that answers while one types, and figures that move. Nothing is loaded
//! from anywhere else.
//!
//! Who may come in says [`Tokens`]; without tokens only this machine may, and nobody through a proxy. A viewer sees, an
//! operator acts, and every act is asked for, counted, given a reason and written into the audit
//! log by the store. What a tenant's token sees is that tenant's.

mod nearest;
mod filter;
mod html;
mod fields;
mod assets;
mod door;
mod session;
mod knock;
mod guard;
mod desk;
mod book;
mod frame;
mod words;
mod chart;
mod sample;
mod live;
mod pages;
mod act;
mod markdown;
pub mod serve;

use std::{collections::BTreeMap, fmt, sync::Arc};

use axum::{Router, middleware};
use hapax::{Clock, mask::Mask};
use hapax_postgres::Postgres;
use tokio::sync::{Semaphore, watch};

pub use book::{Book, Configured};
pub use door::{BadToken, Caller, Given, Role, Tokens, is_local};

use desk::Desk;
use knock::Knocks;
use sample::Samples;
use session::Sessions;

/// Where the console stands.
pub const BASE: &str = "/console";

/// Connections that may wait for live figures at once, where its host does not say.
const LIVE_MAX: usize = 64;

/// Renders the metrics of this process as Prometheus text.
pub type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What the host of a console decides.
#[non_exhaustive]
pub struct Settings {
    /// The time of day.
    pub clock: Clock,
    /// Who may come in; none means whoever sits at this machine.
    pub tokens: Tokens,
    /// Whether browsers come over TLS: the cookie is then sent over nothing else.
    pub https: bool,
    /// What is masked in payloads and answers.
    pub mask: Mask,
    /// The settings in force, with their secrets hidden.
    pub effective: Vec<Setting>,
    /// The destinations of the host's own configuration.
    pub configured: BTreeMap<String, Configured>,
    /// The metrics of this process: reuse, conflicts and breakers are read from them.
    pub metrics: Option<Metrics>,
    /// Connections that may wait for live figures at once: fewer than its listener takes.
    pub live_max: usize,
}

/// A setting as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name, such as `relay.lease`.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where it came from.
    pub origin: String,
}

/// The console over a store.
#[derive(Clone)]
pub struct Console(Arc<Inner>);

struct Inner {
    desk: Desk,
    tokens: Tokens,
    sessions: Sessions,
    knocks: Knocks,
    https: bool,
    clock: Clock,
    effective: Vec<Setting>,
    samples: Samples,
    live: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Settings {
    /// The settings of a console for whoever sits at this machine.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            tokens: Tokens::default(),
            https: false,
            mask: Mask::default(),
            effective: Vec::new(),
            configured: BTreeMap::new(),
            metrics: None,
            live_max: LIVE_MAX,
        }
    }

    /// Lets live figures take half of a listener's connections at most.
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
    /// A console over a store.
    pub fn new(store: Postgres, settings: Settings) -> Self {
        let Settings {
            clock,
            tokens,
            https,
            mask,
            effective,
            configured,
            metrics,
            live_max,
        } = settings;
        let book = Book::new(store.clone(), configured);
        Self(Arc::new(Inner {
            desk: Desk::new(store, book, mask),
            tokens,
            sessions: Sessions::new(clock.clone()),
            knocks: Knocks::new(),
            https,
            clock,
            effective,
            samples: Samples::new(metrics),
            live: Arc::new(Semaphore::new(live_max)),
            closing: watch::Sender::new(false),
        }))
    }

    /// Every route, below [`BASE`], behind the door.
    pub fn router(&self) -> Router {
        let pass = middleware::from_fn_with_state(self.clone(), guard::pass);
        pages::routes()
            .route("/console/live", axum::routing::get(live::stream))
            .layer(pass)
            .with_state(self.clone())
    }

    /// Keeps the charts supplied while nobody looks; it ends with [`Console::close`].
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

    /// Ends what waits for live figures, so that a server can stop.
    pub fn close(&self) {
        self.0.closing.send_replace(true);
    }

    fn desk(&self) -> &Desk {
        &self.0.desk
    }
}
