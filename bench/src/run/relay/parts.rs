//! Parts of this program that the harness starts as processes.

use std::{path::Path, process::Command};

use super::super::{postgres::connect, service::Running};
use crate::relay::Drained;

/// Starts a part of this program, with its output in the file `name.log`.
pub(super) fn start(folder: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Running::start(command, &folder.join(format!("{name}.log")))
}

/// Runs a part of this program to its end and returns its output.
pub(super) async fn run(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    start(folder, "part", arguments)?.ended().await
}

/// Fills the outbox of a database with `events` events, and runs VACUUM and a checkpoint.
pub(super) async fn fill(folder: &Path, url: &str, events: u64) -> anyhow::Result<()> {
    let events = events.to_string();
    let fill = ["relay", "fill", "--database", url, "--events", &events];
    run(folder, &fill).await?;
    settle(url).await
}

/// Does the work of autovacuum and the checkpointer now, so that it does not slow down a later
/// measurement.
pub(super) async fn settle(url: &str) -> anyhow::Result<()> {
    let client = connect(url).await?;
    client.batch_execute("VACUUM ANALYZE").await?;
    Ok(client.batch_execute("CHECKPOINT").await?)
}

/// Delivers the events of a database to a new destination.
pub(super) async fn drain(
    folder: &Path,
    url: &str,
    destination: &str,
    events: u64,
) -> anyhow::Result<Drained> {
    let events = events.to_string();
    let of = ["--database", url, "--events", &events];
    let to = ["--destination", destination];
    let said = run(folder, &[&["relay", "drain"], &of[..], &to[..]].concat()).await?;
    Drained::read(&said)
}
