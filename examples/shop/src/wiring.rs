//! Builds the shop; the only module that uses both a store and a sink.
//!
//! The cheapest checks come first: settings, data directory, port, database. Nothing is served
//! before all parts are ready.

use std::{fs, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::Router;
use hapax::{
    limits::{GRACE, RETENTION_WARN},
    poll::Polling,
    relay::{self, Destination, Relay},
    saga::{self, Runner, RunnerHandle},
    signature::Signer,
};
use hapax_http::{Completer, Idempotency};
use hapax_otlp::{Exporter, Exporting};
use hapax_postgres::Schema;
use hapax_runtime::{shutdown::Signals, telemetry};
use hapax_sqlite::Sqlite;
use metrics_exporter_prometheus::PrometheusHandle;
use secrecy::ExposeSecret as _;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    announce::{self, Announcement},
    auth::Tokens,
    catalogue, checkout,
    config::{self, Config, DatabaseLocation},
    console::{self, Operations},
    customers::{self, Customers},
    database::{Database, postgres, sqlite},
    demo,
    destinations::{self, Described},
    files,
    ids::Ids,
    polling,
    providers::Providers,
    relay_handle::RelayStatus,
    retention,
    routes::{self, Shop, demo::Demo},
    runtime::Runtime,
    secrets, server,
    uploads::{self, Folder},
};

/// The shortest lease of a checkout; a call to a provider waits at most half of it.
const LEASE_MIN: Duration = Duration::from_secs(2);

/// The parts of a shop that are set up before its database is opened.
struct Bootstrap {
    config: Config,
    runtime: Runtime,
    signals: Signals,
    metrics: PrometheusHandle,
    listener: TcpListener,
    signer: Signer,
    new_secret: Option<String>,
    exporting: Option<Exporting>,
}

/// A shop that is ready to serve.
#[derive(Debug)]
struct ReadyShop<D: Database> {
    listener: TcpListener,
    router: Router,
    operations: Operations,
    polling: Polling<D>,
    relay_handle: RelayStatus,
    checkouts: Option<RunnerHandle>,
    retention: retention::Retention<D>,
    completer: Completer<D, Router>,
    customers: Option<Customers>,
    demo: Option<demo::Parts>,
    store: D,
    signals: Signals,
    announcement: String,
    exporting: Option<Exporting>,
}

/// Opens a shop on the configured database, and serves until a signal arrives.
pub(crate) async fn run(config: Config, exporter: Option<Exporter>) -> anyhow::Result<()> {
    let ground = Bootstrap::lay(config, exporter).await?;
    match &ground.config.storage.place {
        DatabaseLocation::File(path) => {
            let settings = file(path.into(), &ground);
            let store = sqlite::open(settings, "shop", sqlite::MIGRATIONS).await?;
            Box::pin(open(store, ground)).await?.run().await
        }
        DatabaseLocation::Server(url) => {
            let settings = server(url.expose_secret(), &ground);
            let store = postgres::open(settings, &ground.config.storage.place).await?;
            Box::pin(open(store, ground)).await?.run().await
        }
    }
}

impl Bootstrap {
    async fn lay(config: Config, exporter: Option<Exporter>) -> anyhow::Result<Self> {
        let variables: Vec<_> = std::env::vars_os().collect();
        let signals = Signals::listen().context("cannot install signal handlers")?;
        let sample = exporter.as_ref().map(|_| config.telemetry.sample);
        let runtime = Runtime::of_process(&variables, sample);
        // The recorder must be installed first, because earlier counts are lost.
        let metrics = telemetry::count()?;
        warn_about(&config);
        let folder = &config.data_dir;
        files::make_private(folder)
            .with_context(|| format!("data directory {} cannot be created", folder.display()))?;
        let (signer, new_secret) = signer(&config)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        Ok(Self {
            config,
            runtime,
            signals,
            metrics,
            listener,
            signer,
            new_secret,
            exporting: exporter.map(Exporter::spawn),
        })
    }
}

