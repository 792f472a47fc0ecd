//! What a shop has in its memory against what stands in the store: keys that are deleted, or expire,
//! while several shops know their answers.

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::Value;

use super::{Storm, blow::operate};
use crate::{
    clients::Wish,
    lines::now,
    town::{self, Program, Town},
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
pub(super) async fn purge(storm: &mut Storm) -> anyhow::Result<bool> {
    if storm.town.server.is_none() {
        return Ok(false);
    }
    storm.town.up().await?;
    let wishes: Vec<_> = (0..KEYS)
        .map(|_| storm.operator.want(Wish::order))
        .collect();
    let mut bit = true;
    for wish in &wishes {
        bit &= ask_all(storm, wish).await?;
    }
    for wish in &wishes {
        // Every shop has the answer in its memory before, and has had to hear of the purge after.
        purge_key(storm, wish).await?;
        storm.operator.note("purged", wish)?;
    }
    pace(HEARD).await;
    for wish in &wishes {
        bit &= ask_all(storm, wish).await?;
    }
    Ok(bit)
}

/// Deletes a key as an operator does.
async fn purge_key(storm: &Storm, wish: &Wish) -> anyhow::Result<bool> {
    let words = ["keys", "purge", "POST /orders", &wish.key];
    let more = ["--tenant", &wish.tenant, "--reason", "torture"];
    operate(storm, &[&words[..], &more[..]].concat()).await
}

/// Asks every shop for a wish, more than once; whether all had an answer.
async fn ask_all(storm: &Storm, wish: &Wish) -> anyhow::Result<bool> {
    let mut all = true;
    for _ in 0..ASKED {
        for at in 0..storm.town.shops.len() {
            let address = storm.town.shop_address(at);
            let name = &storm.town.shops[at].name;
            all &= storm.operator.ask(name, &address, wish).await?.is_some();
        }
    }
    Ok(all)
}

/// A third shop, whose answers are kept for seconds, has a clock that steps an hour: what it remembers
/// expires by the database's clock all the same, and a payment that it shares with another shop
/// is one.
pub(super) async fn hour(storm: &mut Storm, line: &mut Value) -> anyhow::Result<bool> {
    if storm.town.server.is_none() {
        return Ok(false);
    }
    storm.town.up().await?;
    let port = hapax_testkit::port::free_port();
    let mut guest = guest(&storm.town, port);
    guest.start()?;
    let listens = town::is_ready(&storm.town.http, &mut guest, port).await?;
    if listens.is_some() {
        anyhow::bail!("{} ended before it was ready", guest.name);
    }
    let address = format!("127.0.0.1:{port}");
    let mut bit = true;
    for hours in [-1, 1] {
        let order = storm.operator.want(Wish::order);
        for _ in 0..ASKED {
            let asked = storm.operator.ask(&guest.name, &address, &order).await?;
            bit &= asked.is_some();
        }
        set_clock(&guest, hours);
        line["steps"] = hours.into();
        // Two shops at once, of which one has a clock that is an hour off.
        let payment = storm.operator.want(Wish::payment);
        let other = storm.town.shop_address(0);
        let asked = futures_util::future::try_join(
            storm.operator.ask(&guest.name, &address, &payment),
            storm
                .operator
                .ask(&storm.town.shops[0].name, &other, &payment),
        );
        let (one, two) = asked.await?;
        bit &= one.is_some() && two.is_some();
        pace(RETENTION).await;
        storm.operator.note("expired", &order)?;
        pace(HEARD).await;
        // The answer that is kept longer comes first.
        for (name, address) in [
            (&storm.town.shops[0].name, &other),
            (&guest.name, &address),
            (&guest.name, &address),
        ] {
            bit &= storm.operator.ask(name, address, &order).await?.is_some();
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

/// A shop that carries nothing, at this port.
fn guest(town: &Town, port: u16) -> Program {
    let of_its_own = |argument: &str| match argument.split_once('=') {
        Some(("--listen", _)) => format!("--listen=127.0.0.1:{port}"),
        Some(("--retention", _)) => format!("--retention={}s", RETENTION.as_secs()),
        _ => argument.to_owned(),
    };
    let last = town.shops.len() - 1;
    let mut guest = town.shops[last].another("guest", of_its_own);
    guest.add_argument("--no-relay".to_owned());
    guest.in_trouble(&town.trouble)
}
