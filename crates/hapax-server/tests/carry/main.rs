//! Correctness run: writers, relays that are killed again and again, and receivers that record what
//! they receive.
//!
//! In a run, 24 writers commit and roll back transactions, and another writer holds its transaction
//! open for seconds. Four relays deliver the events. Every few seconds one relay is killed, paused
//! for longer than its lease, or stopped, and then started again. A receiver of webhooks keeps a
//! ledger in memory and does not use the database. Consumers read from the brokers, accept each
//! message in the transaction of its effect, and sometimes omit the acknowledgement. At the end,
//! the ledger and the effects are compared with the committed events.
//!
//! `HAPAX_CARRY_SECONDS` sets the length of the run (20 s by default), `HAPAX_CARRY_SINKS` the
//! sinks. If no crash interrupted a delivery, the run proves nothing, and its verdict is UNKNOWN.

#![expect(
    clippy::unwrap_used,
    reason = "a run that cannot continue reports where"
)]
#![expect(
    clippy::print_stdout,
    reason = "the verdict is printed for the operator of the run"
)]

mod writers;
mod relays;
mod receiver;
mod consumers;
mod books;
mod verdict;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hapax_testkit::{postgres::Database, wait::Patience};

use books::Books;
use consumers::{Broker, Consumer};
use receiver::Receiver;
use relays::Fleet;
use verdict::Verdict;

/// The maximum time for the relays to deliver the remaining events after the last fault.
const CATCH_UP: Duration = Duration::from_mins(2);

/// The settings of a run.
#[derive(Debug)]
struct Plan {
    length: Duration,
    sinks: Vec<String>,
}

impl Plan {
    fn asked() -> Self {
        let seconds = variable("HAPAX_CARRY_SECONDS");
        let seconds = seconds.map_or(20, |text| text.parse().expect("a number of seconds"));
        let sinks = variable("HAPAX_CARRY_SINKS");
        let sinks = sinks.unwrap_or_else(|| "webhook,nats,amqp,redis".to_owned());
        Self {
            length: Duration::from_secs(seconds),
            sinks: sinks.split(',').map(str::to_owned).collect(),
        }
    }

    /// The number of sinks whose messages are read by a consumer.
    fn consumers(&self) -> usize {
        self.sinks.iter().filter(|sink| *sink != "webhook").count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_committed_event_arrives_and_has_its_effect_once() {
    let verdict = run(Plan::asked()).await;
    println!("{verdict}");
    assert!(verdict.holds(), "{verdict}");
}

async fn run(plan: Plan) -> Verdict {
    let database = Database::fresh().await;
    relays::migrate(&database.url());
    writers::prepare(&database).await;
    let receiver = Receiver::start();
    let done = Arc::new(AtomicBool::new(false));
    let (mut consumers, mut destinations) = (Vec::new(), String::new());
    for sink in &plan.sinks {
        if sink == "webhook" {
            destinations.push_str(&relays::webhook(&receiver.url()));
            continue;
        }
        let broker = Broker::fresh(sink, database.name()).await;
        destinations.push_str(&relays::broker(sink, &broker.settings()));
        consumers.push(Consumer::start(broker, &database.url(), Arc::clone(&done)));
    }
    let mut fleet = Fleet::start(&database.url(), &destinations).await;
    let writing = writers::start(&database.url(), plan.length);
    fleet.harass(plan.length).await;
    writing.await.unwrap();
    fleet.leave_alone().await;
    let books = catch_up(&database, &receiver, &plan).await;
    let log = fleet.stop().await;
    done.store(true, Ordering::Relaxed);
    let mut forgotten = 0;
    for consumer in consumers {
        forgotten += consumer.end().await;
    }
    Verdict::of(&books, &receiver.ledger(), &log, &plan.sinks, forgotten)
}

/// Waits until all committed events have arrived everywhere, or until the maximum time has passed.
async fn catch_up(database: &Database, receiver: &Receiver, plan: &Plan) -> Books {
    let client = database.client().await;
    let patience = Patience::within(CATCH_UP + Duration::from_secs(5));
    let late = Instant::now() + CATCH_UP;
    let (written, consumers) = (books::written(&client).await, plan.consumers());
    let has_hook = consumers < plan.sinks.len();
    while Instant::now() < late {
        let is_here = !has_hook || receiver.events() >= written;
        if is_here && books::is_done(&client, written, consumers).await {
            break;
        }
        patience.pause().await;
    }
    Books::read(&client, &plan.sinks).await
}

fn variable(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "tests have no configuration")]
    std::env::var(name).ok()
}
