//! SIGKILL of all shops while an event is being delivered: the receiver has accepted it, and the
//! shop has no response yet.

use hapax_testkit::wait::pace;
use tokio::time::Instant;

use super::{
    Nemesis,
    injection::{LOOK, REACH},
};
use crate::lines;

/// The mode of such a delivery in the ledger of the receiver.
const HELD: &str = "\"held\"";

/// Kills all shops at such a moment, and starts them again; false if no event was delivered in time.
pub(super) async fn kill(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    let deployment = &mut nemesis.deployment;
    deployment.up().await?;
    let ledger = deployment.folder.join("hook.jsonl");
    let end = ledger.metadata().map_or(0, |it| it.len());
    deployment.tell_receiver(0, "/hold").await?;
    let until = Instant::now() + REACH;
    let mut is_held = false;
    while !is_held && Instant::now() < until {
        pace(LOOK).await;
        is_held = ledger.exists() && lines::contains(&ledger, end, HELD)?;
    }
    for shop in &mut deployment.shops {
        shop.kill()?;
    }
    deployment.tell_receiver(0, "/available").await?;
    for shop in &mut deployment.shops {
        shop.start()?;
    }
    Ok(is_held)
}
