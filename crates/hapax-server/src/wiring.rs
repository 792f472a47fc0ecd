//! Assembly of the relay. This is the only module that uses both a store and sinks.
//!
//! Errors are found in order of cost: settings, ports, destinations, database. Nothing is delivered
//! before all of them are ready. A receiver that is down is not an error: its events wait.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use axum::{Router, response::Redirect, routing::get};
use futures_util::{FutureExt as _, future::OptionFuture};
use hapax::{
    Clock,
    admin::{Admin, JobWorker},
    endpoint::{Endpoints, FanOut},
    limits::{LISTENER_SHARE, LISTENER_SHARE_OF_RELAY},
    mask::Mask,
    relay::{self, Destination, Node, Relay, RelayHandle},
    trace::Traces,
};
use hapax_console::{
    Console,
    serve::{Bounds, descriptors, serve},
};
use hapax_otlp::{Exporter, Exporting};
use hapax_postgres::{Feeder, Imported};
use hapax_runtime::{
    shutdown::{SignalRequest, Signals},
    telemetry,
};
use hapax_sinks::endpoints::Keys;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::{
    admin::{self, AdminApi, Watch, keys_of},
    catalogue,
    command::{Context, Failure},
    config::{Config, DatabaseLocation, Listen},
    database::{self, RelayStore},
    destination::{Spec, SpecError, build},
    destination_set::{Declared, DestinationSet},
    endpoints, environment,
    health::Health,
    listeners::{self, Listeners, end, listen, serve_all, stopped},
    open_files, operational,
    polling::serve_consumers,
    portal, retention,
};

/// How much longer than the sink's the relay's timeout is. If they were equal, the relay could give
/// up at the moment at which the sink learns that the event was delivered.
const OUTLASTS: Duration = Duration::from_secs(1);

/// Builds a destination of the relay from its declaration.
pub(crate) fn destination(
    name: &str,
    spec: &Spec,
    clock: &Clock,
) -> Result<Destination, SpecError> {
    let mut destination = Destination::new(name, build::sink(spec, clock)?)
        .order(spec.order.into())
        .schedule(spec.schedule())
        .paused(spec.paused);
    destination.start = spec.start.unwrap_or_default();
    destination.patterns = spec.patterns();
    destination.filter = spec.filter()?;
    destination.tenant = spec.tenant()?;
    destination.per_second = spec.per_second.map(std::num::NonZeroU32::get);
    if let Some(concurrency) = spec.concurrency {
        destination.concurrency = concurrency.into();
    }
    if let Some(timeout) = spec.timeout {
        destination.timeout = timeout.0.saturating_add(OUTLASTS);
    }
    destination
        .partitions(spec.partitions)
        .map_err(|error| SpecError {
            field: "partitions".to_owned(),
            problem: format!("is not valid: {error}"),
        })
}

/// The parts of a relay that are set up before its database is opened.
struct Bootstrap {
    context: Context,
    began: Instant,
    signals: Signals,
    metrics: PrometheusHandle,
    sockets: Listeners,
    /// The public page of the event catalogue.
    catalogue: Router,
    destination_set: DestinationSet,
    declared: Declared,
}

/// Runs the relay until a signal stops it.
pub(crate) async fn relay(context: Context) -> Result<(), Failure> {
    let bootstrap = Bootstrap::new(context).await?;
    let context = &bootstrap.context;
    let access = context.access()?;
    match context.config.database.place()? {
        DatabaseLocation::Server(url) => {
            let store = database::postgres::open(&access, &url).await?;
            Box::pin(deliver(store, bootstrap)).await
        }
        DatabaseLocation::File(path) => {
            let store = database::sqlite::open_store(&access, &path)?;
            Box::pin(deliver(store, bootstrap)).await
        }
    }
}

impl Bootstrap {
    async fn new(context: Context) -> Result<Self, Failure> {
        let began = Instant::now();
        let signals = Signals::listen_and_reload().context("cannot install signal handlers")?;
        // The recorder has to be installed first: metrics recorded before are lost.
        let metrics = telemetry::count().context("cannot install the metrics recorder")?;
        // The shares of the listeners are computed from it.
        open_files::raise_limit();
        let config = &context.config;
        let catalogue = catalogue::router(config)?;
        let sockets = Listeners::of(config).await?;
        let mut destination_set = DestinationSet::new(environment::clock());
        let declared = Declared::in_configuration(config);
        destination_set.check(&declared)?;
        Ok(Self {
            context,
            began,
            signals,
            metrics,
            sockets,
            catalogue,
            destination_set,
            declared,
        })
    }
}

