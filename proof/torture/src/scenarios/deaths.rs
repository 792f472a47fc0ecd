//! Deaths: shops are killed again and again, at random times after they took requests, while they
//! start, and all at once while an event is being delivered.

use std::time::Duration;

use hapax_testkit::wait::pace;

use crate::{
    nemesis::{Injection, Storm, Who},
    report::Verdict,
};

use super::{Common, gates, under_load};

/// One of so many lives is long enough that everything is settled well before its end.
const LONG_EVERY: u64 = 25;
const LONG: Duration = Duration::from_secs(4);
/// One of so many ends while an event is being delivered, which a random kill seldom does.
const DELIVERING_EVERY: u64 = 10;
/// One of so many ends while it starts.
const EARLY_EVERY: u64 = 6;
const GATES: [&str; 11] = [
    "blow: kill",
    "blow: kill again",
    "blow: kill delivering",
    "blow: term",
    "requests cut off by a death",
    "requests cut off before their commit",
    "requests cut off after their commit",
    "replays",
    "mismatches",
    "repeated because of a death",
    "repeated: receiver: lost",
];

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// How often a shop is killed
    #[arg(long, default_value_t = 50)]
    times: u64,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    let more = format!("--times {}", flags.times);
    let setup = flags.common.setup("deaths", &more, gates(&GATES))?;
    under_load(&setup, async |nemesis| kill(nemesis, flags.times).await).await
}

async fn kill(nemesis: &mut Storm, times: u64) -> anyhow::Result<()> {
    for life in 1..=times {
        let shop = Who::Shop(nemesis.random.usize(..nemesis.deployment.shops.len()));
        let millis = Duration::from_millis(nemesis.random.u64(5..150));
        let (life_time, death) = match life {
            _ if life.is_multiple_of(LONG_EVERY) => (LONG, Injection::Kill(shop, Duration::ZERO)),
            _ if life.is_multiple_of(DELIVERING_EVERY) => (millis, Injection::KillDelivering),
            _ if life.is_multiple_of(EARLY_EVERY) => (millis, Injection::KillAgain(shop, millis)),
            _ => (millis, Injection::Kill(shop, Duration::ZERO)),
        };
        nemesis.deployment.up().await?;
        pace(life_time).await;
        nemesis.strike(life, &death).await?;
    }
    Ok(())
}
