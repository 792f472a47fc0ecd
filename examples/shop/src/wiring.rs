//! Puts the shop together: the only place that sees a store and a sink at once.
//!
//! What can be wrong is found out in the order in which it is cheap to find:
//! settings, folder, port, database. Nothing is served before all of it stands.

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use anyhow::Context as _;
use axum::Router;
use hapax::{
    Clock, Random,
    failpoint::Failpoints,
    limits::RETENTION_WARN,
    relay::{self, Relay},
    signature::{Signer, Verifier},
};
use hapax_http::Idempotency;
use hapax_sqlite::{Migration, Sqlite};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    announce::{self, Announcement},
    auth::Tokens,
    carriage::Carriage,
    config::{self, Config},
    database::{MIGRATIONS, RECEIVER_MIGRATIONS},
    demo::{mail_catcher, receiver::Receiver},
    destinations::{self, Described},
    failpoint,
    ids::Ids,
    retention,
    routes::{self, Shop, demo::Demo},
    secrets, server,
    shutdown::Signals,
    telemetry,
};

/// A shop that is ready to serve.
#[derive(Debug)]
pub(crate) struct Open {
    listener: TcpListener,
    router: Router,
    carriage: Carriage,
    retention: retention::Retention,
    demo: Option<DemoParts>,
    store: Sqlite,
    signals: Signals,
    announcement: String,
}

/// The demo's half of a shop.
#[derive(Debug)]
struct DemoParts {
    store: Sqlite,
    receiver: Arc<Receiver>,
    hooks: TcpListener,
    mail: TcpListener,
    folder: PathBuf,
    signer: Signer,
}

/// What every part is given.
struct Around {
    clock: Clock,
    random: Random,
    failpoints: Failpoints,
}

