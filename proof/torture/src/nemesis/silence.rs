//! Silence: clients stop until a relay sleeps. Then every process that delivers is killed, and
//! starts again with a burst of orders.
//!
//! Nothing is under way when they are killed, so this explains no duplicate. No commit may wait for
//! a relay that is dead, and no event of the burst may be lost.

use std::time::Duration;

use futures_util::future::try_join_all;
use hapax_testkit::wait::pace;
use tokio::time::Instant;

use super::{
    Nemesis,
    restore::{is_settled, stop_clients},
};
use crate::{clients::Operation, deployment::Deployment, stored_rows::StoredRows};

/// Orders of the burst.
const BURST: usize = 40;
/// How soon a relay sleeps, and how soon its lock is released after its death.
const SOON: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
/// The session by which a relay sleeps.
const SLEEPING: &str = "
    SELECT pid FROM pg_locks
    WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objid = 1
      AND classid = 'hapax.outbox_event'::regclass
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// Returns whether a relay slept and its lock was released, and the orders were accepted.
pub(super) async fn run(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    stop_clients(&mut nemesis.deployment).await?;
    let took_effect = is_settled(&nemesis.deployment).await? && interrupt(nemesis).await?;
    for clients in &mut nemesis.deployment.clients {
        clients.start()?;
    }
    Ok(took_effect)
}

async fn interrupt(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    let slept = sleeps(&nemesis.deployment, true).await?;
    let deployment = &mut nemesis.deployment;
    for program in deployment.shops.iter_mut().chain(&mut deployment.relays) {
        program.kill()?;
    }
    let is_released = sleeps(&nemesis.deployment, false).await?;
    let deployment = &mut nemesis.deployment;
    for program in deployment.shops.iter_mut().chain(&mut deployment.relays) {
        program.start()?;
    }
    deployment.up().await?;
    let accepted = burst(nemesis).await?;
    Ok(slept && is_released && accepted > BURST / 2)
}

/// Waits for a limited time until a relay sleeps, or until none does.
async fn sleeps(deployment: &Deployment, expected: bool) -> anyhow::Result<bool> {
    let (stored_rows, began) = (StoredRows::of(deployment), Instant::now());
    while began.elapsed() < SOON {
        if stored_rows.read(SLEEPING).await?.is_empty() != expected {
            return Ok(true);
        }
        pace(LOOK).await;
    }
    Ok(false)
}

/// Sends orders at once. Returns how many were accepted.
async fn burst(nemesis: &mut Nemesis) -> anyhow::Result<usize> {
    let operations: Vec<_> = (0..BURST)
        .map(|_| nemesis.operator.new_operation(Operation::order))
        .collect();
    let shops = nemesis.deployment.shops.len();
    let sent = operations.iter().enumerate().map(async |(at, operation)| {
        let name = &nemesis.deployment.shops[at % shops].name;
        let address = nemesis.deployment.shop_address(at % shops);
        nemesis.operator.send(name, &address, operation).await
    });
    let accepted = try_join_all(sent).await?;
    Ok(accepted.into_iter().flatten().count())
}
