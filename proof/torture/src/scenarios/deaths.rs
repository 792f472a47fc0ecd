//! Deaths: shops are killed repeatedly, at random times after they were ready, while they start, and
//! all at once while an event is being delivered.

use std::time::Duration;

use hapax_testkit::wait::pace;

use crate::{
    nemesis::{Injection, Nemesis, Who},
    report::Verdict,
};

use super::{Common, gates, under_load};

/// One in this many kills comes after a pause in which everything settles.
const LONG_EVERY: u64 = 25;
const LONG: Duration = Duration::from_secs(4);
/// One in this many comes while an event is being delivered, which is rare at random times.
const DELIVERING_EVERY: u64 = 10;
/// One in this many comes while the shop starts.
const EARLY_EVERY: u64 = 6;
const GATES: [&str; 11] = [
    "fault: kill",
    "fault: kill again",
    "fault: kill during delivery",
    "fault: term",
    "requests interrupted by a kill",
    "requests interrupted before their commit",
    "requests interrupted after their commit",
    "replays",
    "mismatches",
    "duplicates after a kill",
    "duplicates: receiver: response lost",
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

async fn kill(nemesis: &mut Nemesis, times: u64) -> anyhow::Result<()> {
    for number in 1..=times {
        let shop = Who::Shop(nemesis.random.usize(..nemesis.deployment.shops.len()));
        let millis = Duration::from_millis(nemesis.random.u64(5..150));
        let (pause, kill) = match number {
            _ if number.is_multiple_of(LONG_EVERY) => (LONG, Injection::Kill(shop, Duration::ZERO)),
            _ if number.is_multiple_of(DELIVERING_EVERY) => (millis, Injection::KillDelivering),
            _ if number.is_multiple_of(EARLY_EVERY) => (millis, Injection::KillAgain(shop, millis)),
            _ => (millis, Injection::Kill(shop, Duration::ZERO)),
        };
        nemesis.deployment.up().await?;
        pace(pause).await;
        nemesis.inject(number, &kill).await?;
    }
    Ok(())
}