/// Builds a shop on an open store.
async fn open<D: Database>(store: D, ground: Bootstrap) -> anyhow::Result<ReadyShop<D>> {
    let demo = open_demo(&ground.config, &ground.runtime).await?;
    let uploads = uploads(&ground.config, &ground.runtime)?;
    let own = demo.as_ref().map(|demo| demo.simulators.places());
    let providers = ground.config.providers.clone().or(own.transpose()?);
    let (config, runtime) = (&ground.config, &ground.runtime);
    let console = console::settings(config, runtime, &ground.listener, &ground.metrics)?;
    let customers = open_customers(&store, &ground, console.is_some())?;
    let console = customers::with_operations(console, customers.as_ref());
    let destinations = all_destinations(&store, &uploads, &ground, demo.as_ref())?;
    let destinations = customers::with_destination(destinations, customers.as_ref());
    let served = (console.is_some(), customers.as_ref().map(Customers::url));
    let announcement = announcement(&ground, &destinations, &providers, demo.as_ref(), served)?;
    let destinations: Vec<Destination> = destinations.into_iter().map(|(it, _)| it).collect();
    let operations = Operations::new(store.admin()?, &destinations, console, config, runtime);
    let (config, runtime) = (ground.config, ground.runtime);
    let (metrics, listener) = (ground.metrics, ground.listener);
    let at = listener.local_addr()?;
    let relay_handle = carry(&store, &destinations, &config, &runtime, at);
    let polling = polling::of(&store, &runtime);
    let polled = polling::routes(&polling, &runtime);
    let idempotency = idempotency(&store, &config, &runtime);
    let (ids, wired) = (ids(&runtime), Providers::at(&providers));
    let checkouts = check_out(&store, &wired, &ids, &config, &runtime);
    let retention = retention(&store, &uploads, &idempotency, demo.as_ref(), &metrics);
    let shop = shop(
        &store,
        wired,
        uploads,
        ids,
        &relay_handle,
        &config,
        &runtime,
    );
    let completer = completer(&shop, &idempotency, &config, &runtime);
    let router = routes::router(routes::Parts {
        shop,
        idempotency,
        tokens: Tokens::new(&config.tokens),
        rate_limit: config.rate_limit,
        claims: config.idempotency.claims,
        sources: config.inbox.secrets,
        dedupe: config.inbox.dedupe,
        metrics,
        demo: demo.as_ref().map(|demo| demo_state(demo, &relay_handle)),
        random: runtime.random,
    });
    Ok(ReadyShop {
        listener,
        router: customers::with_portal(operations.add_to(router.merge(polled)), customers.as_ref()),
        operations,
        polling,
        relay_handle,
        checkouts,
        retention,
        completer,
        customers: customers.filter(|_| config.relay),
        demo,
        store,
        signals: ground.signals,
        announcement,
        exporting: ground.exporting,
    })
}

/// Opens the endpoints of customers and their portal, if it is served.
fn open_customers<D: Database>(
    store: &D,
    ground: &Bootstrap,
    is_open: bool,
) -> anyhow::Result<Option<Customers>> {
    let (config, runtime) = (&ground.config, &ground.runtime);
    let own = format!("http://{}", ground.listener.local_addr()?);
    let url = customers::url(config, own);
    let customers = url.map(|url| Customers::open(store, config, runtime, url, is_open));
    customers.transpose()
}

fn ids(runtime: &Runtime) -> Ids {
    Ids::new(runtime.clock.clone(), runtime.random.clone())
}

async fn open_demo(config: &Config, runtime: &Runtime) -> anyhow::Result<Option<demo::Parts>> {
    if !config.demo {
        return Ok(None);
    }
    let (clock, random) = (runtime.clock.clone(), runtime.random.clone());
    let (folder, providers) = (&config.data_dir, &config.providers);
    let opened = demo::Parts::open(folder, clock, random, providers, config.requests);
    opened.await.map(Some)
}