/// Delivers the events of an open store until a signal arrives.
async fn deliver<S: RelayStore>(store: S, bootstrap: Bootstrap) -> Result<(), Failure> {
    let Bootstrap {
        mut context,
        began,
        mut signals,
        metrics,
        sockets,
        catalogue,
        mut destination_set,
        declared,
    } = bootstrap;
    let config = &context.config;
    let addresses = sockets.addresses()?;
    let (keys, admin) = (keys_of(config)?, store.admin()?);
    let bounds = Bounds::sharing(descriptors(), LISTENER_SHARE_OF_RELAY);
    let (declared, configured) = watch::channel(declared);
    let api = AdminApi::new(Arc::clone(&admin), config, keys.clone(), configured)?;
    let console = cx(&context, Arc::clone(&admin), Some(&metrics), &bounds, &api)?;
    let console = config.admin.console.then_some(console);
    let api = api_routes(api, console.as_ref()).merge(catalogue.clone());
    let portal = portal::router(config, &admin, keys.clone())?;
    let imported = store.sources(&config.sources).await?;
    let feeders = store.feeders(&config.feeds)?;
    let watch = declarations(Arc::clone(&admin), keys, config).await?;
    let destinations = destination_set.destinations(&declared.borrow().and(&watch));
    let settings = settings::<S>(&context, store.clock());
    let fan_out = destination_set.fan_out().clone();
    let endpoints = bound(&store, &context, &fan_out)?;
    let exporting = context.exporter.take().map(Exporter::spawn);
    let handle = Relay::spawn(&store, destinations, &settings, &store.notifier());

    let health = health(&store, metrics.clone());
    health.shows(destination_set.all(), &handle);
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let operators = (sockets.admin, api);
    let customers = (sockets.portal, portal);
    let served = [(sockets.health, health.router()), operators, customers];
    serve_all(&mut tasks, served, bounds, &stopping);
    let public = (sockets.polling, catalogue);
    serve_consumers(&mut tasks, &store, public, bounds, &stopping);
    endpoints::dispatch(&mut tasks, endpoints, fan_out, &stopping);
    let active = destination_set.active();
    operational::measure_lag(&mut tasks, &store, &context.config, active, &stopping)?;
    import_all(&mut tasks, imported, feeders, &stopping);
    work_for_operators(&mut tasks, admin, console, stopping);
    let keeping = retention::spawn(&store, &context.config.retention, metrics);

    let count = destination_set.all().len();
    log_start(&handle, count, addresses, began.elapsed());
    let served = Served {
        destination_set,
        declared,
        watch,
        handle: &handle,
        health: &health,
    };
    let signal = served.until_signal(&context, &mut signals).await;
    log_stopping(signal);
    health.drains();
    let ending = async {
        handle.drain().await;
        keeping.abort();
        end(stop, tasks).await;
        store.close().await;
        OptionFuture::from(exporting.map(Exporting::end)).await;
    };
    signals.unless_stopped(ending).await;
    log_stopped();
    Ok(())
}

/// The endpoints of tenants of an open store, to which the sink of the configuration is bound.
fn bound<S: RelayStore>(
    store: &S,
    context: &Context,
    fan_out: &FanOut,
) -> Result<Endpoints, Failure> {
    let (config, failpoints) = (&context.config, context.failpoints.clone());
    let transport = endpoints::transport_of(config, keys_of(config)?, store.clock())?;
    let transport = Arc::new(transport);
    Ok(endpoints::bind(
        store, config, transport, failpoints, fan_out,
    ))
}

/// The routes for operators: the admin API, and the console if it is served.
fn api_routes(api: AdminApi, console: Option<&Console>) -> Router {
    let api = admin::router(api, environment::random());
    match console {
        Some(console) => api.merge(console.router()),
        None => api,
    }
}

/// Runs the jobs that operators start, and the console's collection of figures.
fn work_for_operators(
    tasks: &mut JoinSet<()>,
    admin: Arc<dyn Admin>,
    console: Option<Console>,
    stopping: watch::Receiver<bool>,
) {
    tasks.spawn(JobWorker::new(admin).run(stopped(stopping.clone())));
    if let Some(console) = console {
        tasks.spawn(async move { watched(&console, stopping).await });
    }
}

/// The health of a relay with this store.
fn health<S: RelayStore>(store: &S, metrics: PrometheusHandle) -> Health {
    let store = store.clone();
    let ask = move || {
        let store = store.clone();
        async move { store.database_state().await }.boxed()
    };
    Health::new(ask, metrics)
}

/// The store that a relay serves, and the source of its notifications.
struct Served<'a> {
    destination_set: DestinationSet,
    /// The destinations of the configuration. The admin API sees its changes.
    declared: watch::Sender<Declared>,
    watch: Watch,
    handle: &'a RelayHandle,
    health: &'a Health,
}

