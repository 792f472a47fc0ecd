//! The correctness run: writers, relays that are killed all the time, and far sides that keep books.
//!
//! 24 writers commit and roll back while another holds its transaction open for seconds. Four
//! relays carry what they write; every few seconds one of them is killed, paused past its lease,
//! or told to stop, and started again. A receiver of webhooks keeps its own ledger and knows nothing
//! of the system; consumers behind brokers take each message through their inbox, in the effect's
//! transaction, and forget to acknowledge now and then. In the end the books are compared.
//!
//! `HAPAX_CARRY_SECONDS` says how long (20 by default), `HAPAX_CARRY_SINKS` where to. A run in which
//! no crash hit a relay at work proves nothing, and says so.

#![expect(clippy::unwrap_used, reason = "a run that cannot go on says where")]
#![expect(clippy::print_stdout, reason = "the verdict is for whoever runs it")]

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

/// How long the relays may take to carry what is left once nobody kills them any more.
const CATCH_UP: Duration = Duration::from_mins(2);

/// What a run is made of.
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

    /// How many of them have a consumer behind them.
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

/// Waits until everything that was committed is on the far sides, or for too long.
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
