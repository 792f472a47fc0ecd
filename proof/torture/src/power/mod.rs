//! `torture power`: checks a store after its machine has lost power.
//!
//! Clients run operations as in a storm. At random instants all writing processes are stopped,
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
    artifacts::{Wished, granted},
    deployment::{Binaries, Deployment, Store, is_ready, shop_beside},
    preload,
    report::{Verdict, say},
    run::{fresh, seed},
    stored_rows::StoredRows,
};
use image::{Loss, lose};

/// Violations of one instant that are shown.
const SHOWN: usize = 3;

/// What is asked for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flags {
    /// Which store the rows are in
    #[arg(long, value_enum, default_value = "sqlite")]
    store: Store,
    /// How often the power goes
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
    taken: u64,
    acknowledged: usize,
    /// From the start of a shop on the copy until it took requests.
    recovered: Duration,
    violations: Vec<String>,
}

/// A copy that runs: where its rows are, and its server, where there is one.
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
    say(&format!(
        "power of {}, seed {seed}, in {}\n\n\
         | lost of what was not flushed | bytes | acknowledged | took requests after ms | violations |\n\
         |---|---:|---:|---:|---:|",
        flags.store.name(),
        folder.display(),
    ));
    let mut random = Rng::with_seed(seed);
    let mut all = Vec::new();
    for loss in Loss::ALL.into_iter().cycle().take(flags.instants) {
        pace(Duration::from_millis(random.u64(300..1_500))).await;
        let left = cut(&deployment, &disk, &binaries, loss, &mut random).await?;
        say(&format!(
            "| {:?} | {} | {} | {} | {} |",
            left.loss,
            left.taken,
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
            let bit = |it: &&Left| it.taken > 0 || it.loss == Loss::Nothing;
            !all.iter()
                .filter(bit)
                .any(|it| it.loss == *loss && it.acknowledged > 0)
        })
        .collect();
    say(&format!("\n{}", violations.concat()));
    if !violations.is_empty() {
        return Verdict::Violated;
    }
    if missing.is_empty() {
        say("Nothing that was acknowledged is lost.");
        return Verdict::Holds;
    }
    say(&format!("Never happened: a loss of {missing:?}."));
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
    let acknowledged = granted(&deployment.folder)?;
    let home = deployment.folder.join("copy");
    let (copy, taken) = copied(deployment, disk, loss, &home, random).await?;
    let began = Instant::now();
    let judged = judged(deployment, binaries, copy, &acknowledged, random).await;
    let (recovered, violations) = match judged {
        Ok((ready, violations)) => (ready - began, violations),
        Err(error) => (
            began.elapsed(),
            vec![format!("it does not come back: {error:#}")],
        ),
    };
    std::fs::remove_dir_all(&home)?;
    Ok(Left {
        loss,
        taken,
        acknowledged: acknowledged.len(),
        recovered,
        violations,
    })
}

/// Boots a shop on a copy; when it was ready, and what is wrong.
async fn judged(
    deployment: &Deployment,
    binaries: &Binaries,
    copy: Result<Copy, String>,
    acknowledged: &[Wished],
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

/// A copy, and how many bytes were taken from it; or why its server does not start.
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
        let taken = lose(&disk.log, &original, home, loss, random)?;
        drop(frozen);
        let copy = Copy {
            home: home.to_owned(),
            stored_rows: StoredRows::File(home.join("shop.db")),
            _server: None,
        };
        return Ok((Ok(copy), taken));
    };
    std::fs::create_dir(home)?;
    let mut taken = Ok(0);
    let spoil = |log: &Path, original: &Path, copy: &Path| {
        taken = lose(log, original, copy, loss, random);
    };
    let copy = server.cluster.after_power_loss(spoil).await;
    let copy = copy.map(|copy| {
        let address = server.cluster.address();
        Copy {
            home: home.to_owned(),
            stored_rows: StoredRows::Server(server.url.replace(&address, &copy.address())),
            _server: Some(copy),
        }
    });
    Ok((copy, taken?))
}
