//! Crash matrix: payments and parcels agree wherever the shop is killed and however a provider
//! fails.
//!
//! For each failpoint of a payment, a refund and a checkout, the shop is killed there and started
//! again, and the request is sent again under the same key. For each fault of a provider, the
//! request is sent while the fault lasts. The providers are separate from the shop, and the result
//! is checked against their ledgers. `cargo x money` runs all cases on both stores and prints the
//! table. With `HAPAX_MONEY=full` a test runs all cases, and with another value the cases whose
//! description contains that value. By default it runs every tenth case, with other cases for each
//! store.

pub(crate) mod cases;
mod play;
mod verdict;

use futures_util::{StreamExt as _, stream};

use crate::shop::Store;

use cases::Case;
use verdict::Line;

/// The number of cases that run concurrently. Each runs a shop that mostly waits.
const AT_ONCE: usize = 4;
/// By default, one of this many cases runs.
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
        "only {struck} of {} faults happened",
        lines.len()
    );
    let wrong: Vec<_> = lines.iter().filter(|line| !line.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[expect(
    clippy::print_stdout,
    reason = "the table is printed for the operator of the test"
)]
fn say(line: &str) {
    println!("{line}");
}

fn asked() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var("HAPAX_MONEY").ok()
}
