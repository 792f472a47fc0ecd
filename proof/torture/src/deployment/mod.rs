//! Deployment of a run: clients, shops, relays, the database server, receivers and providers.
//!
//! Each of them is a process. There is a proxy between clients and shops, shops and the server, and
//! relays and receivers, which injects network faults. Receivers and providers share no code with
//! the product: receivers and the mailbox are Python, and the providers do not use Hapax.

mod program;
mod remotes;
mod shops;
mod silent_name_server;

use std::{
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context as _, bail};
use hapax_testkit::{
    http::HttpClient,
    port::free_port,
    postgres::{Cluster, Database},
    power::Disk,
    proxy::Proxy,
    wait::Patience,
};

use crate::preload;
pub(crate) use program::{Program, died};
pub(crate) use remotes::{BROKER, COUNTER, MAILBOX, WEBHOOK_SECRET};
pub(crate) use shops::{REJECTING_TYPES, beside as shop_beside};
pub(crate) use silent_name_server::{SilentNameServer, UNRESOLVED};

/// The maximum time for a start or a stop on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The receiver that relays deliver to.
pub(crate) const FEED: usize = 1;
/// How long a process keeps its leases without a heartbeat.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Retention of a random run: rows are deleted while the run continues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    pub(crate) keys: Duration,
    pub(crate) events: Duration,
}

/// Retention of keys: longer than clients remember them, including jumps of the clock and late
/// responses. On a busy machine, a client that is killed repeatedly may return after forty seconds.
pub(crate) const RETENTION: Retention = Retention {
    keys: Duration::from_mins(2),
    events: Duration::from_mins(1),
};

/// Which store the rows are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

/// The folder of the programs under test.
#[derive(Clone, Debug)]
pub(crate) struct Binaries(pub(crate) PathBuf);

/// The processes of a run, and the network links between them.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) store: Store,
    pub(crate) folder: PathBuf,
    /// The clients of the shops, and the SQL-contract client.
    pub(crate) clients: Vec<Program>,
    pub(crate) shops: Vec<Program>,
    pub(crate) relays: Vec<Program>,
    /// Receivers, the mailbox, the providers, the overloaded receiver; a broker and its reader.
    pub(crate) remotes: Vec<Program>,
    pub(crate) links: Links,
    pub(crate) server: Option<Server>,
    pub(crate) http: HttpClient,
    /// Whether the first shop has the demo, whose receiver gets every event as well.
    pub(crate) has_demo: bool,
    /// Whether shops and relays can change to another release.
    pub(crate) has_releases: bool,
    /// The name server of the relays, which never responds.
    pub(crate) name_server: Option<SilentNameServer>,
    /// The preloaded library that injects machine faults.
    pub(crate) fault_library: PathBuf,
    ports: Ports,
}

/// The network links between them.
#[derive(Debug)]
pub(crate) struct Links {
    /// From the clients to each shop.
    pub(crate) shops: Vec<Proxy>,
    /// From each shop to the server.
    pub(crate) databases: Vec<Proxy>,
    /// From the relays to the server.
    pub(crate) relay_database: Option<Proxy>,
    /// From the relays and shops to each receiver of webhooks and to the broker.
    pub(crate) receivers: Vec<Proxy>,
}

/// The PostgreSQL server of the store, which may crash.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) cluster: Cluster,
    pub(crate) url: String,
    database: Option<Database>,
}

#[derive(Clone, Debug)]
struct Ports {
    shops: Vec<u16>,
    /// Of each relay: the ports of its metrics and of its admin API.
    relays: Vec<[u16; 2]>,
    receivers: Vec<u16>,
    mailbox: u16,
    payment: u16,
    shipping: u16,
    counter: u16,
    /// There is a broker only if there are separate relay processes, which deliver to it.
    broker: Option<u16>,
}

impl Binaries {
    /// The folder of this program: all programs are built together.
    pub(crate) fn beside() -> anyhow::Result<Self> {
        let this = std::env::current_exe()?;
        let folder = this.parent().context("the program has no parent folder")?;
        Self::of(folder.to_owned())
    }

    /// The programs in this folder.
    pub(crate) fn of(folder: PathBuf) -> anyhow::Result<Self> {
        for name in ["shop", "hapax", "payment-provider", "shipping-provider"] {
            if !folder.join(name).is_file() {
                bail!(
                    "{} has no `{name}`: build the workspace first",
                    folder.display()
                );
            }
        }
        Ok(Self(folder))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates the tables of Hapax in a database.
    pub(crate) fn migrate(&self, url: &str) -> anyhow::Result<()> {
        let mut hapax = std::process::Command::new(self.path("hapax"));
        let migrated = hapax.args(["migrate", "--database", url]).output()?;
        if !migrated.status.success() {
            bail!(
                "hapax migrate: {}",
                String::from_utf8_lossy(&migrated.stderr)
            );
        }
        Ok(())
    }
}

impl Store {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    /// The number of shops: an SQLite file belongs to one process.
    fn instances(self) -> usize {
        match self {
            Self::Sqlite => 1,
            Self::Postgres => 2,
        }
    }
}

impl Deployment {
    /// Builds the deployment; only the server, the receivers and the providers run yet.
    pub(crate) async fn build(
        store: Store,
        folder: &Path,
        binaries: &Binaries,
        seed: u64,
        seeded: Option<&str>,
        retention: Option<Retention>,
    ) -> anyhow::Result<Self> {
        Self::on(store, folder, binaries, seed, seeded, retention, None).await
    }

