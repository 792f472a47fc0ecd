//! The part of the shop that is for operators: the web console, and the jobs that they start there
//! or with `hapax`.
//!
//! All of it knows the store as `hapax::admin` alone, so it is the same on SQLite and PostgreSQL.

use std::{collections::BTreeSet, sync::Arc};

use axum::{Router, response::Redirect, routing::get};
use hapax::{
    admin::{Admin, JobWorker, configured},
    relay::Destination,
};
use hapax_console::{BASE, Console, Metrics, Settings, test_events};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    catalogue,
    config::Config,
    runtime::Runtime,
    server::{self, Stop, stopped},
};

/// The tasks that the shop runs for operators.
#[derive(Debug)]
pub(crate) struct Operations {
    admin: Arc<dyn Admin>,
    console: Option<Console>,
    relays: bool,
}

impl Operations {
    /// Prepares what is run. The console, with these destinations of the relay, is served if it has
    /// settings.
    pub(crate) fn new(
        admin: Arc<dyn Admin>,
        destinations: &[Destination],
        console: Option<Settings>,
        config: &Config,
        runtime: &Runtime,
    ) -> Self {
        let console = console.map(|mut settings| {
            settings.configured = configured(destinations);
            let (clock, random) = (runtime.clock.clone(), runtime.random.clone());
            let offers = test_events(Arc::clone(&admin), destinations, clock, random);
            settings.test_events = Some(offers);
            Console::for_admin(Arc::clone(&admin), settings)
        });
        Self {
            admin,
            console,
            relays: config.relay,
        }
    }

    /// Adds the console to the routes of the shop, and leads from `/` to it.
    pub(crate) fn add_to(&self, routes: Router) -> Router {
        match &self.console {
            Some(console) => routes
                .merge(console.router())
                .route("/", get(|| async { Redirect::to(BASE) })),
            None => routes,
        }
    }

    /// Starts the tasks, which run until `stop` is set. Jobs are run by every process that runs a
    /// relay or serves the console.
    pub(crate) fn spawn(self, stop: &Stop) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let stopping = || {
            let mut stop = stop.clone();
            async move { stopped(&mut stop).await }
        };
        if self.relays || self.console.is_some() {
            tasks.spawn(JobWorker::new(self.admin).run(stopping()));
        }
        if let Some(console) = self.console {
            let stopping = stopping();
            tasks.spawn(async move {
                tokio::select! {
                    () = console.watch() => {},
                    () = stopping => console.close(),
                }
            });
        }
        tasks
    }
}

/// Returns the settings of the console, or `None` if it may not be served.
///
/// The console is served if operators have tokens. Without tokens, it is served only in a demo that
/// listens on a loopback address. It uses the port of the public API, which a proxy may forward
/// from the loopback address to the network, so a shop without a demo requires tokens.
pub(crate) fn settings(
    config: &Config,
    runtime: &Runtime,
    listener: &TcpListener,
    metrics: &PrometheusHandle,
) -> anyhow::Result<Option<Settings>> {
    let is_local = listener.local_addr()?.ip().is_loopback();
    let tokens = config.operators.clone();
    if tokens.is_empty() && !(config.demo && is_local) {
        return Ok(None);
    }
    let metrics = metrics.clone();
    let render: Metrics = Arc::new(move || metrics.render());
    let mut settings = Settings::new(runtime.clock.clone());
    settings.bounded_by(&server::bounds());
    settings.metrics = Some(render);
    settings.tokens = tokens;
    settings.effective.clone_from(&config.effective);
    settings.explained_in = Some("configuration");
    settings.catalogue = Some((catalogue::published(), BTreeSet::new()));
    Ok(Some(settings))
}
