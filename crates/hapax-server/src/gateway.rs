//! Assembly of the gateway: its store, its listeners, and the endpoints for monitoring.
//!
//! SIGHUP reads the configuration again: routes, upstreams and certificates change, or nothing does.
//! Listeners and the database stay as they are until a restart.

use anyhow::Context as _;
use futures_util::{FutureExt as _, future::OptionFuture};
use hapax::{limits::LISTENER_SHARE_OF_RELAY, store::Phases, trace::Traces};
use hapax_console::serve::{Bounds, descriptors, serve};
use hapax_gateway::{
    Gateway,
    config::Settings,
    listener::{self, Listening},
    waiting,
};
use hapax_otlp::Exporting;
use hapax_runtime::{
    shutdown::{SignalRequest, Signals},
    telemetry,
};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    command::{Context, Failure},
    config::{Config, DatabaseLocation, Listen, Wrong},
    database::{self, RelayStore},
    environment,
    health::Health,
    listeners::{end, listen},
    retention,
};

/// Bootstrap of the gateway: what is set up before the database is opened.
struct Bootstrap {
    context: Context,
    settings: Settings,
    signals: Signals,
    metrics: PrometheusHandle,
    listeners: Vec<Listening>,
    health: Option<TcpListener>,
}

/// Runs the gateway until a signal stops it.
pub(crate) async fn run(context: Context) -> Result<(), Failure> {
    let bootstrap = Bootstrap::new(context).await?;
    let access = bootstrap.context.access()?;
    match bootstrap.context.config.database.place()? {
        DatabaseLocation::Server(url) => {
            let store = database::postgres::open(&access, &url).await?;
            Box::pin(serve_all(store, bootstrap)).await
        }
        DatabaseLocation::File(path) => {
            let store = database::sqlite::open_store(&access, &path)?;
            Box::pin(serve_all(store, bootstrap)).await
        }
    }
}

impl Bootstrap {
    async fn new(context: Context) -> Result<Self, Failure> {
        let settings = settings(&context.config)?.clone();
        let signals = Signals::listen_and_reload().context("cannot install signal handlers")?;
        // The recorder has to be installed first: metrics recorded before are lost.
        let metrics = telemetry::count().context("cannot install the metrics recorder")?;
        let mut listeners = Vec::new();
        for (name, listener) in &settings.listeners {
            let setting = format!("gateway.listeners.{name}.listen");
            let bound = listen(&setting, Listen(Some(listener.listen))).await?;
            listeners.extend(bound.map(|bound| Listening {
                name: name.clone(),
                listener: bound,
                is_tls: listener.tls.is_some(),
                connections: settings.connections,
            }));
        }
        let health = listen("gateway.health", Listen(settings.health)).await?;
        Ok(Self {
            context,
            settings,
            signals,
            metrics,
            listeners,
            health,
        })
    }
}

/// The settings of the gateway, which must have a listener and a route.
fn settings(config: &Config) -> Result<&Settings, Wrong> {
    let missing = |path: &str, how: &str| Wrong::at(path, format!("is missing: {how}"));
    let how = "give --upstream, or the file of --config with [gateway.listeners], \
               [gateway.upstreams] and [gateway.routes]";
    let settings = config.gateway.as_ref();
    let settings = settings.ok_or_else(|| missing("gateway", how))?;
    if settings.listeners.is_empty() {
        return Err(missing("gateway.listeners", "name at least one address"));
    }
    if settings.routes.is_empty() && settings.ingest.sources.is_empty() {
        return Err(missing(
            "gateway.routes",
            "name at least one route, or a source of webhooks",
        ));
    }
    Ok(settings)
}