impl Served<'_> {
    /// Keeps the destinations of the relay up to date, until a signal stops it. Returns the signal.
    async fn until_signal(mut self, context: &Context, signals: &mut Signals) -> &'static str {
        let mut looks = tokio::time::interval(LOOKS);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                asked = signals.received() => match asked {
                    SignalRequest::Stop(signal) => return signal,
                    SignalRequest::Reload => {
                        if let Some(now) = reread(context, &mut self.destination_set) {
                            self.declared.send_replace(now);
                            self.update();
                        }
                    }
                },
                _ = looks.tick() => {
                    if self.has_changed().await || self.destination_set.lags() {
                        self.update();
                    }
                    self.health.shows(self.destination_set.all(), self.handle);
                }
            }
        }
    }

    /// Whether declarations have changed, as far as the relay does not know that they have not.
    async fn has_changed(&mut self) -> bool {
        let newest = self.handle.operator_version();
        if newest.is_some_and(|newest| self.watch.has_read(newest)) {
            return false;
        }
        looked(&mut self.watch).await
    }

    fn update(&mut self) {
        let declared = self.declared.borrow().and(&self.watch);
        self.handle
            .set(self.destination_set.destinations(&declared));
    }
}

/// Reads the declarations of the database before the start. Otherwise the relay would deliver to a
/// paused destination for a second.
async fn declarations(
    admin: Arc<dyn Admin>,
    keys: Keys,
    config: &Config,
) -> Result<Watch, Failure> {
    let mut watch = Watch::new(admin, keys, config.relay.reach());
    watch
        .look()
        .await
        .context("declared destinations cannot be read")?;
    Ok(watch)
}

fn log_stopping(signal: &str) {
    tracing::info!(
        signal,
        from_state = "ready",
        to_state = "draining",
        "relay stopping"
    );
}

fn log_stopped() {
    tracing::info!(
        from_state = "draining",
        to_state = "stopped",
        "relay stopped"
    );
}

fn log_start(
    handle: &RelayHandle,
    destinations: usize,
    [address, admin_address, poll_address, portal_address]: [Option<SocketAddr>; 4],
    took: Duration,
) {
    tracing::info!(
        node = handle.identity(),
        destinations,
        listen = address.map(tracing::field::display),
        admin_listen = admin_address.map(tracing::field::display),
        poll_listen = poll_address.map(tracing::field::display),
        portal_listen = portal_address.map(tracing::field::display),
        ready_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        from_state = "starting",
        to_state = "ready",
        "relay started"
    );
}

/// Moves the rows of each table source to the outbox, and the changes of each feed.
fn import_all(
    tasks: &mut JoinSet<()>,
    imported: Vec<Imported>,
    feeders: Vec<Feeder>,
    stopping: &watch::Receiver<bool>,
) {
    for imported in imported {
        tasks.spawn(imported.run(stopped(stopping.clone())));
    }
    for feeder in feeders {
        tasks.spawn(feeder.run(stopped(stopping.clone())));
    }
}

/// Serves the console alone, until a signal stops it.
pub(crate) async fn console(context: Context, address: SocketAddr) -> Result<(), Failure> {
    let mut signals = Signals::listen_and_reload().context("cannot install signal handlers")?;
    let catalogue = catalogue::router(&context.config)?;
    let listener = listen("--listen", Listen(Some(address))).await?;
    let address = listeners::address(listener.as_ref())?;
    let admin = context.admin().await?;
    let bounds = Bounds::sharing(descriptors(), LISTENER_SHARE);
    let (_kept, configured) = watch::channel(Declared::in_configuration(&context.config));
    let keys = keys_of(&context.config)?;
    let api = AdminApi::new(Arc::clone(&admin), &context.config, keys, configured)?;
    let console = cx(&context, Arc::clone(&admin), None, &bounds, &api)?;
    let (stop, stopping) = watch::channel(false);
    let mut tasks = JoinSet::new();
    if let Some(listener) = listener {
        let home = get(|| async { Redirect::to(hapax_console::BASE) });
        let router = console.router().route("/", home).merge(catalogue);
        tasks.spawn(serve(listener, router, bounds, stopping.clone()));
    }
    work_for_operators(&mut tasks, admin, Some(console), stopping);
    tracing::info!(
        listen = address.map(tracing::field::display),
        from_state = "starting",
        to_state = "serving",
        "console started"
    );
    let signal = signals.stopped().await;
    tracing::info!(
        signal,
        from_state = "serving",
        to_state = "stopped",
        "console stopping"
    );
    signals.unless_stopped(end(stop, tasks)).await;
    Ok(())
}

