//! Crashes: the database server of two shops repeatedly stops as in a crash, and recovers. No shop is
//! killed, and each responds that its server is down.

use std::time::Duration;

use hapax_testkit::wait::pace;

use crate::{
    deployment::Store,
    nemesis::{Injection, Nemesis},
    report::Verdict,
};

use super::{Common, gates, under_load};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// How often the server crashes
    #[arg(long, default_value_t = 20)]
    times: u64,
}

pub(super) async fn run(mut flags: Flags) -> anyhow::Result<Verdict> {
    // An SQLite file has no server.
    flags.common.store = Store::Postgres;
    let gates = gates(&[
        "fault: crash",
        "fault: term",
        "responses while the server was down",
        "replays",
    ]);
    let more = format!("--times {}", flags.times);
    let setup = flags.common.setup("crashes", &more, gates)?;
    under_load(&setup, async |nemesis| crash(nemesis, flags.times).await).await
}

async fn crash(nemesis: &mut Nemesis, times: u64) -> anyhow::Result<()> {
    for number in 1..=times {
        let pause = Duration::from_millis(nemesis.random.u64(20..400));
        pace(pause).await;
        nemesis.inject(number, &Injection::Crash).await?;
    }
    Ok(())
}