/// Serves the gateway with an open store.
async fn serve_all<S: RelayStore + Phases>(store: S, bootstrap: Bootstrap) -> Result<(), Failure> {
    let Bootstrap {
        mut context,
        settings,
        mut signals,
        metrics,
        listeners,
        health: health_listener,
    } = bootstrap;
    let base = base(&context, &store);
    let gateway = Gateway::new(store.clone(), base, context.failpoints.clone(), &settings);
    let gateway = gateway.context("the gateway cannot start")?;
    let exporting = context.exporter.take().map(hapax_otlp::Exporter::spawn);
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let health = health(&store, metrics.clone());
    if let Some(listener) = health_listener {
        let bounds = Bounds::sharing(descriptors(), LISTENER_SHARE_OF_RELAY);
        tasks.spawn(serve(listener, health.router(), bounds, stopping.clone()));
    }
    for listening in listeners {
        let address = listening.listener.local_addr();
        let address = address.context("a listener has no address")?;
        tracing::info!(
            listener = listening.name,
            %address,
            tls = listening.is_tls,
            "gateway listening"
        );
        tasks.spawn(listener::serve(
            listening,
            gateway.clone(),
            stopping.clone(),
        ));
    }
    let admin = store.admin().context("the gateway cannot read its keys")?;
    let counting = tokio::spawn(waiting::report(admin, store.clock()));
    let keeping = retention::spawn(&store, &context.config.retention, metrics);
    tracing::info!(
        routes = settings.routes.len(),
        upstreams = settings.upstreams.len(),
        from_state = "starting",
        to_state = "ready",
        "gateway started"
    );
    let signal = until_signal(&context, &gateway, &mut signals).await;
    tracing::info!(
        signal,
        from_state = "ready",
        to_state = "draining",
        "gateway stopping"
    );
    health.drains();
    let ending = async {
        stop.send_replace(true);
        drain(&mut tasks).await;
        keeping.abort();
        counting.abort();
        end(stop, tasks).await;
        store.close().await;
        OptionFuture::from(exporting.map(Exporting::end)).await;
    };
    signals.unless_stopped(ending).await;
    tracing::info!(
        from_state = "draining",
        to_state = "stopped",
        "gateway stopped"
    );
    Ok(())
}

/// Waits for the requests in flight. Each listener limits the time.
async fn drain(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Serves until a signal to stop arrives, whose name is returned.
async fn until_signal<S: Phases>(
    context: &Context,
    gateway: &Gateway<S>,
    signals: &mut Signals,
) -> &'static str {
    loop {
        match signals.received().await {
            SignalRequest::Stop(signal) => return signal,
            SignalRequest::Reload => match reload(context, gateway) {
                Ok(()) => tracing::info!("configuration reloaded"),
                Err(error) => tracing::error!(
                    error,
                    "configuration is not valid: the previous one stays in effect"
                ),
            },
        }
    }
}

/// Reads the configuration again, and replaces that of the gateway.
fn reload<S: Phases>(context: &Context, gateway: &Gateway<S>) -> Result<(), String> {
    let layers = context.again.layers().map_err(|wrong| wrong.to_string())?;
    let config = Config::of(&layers).map_err(|wrong| wrong.to_string())?;
    let settings = settings(&config).map_err(|wrong| wrong.to_string())?;
    gateway
        .reload(settings)
        .map_err(|error| environment::error_chain(&error))
}

/// The settings of the keys that do not depend on the configuration of the gateway.
fn base<S: RelayStore>(context: &Context, store: &S) -> hapax_http::Settings {
    let random = environment::random();
    let traces = match context.exporter {
        Some(_) => Traces::sampled(random.clone(), context.config.telemetry.sample),
        None => Traces::off(),
    };
    hapax_http::Settings {
        traces,
        ..hapax_http::Settings::new(store.clock(), random)
    }
}

/// The endpoints for monitoring.
fn health<S: RelayStore>(store: &S, metrics: PrometheusHandle) -> Health {
    let store = store.clone();
    let ask = move || {
        let store = store.clone();
        async move { store.database_state().await }.boxed()
    };
    Health::new(ask, metrics)
}
