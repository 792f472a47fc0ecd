//! Restore: replaces the database by a backup while all processes keep using it.
//!
//! A restore loses what was committed after the backup. To keep all other results checkable, only
//! the operator sends requests between backup and swap: clients and the SQL-contract client have
//! stopped, and their operations are final. Operations of the operator in that time are delivered,
//! so that relays are ahead of the backup, and are recorded as forfeited. After the swap everything
//! continues.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::future::try_join_all;
use hapax_testkit::{postgres::Dump, wait::pace};
use serde_json::Value;
use tokio::time::Instant;

use super::Nemesis;
use crate::{
    clients::Operation,
    deployment::Deployment,
    lines::{self, now},
    stored_rows::StoredRows,
};

/// Orders acknowledged between backup and swap.
const FORFEITED: usize = 60;
/// Time limit until nothing is in flight.
const SETTLES: Duration = Duration::from_secs(40);
/// How long nothing may happen before the deployment counts as settled.
const QUIET: Duration = Duration::from_millis(1_500);
/// How long the delivery of the forfeited orders may take.
const DELIVERED: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(100);
/// Work that must be finished before a backup counts as taken from a quiet deployment.
pub(crate) const IN_PROGRESS: [&str; 3] = [
    "SELECT id FROM @saga WHERE state = 'running'",
    "SELECT id FROM shop_upload WHERE state = 'pending'",
    "SELECT key FROM @idempotency_key WHERE state = 'in_progress'",
];

/// Takes a backup, runs the operator's orders until they are delivered, and replaces the database
/// by the backup. Returns whether the deployment was quiet enough and relays were ahead of the
/// backup.
pub(super) async fn restore(nemesis: &mut Nemesis, line: &mut Value) -> anyhow::Result<bool> {
    nemesis.deployment.up().await?;
    stop_clients(&mut nemesis.deployment).await?;
    let took_effect = is_settled(&nemesis.deployment).await? && swap(nemesis, line).await?;
    for clients in &mut nemesis.deployment.clients {
        clients.start()?;
    }
    Ok(took_effect)
}

/// Stops the clients when their operations are final.
pub(super) async fn stop_clients(deployment: &mut Deployment) -> anyhow::Result<()> {
    for clients in &mut deployment.clients {
        clients.revive()?;
        clients.signal("TERM")?;
    }
    for clients in &mut deployment.clients {
        clients.has_stopped().await?;
    }
    Ok(())
}

async fn swap(nemesis: &mut Nemesis, line: &mut Value) -> anyhow::Result<bool> {
    line["from"] = now().into();
    let backup = Backup::of(&mut nemesis.deployment).await?;
    nemesis.deployment.up().await?;
    let operations: Vec<_> = (0..FORFEITED)
        .map(|_| nemesis.operator.new_operation(Operation::order))
        .collect();
    let ends = Ends::now(&nemesis.deployment);
    let shops = nemesis.deployment.shops.len();
    let sent = operations.iter().enumerate().map(async |(at, operation)| {
        // Its effects are lost.
        nemesis.operator.note("forfeited", operation)?;
        let shop = at % shops;
        let (name, address) = (
            &nemesis.deployment.shops[shop].name,
            nemesis.deployment.shop_address(shop),
        );
        nemesis.operator.send(name, &address, operation).await
    });
    let acknowledged = try_join_all(sent).await?;
    let acknowledged: Vec<_> = acknowledged.into_iter().flatten().collect();
    let began = Instant::now();
    while began.elapsed() < DELIVERED && !ends.have(&acknowledged)? {
        pace(LOOK).await;
    }
    let is_delivered = ends.have(&acknowledged)?;
    line["forfeited"] = acknowledged.len().into();
    backup.replaces(&mut nemesis.deployment).await?;
    line["swapped"] = now().into();
    nemesis.deployment.up().await?;
    Ok(is_delivered && acknowledged.len() > FORFEITED / 2)
}

/// Waits until nothing is in flight, for a limited time.
pub(super) async fn is_settled(deployment: &Deployment) -> anyhow::Result<bool> {
    let stored_rows = StoredRows::of(deployment);
    let (began, mut quiet_since) = (Instant::now(), Instant::now());
    let mut ends = Ends::now(deployment);
    while began.elapsed() < SETTLES {
        pace(LOOK).await;
        let mut is_quiet = ends == Ends::now(deployment);
        for sql in IN_PROGRESS {
            is_quiet = is_quiet && stored_rows.read(sql).await?.is_empty();
        }
        if !is_quiet {
            (ends, quiet_since) = (Ends::now(deployment), Instant::now());
        } else if quiet_since.elapsed() > QUIET {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A backup of the rows.
enum Backup {
    /// A dump of this database of the server.
    Dump(Dump, String),
    /// Copies of the files, and where they belong.
    Files(Vec<(PathBuf, PathBuf)>),
}

impl Backup {
    async fn of(deployment: &mut Deployment) -> anyhow::Result<Self> {
        if let Some(server) = &deployment.server {
            let name = server.url.rsplit('/').next().unwrap_or_default();
            let dump = server.cluster.dump(name).await;
            return Ok(Self::Dump(dump, name.to_owned()));
        }
        deployment.shops[0].stop().await?;
        let mut files = Vec::new();
        for name in ["shop.db", "shop.db-wal"] {
            let (there, copy) = (deployment.home().join(name), deployment.folder.join(name));
            if there.exists() {
                std::fs::copy(&there, &copy)?;
                files.push((copy, there));
            }
        }
        deployment.shops[0].start()?;
        Ok(Self::Files(files))
    }

    async fn replaces(self, deployment: &mut Deployment) -> anyhow::Result<()> {
        match (self, &deployment.server) {
            (Self::Dump(dump, name), Some(server)) => {
                // Restores into a new database, which is then renamed: no process needs a new
                // address.
                let [restored, lost] = ["restored", "lost"].map(|it| format!("{name}_{it}"));
                server.cluster.create(&restored).await;
                server.cluster.restore(&dump, &restored).await;
                server.cluster.swap(&restored, &name, &lost).await;
                let sql = format!("DROP DATABASE {lost}");
                server.cluster.client().await.batch_execute(&sql).await?;
            }
            (Self::Files(files), _) => {
                deployment.shops[0].stop().await?;
                for name in ["shop.db", "shop.db-wal", "shop.db-shm"] {
                    let gone = std::fs::remove_file(deployment.home().join(name));
                    drop(gone);
                }
                for (copy, there) in files {
                    std::fs::rename(copy, there)?;
                }
                deployment.shops[0].start()?;
            }
            (Self::Dump(..), None) => {}
        }
        Ok(())
    }
}

/// Lengths of the ledgers of the receivers that get every event.
#[derive(PartialEq, Eq)]
struct Ends(Vec<(PathBuf, u64)>);

impl Ends {
    fn now(deployment: &Deployment) -> Self {
        let names = match &deployment.server {
            None => &["hook"][..],
            Some(_) => &["hook", "feed", "stream"],
        };
        let length = |path: &Path| path.metadata().map_or(0, |it| it.len());
        let ends = names.iter().map(|name| {
            let path = deployment.folder.join(format!("{name}.jsonl"));
            let end = length(&path);
            (path, end)
        });
        Self(ends.collect())
    }

    /// Whether each ledger contains all of these ids after its length at that time.
    fn have(&self, ids: &[String]) -> anyhow::Result<bool> {
        for (path, end) in &self.0 {
            for id in ids {
                if !lines::contains(path, *end, id)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