/// Creates the console for a store, as configured.
fn cx(
    context: &Context,
    admin: Arc<dyn Admin>,
    metrics: Option<&PrometheusHandle>,
    bounds: &Bounds,
    api: &AdminApi,
) -> Result<Console, Failure> {
    let config = &context.config;
    let mut settings = hapax_console::Settings::new(environment::clock());
    settings.bounded_by(bounds);
    settings.tokens = admin::tokens(&config.admin.tokens)?;
    settings.https = config.admin.https;
    settings.mask = Mask::with(&config.admin.mask);
    settings.configured = admin::configured(config);
    settings.test_events = Some(api.test_events());
    settings.endpoints = Some(api.endpoints());
    settings.endpoint_waiting = config.endpoints.waiting;
    let catalogue = catalogue::configured(config)?;
    let flags = config.catalogue.flags.iter().cloned().collect();
    settings.catalogue = catalogue.map(|catalogue| (catalogue, flags));
    let layers = context.again.layers()?;
    let effective = crate::command::config::settings(&layers)?;
    settings.explained_in = Some("hapax-configuration");
    settings.effective = effective
        .into_iter()
        .map(crate::command::config::Setting::shown)
        .collect();
    settings.metrics = metrics.cloned().map(|metrics| {
        let render: hapax_console::Metrics = Arc::new(move || metrics.render());
        render
    });
    Ok(Console::for_admin(admin, settings))
}

/// Collects the data of the console's charts, and closes its event streams when the process stops.
async fn watched(console: &Console, stopping: watch::Receiver<bool>) {
    tokio::select! {
        () = console.watch() => {},
        () = stopped(stopping) => console.close(),
    }
}

/// How often the database is read for changes by operators.
const LOOKS: Duration = Duration::from_secs(1);
/// Timeout of that read. Signals are handled after it.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Whether the database has changed declarations. If it does not respond, there are none.
async fn looked(watch: &mut Watch) -> bool {
    match timeout(LOOK_MAX, watch.look()).await {
        Ok(Ok(is_changed)) => is_changed,
        Ok(Err(error)) => {
            let error = environment::error_chain(&error);
            tracing::warn!(error, "declared destinations cannot be read");
            false
        }
        Err(_) => {
            tracing::warn!("declared destinations cannot be read: the database does not answer");
            false
        }
    }
}

/// Reads the destinations of the configuration again. If they are not valid, nothing changes.
fn reread(context: &Context, destination_set: &mut DestinationSet) -> Option<Declared> {
    let layers = context.again.layers();
    let read = layers.and_then(|layers| Config::of(&layers));
    let read = read.map(|config| Declared::in_configuration(&config));
    let read = read.and_then(|declared| destination_set.check(&declared).map(|()| declared));
    match read {
        Ok(declared) => {
            tracing::info!("configuration reloaded: its destinations are in effect");
            Some(declared)
        }
        Err(wrong) => {
            tracing::error!(error = %wrong, "configuration is not valid: the previous one stays in effect");
            None
        }
    }
}

fn settings<S: RelayStore>(context: &Context, clock: Clock) -> relay::Settings {
    let relay = &context.config.relay;
    let random = environment::random();
    let traces = match context.exporter {
        Some(_) => Traces::sampled(random.clone(), context.config.telemetry.sample),
        None => Traces::off(),
    };
    let name = relay.node.clone();
    let mut node = Node::new(name.unwrap_or_else(|| environment::node(&random)));
    node.lease = relay.lease.0;
    relay::Settings {
        clock,
        random,
        failpoints: context.failpoints.clone(),
        poll_idle: relay.poll.0,
        node: S::IS_SHARED.then_some(node),
        traces,
    }
}

#[cfg(test)]
mod tests {
    use hapax::delivery::Start;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_relay_gives_an_offer_up_later_than_its_sink_does() {
        let json = json!({"timeout": "2s", "sink": {"webhook": {
            "url": "https://example.com/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        }}});
        let spec = Spec::read(&json).unwrap();
        let destination = destination("orders", &spec, &environment::clock()).unwrap();
        assert_eq!(destination.timeout, Duration::from_secs(3));
    }

    #[test]
    fn a_destination_of_the_configuration_starts_at_the_beginning_unless_it_says_otherwise() {
        let start = |start: Option<&str>| {
            let mut json = json!({"sink": {"webhook": {
                "url": "https://example.com/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            }}});
            if let Some(start) = start {
                json["start"] = json!(start);
            }
            let spec = Spec::read(&json).unwrap();
            let built = destination("orders", &spec, &environment::clock());
            built.unwrap().start
        };
        assert_eq!(start(None), Start::Beginning);
        assert_eq!(start(Some("now")), Start::Now);
        let past = "2026-01-31T12:00:00Z";
        assert_eq!(start(Some(past)), Start::At(past.parse().unwrap()));
    }
}
