//! A second process under the name of the first: two machines with one host name, or a container that
//! was started twice.

use std::time::Duration;

use hapax_testkit::wait::pace;
use tokio::{net::TcpStream, time::Instant};

use super::{Storm, injection::Who};
use crate::deployment::{Deployment, LEASE, Program};

/// How long the second one may take to listen.
const READY: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// Starts for each shop, or for each relay, a process with its host name, node and port at another
/// address of loopback, for so long. One may refuse to run; whether each was there for longer than a
/// lease, or refused.
pub(super) async fn namesakes(
    nemesis: &mut Storm,
    who: Who,
    time: Duration,
) -> anyhow::Result<bool> {
    nemesis.deployment.up().await?;
    // Two relays may own the partition alternately; either answer is acceptable.
    let mut doubles = doubles(&nemesis.deployment, who);
    for (double, _) in &mut doubles {
        double.start()?;
    }
    let mut bit = !doubles.is_empty() && time > LEASE;
    for (double, address) in &mut doubles {
        bit &= listens(double, address).await?;
    }
    let began = Instant::now();
    while began.elapsed() < time {
        pace(LOOK).await;
        for (double, _) in &mut doubles {
            // One that sees whose name it has may end.
            double.ended()?;
        }
    }
    for (mut double, _) in doubles {
        double.stop().await?;
    }
    Ok(bit)
}

/// The second ones, and where each listens.
fn doubles(deployment: &Deployment, who: Who) -> Vec<(Program, String)> {
    let elsewhere = |argument: &str| {
        if argument.starts_with("--listen=") || argument.starts_with("--admin-listen=") {
            argument.replace("127.0.0.1", "127.0.0.2")
        } else {
            argument.to_owned()
        }
    };
    let double = |first: &Program, port: u16| {
        let name = format!("double-{}", first.name);
        let address = format!("127.0.0.2:{port}");
        (first.another(&name, elsewhere), address)
    };
    let shops = deployment.shops.iter().enumerate();
    let relays = deployment.relays.iter().enumerate();
    match who {
        Who::Shop(_) => shops
            .map(|(at, it)| double(it, deployment.shop_port(at)))
            .collect(),
        Who::Relay(_) => relays
            .map(|(at, it)| double(it, deployment.relay_ports(at)[0]))
            .collect(),
        Who::Clients(_) | Who::Far(_) => Vec::new(),
    }
}

/// Waits until the process listens, or has refused to run because its name is taken; false if
/// neither happens.
async fn listens(double: &mut Program, address: &str) -> anyhow::Result<bool> {
    let began = Instant::now();
    while TcpStream::connect(address).await.is_err() {
        if double.ended()?.is_some() {
            return Ok(true);
        }
        if began.elapsed() > READY {
            return Ok(false);
        }
        pace(LOOK).await;
    }
    Ok(true)
}
