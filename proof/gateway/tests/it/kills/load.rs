//! A load of clients that retry, while gateways, service and network fail; then the comparison with
//! the ledger.

use std::{collections::HashMap, io, net::SocketAddr};

use fastrand::Rng;
use futures_util::future::join_all;
use hapax_testkit::{proxy::Proxy, wait::eventually};
use tokio::time::Instant;

use super::{
    nemesis::Deployment,
    report::{Keys, Report},
    traffic::Traffic,
};
use crate::{
    gateway::{Gateway, Home, Store, configuration},
    ledger::{History, Seen},
    upstream::Upstream,
    wire::{Answer, Connection, PATIENCE, digest, order},
};

/// How many connections send every key again at the end.
const DECIDERS: usize = 8;
/// How many unknown outcomes of each kind are decided at the end.
const DECISIONS: usize = 8;

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) on: Store,
    pub(crate) gateways: usize,
    /// How often gateways are killed, at least. The other faults come between the kills.
    pub(crate) kills: usize,
    pub(crate) seed: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_acts_twice_behind_a_gateway_on_sqlite() {
    check(Load {
        on: Store::Sqlite,
        gateways: 1,
        kills: 55,
        seed: 1,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_acts_twice_behind_two_gateways_on_postgresql() {
    check(Load {
        on: Store::Postgres,
        gateways: 2,
        kills: 55,
        seed: 2,
    })
    .await;
}

/// Runs a load, prints its numbers, and fails with every violation, or if a kind of fault took effect
/// too rarely.
#[expect(clippy::print_stdout, reason = "the numbers are for a page")]
pub(crate) async fn check(load: Load) {
    let started = Instant::now();
    let mut random = Rng::with_seed(load.seed);
    let mut upstream = Upstream::python();
    let proxy = Proxy::to(upstream.address().to_string());
    let home = Home::fresh(load.on).await;
    let settings = impatient(&configuration(proxy.address(), ""));
    let mut gateways = Vec::new();
    for _ in 0..load.gateways {
        gateways.push(Gateway::start(&home, &settings).await);
    }
    let addresses = gateways.iter().map(Gateway::address).collect();
    let traffic = Traffic::start(addresses, &mut random);
    let mut deployment = Deployment {
        on: load.on,
        gateways: &mut gateways,
        upstream: &mut upstream,
        proxy: &proxy,
        traffic: &traffic,
    };
    let faults = deployment.disturb(load.kills, &mut random).await;
    let history = traffic.stop().await;
    let results = history.results();
    // A request that the service was late with cannot act any more.
    upstream.restart();
    decide(&gateways, &history).await;
    let ledger = upstream.ledger();
    let mut violations = history.violations(&ledger);
    let mut keys = Keys::of(&history.all(), &ledger);
    if violations.is_empty() {
        keys.decided = decide_unknown(&gateways[0], &upstream, &history).await;
        violations = twice(&upstream);
    }
    let report = Report {
        on: load.on,
        gateways: load.gateways,
        elapsed: started.elapsed(),
        faults,
        lies: upstream.faults(),
        results,
        keys,
        violations,
    };
    println!("{report}");
    report.check();
}

/// Shorter times than in other tests, so that keys of gateways that were killed are soon free, and
/// clients soon go on.
fn impatient(settings: &str) -> String {
    let times = [
        ("wait = \"300ms\"", "wait = \"150ms\""),
        ("lease = \"1500ms\"", "lease = \"800ms\""),
        ("timeout = \"1s\"", "timeout = \"400ms\""),
    ];
    times
        .into_iter()
        .fold(settings.to_owned(), |text, (long, short)| {
            assert!(text.contains(long), "{long} is not in {text}");
            text.replace(long, short)
        })
}

/// Sends every key again until its outcome is known, or known to be unknown.
async fn decide(gateways: &[Gateway], history: &History) {
    let keys: Vec<String> = history.all().into_keys().collect();
    let shares = keys.chunks(keys.len().div_ceil(DECIDERS).max(1));
    let deciders = shares.enumerate().map(|(number, share)| async move {
        let address = gateways[number % gateways.len()].address();
        let mut connection = None;
        for key in share {
            let decided = decided(&mut connection, address, key).await;
            history.add(key, decided);
        }
    });
    join_all(deciders).await;
}

async fn decided(connection: &mut Option<Connection>, address: SocketAddr, key: &str) -> Seen {
    let mut decided = None;
    eventually(PATIENCE, async || {
        let answer = again(connection, address, key).await.ok();
        let seen = Seen::of(answer.as_ref());
        decided = (seen.is_success() || seen.is_unknown()).then_some(seen);
        decided.is_some()
    })
    .await;
    decided.unwrap()
}

/// Sends a key on a connection that is open, or on a new one.
async fn again(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    key: &str,
) -> io::Result<Answer> {
    let mut open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address).await?,
    };
    open.send(&order(key, "")).await?;
    let answer = open.answer().await?;
    *connection = Some(open);
    Ok(answer)
}

/// Decides some unknown outcomes by the ledger, as an operator does, and sends their keys again.
/// Returns how many were decided.
async fn decide_unknown(gateway: &Gateway, upstream: &Upstream, history: &History) -> usize {
    let ledger = upstream.ledger();
    let texts: HashMap<&str, &str> = ledger
        .iter()
        .map(|line| (line.key.as_str(), line.text.as_str()))
        .collect();
    let all = history.all();
    let unknown = all
        .iter()
        .filter(|(_, seen)| seen.last().is_some_and(Seen::is_unknown));
    let (acted, idle): (Vec<&String>, Vec<&String>) = unknown
        .map(|(key, _)| key)
        .partition(|key| texts.contains_key(key.as_str()));
    for key in acted.iter().take(DECISIONS) {
        let text = texts[key.as_str()];
        gateway.decide_happened(key, text);
        let answer = gateway.order(key, "").await;
        let given = (answer.status, answer.text());
        assert_eq!(given, (201, text.to_owned()), "{key}");
    }
    for key in idle.iter().take(DECISIONS) {
        gateway.decide_did_not_happen(key);
        let answer = gateway.order(key, "").await;
        assert_eq!(answer.status, 201, "{key}: {}", answer.text());
        let lines = upstream.lines_of(key);
        assert_eq!(lines.len(), 1, "{key}");
        assert_eq!(lines[0].answer, digest(&answer.body), "{key}");
    }
    acted.len().min(DECISIONS) + idle.len().min(DECISIONS)
}

/// The keys that have two lines in the ledger.
fn twice(upstream: &Upstream) -> Vec<String> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    for line in upstream.ledger() {
        *lines.entry(line.key).or_default() += 1;
    }
    let twice = lines.into_iter().filter(|(_, count)| *count > 1);
    twice
        .map(|(key, count)| format!("{key}: {count} lines"))
        .collect()
}
