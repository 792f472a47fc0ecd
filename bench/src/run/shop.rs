//! Builds and starts the shop, and counts its orders.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context as _, bail, ensure};
use hapax_testkit::postgres::Database;

use crate::load::{Connection, Request};

use super::{
    Bench, Store,
    folder::Folder,
    service::{Service, free_address},
};

/// The bearer token of the requests.
pub(super) const TOKEN: &str = "bench";
/// Number of orders per page of the list: the maximum that the shop allows.
const PAGE: usize = 200;
/// The profile of the programs that are published.
const DIST: &str = "dist";

/// Builds a program in the profile of this program and returns its path, in the folder of this
/// program.
pub(super) fn build(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name(name);
    let profile = profile(&program);
    let build = [
        "build",
        "--profile",
        profile,
        "--quiet",
        "--package",
        package,
    ];
    let status = Command::new("cargo")
        .args(build)
        .status()
        .context("cannot run cargo")?;
    ensure!(
        status.success(),
        "{name} does not build: cargo {}",
        build.join(" ")
    );
    if !program.exists() {
        bail!(
            "{} is missing: cargo {}, or use --{name}",
            program.display(),
            build.join(" ")
        );
    }
    Ok(program)
}

/// The profile in which a program was built: `dist` in the folder of that name, otherwise `release`.
fn profile(program: &Path) -> &'static str {
    let folder = program.parent().and_then(Path::file_name);
    if folder.is_some_and(|folder| folder == DIST) {
        DIST
    } else {
        "release"
    }
}

/// A shop with its folder and, on PostgreSQL, its database.
#[derive(Debug)]
pub(super) struct Shop {
    /// The process. It is the first field, so it is killed before its database is removed.
    pub(super) service: Service,
    database: Option<Arc<Database>>,
    _folder: Folder,
}

impl Shop {
    /// Starts a shop that only handles requests: no relay, no demo, an empty database.
    pub(super) async fn bare(
        bench: &Bench,
        store: Store,
        folder: Folder,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let database = match store {
            Store::Sqlite => None,
            Store::Postgres => Some(Arc::new(bench.server().await?.database().await?)),
        };
        Self::on(bench, database, folder, settings).await
    }

    /// Starts another shop on the same PostgreSQL database.
    pub(super) async fn beside(&self, bench: &Bench, folder: Folder) -> anyhow::Result<Self> {
        Self::on(bench, self.database.clone(), folder, &[]).await
    }

    async fn on(
        bench: &Bench,
        database: Option<Arc<Database>>,
        folder: Folder,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new(bench.shop()?);
        command.args([
            "--no-demo",
            "--no-relay",
            "--token",
            "bench=bench",
            "--log-level",
            "warn",
        ]);
        command.envs(settings.iter().copied());
        if let Some(database) = &database {
            command.args(["--database", &database.url()]);
        }
        let service = start(command, folder.path()).await?;
        Ok(Self {
            service,
            database,
            _folder: folder,
        })
    }

    /// The address of the shop.
    pub(super) fn address(&self) -> SocketAddr {
        self.service.address
    }

    /// The database, if the shop uses PostgreSQL.
    pub(super) fn database(&self) -> Option<&Database> {
        self.database.as_deref()
    }
}

/// Starts the shop with its defaults, in a folder that may contain the database of an earlier shop.
pub(super) async fn start_whole(program: &Path, folder: &Path) -> anyhow::Result<Service> {
    start(Command::new(program), folder).await
}

async fn start(mut command: Command, folder: &Path) -> anyhow::Result<Service> {
    let address = free_address()?;
    command
        .arg("--listen")
        .arg(address.to_string())
        .arg("--data-dir")
        .arg(folder);
    Service::start(command, address, &folder.join("log")).await
}

/// The number of orders of `customer` in the list of the shop.
pub(super) async fn count_orders(address: SocketAddr, customer: &str) -> anyhow::Result<u64> {
    let mut connection = Connection::open(address).await?;
    let (mut count, mut after) = (0, String::new());
    loop {
        let path = format!("/orders?limit={PAGE}{after}");
        let head = connection
            .exchange(Request::get(&path, Some(TOKEN)).bytes())
            .await?;
        ensure!(
            head.status == 200,
            "GET {path}: expected status 200, got {}",
            head.status
        );
        let page: serde_json::Value = serde_json::from_slice(connection.body())?;
        let items = page["items"].as_array().context("the list has no items")?;
        let of_customer = items
            .iter()
            .filter(|order| order["customer_id"] == customer);
        count += of_customer.count() as u64;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_built_in_the_profile_of_the_folder_that_it_belongs_to() {
        assert_eq!(profile(Path::new("target/dist/shop")), "dist");
        assert_eq!(profile(Path::new("target/release/shop")), "release");
        assert_eq!(profile(Path::new("target/debug/shop")), "release");
    }
}
