//! Parts of this program that run beside the harness.

use std::{path::Path, process::Command};

use super::super::{postgres::connect, service::Running};
use crate::relay::Drained;

/// Starts a part of this program; `name` is its log's.
pub(super) fn start(folder: &Path, name: &str, arguments: &[&str]) -> anyhow::Result<Running> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    Running::start(command, &folder.join(format!("{name}.log")))
}

/// Runs a part of this program to its end and returns what it said.
pub(super) async fn run(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    start(folder, "part", arguments)?.ended().await
}

/// Fills the outbox of a database with so many events, and has PostgreSQL look at them.
pub(super) async fn fill(folder: &Path, url: &str, events: u64) -> anyhow::Result<()> {
    let events = events.to_string();
    let fill = ["relay", "fill", "--database", url, "--events", &events];
    run(folder, &fill).await?;
    settle(url).await
}

/// What autovacuum and the checkpointer would do by and by: nobody pays for it who comes later.
pub(super) async fn settle(url: &str) -> anyhow::Result<()> {
    let client = connect(url).await?;
    client.batch_execute("VACUUM ANALYZE").await?;
    Ok(client.batch_execute("CHECKPOINT").await?)
}

/// Carries the events of a database to a destination that was never seen before.
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
