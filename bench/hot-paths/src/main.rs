//! Hot paths of Hapax, each run a number of times: `hot-paths replay 100`.
//!
//! `cargo x instructions` runs this program under callgrind and compares what one operation costs
//! with the recorded figures. Everything runs in this process, without a network. The clock stands
//! still and the random numbers are a fixed sequence, so that every run does the same work. A wrong
//! response is an error, because a path that fails early would look cheap.

mod sources;
mod service;
mod requests;
mod batch;

use std::{env, path::Path};

use anyhow::{Context as _, bail};
use tokio::runtime::Builder;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, count] = arguments.as_slice() else {
        bail!("expected a path and a count, such as: hot-paths replay 100");
    };
    let count = count.parse::<u32>();
    let count = count.context("expected a whole number as count")?;
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    // On one thread, a task always continues at the same point.
    let runtime = Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(run(path, count, folder.path()))
}

/// Runs a path `count` times. `xtask/src/instructions` has the same names.
async fn run(path: &str, count: u32, folder: &Path) -> anyhow::Result<()> {
    match path {
        "constant" => requests::constant(count).await,
        "replay" => requests::replays(folder, requests::SHORT, count).await,
        "replay-500" => requests::replays(folder, requests::LONG, count).await,
        "first-write" => requests::first_writes(folder, count).await,
        "relay-batch" => batch::settle(folder, count).await,
        other => bail!("unknown path `{other}`"),
    }
}
