//! Connections: a pool of them, with TLS where the URL asks for it, and one statement at a time.
//!
//! A [`Link`] is a connection out of the pool. Its statements are prepared once and kept, unless
//! a transaction-mode pooler stands in between: then each goes unnamed, with the types of its
//! parameters, in one message as well. What is awaited together is sent together: a *flight*.

use std::{fs, future::Future, path::Path, sync::Arc, time::Duration};

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts,
};
use hapax::{sink::BoxError, store::StoreError};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres::{Config, Row, Statement, config::SslMode, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::{
    error::{OpenError, is_wire, no_connection, store_error, unavailable},
    settings::Settings,
    value::Param,
};

/// Makes the pool; no connection is made yet.
pub(crate) fn pool(settings: &Settings) -> Result<Pool, OpenError> {
    let (mut config, root) = parse(settings)?;
    config.connect_timeout(settings.connect_max);
    config.keepalives(true);
    config.keepalives_idle(Duration::from_secs(30));
    config.tcp_user_timeout(settings.statement_max);
    if config.get_application_name().is_none() {
        config.application_name("hapax");
    }
    let manager = Manager::from_config(
        config,
        MakeRustlsConnect::new(tls(root.as_deref())?),
        ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        },
    );
    let wait = Some(settings.connect_max);
    let mut builder = Pool::builder(manager)
        .max_size(settings.connections.max(2))
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait,
            create: wait,
            recycle: wait,
        });
    if !settings.pooled {
        let bounds: Arc<str> = bounds(settings, "SET").into();
        builder = builder.post_create(Hook::async_fn(move |client, _| {
            let bounds = Arc::clone(&bounds);
            Box::pin(async move {
                let set = client.batch_execute(&bounds).await;
                set.map_err(HookError::Backend)
            })
        }));
    }
    builder.build().map_err(|error| OpenError::Settings {
        problem: error.to_string(),
    })
}

/// What bounds every transaction, as statements: for a session, or for one transaction.
pub(crate) fn bounds(settings: &Settings, set: &str) -> String {
    let millis = |time: Duration| time.as_millis().clamp(1, i32::MAX as u128);
    format!(
        "{set} statement_timeout = {}; {set} idle_in_transaction_session_timeout = {}",
        millis(settings.statement_max),
        millis(settings.idle_max),
    )
}

/// Reads the URL; `sslrootcert` and the stricter modes of libpq are taken out of it first.
fn parse(settings: &Settings) -> Result<(Config, Option<std::path::PathBuf>), OpenError> {
    let mut root = settings.root_certificates.clone();
    let (head, query) = settings.url.split_once('?').unwrap_or((&settings.url, ""));
    let mut kept = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslrootcert", path)) => root = Some(path.into()),
            // A certificate is always checked, so the strict modes are what `require` is here.
            Some(("sslmode", "verify-ca" | "verify-full")) => kept.push("sslmode=require"),
            _ => kept.push(pair),
        }
    }
    let url = if kept.is_empty() {
        head.to_owned()
    } else {
        format!("{head}?{}", kept.join("&"))
    };
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        let problem = error.to_string();
        OpenError::Settings { problem }
    })?;
    if root.is_some() && config.get_ssl_mode() == SslMode::Prefer {
        config.ssl_mode(SslMode::Require);
    }
    Ok((config, root))
}

fn tls(root: Option<&Path>) -> Result<ClientConfig, OpenError> {
    let unusable = |problem: String| OpenError::Settings { problem };
    let mut roots = RootCertStore::empty();
    match root {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let pem = fs::read(path)
                .map_err(|error| unusable(format!("certificates {}: {error}", path.display())))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let added = certificate
                    .map_err(BoxError::from)
                    .and_then(|certificate| roots.add(certificate).map_err(BoxError::from));
                added.map_err(|error| {
                    unusable(format!("certificates {}: {error}", path.display()))
                })?;
            }
        }
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// A connection out of the pool.
#[derive(Debug)]
pub(crate) struct Link {
    object: Object,
    pooled: bool,
}

/// A statement that is ready to be sent.
#[derive(Clone, Debug)]
pub(crate) enum Ready {
    Prepared(Statement),
    Unnamed(&'static str),
}

impl Link {
    pub(crate) async fn take(pool: &Pool, settings: &Settings) -> Result<Self, StoreError> {
        let object = pool.get().await.map_err(no_connection)?;
        Ok(Self {
            object,
            pooled: settings.pooled,
        })
    }

    /// Makes statements of our own ready: all of a flight must be, before the first is sent.
    pub(crate) async fn ready<const N: usize>(
        &self,
        sql: [&'static str; N],
    ) -> Result<[Ready; N], tokio_postgres::Error> {
        let mut ready = sql.map(Ready::Unnamed);
        if !self.pooled {
            for (ready, sql) in ready.iter_mut().zip(sql) {
                *ready = Ready::Prepared(self.object.prepare_cached(sql).await?);
            }
        }
        Ok(ready)
    }

    /// Sends a statement of our own and collects its rows; sent when it is first polled.
    pub(crate) async fn rows(
        &self,
        ready: &Ready,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        match ready {
            Ready::Prepared(statement) => {
                let params: Vec<&(dyn ToSql + Sync)> = params.iter().map(|it| *it as _).collect();
                self.object.query(statement, &params).await
            }
            Ready::Unnamed(sql) => {
                let typed = params.iter().map(|it| (*it as _, it.of_type()));
                let typed: Vec<(&(dyn ToSql + Sync), _)> = typed.collect();
                self.object.query_typed(sql, &typed).await
            }
        }
    }

    /// Prepares and sends one statement of our own.
    pub(crate) async fn ask(
        &self,
        sql: &'static str,
        params: &[&dyn Param],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let [ready] = self.ready([sql]).await?;
        self.rows(&ready, params).await
    }

    /// Sends statements without parameters or rows; sent when it is first polled.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.object.batch_execute(sql).await
    }

    pub(crate) fn client(&self) -> &tokio_postgres::Client {
        &self.object
    }

    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn is_pooled(&self) -> bool {
        self.pooled
    }

    /// Closes the connection instead of giving it back: nobody knows what it is in the middle of.
    pub(crate) fn discard(self) {
        drop(Object::take(self.object));
    }
}

/// Waits for a flight no longer than `max`; past that the far side is taken for gone.
pub(crate) async fn within<R>(
    max: Duration,
    flight: impl Future<Output = Result<R, tokio_postgres::Error>>,
) -> Result<R, Flight> {
    match tokio::time::timeout(max, flight).await {
        Ok(Ok(landed)) => Ok(landed),
        Ok(Err(error)) => Err(Flight::Failed(error)),
        Err(_) => Err(Flight::Lost),
    }
}

/// Why a flight did not land.
#[derive(Debug)]
pub(crate) enum Flight {
    /// The database or the wire said so.
    Failed(tokio_postgres::Error),
    /// Nothing was heard.
    Lost,
}

impl Flight {
    /// Whether it may have happened all the same.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Failed(error) => is_wire(error),
            Self::Lost => true,
        }
    }
}

impl From<Flight> for StoreError {
    fn from(flight: Flight) -> Self {
        match flight {
            Flight::Failed(error) => store_error(error),
            Flight::Lost => unavailable("the database did not answer in time"),
        }
    }
}
