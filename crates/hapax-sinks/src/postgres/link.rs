//! The database connection that the batches of one destination share.
//!
//! The first batch that needs the connection opens it. If a batch fails on it or is dropped before
//! its end, the connection is closed, and the work of the batch is aborted. Statements are unnamed,
//! so that a pooler can be used.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{sync::Mutex, task::JoinHandle};
use tokio_postgres::{
    Client, Config,
    config::Host,
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    answer::Failure,
    rows::{Columns, Row},
    table::{Plan, Table},
};
use crate::resolve::{Resolver, any_of};

/// The settings of the database and the current connection.
pub(super) struct Links {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) consumer: String,
    pub(super) source: String,
    pub(super) table: Table,
    pub(super) resolver: Resolver,
    pub(super) current: Mutex<Option<Arc<Link>>>,
}

/// One connection, and the statement that writes to the table.
pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    given_up: AtomicBool,
    consumer: String,
    source: String,
    pub(super) plan: Plan,
}

impl Links {
    /// The current connection, or a new one.
    pub(super) async fn get(&self) -> Result<Use, Failure> {
        let mut current = self.current.lock().await;
        if let Some(link) = current.as_ref().filter(|link| link.lives()) {
            return Ok(Use::of(link));
        }
        *current = None;
        let link = Arc::new(self.connect().await?);
        let used = Use::of(&link);
        *current = Some(link);
        Ok(used)
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

    async fn connect(&self) -> Result<Link, Failure> {
        self.resolve().await?;
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        let driver = tokio::spawn(async move {
            // Callers that wait for a response receive the error of the connection.
            let _ended = connection.await;
        });
        let mut link = Link {
            client,
            driver,
            given_up: AtomicBool::new(false),
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

/// The use of a connection by one batch. Unless the batch completes, the connection is not used
/// again.
pub(super) struct Use {
    pub(super) link: Arc<Link>,
    pub(super) done: bool,
}

impl Use {
    fn of(link: &Arc<Link>) -> Self {
        let link = Arc::clone(link);
        Self { link, done: false }
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.done {
            self.link.given_up.store(true, Ordering::Release);
        }
    }
}

impl Link {
    fn lives(&self) -> bool {
        !self.client.is_closed() && !self.given_up.load(Ordering::Acquire)
    }

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

impl Drop for Link {
    /// Aborts what is in progress: an orderly close would wait for a server that hangs.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Links {
    /// Prints only the hosts and the database: the URL may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        f.debug_struct("Links")
            .field("hosts", &hosts.collect::<Vec<_>>())
            .field("database", &self.config.get_dbname())
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}