/// Opens everything, and says where it is.
pub(crate) async fn open(config: Config) -> anyhow::Result<Open> {
    let signals = Signals::listen().context("signals cannot be heard")?;
    let around = Around {
        clock: clock(),
        random: random(),
        failpoints: failpoint::from_environment(),
    };
    // Before anything counts: what is counted earlier is lost.
    let metrics = telemetry::count()?;
    warn_about(&config);
    let folder = &config.data_dir;
    fs::create_dir_all(folder)
        .with_context(|| format!("data directory {} cannot be made", folder.display()))?;
    let (signer, new_secret) = signer(&config)?;
    let listener = TcpListener::bind(config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    let store = store(
        &config.database,
        "shop",
        MIGRATIONS,
        &around,
        around.failpoints.clone(),
        config.group_max,
    )
    .await?;
    let demo = if config.demo {
        Some(DemoParts::open(folder, &around).await?)
    } else {
        None
    };
    let destinations = destinations(&config, demo.as_ref(), &signer, &around)?;
    let places: Vec<_> = if config.relay {
        destinations.iter().map(describe).collect()
    } else {
        Vec::new()
    };
    let announcement = announce::written(&Announcement {
        address: listener.local_addr()?,
        database: &config.database,
        destinations: &places,
        mail: demo.as_ref().map(|demo| demo.folder.as_path()),
        new_secret: new_secret.as_deref(),
        demo: config.demo,
    });
    let carriage = carry(&store, destinations, &config, &around);
    let idempotency = idempotency(&store, &config.idempotency, &around);
    let retention = retention::Retention {
        idempotency: idempotency.clone(),
        stores: [Some(&store), demo.as_ref().map(|demo| &demo.store)]
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        metrics: metrics.clone(),
    };
    let shop = Shop {
        store: store.clone(),
        ids: Ids::new(around.clock.clone(), around.random.clone()),
        inbox_tenant: config.inbox.tenant,
        carriage: carriage.clone(),
        relays: config.relay,
        probe: routes::Probe::default(),
    };
    let router = routes::router(routes::Parts {
        shop: Arc::new(shop),
        idempotency,
        tokens: Tokens::new(&config.tokens),
        sources: config.inbox.secrets,
        metrics,
        demo: demo.as_ref().map(|demo| Demo {
            receiver: Arc::clone(&demo.receiver),
            carriage: carriage.clone(),
        }),
        random: around.random,
    });
    Ok(Open {
        listener,
        router,
        carriage,
        retention,
        demo,
        store,
        signals,
        announcement,
    })
}

impl Open {
    /// Serves until a signal asks to stop, and then ends in order.
    pub(crate) async fn run(mut self) -> anyhow::Result<()> {
        let (stop, stopping) = watch::channel(false);
        let (stop_demo, demo_stopping) = watch::channel(false);
        let serving = tokio::spawn(server::serve(self.listener, self.router, stopping));
        let keeping = tokio::spawn(self.retention.keep());
        let mut demo_tasks = JoinSet::new();
        let demo_store = self.demo.as_ref().map(|demo| demo.store.clone());
        if let Some(demo) = self.demo {
            let hooks = demo.receiver.router();
            demo_tasks.spawn(server::serve(demo.hooks, hooks, demo_stopping.clone()));
            demo_tasks.spawn(mail_catcher::serve(demo.mail, demo.folder, demo_stopping));
        }

        // Who reads this may count on all of it.
        announce::print(&self.announcement);
        let signal = self.signals.heard().await;
        tracing::info!(
            signal,
            from_state = "serving",
            to_state = "draining",
            "stopping"
        );
        let ending = async {
            stop.send_replace(true);
            let _ended = serving.await;
            self.carriage.drain().await;
            stop_demo.send_replace(true);
            while demo_tasks.join_next().await.is_some() {}
            keeping.abort();
            close(&self.store).await;
            if let Some(store) = &demo_store {
                close(store).await;
            }
        };
        self.signals.unless_heard(ending).await;
        tracing::info!(from_state = "draining", to_state = "stopped", "stopped");
        Ok(())
    }
}

impl DemoParts {
    async fn open(folder: &Path, around: &Around) -> anyhow::Result<Self> {
        let mails = folder.join("mail");
        fs::create_dir_all(&mails)
            .with_context(|| format!("mail folder {} cannot be made", mails.display()))?;
        let store = store(
            &folder.join("receiver.db"),
            "receiver",
            RECEIVER_MIGRATIONS,
            around,
            // It stands for somebody else's machine: a failpoint counts the shop's commits alone.
            Failpoints::none(),
            None,
        )
        .await?;
        let loopback = (Ipv4Addr::LOCALHOST, 0);
        let secret = secrets::make().context("no randomness for a secret")?;
        let verifier = Verifier::V1(secret.clone());
        Ok(Self {
            receiver: Arc::new(Receiver::new(store.clone(), around.clock.clone(), verifier)),
            store,
            hooks: TcpListener::bind(loopback)
                .await
                .context("no port for the demo's receiver")?,
            mail: TcpListener::bind(loopback)
                .await
                .context("no port for the mail catcher")?,
            folder: mails,
            signer: Signer::V1(secret),
        })
    }
}

/// Opens a database and brings its tables up to date.
async fn store(
    path: &Path,
    namespace: &str,
    migrations: &[Migration<'_>],
    around: &Around,
    failpoints: Failpoints,
    group_max: Option<usize>,
) -> anyhow::Result<Sqlite> {
    let mut settings =
        hapax_sqlite::Settings::new(path, around.clock.clone(), around.random.clone());
    settings.failpoints = failpoints;
    settings.group_max = group_max.unwrap_or(settings.group_max);
    let store = Sqlite::open(settings)?;
    store
        .migrate(namespace, migrations)
        .await
        .with_context(|| format!("database {} has another schema", path.display()))?;
    Ok(store)
}

async fn close(store: &Sqlite) {
    if let Err(error) = store.close().await {
        tracing::error!(error = error.story(), "the store did not close well");
    }
}

/// What signs the webhooks of `--webhook`, and its text where it was made just now.
fn signer(config: &Config) -> anyhow::Result<(Signer, Option<String>)> {
    if let Some(signer) = &config.webhook.secret {
        return Ok((signer.clone(), None));
    }
    let path = config.data_dir.join("webhook.secret");
    let kept = secrets::kept(&path)
        .with_context(|| format!("webhook secret {} cannot be kept", path.display()))?;
    let shown = kept.is_new.then(|| kept.secret.reveal());
    Ok((Signer::V1(kept.secret), shown))
}

fn destinations(
    config: &Config,
    demo: Option<&DemoParts>,
    signer: &Signer,
    around: &Around,
) -> anyhow::Result<Vec<Described>> {
    let mut described = destinations::webhooks(&config.webhook, signer, &around.clock)?;
    if let Some(demo) = demo {
        let address = demo.hooks.local_addr()?;
        let schedule = config.webhook.schedule.clone();
        let signer = demo.signer.clone();
        described.push(destinations::demo(
            address,
            signer,
            schedule,
            &around.clock,
        )?);
    }
    let catcher = demo.map(|demo| demo.mail.local_addr()).transpose()?;
    let templates = config.data_dir.join("templates");
    described.extend(destinations::mail(
        config.smtp.as_ref(),
        catcher,
        &templates,
    )?);
    Ok(described)
}

fn describe((destination, place): &Described) -> (String, String) {
    (destination.name.clone(), place.clone())
}

/// Starts the relay, unless this shop is told not to carry events.
fn carry(store: &Sqlite, described: Vec<Described>, config: &Config, around: &Around) -> Carriage {
    let carriage = Carriage::default();
    if config.relay {
        let mut settings = relay::Settings::new(around.clock.clone(), around.random.clone());
        settings.failpoints = around.failpoints.clone();
        let names = described
            .iter()
            .map(|(destination, _)| destination.name.clone())
            .collect();
        let destinations = described
            .into_iter()
            .map(|(destination, _)| destination)
            .collect();
        let handle = Relay::spawn(store, destinations, &settings, &store.wake());
        carriage.start(handle, names);
    }
    carriage
}

fn idempotency(
    store: &Sqlite,
    config: &config::Idempotency,
    around: &Around,
) -> Idempotency<Sqlite> {
    let mut settings = hapax_http::Settings::new(around.clock.clone(), around.random.clone());
    settings.retention = config.retention;
    settings.wait = config.wait;
    settings.on_expired = config.on_expired;
    settings.on_store_error = config.on_store_error;
    settings.on_failure = config.on_failure;
    settings.profile = config.profile;
    settings.cache_bytes = config.cache_bytes.unwrap_or(settings.cache_bytes);
    Idempotency::new(store.clone(), settings)
}

fn warn_about(config: &Config) {
    let retention = config.idempotency.retention;
    if retention < RETENTION_WARN {
        tracing::warn!(
            ?retention,
            "a client that retries later than this runs its request again"
        );
    }
    if !config.relay {
        tracing::warn!("events wait in the outbox until a relay runs");
    }
    let lease = config.idempotency.lease;
    tracing::debug!(
        ?lease,
        "no operation of this build is phased: the lease binds nobody"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where time is passed in from"
)]
fn clock() -> Clock {
    Clock::new(SystemTime::now)
}

/// A keyed hash of a counter: nobody can tell the next number who does not know the key.
fn random() -> Random {
    let (key, count) = (RandomState::new(), AtomicU64::new(0));
    Random::new(move || key.hash_one(count.fetch_add(1, Ordering::Relaxed)))
}