impl<D: Database> ReadyShop<D> {
    /// Serves until a signal arrives, and then shuts down in order.
    async fn run(mut self) -> anyhow::Result<()> {
        let (stop, stopping) = watch::channel(false);
        let (stop_demo, demo_stopping) = watch::channel(false);
        let mut operating = self.operations.spawn(&stopping);
        let serving = tokio::spawn(server::serve(self.listener, self.router, stopping));
        let keeping = tokio::spawn(self.retention.keep());
        let completing = tokio::spawn(self.completer.run());
        let dispatching = self.customers;
        let dispatching = dispatching.map(|it| tokio::spawn(it.dispatch(demo_stopping.clone())));
        let demo_store = self.demo.as_ref().map(|demo| demo.store.clone());
        let demo = self.demo.map(|demo| demo.serve(demo_stopping));

        // All parts are ready when this is printed.
        announce::print(&self.announcement);
        let signal = self.signals.stopped().await;
        tracing::info!(
            signal,
            from_state = "serving",
            to_state = "draining",
            "stopping"
        );
        let ending = async {
            stop.send_replace(true);
            self.polling.close();
            completing.abort();
            let _ended = serving.await;
            if let Some(checkouts) = self.checkouts {
                checkouts.drain().await;
            }
            self.relay_handle.drain().await;
            while operating.join_next().await.is_some() {}
            stop_demo.send_replace(true);
            if let Some(dispatching) = dispatching {
                let _ended = dispatching.await;
            }
            if let Some(mut demo) = demo {
                while demo.join_next().await.is_some() {}
            }
            keeping.abort();
            close(&self.store).await;
            if let Some(store) = &demo_store {
                close::<Sqlite>(store).await;
            }
            if let Some(exporting) = self.exporting {
                exporting.end().await;
            }
        };
        self.signals.unless_stopped(ending).await;
        tracing::info!(from_state = "draining", to_state = "stopped", "stopped");
        Ok(())
    }
}

/// Returns the settings for a SQLite file.
fn file(path: PathBuf, ground: &Bootstrap) -> hapax_sqlite::Settings {
    let Runtime {
        clock,
        random,
        failpoints,
        ..
    } = &ground.runtime;
    let mut settings = hapax_sqlite::Settings::new(path, clock.clone(), random.clone());
    settings.failpoints = failpoints.clone();
    let storage = &ground.config.storage;
    settings.group_max = storage.group_max.unwrap_or(settings.group_max);
    settings.merges_beside = storage.merges_beside;
    settings.keyring = storage.keyring.clone();
    settings.event_check = catalogue::event_check();
    settings
}

/// Returns the settings for a PostgreSQL database.
fn server(url: &str, ground: &Bootstrap) -> hapax_postgres::Settings {
    let Runtime {
        clock,
        random,
        failpoints,
        ..
    } = &ground.runtime;
    let mut settings = hapax_postgres::Settings::new(url, clock.clone(), random.clone());
    settings.failpoints = failpoints.clone();
    settings.wait = ground.config.idempotency.wait;
    let storage = &ground.config.storage;
    settings.group_max = storage.group_max.unwrap_or(settings.group_max);
    settings.keyring = storage.keyring.clone();
    settings.event_check = catalogue::event_check();
    settings.connections = storage.connections.unwrap_or(settings.connections);
    settings.pooled = storage.pooled;
    settings.schema = if storage.makes_tables {
        Schema::Apply
    } else {
        Schema::Check
    };
    settings
}

async fn close<D: Database>(store: &D) {
    if let Err(error) = Database::close(store).await {
        tracing::error!(error = error.error_chain(), "cannot close the store");
    }
}

/// Opens the folder of uploaded files.
fn uploads(config: &Config, runtime: &Runtime) -> anyhow::Result<Folder> {
    let path = config.data_dir.join("uploads");
    let (clock, random) = (runtime.clock.clone(), runtime.random.clone());
    let cannot = format!("upload folder {} cannot be created", path.display());
    Folder::open(path, clock, random).context(cannot)
}

/// Returns the signer for the webhooks of `--webhook`, and its secret if this start created it.
fn signer(config: &Config) -> anyhow::Result<(Signer, Option<String>)> {
    if let Some(signer) = &config.webhook.secret {
        return Ok((signer.clone(), None));
    }
    let path = config.data_dir.join("webhook.secret");
    let kept = secrets::kept(&path)
        .with_context(|| format!("cannot read or write webhook secret {}", path.display()))?;
    let shown = kept.is_new.then(|| kept.secret.reveal());
    Ok((Signer::V1(kept.secret), shown))
}

