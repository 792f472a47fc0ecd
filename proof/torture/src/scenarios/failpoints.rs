//! Failpoints: a shop is killed at each of them, at the first hit, at the first hit of its recovery,
//! and at a later hit under load. On PostgreSQL another shop runs meanwhile.

use crate::{
    nemesis::{Injection, Nemesis, Who, failpoints},
    report::Verdict,
};

use super::{Common, under_load};

/// How often a kill at one hit is tried: another shop may reach the failpoint instead.
const TRIES: usize = 3;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    #[command(flatten)]
    common: Common,
    /// Uses only these failpoints, such as `relay.offer.after`
    failpoints: Vec<String>,
}

pub(super) async fn run(flags: Flags) -> anyhow::Result<Verdict> {
    let known = failpoints(flags.common.store);
    let failpoints = if flags.failpoints.is_empty() {
        known.clone()
    } else {
        flags.failpoints
    };
    if let Some(unknown) = failpoints.iter().find(|it| !known.contains(it)) {
        anyhow::bail!("{unknown}: expected one of {}", known.join(", "));
    }
    let gates = failpoints
        .iter()
        .map(|it| format!("failpoint: {it}"))
        .collect();
    let setup = flags
        .common
        .setup("failpoints", &failpoints.join(" "), gates)?;
    under_load(&setup, async |nemesis| {
        kill_at_all(nemesis, &failpoints).await
    })
    .await
}

async fn kill_at_all(nemesis: &mut Nemesis, failpoints: &[String]) -> anyhow::Result<()> {
    let mut number = 0;
    for failpoint in failpoints {
        let shop = Who::Shop(nemesis.random.usize(..nemesis.deployment.shops.len()));
        for nth in [1, 1, nemesis.random.u64(2..=5)] {
            let kill = Injection::Failpoint(shop, format!("{failpoint}:{nth}"));
            for _ in 0..TRIES {
                number += 1;
                if nemesis.inject(number, &kill).await? {
                    break;
                }
            }
        }
    }
    Ok(())
}
