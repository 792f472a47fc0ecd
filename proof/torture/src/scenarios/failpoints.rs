//! Failpoints: a shop dies at each of them, at its first hit, at the first of its recovery, and at a
//! later one under load. On a server another shop goes on meanwhile.

use crate::{
    nemesis::{Injection, Storm, Who, places},
    report::Verdict,
};

use super::{Common, under_load};

/// How often a death at one hit is tried: the hit may belong to another shop.
const TRIES: usize = 3;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// Kills it at these only, such as `relay.offer.after`
    places: Vec<String>,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    let known = places(flags.common.store);
    let places = if flags.places.is_empty() {
        known.clone()
    } else {
        flags.places
    };
    if let Some(unknown) = places.iter().find(|place| !known.contains(place)) {
        anyhow::bail!("{unknown}: expected one of {}", known.join(", "));
    }
    let gates = places
        .iter()
        .map(|place| format!("place: {place}"))
        .collect();
    let setup = flags.common.setup("failpoints", &places.join(" "), gates)?;
    under_load(&setup, async |nemesis| die_at_all(nemesis, &places).await).await
}

async fn die_at_all(nemesis: &mut Storm, places: &[String]) -> anyhow::Result<()> {
    let mut number = 0;
    for place in places {
        let shop = Who::Shop(nemesis.random.usize(..nemesis.deployment.shops.len()));
        for nth in [1, 1, nemesis.random.u64(2..=5)] {
            let death = Injection::Place(shop, format!("{place}:{nth}"));
            for _ in 0..TRIES {
                number += 1;
                if nemesis.strike(number, &death).await? {
                    break;
                }
            }
        }
    }
    Ok(())
}
