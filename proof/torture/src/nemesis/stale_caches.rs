//! Stale caches: keys that are deleted or expire while several shops have their responses in
//! memory.

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::Value;

use super::{Nemesis, injection::admin};
use crate::{
    clients::Operation,
    deployment::{self, Deployment, Program},
    lines::now,
};

/// Keys of one purge.
const KEYS: usize = 4;
/// How soon every shop has to know of a purge.
const NOTIFIED: Duration = Duration::from_secs(1);
/// How often each shop gets the request, before and after.
const REQUESTS: usize = 2;
/// Retention of the shop whose clock steps.
const RETENTION: Duration = Duration::from_secs(3);
const HOUR: i64 = 3_600_000_000_000;

/// Purges keys whose responses every shop has in memory, and sends their requests to each again.
pub(super) async fn purge(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    if nemesis.deployment.server.is_none() {
        return Ok(false);
    }
    nemesis.deployment.up().await?;
    let operations: Vec<_> = (0..KEYS)
        .map(|_| nemesis.operator.new_operation(Operation::order))
        .collect();
    let mut took_effect = true;
    for operation in &operations {
        took_effect &= send_to_all(nemesis, operation).await?;
    }
    for operation in &operations {
        // Every shop has the response in its memory at this time.
        purge_key(nemesis, operation).await?;
        nemesis.operator.note("purged", operation)?;
    }
    pace(NOTIFIED).await;
    for operation in &operations {
        took_effect &= send_to_all(nemesis, operation).await?;
    }
    Ok(took_effect)
}

/// Deletes a key as an operator does.
async fn purge_key(nemesis: &Nemesis, operation: &Operation) -> anyhow::Result<bool> {
    let arguments = ["keys", "purge", "POST /orders", &operation.key];
    let more = ["--tenant", &operation.tenant, "--reason", "torture"];
    admin(nemesis, &[&arguments[..], &more[..]].concat()).await
}

/// Sends an operation to every shop, more than once; returns whether all responded.
async fn send_to_all(nemesis: &Nemesis, operation: &Operation) -> anyhow::Result<bool> {
    let mut all = true;
    for _ in 0..REQUESTS {
        for at in 0..nemesis.deployment.shops.len() {
            let address = nemesis.deployment.shop_address(at);
            let name = &nemesis.deployment.shops[at].name;
            all &= nemesis
                .operator
                .send(name, &address, operation)
                .await?
                .is_some();
        }
    }
    Ok(all)
}

/// Runs a third shop, which keeps responses for seconds, and steps its clock by an hour. The responses
/// in its memory must expire by the clock of the database, and a payment that is sent to it and to
/// another shop must be executed once.
pub(super) async fn step_clock(nemesis: &mut Nemesis, line: &mut Value) -> anyhow::Result<bool> {
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
    let mut took_effect = true;
    for hours in [-1, 1] {
        let order = nemesis.operator.new_operation(Operation::order);
        for _ in 0..REQUESTS {
            let sent = nemesis.operator.send(&guest.name, &address, &order).await?;
            took_effect &= sent.is_some();
        }
        set_clock(&guest, hours);
        line["steps"] = hours.into();
        // Two shops at once; the clock of one is wrong by an hour.
        let payment = nemesis.operator.new_operation(Operation::payment);
        let other = nemesis.deployment.shop_address(0);
        let sent = futures_util::future::try_join(
            nemesis.operator.send(&guest.name, &address, &payment),
            nemesis
                .operator
                .send(&nemesis.deployment.shops[0].name, &other, &payment),
        );
        let (one, two) = sent.await?;
        took_effect &= one.is_some() && two.is_some();
        pace(RETENTION).await;
        nemesis.operator.note("expired", &order)?;
        pace(NOTIFIED).await;
        // The response with the longer retention is first.
        for (name, address) in [
            (&nemesis.deployment.shops[0].name, &other),
            (&guest.name, &address),
            (&guest.name, &address),
        ] {
            took_effect &= nemesis
                .operator
                .send(name, address, &order)
                .await?
                .is_some();
        }
        set_clock(&guest, 0);
    }
    line["until"] = now().into();
    guest.stop().await?;
    Ok(took_effect)
}

fn set_clock(guest: &Program, hours: i64) {
    if let Some(faults) = guest.machine_faults() {
        faults.set_clock(hours * HOUR);
    }
}

/// A shop without a relay, at this port.
fn guest(deployment: &Deployment, port: u16) -> Program {
    let replace = |argument: &str| match argument.split_once('=') {
        Some(("--listen", _)) => format!("--listen=127.0.0.1:{port}"),
        Some(("--retention", _)) => format!("--retention={}s", RETENTION.as_secs()),
        _ => argument.to_owned(),
    };
    let last = deployment.shops.len() - 1;
    let mut guest = deployment.shops[last].another("guest", replace);
    guest.add_argument("--no-relay".to_owned());
    guest.with_machine_faults(&deployment.fault_library)
}
