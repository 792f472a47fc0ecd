//! Stale caches: keys that are deleted or expire while several shops have their responses in
//! memory.

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::Value;

use super::{Storm, injection::admin};
use crate::{
    clients::Operation,
    deployment::{self, Deployment, Program},
    lines::now,
};

/// Keys of one purge.
const KEYS: usize = 4;
/// How soon every shop has to know of a purge.
const HEARD: Duration = Duration::from_secs(1);
/// How often each shop is asked, before and after.
const ASKED: usize = 2;
/// How long answers are remembered by the shop whose clock goes wrong.
const RETENTION: Duration = Duration::from_secs(3);
const HOUR: i64 = 3_600_000_000_000;

/// Deletes keys that every shop has answered from its memory, and asks each again.
pub(super) async fn purge(nemesis: &mut Storm) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    let operations: Vec<_> = (0..KEYS)
        .map(|_| nemesis.operator.want(Operation::order))
        .collect();
    let mut bit = true;
    for operation in &operations {
        bit &= ask_all(nemesis, operation).await?;
    }
    for operation in &operations {
        // Every shop has the answer in its memory before, and has had to hear of the purge after.
        purge_key(nemesis, operation).await?;
        nemesis.operator.note("purged", operation)?;
    }
    pace(HEARD).await;
    for operation in &operations {
        bit &= ask_all(nemesis, operation).await?;
    }
    Ok(bit)
}

/// Deletes a key as an operator does.
async fn purge_key(nemesis: &Storm, operation: &Operation) -> anyhow::Result<bool> {
    let words = ["keys", "purge", "POST /orders", &operation.key];
    let more = ["--tenant", &operation.tenant, "--reason", "torture"];
    admin(nemesis, &[&words[..], &more[..]].concat()).await
}

/// Sends an operation to every shop, more than once; returns whether all responded.
async fn ask_all(nemesis: &Storm, operation: &Operation) -> anyhow::Result<bool> {
    let mut all = true;
    for _ in 0..ASKED {
        for at in 0..nemesis.deployment.shops.len() {
            let address = nemesis.deployment.shop_address(at);
            let name = &nemesis.deployment.shops[at].name;
            all &= nemesis
                .operator
                .ask(name, &address, operation)
                .await?
                .is_some();
        }
    }
    Ok(all)
}

/// A third shop, whose answers are kept for seconds, has a clock that steps an hour: what it remembers
/// expires by the database's clock all the same, and a payment that it shares with another shop
/// is one.
pub(super) async fn hour(nemesis: &mut Storm, line: &mut Value) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    let port = hapax_testkit::port::free_port();
    let mut guest = guest(&nemesis.deployment, port);
    guest.start()?;
    let listens = deployment::is_ready(&nemesis.deployment.http, &mut guest, port).await?;
    if listens.is_some() {
        anyhow::bail!("{} ended before it was ready", guest.name);
    }
    let address = format!("127.0.0.1:{port}");
    let mut bit = true;
    for hours in [-1, 1] {
        let order = nemesis.operator.want(Operation::order);
        for _ in 0..ASKED {
            let asked = nemesis.operator.ask(&guest.name, &address, &order).await?;
            bit &= asked.is_some();
        }
        set_clock(&guest, hours);
        line["steps"] = hours.into();
        // Two shops at once, of which one has a clock that is an hour off.
        let payment = nemesis.operator.want(Operation::payment);
        let other = nemesis.deployment.shop_address(0);
        let asked = futures_util::future::try_join(
            nemesis.operator.ask(&guest.name, &address, &payment),
            nemesis
                .operator
                .ask(&nemesis.deployment.shops[0].name, &other, &payment),
        );
        let (one, two) = asked.await?;
        bit &= one.is_some() && two.is_some();
        pace(RETENTION).await;
        nemesis.operator.note("expired", &order)?;
        pace(HEARD).await;
        // The response with the longer retention is first.
        for (name, address) in [
            (&nemesis.deployment.shops[0].name, &other),
            (&guest.name, &address),
            (&guest.name, &address),
        ] {
            bit &= nemesis.operator.ask(name, address, &order).await?.is_some();
        }
        set_clock(&guest, 0);
    }
    line["until"] = now().into();
    guest.stop().await?;
    Ok(bit)
}

fn set_clock(guest: &Program, hours: i64) {
    if let Some(trouble) = guest.trouble() {
        trouble.set_clock(hours * HOUR);
    }
}

/// A shop without a relay, at this port.
fn guest(deployment: &Deployment, port: u16) -> Program {
    let of_its_own = |argument: &str| match argument.split_once('=') {
        Some(("--listen", _)) => format!("--listen=127.0.0.1:{port}"),
        Some(("--retention", _)) => format!("--retention={}s", RETENTION.as_secs()),
        _ => argument.to_owned(),
    };
    let last = deployment.shops.len() - 1;
    let mut guest = deployment.shops[last].another("guest", of_its_own);
    guest.add_argument("--no-relay".to_owned());
    guest.in_trouble(&deployment.trouble)
}