    /// The same, on a disk which may lose what was not flushed.
    pub(crate) async fn on(
        store: Store,
        folder: &Path,
        binaries: &Binaries,
        seed: u64,
        seeded: Option<&str>,
        retention: Option<Retention>,
        disk: Option<&Disk>,
    ) -> anyhow::Result<Self> {
        let ports = Ports::free(store);
        let fault_library = preload::build("machine_faults", folder)?;
        let server = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Server::start(disk, &fault_library).await),
        };
        let mut deployment = Self {
            store,
            folder: folder.to_owned(),
            clients: Vec::new(),
            shops: Vec::new(),
            relays: Vec::new(),
            remotes: Vec::new(),
            links: Links::open(&ports, server.as_ref()),
            server,
            http: HttpClient::new(),
            has_demo: false,
            has_releases: false,
            name_server: match store {
                Store::Sqlite => None,
                Store::Postgres => SilentNameServer::start(folder)?,
            },
            fault_library,
            ports,
        };
        deployment.start_remotes(binaries, seed).await?;
        deployment.shops = shops::shops(&deployment, binaries)?;
        deployment.relays = shops::relays(&deployment, binaries, retention).await?;
        deployment.expose_to_faults(disk);
        deployment.clients = shops::clients(&deployment, seed)?;
        if disk.is_none() {
            deployment
                .clients
                .extend(shops::sql_contract_client(&deployment, seed)?);
        }
        if let Some(bug) = seeded {
            deployment.seed_bug(bug);
        }
        Ok(deployment)
    }

    /// From its next start on, the first shop has the demo.
    pub(crate) fn add_demo(&mut self) {
        self.shops[0].remove_argument("--no-demo");
        self.has_demo = true;
    }

    /// Shops and relays may change to the programs in this folder, and back.
    pub(crate) fn has_another_release(&mut self, folder: &Path) -> anyhow::Result<()> {
        let programs = self.shops.iter_mut().chain(&mut self.relays);
        for program in programs {
            program.has_other(folder)?;
        }
        self.has_releases = true;
        Ok(())
    }

    /// Starts every process that no fault keeps down.
    pub(crate) async fn up(&mut self) -> anyhow::Result<()> {
        for program in self
            .remotes
            .iter_mut()
            .chain(&mut self.shops)
            .chain(&mut self.relays)
        {
            program.revive()?;
            program.start()?;
        }
        for port in self.remote_ports() {
            listens(port).await;
        }
        for (shop, port) in self.shops.iter_mut().zip(&self.ports.shops) {
            while let Some(status) = is_ready(&self.http, shop, *port).await? {
                if !shop.exited_at_start(status)? {
                    bail!("{} ended before it was ready: {status}", shop.name);
                }
                shop.start()?;
            }
        }
        Ok(())
    }

    /// Starts everything, and the clients as soon as the shops are ready.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<()> {
        self.up().await?;
        self.clients.iter_mut().try_for_each(Program::start)
    }

    /// The port of a shop.
    pub(crate) fn shop_port(&self, at: usize) -> u16 {
        self.ports.shops[at]
    }

    /// The address of a shop, without a proxy.
    pub(crate) fn shop_address(&self, at: usize) -> String {
        format!("127.0.0.1:{}", self.shop_port(at))
    }

    /// The ports of a relay's metrics and of its admin API.
    pub(crate) fn relay_ports(&self, at: usize) -> [u16; 2] {
        self.ports.relays[at]
    }

    /// Files of the shops; several instances share one folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// An address of a provider.
    pub(crate) fn provider(&self, is_payment: bool, path: &str) -> String {
        let Ports {
            payment, shipping, ..
        } = &self.ports;
        format!(
            "http://127.0.0.1:{}{path}",
            if is_payment { payment } else { shipping }
        )
    }

    /// Sends a command to a receiver of webhooks, as soon as it listens.
    pub(crate) async fn tell_receiver(&self, at: usize, path: &str) -> anyhow::Result<()> {
        let url = format!("http://127.0.0.1:{}{path}", self.ports.receivers[at]);
        let patience = Patience::within(PATIENCE);
        while self.http.get(&url).await.is_err() {
            patience.pause().await;
        }
        Ok(())
    }

    /// Makes the receivers and the mailbox stop injecting faults.
    pub(crate) async fn stop_receiver_faults(&self) -> anyhow::Result<()> {
        remotes::stop_faults(self).await
    }

    /// Starts the receivers, the providers and the broker, and waits until they listen.
    async fn start_remotes(&mut self, binaries: &Binaries, seed: u64) -> anyhow::Result<()> {
        self.remotes = remotes::programs(self, binaries, seed)?;
        for remote in &mut self.remotes {
            remote.start()?;
        }
        for port in self.remote_ports() {
            listens(port).await;
        }
        Ok(())
    }

    /// Puts the shops on a disk that may lose what was not flushed. Without such a disk, shops and
    /// relays run with the library that causes faults, and keys are kept for a limited time.
    fn expose_to_faults(&mut self, disk: Option<&Disk>) {
        let library = self.fault_library.clone();
        match disk {
            None => {
                for shop in &mut self.shops {
                    shop.add_argument(format!("--retention={}s", RETENTION.keys.as_secs()));
                }
                for programs in [&mut self.shops, &mut self.relays] {
                    let exposed = programs
                        .drain(..)
                        .map(|it| it.with_machine_faults(&library));
                    *programs = exposed.collect();
                }
            }
            Some(disk) if self.store == Store::Sqlite => {
                self.shops = self.shops.drain(..).map(|it| it.on(disk)).collect();
            }
            Some(_) => {}
        }
    }

    /// Seeds a bug in the programs that are tested, and in their clients.
    fn seed_bug(&mut self, bug: &str) {
        for programs in [&mut self.shops, &mut self.relays, &mut self.clients] {
            let planted = programs.drain(..).map(|it| it.with("HAPAX_SEEDED", bug));
            *programs = planted.collect();
        }
    }

    fn remote_ports(&self) -> Vec<u16> {
        let Ports {
            receivers,
            mailbox,
            payment,
            shipping,
            counter,
            broker,
            ..
        } = &self.ports;
        let others = [*mailbox, *payment, *shipping, *counter];
        [&receivers[..], &others, broker.as_slice()].concat()
    }
}

