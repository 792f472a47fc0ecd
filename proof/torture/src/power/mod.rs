//! `torture power`: checks a store after its machine has lost power.
//!
//! Clients run operations as in any run. At random instants all writing processes are stopped,
//! their files are copied, and writes that no flush covered are removed from the copy: all of them,
//! the tail of each file, or random sectors. A shop is then started on the copy and must have
//! everything that was acknowledged before that instant. On a disk that ignores flushes this must
//! fail, which is checked too.

mod image;
mod check;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use fastrand::Rng;
use hapax_testkit::{
    port::free_port,
    postgres::Cluster,
    power::{Disk, Frozen, copy},
    wait::pace,
};
use tokio::time::Instant;

use crate::{
    artifacts::{OperationRecord, acknowledged},
    deployment::{Binaries, Deployment, Store, is_ready, shop_beside},
    preload,
    report::{Verdict, print},
    run::{fresh, seed},
    stored_rows::StoredRows,
};
use image::{Loss, lose};

/// Violations of one instant that are shown.
const SHOWN: usize = 3;

/// Arguments of the command.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Which store the rows are in
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Store,
    /// Number of power losses
    #[arg(long, default_value_t = 20)]
    instants: usize,
    /// Seed of the random choices [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Simulate a disk that reports bytes as durable before they are
    #[arg(long)]
    lying: bool,
    /// Where the files of the run go [default: target/torture/power-STORE-SEED]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// State after one power loss.
struct Left {
    loss: Loss,
    /// Bytes reverted to their previous content.
    reverted: u64,
    acknowledged: usize,
    /// From the start of a shop on the copy until it was ready.
    recovered: Duration,
    violations: Vec<String>,
}

/// A copy of the store: its files or its database, and its server, if there is one.
struct Copy {
    home: PathBuf,
    stored_rows: StoredRows,
    _server: Option<Cluster>,
}

/// Simulates this many power losses, and checks the result each time.
pub(crate) async fn power(flags: Flags) -> anyhow::Result<Verdict> {
    let seed = seed(flags.seed);
    let name = format!("power-{}-{seed}", flags.store.name());
    let folder = fresh(flags.folder.as_deref(), &name)?;
    let disk = Disk {
        library: preload::build("disk", &folder)?,
        log: folder.join("unsynced"),
        lies: flags.lying,
    };
    let binaries = Binaries::beside()?;
    let mut deployment = Deployment::on(
        flags.store,
        &folder,
        &binaries,
        seed,
        None,
        None,
        Some(&disk),
    )
    .await?;
    deployment.begin().await?;
    print(&format!(
        "power of {}, seed {seed}, in {}\n\n\
         | unflushed writes that were lost | bytes | acknowledged | ms until ready | violations |\n\
         |---|---:|---:|---:|---:|",
        flags.store.name(),
        folder.display(),
    ));
    let mut random = Rng::with_seed(seed);
    let mut all = Vec::new();
    for loss in Loss::ALL.into_iter().cycle().take(flags.instants) {
        pace(Duration::from_millis(random.u64(300..1_500))).await;
        let left = cut(&deployment, &disk, &binaries, loss, &mut random).await?;
        print(&format!(
            "| {:?} | {} | {} | {} | {} |",
            left.loss,
            left.reverted,
            left.acknowledged,
            left.recovered.as_millis(),
            left.violations.len(),
        ));
        all.push(left);
    }
    Ok(verdict(&all))
}

/// Whether it holds: a run in which nothing was acknowledged or nothing was lost proves nothing.
fn verdict(all: &[Left]) -> Verdict {
    let violations = all.iter().flat_map(|it| it.violations.iter().take(SHOWN));
    let violations: Vec<_> = violations.map(|it| format!("- {it}\n")).collect();
    let missing: Vec<_> = Loss::ALL
        .into_iter()
        .filter(|loss| {
            let took_effect = |it: &&Left| it.reverted > 0 || it.loss == Loss::Nothing;
            !all.iter()
                .filter(took_effect)
                .any(|it| it.loss == *loss && it.acknowledged > 0)
        })
        .collect();
    print(&format!("\n{}", violations.concat()));
    if !violations.is_empty() {
        return Verdict::Violated;
    }
    if missing.is_empty() {
        print("Nothing that was acknowledged is lost.");
        return Verdict::Holds;
    }
    print(&format!("Never happened: a loss of {missing:?}."));
    Verdict::Unknown
}

/// Simulates a power loss: copies the disk, starts a shop on the copy and checks it.
async fn cut(
    deployment: &Deployment,
    disk: &Disk,
    binaries: &Binaries,
    loss: Loss,
    random: &mut Rng,
) -> anyhow::Result<Left> {
    // Operations acknowledged before the first process was stopped.
    let acknowledged = acknowledged(&deployment.folder)?;
    let home = deployment.folder.join("copy");
    let (copy, reverted) = copied(deployment, disk, loss, &home, random).await?;
    let began = Instant::now();
    let checked = checked(deployment, binaries, copy, &acknowledged, random).await;
    let (recovered, violations) = match checked {
        Ok((ready, violations)) => (ready - began, violations),
        Err(error) => (
            began.elapsed(),
            vec![format!("the store does not start: {error:#}")],
        ),
    };
    std::fs::remove_dir_all(&home)?;
    Ok(Left {
        loss,
        reverted,
        acknowledged: acknowledged.len(),
        recovered,
        violations,
    })
}

/// Starts a shop on a copy; returns when it was ready, and the violations.
async fn checked(
    deployment: &Deployment,
    binaries: &Binaries,
    copy: Result<Copy, String>,
    acknowledged: &[OperationRecord],
    random: &mut Rng,
) -> anyhow::Result<(Instant, Vec<String>)> {
    let copy = copy.map_err(anyhow::Error::msg)?;
    let port = free_port();
    let mut shop = shop_beside(deployment, binaries, port, &copy.home, &copy.stored_rows);
    shop.start()?;
    if let Some(status) = is_ready(&deployment.http, &mut shop, port).await? {
        bail!("the shop ended before it was ready: {status}");
    }
    let ready = Instant::now();
    let violations = check::violations(acknowledged, &copy.stored_rows, port, random).await?;
    shop.kill()?;
    Ok((ready, violations))
}

/// A copy, and how many bytes of it were reverted; or why its server does not start.
async fn copied(
    deployment: &Deployment,
    disk: &Disk,
    loss: Loss,
    home: &Path,
    random: &mut Rng,
) -> anyhow::Result<(Result<Copy, String>, u64)> {
    let Some(server) = &deployment.server else {
        let original = deployment.home();
        let frozen = Frozen::family(deployment.shops[0].id().context("the shop runs")?).await;
        copy(&original, home);
        let reverted = lose(&disk.log, &original, home, loss, random)?;
        drop(frozen);
        let copy = Copy {
            home: home.to_owned(),
            stored_rows: StoredRows::File(home.join("shop.db")),
            _server: None,
        };
        return Ok((Ok(copy), reverted));
    };
    std::fs::create_dir(home)?;
    let mut reverted = Ok(0);
    let damage = |log: &Path, original: &Path, copy: &Path| {
        reverted = lose(log, original, copy, loss, random);
    };
    let copy = server.cluster.after_power_loss(damage).await;
    let copy = copy.map(|copy| {
        let address = server.cluster.address();
        Copy {
            home: home.to_owned(),
            stored_rows: StoredRows::Server(server.url.replace(&address, &copy.address())),
            _server: Some(copy),
        }
    });
    Ok((copy, reverted?))
}
