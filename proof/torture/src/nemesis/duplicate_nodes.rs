//! Duplicate nodes: a second process with the name of the first, as with two machines that have one
//! host name, or a container that was started twice.

use std::time::Duration;

use hapax_testkit::wait::pace;
use tokio::{net::TcpStream, time::Instant};

use super::{Nemesis, injection::Who};
use crate::deployment::{Deployment, LEASE, Program};

/// How long the second process may take until it listens.
const READY: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// For each shop, or for each relay, runs a second process with its host name, node and port at
/// another loopback address, for the given time. The second process may refuse to run. Returns
/// whether each ran for longer than a lease, or refused.
pub(super) async fn run(nemesis: &mut Nemesis, who: Who, time: Duration) -> anyhow::Result<bool> {
    nemesis.deployment.up().await?;
    // Two relays may own a partition alternately; that is acceptable.
    let mut duplicates = duplicates(&nemesis.deployment, who);
    for (duplicate, _) in &mut duplicates {
        duplicate.start()?;
    }
    let mut took_effect = !duplicates.is_empty() && time > LEASE;
    for (duplicate, address) in &mut duplicates {
        took_effect &= listens(duplicate, address).await?;
    }
    let began = Instant::now();
    while began.elapsed() < time {
        pace(LOOK).await;
        for (duplicate, _) in &mut duplicates {
            // A process that detects the other one may end.
            duplicate.ended()?;
        }
    }
    for (mut duplicate, _) in duplicates {
        duplicate.stop().await?;
    }
    Ok(took_effect)
}

/// The second processes, and the address of each.
fn duplicates(deployment: &Deployment, who: Who) -> Vec<(Program, String)> {
    let elsewhere = |argument: &str| {
        if argument.starts_with("--listen=") || argument.starts_with("--admin-listen=") {
            argument.replace("127.0.0.1", "127.0.0.2")
        } else {
            argument.to_owned()
        }
    };
    let duplicate = |first: &Program, port: u16| {
        let name = format!("duplicate-{}", first.name);
        let address = format!("127.0.0.2:{port}");
        (first.another(&name, elsewhere), address)
    };
    let shops = deployment.shops.iter().enumerate();
    let relays = deployment.relays.iter().enumerate();
    match who {
        Who::Shop(_) => shops
            .map(|(at, it)| duplicate(it, deployment.shop_port(at)))
            .collect(),
        Who::Relay(_) => relays
            .map(|(at, it)| duplicate(it, deployment.relay_ports(at)[0]))
            .collect(),
        Who::Clients(_) | Who::Remote(_) => Vec::new(),
    }
}

/// Waits until the process listens, or has refused to run because its name is taken; false if
/// neither happens.
async fn listens(duplicate: &mut Program, address: &str) -> anyhow::Result<bool> {
    let began = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        if duplicate.ended()?.is_some() {
            return Ok(true);
        }
        if began.elapsed() > READY {
            return Ok(false);
        }
        pace(LOOK).await;
    }
    Ok(true)
}