impl Ports {
    /// Ports that are free now.
    fn free(store: Store) -> Self {
        let many = |count: usize| (0..count).map(|_| free_port()).collect::<Vec<_>>();
        Self {
            shops: many(store.instances()),
            relays: many(4).chunks_exact(2).map(|it| [it[0], it[1]]).collect(),
            receivers: many(2),
            mailbox: free_port(),
            payment: free_port(),
            shipping: free_port(),
            counter: free_port(),
            broker: (store == Store::Postgres).then(free_port),
        }
    }
}

impl Links {
    /// Opens the proxies.
    fn open(ports: &Ports, server: Option<&Server>) -> Self {
        let to = |port: &u16| Proxy::to(format!("127.0.0.1:{port}"));
        let database = |server: &Server| Proxy::to_postgres(server.cluster.address());
        Self {
            shops: ports.shops.iter().map(to).collect(),
            databases: server
                .iter()
                .flat_map(|it| ports.shops.iter().map(|_| database(it)))
                .collect(),
            relay_database: server.map(database),
            receivers: ports
                .receivers
                .iter()
                .chain(&ports.broker)
                .map(to)
                .collect(),
        }
    }
}

impl Server {
    async fn start(disk: Option<&Disk>, fault_library: &Path) -> Self {
        let mut settings = vec![("max_connections", "60"), ("log_lock_waits", "on")];
        let cluster = if let Some(disk) = disk {
            Cluster::start_on(disk, &settings).await
        } else {
            // After a crash, one call flushes all files: one call for each takes ten seconds.
            settings.push(("recovery_init_sync_method", "syncfs"));
            Cluster::start_with_faults(fault_library, &settings).await
        };
        let database = Database::on(&cluster.url()).await;
        Self {
            url: database.url(),
            database: Some(database),
            cluster,
        }
    }

    pub(crate) fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The database is removed with its server.
        std::mem::forget(self.database.take());
    }
}

/// Waits until a shop is ready; returns its exit status if it ended before that.
pub(crate) async fn is_ready(
    http: &HttpClient,
    shop: &mut Program,
    port: u16,
) -> anyhow::Result<Option<ExitStatus>> {
    let url = format!("http://127.0.0.1:{port}/readyz");
    let patience = Patience::within(PATIENCE);
    loop {
        if let Ok(response) = http.get(&url).await
            && response.status == 200
        {
            return Ok(None);
        }
        if let Some(status) = shop.ended()? {
            return Ok(Some(status));
        }
        patience.pause().await;
    }
}

/// Waits until the port accepts connections.
pub(crate) async fn listens(port: u16) {
    let patience = Patience::within(PATIENCE);
    while tokio::net::TcpStream::connect(("127.0.0.1", port))
        .await
        .is_err()
    {
        patience.pause().await;
    }
}
