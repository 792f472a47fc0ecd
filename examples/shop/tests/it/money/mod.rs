//! The crash matrix: money and parcels agree, wherever the shop dies and however a provider fails.
//!
//! For every boundary of a payment, a refund and a checkout the shop is killed there, started
//! again, and asked again under the same key; for every fault of a provider it is asked while that
//! lasts. The providers are outside and keep ledgers of their own, and those are the judges.
//! `cargo x money` runs every case on both stores and prints the table (`HAPAX_MONEY=full`, or some
//! words of a case). By default every tenth case is run, another one on each store.

pub(crate) mod cases;
mod play;
mod verdict;

use futures_util::{StreamExt as _, stream};

use crate::shop::Store;

use cases::Case;
use verdict::Line;

/// Cases that run at once: each is a shop that mostly waits.
const AT_ONCE: usize = 4;
/// Without being asked for all of them, one of so many.
const SAMPLE: usize = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_and_parcels_agree_on_sqlite() {
    run(Store::Sqlite, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_and_parcels_agree_on_postgres() {
    run(Store::Postgres, 2).await;
}

async fn run(on: Store, offset: usize) {
    let all = cases::all().into_iter();
    let chosen: Vec<Case> = match asked().as_deref() {
        Some("full") => all.collect(),
        Some(words) => all
            .filter(|case| case.blow.words().contains(words))
            .collect(),
        None => all.skip(offset).step_by(SAMPLE).collect(),
    };
    say(&format!("\n{on:?}: {} cases\n{}", chosen.len(), Line::HEAD));
    let played = stream::iter(chosen).map(|case| async move {
        let line = play::play(on, case).await;
        say(&line.to_string());
        line
    });
    let lines: Vec<Line> = played.buffered(AT_ONCE).collect().await;
    let struck = lines.iter().filter(|line| line.was_struck).count();
    assert!(
        struck * 10 >= lines.len() * 7,
        "only {struck} of {} cases struck",
        lines.len()
    );
    let wrong: Vec<_> = lines.iter().filter(|line| !line.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[expect(clippy::print_stdout, reason = "the table is for whoever runs it")]
fn say(line: &str) {
    println!("{line}");
}

fn asked() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var("HAPAX_MONEY").ok()
}
