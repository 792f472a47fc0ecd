//! A fleet of clients against a shop that is down.
//!
//! A hundred clients, each with a budget of its own as processes would have, place orders while the
//! shop is killed and stays away. An order whose operation fails is kept by its client and sent again
//! later, under the same key. What must hold: the retries of every client stay in its budget in
//! every window, nothing arrives in waves, neither while the shop is down nor when it is back, and
//! in the end every order is there once.
//!
//! `HAPAX_FLEET_SECONDS` says how long the shop is down (5 by default).

#![expect(clippy::unwrap_used, reason = "a run that cannot go on says where")]
#![expect(clippy::print_stdout, reason = "the verdict is for whoever runs it")]

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

/// Clients, each a process of its own as far as budgets go.
const CLIENTS: usize = 100;
/// How long orders are placed before the shop is killed, and after it is back.
const AROUND: Duration = Duration::from_secs(3);

/// How often the process looks whether it is held up, and from how long on it is.
const LOOK: Duration = Duration::from_millis(10);
const HICCUP: Duration = Duration::from_millis(100);

/// When this process did not run, from the start of the load.
#[derive(Clone, Copy, Debug)]
struct Hiccup {
    from: Duration,
    to: Duration,
}

/// When what happened, from the start of the load.
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

/// Takes down when this process itself was held up: its clients then all wake at once, as no fleet
/// of processes does.
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
