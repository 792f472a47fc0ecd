//! The connection to the far database that the batches of one destination share.
//!
//! It is made by the batch that finds none, and given up by the first that
//! fails on it or is dropped half-way: with the connection goes what it was
//! doing. Statements have no
//! names, so that a pooler may stand in between.

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

/// The way to the database, and the connection while there is one.
pub(super) struct Links {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) consumer: String,
    pub(super) source: String,
    pub(super) table: Table,
    pub(super) resolver: Resolver,
    pub(super) current: Mutex<Option<Arc<Link>>>,
}

/// One connection, and how the table is written over it.
pub(super) struct Link {
    client: Client,
    driver: JoinHandle<()>,
    given_up: AtomicBool,
    consumer: String,
    source: String,
    pub(super) plan: Plan,
}

impl Links {
    /// The connection, made if there is none that lives.
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

    /// Looks the names of the hosts up before the driver does, which knows no bound for that.
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
            // Whoever waits for an answer is told why there is none.
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

/// One batch's use of a connection; unless it is done with, it is the connection's last.
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

    /// Writes the rows that are new; returns their ids.
    pub(super) async fn insert(&self, rows: &[Row<'_>]) -> Result<HashSet<String>, Failure> {
        let columns = Columns::of(rows, self.plan.binary);
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&self.consumer, Type::TEXT), (&self.source, Type::TEXT)];
        params.extend(columns.params(self.plan.binary));
        let taken = self.client.query_typed(&self.plan.insert, &params).await?;
        Ok(taken.iter().map(|row| row.get(0)).collect())
    }

    /// The hashes of those rows that the inbox knows, by id.
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
    /// Breaks off what is under way: an orderly end would wait for a server that hangs.
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl fmt::Debug for Links {
    /// Names the hosts and the database alone: an address may carry a password.
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
