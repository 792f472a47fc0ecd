//! Brokers: writers of plain SQL, relays that are killed repeatedly, and consumers that record what
//! they receive.
//!
//! 24 writers commit and roll back transactions, and another writer holds its transaction open for
//! seconds. Four relays deliver the events. Every few seconds one relay is killed, paused for longer
//! than its lease, or stopped, and then started again. A receiver of webhooks keeps a ledger in
//! memory and does not use the database. Consumers read from the brokers, accept each message in the
//! transaction of its effect, and sometimes omit the acknowledgement. At the end, the ledger and the
//! effects are compared with the committed events. If no crash interrupted a delivery, the run
//! proves nothing, and its verdict is UNKNOWN.

mod writers;
mod relays;
mod consumers;
mod broker_rows;
mod verdict;

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hapax_testkit::{
    http::{HttpReceiver, HttpReply},
    postgres::Database,
    wait::pace,
};
use serde_json::Value;

use crate::{
    deployment::Binaries,
    report::{self, print},
    run::fresh,
};

use broker_rows::BrokerRows;
use consumers::{Broker, Consumer};
use relays::Relays;
use verdict::Verdict;

/// How long the relays may take to deliver the remaining events after the last fault.
const CATCH_UP: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Flags {
    /// Length of the run
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Where events are delivered: webhook, nats, amqp, redis, or kafka in a build that has it
    #[arg(long, value_delimiter = ',', default_value = "webhook,nats,amqp,redis")]
    sinks: Vec<String>,
    /// Where the files of the run go [default: target/torture/brokers]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// One request in the ledger of the receiver.
#[derive(Clone, Debug)]
struct Arrival {
    at: Instant,
    id: String,
    nonce: String,
    key: String,
    number: i64,
}

type Ledger = Arc<Mutex<Vec<Arrival>>>;

pub(super) async fn run(flags: Flags) -> anyhow::Result<report::Verdict> {
    let folder = fresh(flags.folder.as_deref(), "brokers")?;
    let (binaries, length) = (Binaries::beside()?, Duration::from_secs(flags.seconds));
    let database = Database::fresh().await;
    binaries.migrate(&database.url())?;
    writers::prepare(&database).await;
    let (receiver, ledger) = receiver().await;
    let done = Arc::new(AtomicBool::new(false));
    let (mut consumers, mut destinations) = (Vec::new(), String::new());
    for sink in &flags.sinks {
        if sink == "webhook" {
            destinations.push_str(&relays::webhook(&receiver.url("/hook")));
            continue;
        }
        let broker = Broker::fresh(sink, database.name()).await;
        destinations.push_str(&relays::broker(sink, &broker.settings()));
        consumers.push(Consumer::start(broker, &database.url(), Arc::clone(&done)));
    }
    let hapax = binaries.path("hapax");
    let mut relays = Relays::start(&folder, &hapax, &database.url(), &destinations).await?;
    let writing = writers::start(&database.url(), length);
    relays.inject_faults(length).await?;
    writing.await?;
    relays.until_all_deliver().await?;
    let rows = catch_up(&database, &ledger, &flags.sinks).await;
    let faults = relays.stop().await?;
    done.store(true, Ordering::Relaxed);
    let mut omitted = 0;
    for consumer in consumers {
        omitted += consumer.end().await;
    }
    let verdict = Verdict::of(&rows, &arrivals(&ledger), &faults, &flags.sinks, omitted);
    print(&verdict.to_string());
    Ok(verdict.outcome())
}

/// A receiver that accepts every request, and its ledger.
async fn receiver() -> (HttpReceiver, Ledger) {
    let (receiver, ledger) = (HttpReceiver::start().await, Ledger::default());
    let writer = Arc::clone(&ledger);
    receiver.reply_with(move |request| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let data = &body["data"];
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        let arrival = Arrival {
            at: Instant::now(),
            id: request.header("webhook-id").unwrap_or_default().to_owned(),
            nonce: text("nonce"),
            key: text("key"),
            number: data["number"].as_i64().unwrap_or_default(),
        };
        writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arrival);
        HttpReply::status(200)
    });
    (receiver, ledger)
}

/// All requests in the order of their arrival.
fn arrivals(ledger: &Ledger) -> Vec<Arrival> {
    ledger
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Waits until all committed events have arrived everywhere, or until the maximum time has passed.
async fn catch_up(database: &Database, ledger: &Ledger, sinks: &[String]) -> BrokerRows {
    let client = database.client().await;
    let late = Instant::now() + CATCH_UP;
    let consumers = sinks.iter().filter(|sink| *sink != "webhook").count();
    let (written, has_hook) = (broker_rows::written(&client).await, consumers < sinks.len());
    while Instant::now() < late {
        let arrivals = arrivals(ledger);
        let events: HashSet<_> = arrivals.iter().map(|it| &it.nonce).collect();
        let is_here = !has_hook || events.len() >= written;
        if is_here && broker_rows::is_done(&client, written, consumers).await {
            break;
        }
        pace(LOOK).await;
    }
    BrokerRows::read(&client, sinks).await
}
