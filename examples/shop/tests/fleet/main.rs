//! Outage test: a fleet of a hundred clients and a shop that is killed.
//!
//! Each client has a separate retry budget, as separate processes would have. The clients place
//! orders while the shop is killed and stays down. If the operation of an order fails, the client
//! sends the order again later under the same key. The test checks that the retries of each client
//! stay within its budget in every window, that requests do not arrive in waves, neither during the
//! outage nor after it, and that each order exists once at the end.
//!
//! `HAPAX_FLEET_SECONDS` sets the length of the outage (5 s by default).

#![expect(
    clippy::unwrap_used,
    reason = "a run that cannot continue reports where"
)]
#![expect(
    clippy::print_stdout,
    reason = "the verdict is printed for the operator of the run"
)]

mod shop;
mod customer;
mod verdict;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hapax_testkit::wait::pace;
use tokio::{task::JoinSet, time::Instant};

use customer::Customer;
use shop::Home;
use verdict::Verdict;

/// The number of clients. Each has a separate retry budget.
const CLIENTS: usize = 100;
/// The time for which orders are placed before the outage, and after it.
const AROUND: Duration = Duration::from_secs(3);

/// The interval at which the process checks for delays, and the length from which a delay counts.
const LOOK: Duration = Duration::from_millis(10);
const HICCUP: Duration = Duration::from_millis(100);

/// A period in which this process did not run, relative to the start of the load.
#[derive(Clone, Copy, Debug)]
struct Hiccup {
    from: Duration,
    to: Duration,
}

/// The outage of the shop, relative to the start of the load.
#[derive(Clone, Copy, Debug)]
struct Outage {
    from: Duration,
    to: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_gets_through_an_outage_without_waves_and_every_order_is_there_once() {
    let seconds = variable("HAPAX_FLEET_SECONDS");
    let seconds = seconds.map_or(5, |text| text.parse().expect("a number of seconds"));
    let verdict = run(Duration::from_secs(seconds)).await;
    println!("{verdict}");
    let wrong = verdict.wrong();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn run(down: Duration) -> Verdict {
    let home = Home::new();
    let mut shop = home.start();
    shop.ready(&home).await;
    let (start, closing) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut fleet = JoinSet::new();
    for number in 0..CLIENTS {
        let customer = Customer::new(number, home.url("/orders"), start);
        fleet.spawn(customer.buy(Arc::clone(&closing)));
    }
    let hiccups = Arc::<Mutex<Vec<Hiccup>>>::default();
    let watching = tokio::spawn(watch(start, Arc::clone(&hiccups)));
    pace(AROUND).await;
    shop.kill();
    let from = start.elapsed();
    pace(down).await;
    let mut shop = home.start();
    shop.ready(&home).await;
    let to = start.elapsed();
    pace(AROUND).await;
    closing.store(true, Ordering::Relaxed);
    let books = fleet.join_all().await;
    watching.abort();
    let hiccups = std::mem::take(&mut *hiccups.lock().unwrap());
    let orders = home.orders().await;
    drop(shop);
    Verdict::of(Outage { from, to }, &books, &orders, hiccups)
}

/// Records delays of this process. After a delay all clients continue at the same time, which does
/// not happen in a fleet of separate processes.
async fn watch(start: Instant, hiccups: Arc<Mutex<Vec<Hiccup>>>) {
    let mut last = start.elapsed();
    loop {
        pace(LOOK).await;
        let now = start.elapsed();
        if now.saturating_sub(last) > HICCUP {
            hiccups.lock().unwrap().push(Hiccup {
                from: last,
                to: now,
            });
        }
        last = now;
    }
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var(name).ok()
}
