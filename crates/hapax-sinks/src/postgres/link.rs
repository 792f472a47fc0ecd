//! The receiver's database and a connection to it.
//!
//! If a batch fails on the connection or is dropped before its end, the connection is closed, and
//! the work of the batch is aborted. Statements are unnamed, so that a pooler can be used.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use hapax::inbox::Message;
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;
use tokio_postgres::{
    Client, Config,
    config::Host,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    PostgresSettings, config,
    outcome::Failure,
    rows::{Columns, Row},
    table::{Plan, Table},
};
use crate::{
    connection::Connection,
    resolve::{Resolver, any_of},
    settings::{DestinationSettings, SettingError, reveal},
    tls,
};

/// The settings of the database.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    consumer: String,
    source: String,
    table: Table,
    resolver: Resolver,
}

/// One connection, and the statement that writes to the table.
pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    is_discarded: AtomicBool,
    pub(super) consumer: String,
    source: String,
    pub(super) plan: Plan,
}

impl Server {
    pub(super) fn new(
        settings: &PostgresSettings,
        destination: DestinationSettings,
    ) -> Result<Self, SettingError> {
        let url = reveal("url", &settings.url)?;
        let config = config::parse(url.expose_secret(), destination.timeout)?;
        let (tls, _) = tls::read(settings.ca.as_deref())?;
        let is_name = |text: &str| Message::new(text, text, "probe", b"").is_ok();
        for (setting, name) in [
            ("consumer", &settings.consumer),
            ("source", &destination.source),
        ] {
            if !is_name(name) {
                return Err(SettingError::new(setting, "must have 1 to 255 bytes"));
            }
        }
        Ok(Self {
            config,
            tls: MakeRustlsConnect::new(tls),
            table: Table::new(settings)?,
            consumer: settings.consumer.clone(),
            source: destination.source,
            resolver: destination.resolver,
        })
    }

    /// Looks up the host names before the driver does, because the driver has no timeout for that.
    async fn resolve(&self) -> Result<(), Failure> {
        if !self.config.get_hostaddrs().is_empty() {
            return Ok(());
        }
        let names = self
            .config
            .get_hosts()
            .iter()
            .filter_map(|host| match host {
                Host::Tcp(name) => Some(name.as_str()),
                Host::Unix(_) => None,
            });
        let names: Vec<_> = names.collect();
        if names.len() < self.config.get_hosts().len() {
            return Ok(());
        }
        let found = any_of(&self.resolver, &names).await;
        found.map(drop).map_err(Failure::Resolve)
    }

    pub(super) async fn connect(&self) -> Result<Link, Failure> {
        self.resolve().await?;
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        let driver = tokio::spawn(async move {
            // Callers that wait for a response receive the error of the connection.
            let _ended = connection.await;
        });
        let mut link = Link {
            client,
            driver,
            is_discarded: AtomicBool::new(false),
            consumer: self.consumer.clone(),
            source: self.source.clone(),
            plan: Plan {
                insert: String::new(),
                binary: false,
            },
        };
        link.plan = self.table.plan(&link.types(&self.table).await?)?;
        Ok(link)
    }
}

impl Link {
    /// Inserts the rows that are new. Returns their ids.
    pub(super) async fn insert(&self, rows: &[Row<'_>]) -> Result<HashSet<String>, Failure> {
        let columns = Columns::of(rows, self.plan.binary);
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&self.consumer, Type::TEXT), (&self.source, Type::TEXT)];
        params.extend(columns.params(self.plan.binary));
        let taken = self.client.query_typed(&self.plan.insert, &params).await?;
        Ok(taken.iter().map(|row| row.get(0)).collect())
    }

    /// The hashes of those rows that are in the inbox, by id.
    pub(super) async fn find(&self, rows: &[Row<'_>]) -> Result<HashMap<String, Vec<u8>>, Failure> {
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let params: [(&(dyn ToSql + Sync), Type); 3] = [
            (&self.consumer, Type::TEXT),
            (&self.source, Type::TEXT),
            (&ids, Type::TEXT_ARRAY),
        ];
        let found = self.client.query_typed(include_str!("find.sql"), &params);
        Ok(found
            .await?
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect())
    }

    async fn types(&self, table: &Table) -> Result<HashMap<String, String>, Failure> {
        let name = table.quoted();
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(&name, Type::TEXT)];
        let reading = self
            .client
            .query_typed(include_str!("columns.sql"), &params);
        let mut types = HashMap::new();
        for row in reading.await? {
            if !row.get::<_, bool>("inbox") {
                return Err(Failure::NoInbox);
            }
            if !row.get::<_, bool>("known") {
                return Err(Failure::NoTable(table.name.clone()));
            }
            if let (Some(name), Some(kind)) = (row.get("name"), row.get("type")) {
                types.insert(name, kind);
            }
        }
        Ok(types)
    }
}

impl Connection for Link {
    fn is_alive(&self) -> bool {
        !self.client.is_closed() && !self.is_discarded.load(Ordering::Acquire)
    }

    fn discard(&self) {
        self.is_discarded.store(true, Ordering::Release);
    }
}

impl Drop for Link {
    /// Aborts what is in progress: an orderly close would wait for a server that hangs.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Server {
    /// Prints only the hosts and the database: the URL may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        f.debug_struct("Server")
            .field("hosts", &hosts.collect::<Vec<_>>())
            .field("database", &self.config.get_dbname())
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}