/// Returns the configured destinations, those of the demo, and the one that makes thumbnails.
fn all_destinations<D: Database>(
    store: &D,
    uploads: &Folder,
    ground: &Bootstrap,
    demo: Option<&demo::Parts>,
) -> anyhow::Result<Vec<Described>> {
    let Bootstrap {
        config,
        runtime,
        signer,
        ..
    } = ground;
    let mut destinations = destinations(config, demo, signer, runtime)?;
    let failpoints = runtime.failpoints.clone();
    let thumbnails = uploads::sink(store.clone(), uploads.clone(), failpoints, config.requests)?;
    let schedule = config.thumbnail_schedule.clone();
    destinations.push(destinations::thumbnails(thumbnails, schedule)?);
    Ok(destinations)
}

fn destinations(
    config: &Config,
    demo: Option<&demo::Parts>,
    signer: &Signer,
    runtime: &Runtime,
) -> anyhow::Result<Vec<Described>> {
    let mut described = destinations::webhooks(&config.webhook, signer, &runtime.clock)?;
    if let Some(demo) = demo {
        let address = demo.hooks.local_addr()?;
        let schedule = config.webhook.schedule.clone();
        described.push(destinations::demo(
            address,
            &demo.signer,
            schedule,
            &runtime.clock,
        )?);
    }
    let catcher = demo.map(|demo| demo.mail.local_addr()).transpose()?;
    let templates = config.data_dir.join("templates");
    described.extend(destinations::mail(
        config.smtp.as_ref(),
        catcher,
        &templates,
        config.smtp_schedule.clone(),
    )?);
    Ok(described)
}

/// Returns the text that is printed when the shop is ready.
fn announcement(
    ground: &Bootstrap,
    destinations: &[Described],
    providers: &config::Providers,
    demo: Option<&demo::Parts>,
    (has_console, portal): (bool, Option<&str>),
) -> anyhow::Result<String> {
    let config = &ground.config;
    let places: Vec<_> = if config.relay {
        destinations.iter().map(describe).collect()
    } else {
        Vec::new()
    };
    Ok(announce::written(&Announcement {
        address: ground.listener.local_addr()?,
        database: &config.storage.place,
        destinations: &places,
        providers: &providers.named(),
        mail: demo.map(|demo| demo.folder.as_path()),
        new_secret: ground.new_secret.as_deref(),
        portal,
        console: has_console,
        demo: config.demo,
    }))
}

fn describe((destination, place): &Described) -> (String, String) {
    (destination.name.clone(), place.clone())
}

/// Starts the relay, unless the configuration turns it off.
fn carry<D: Database>(
    store: &D,
    destinations: &[Destination],
    config: &Config,
    runtime: &Runtime,
    address: SocketAddr,
) -> RelayStatus {
    let relay_handle = RelayStatus::default();
    if config.relay {
        let clock = store.relay_clock(&runtime.clock);
        let mut settings = relay::Settings::new(clock, runtime.random.clone());
        settings.failpoints = runtime.failpoints.clone();
        settings.traces = runtime.traces.clone();
        if matches!(config.storage.place, DatabaseLocation::Server(_)) {
            settings.node = Some(relay::Node::new(node(address)));
        }
        let handle = Relay::spawn(store, destinations.to_vec(), &settings, &store.notifier());
        relay_handle.start(handle, destinations);
    }
    relay_handle
}

/// Starts the runner of checkouts, if both providers are configured and the relay is turned on.
fn check_out<D: Database>(
    store: &D,
    providers: &Providers,
    ids: &Ids,
    config: &Config,
    runtime: &Runtime,
) -> Option<RunnerHandle> {
    let (payments, shipping) = providers.both().filter(|_| config.relay)?;
    let clock = store.relay_clock(&runtime.clock);
    let mut settings = saga::Settings::new(clock, runtime.random.clone());
    settings.failpoints = runtime.failpoints.clone();
    settings.traces = runtime.traces.clone();
    settings.lease = config.idempotency.lease.max(LEASE_MIN);
    let definition = checkout::definition(payments, shipping, ids);
    let wake = store.notifier();
    Some(Runner::spawn(store, vec![definition], settings, &wake))
}

/// Returns the node name of this shop, which operators see: host name and port.
///
/// Another instance may have the same host name and port at another address, so the relay does not
/// rely on the name alone to distinguish processes.
fn node(address: SocketAddr) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.unwrap_or_else(|_| "localhost".to_owned());
    format!("{}:{}", host.trim(), address.port())
}

/// Returns the task that deletes rows and files whose retention is over.
fn retention<D: Database>(
    store: &D,
    uploads: &Folder,
    idempotency: &Idempotency<D>,
    demo: Option<&demo::Parts>,
    metrics: &PrometheusHandle,
) -> retention::Retention<D> {
    retention::Retention {
        idempotency: idempotency.clone(),
        store: store.clone(),
        uploads: uploads.clone(),
        receiver: demo.map(|demo| demo.store.clone()),
        metrics: metrics.clone(),
    }
}

/// Returns the state of the demo's routes.
fn demo_state(demo: &demo::Parts, relay_handle: &RelayStatus) -> Demo {
    Demo {
        receiver: Arc::clone(&demo.receiver),
        relay_handle: relay_handle.clone(),
    }
}

/// Returns what the routes of the shop share.
fn shop<D: Database>(
    store: &D,
    providers: Providers,
    uploads: Folder,
    ids: Ids,
    relay_handle: &RelayStatus,
    config: &Config,
    runtime: &Runtime,
) -> Arc<Shop<D>> {
    Arc::new(Shop {
        store: store.clone(),
        providers,
        failpoints: runtime.failpoints.clone(),
        uploads,
        ids,
        inbox_tenant: config.inbox.tenant.clone(),
        traces: runtime.traces.clone(),
        requests: config.requests,
        relay_handle: relay_handle.clone(),
        relays: config.relay,
        probe: routes::Probe::default(),
    })
}

/// Returns the task that resumes requests whose client does not retry.
fn completer<D: Database>(
    shop: &Arc<Shop<D>>,
    idempotency: &Idempotency<D>,
    config: &Config,
    runtime: &Runtime,
) -> Completer<D, Router> {
    let resumed = routes::resumed(shop, idempotency, runtime.random.clone());
    // A shorter lease lets the completer resume sooner.
    let grace = config.idempotency.lease.min(GRACE);
    Completer::new(idempotency, resumed).grace(grace)
}

fn idempotency<D: Database>(
    store: &D,
    Config {
        idempotency: config,
        requests,
        ..
    }: &Config,
    runtime: &Runtime,
) -> Idempotency<D> {
    let mut settings = hapax_http::Settings::new(runtime.clock.clone(), runtime.random.clone());
    settings.log = *requests;
    settings.retention = config.retention;
    settings.wait = config.wait;
    settings.lease = config.lease;
    settings.on_expired = config.on_expired;
    settings.on_store_error = config.on_store_error;
    settings.on_failure = config.on_failure;
    settings.profile = config.profile;
    settings.fingerprint = config.fingerprint;
    settings.cache_bytes = config.cache_bytes.unwrap_or(settings.cache_bytes);
    settings.quota = config.quota;
    settings.traces = runtime.traces.clone();
    Idempotency::new(store.clone(), settings)
}

fn warn_about(config: &Config) {
    let retention = config.idempotency.retention;
    if retention < RETENTION_WARN {
        tracing::warn!(
            ?retention,
            "a client that retries after the retention runs its request again"
        );
    }
    if matches!(config.storage.place, DatabaseLocation::Server(_))
        && config.providers.payment.is_none()
    {
        tracing::info!(
            "another instance on this database needs the same providers: give all of them \
             --payment-provider and --shipping-provider"
        );
    }
    if !config.relay {
        tracing::warn!("no relay runs: events stay in the outbox");
    }
}
