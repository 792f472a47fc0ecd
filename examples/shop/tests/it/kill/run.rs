//! One run: customers send requests to a shop that is killed and started again.
//!
//! A life of the shop ends after a random time, while an event is being delivered, or at a
//! failpoint. On PostgreSQL there are two instances with one database, and one of them is killed
//! while the other keeps running. After the last death the shop is stopped under load with SIGTERM,
//! and started again until all acknowledged effects are delivered. Then it is stopped once more,
//! started, and gets one more order. These orderly stops must not cause repeated deliveries.

use std::{collections::HashSet, fs, ops::Range, path::PathBuf, sync::Arc, time::Duration};

use hapax_testkit::{
    postgres::{Cluster, Database},
    wait::{Patience, pace},
};

use super::{
    client::Client,
    customer::Customer,
    evidence::{Death, Evidence, demo_events, mails},
    journal::{Operation, Stopwatch},
    load::Load,
    market::Market,
    receiver::Receiver,
    shop::{Home, Shop, died},
};
use crate::{shop::Store, simulated_providers::Providers};

/// The maximum time for the remaining deliveries after the faults have ended.
const DRAIN: Duration = Duration::from_secs(30);
/// If nothing arrives for this time, the run does not wait any longer.
const STALL: Duration = Duration::from_secs(8);
/// The time for which customers continue after the last death, and after an orderly stop.
const CALM: Duration = Duration::from_secs(1);
/// The maximum time until the shop reaches a failpoint under load.
const REACH: Duration = Duration::from_secs(90);
/// After its start, an instance may take destinations over from another instance for this time.
const TAKING: Duration = Duration::from_secs(2);

/// The end of a life of the shop.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The shop is killed this long after its start, even if it is not ready.
    Early(Duration),
    /// The shop is killed this long after it was ready.
    Late(Duration),
    /// All instances are killed at once while an event is being delivered: it was accepted, and the
    /// response is outstanding.
    Carrying,
    /// The shop kills itself when it reaches the failpoint for the nth time.
    At(&'static str, u64),
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct Run {
    homes: Vec<Home>,
    /// The running instances.
    shops: Vec<Option<Shop>>,
    market: Arc<Market>,
    rng: fastrand::Rng,
    deaths: Vec<Death>,
    upheavals: Vec<Death>,
    /// The providers, which are not killed.
    providers: Providers,
    /// The database is kept until the end of the run.
    _database: Option<Database>,
}

impl Run {
    /// Runs customers and a shop with these ends of its lives, until everything is settled.
    pub(super) async fn through(on: Store, ends: &[End], seed: u64) -> (Self, Evidence) {
        let database = match on {
            Store::Sqlite => None,
            Store::Postgres => Some(Database::fresh().await),
        };
        let mut run = Self::begin(database, seed).await;
        let load = Load::start(&run.market, seed);
        for end in ends {
            run.live(*end).await;
        }
        let evidence = run.live_on(load).await;
        (run, evidence)
    }

    /// Runs customers and two instances. The database server crashes after each of these lives, and
    /// recovers.
    pub(super) async fn through_crashes(
        cluster: &mut Cluster,
        lives: impl IntoIterator<Item = Duration>,
        seed: u64,
    ) -> (Self, Evidence) {
        let database = Database::on(&cluster.url()).await;
        let mut run = Self::begin(Some(database), seed).await;
        let load = Load::start(&run.market, seed);
        run.up().await;
        for life in lives {
            pace(life).await;
            let earliest = run.market.stopwatch.read();
            cluster.stop_immediate().await;
            cluster.start_again().await;
            let latest = run.market.stopwatch.read();
            run.upheavals.push(Death { earliest, latest });
        }
        let evidence = run.live_on(load).await;
        (run, evidence)
    }

    async fn begin(database: Option<Database>, seed: u64) -> Self {
        let stopwatch = Stopwatch::start();
        let receiver = Receiver::start(stopwatch, seed).await;
        let instances = if database.is_some() { 2 } else { 1 };
        let providers = Providers::start();
        let url = || database.as_ref().map(Database::url);
        let home = |_| Home::new(receiver.url(), url(), &providers);
        let homes: Vec<_> = (0..instances).map(home).collect();
        let client = Client::of(homes.iter().map(|home| home.address));
        Self {
            shops: homes.iter().map(|_| None).collect(),
            homes,
            market: Arc::new(Market::new(client, receiver, stopwatch)),
            rng: fastrand::Rng::with_seed(seed),
            deaths: Vec::new(),
            upheavals: Vec::new(),
            providers,
            _database: database,
        }
    }

    /// Keeps the folders of the shop and the history for the analysis of a failure.
    pub(super) fn keep(mut self, evidence: &Evidence) -> PathBuf {
        let folders: Vec<_> = self.homes.iter_mut().map(Home::keep).collect();
        let history = fs::write(folders[0].join("history.jsonl"), evidence.history.lines());
        history.expect("the history can be written");
        folders[0].clone()
    }

    /// Runs one life of one instance to its end, while the other instances are running.
    async fn live(&mut self, end: End) {
        let one = self.rng.usize(..self.homes.len());
        for other in (0..self.homes.len()).filter(|other| *other != one) {
            self.ready(other).await;
        }
        match end {
            End::Early(life) => {
                self.start(one, None);
                self.kill_after(one, life).await;
            }
            End::Late(life) => {
                self.ready(one).await;
                self.kill_after(one, life).await;
            }
            End::Carrying => {
                self.ready(one).await;
                let taken = self.market.receiver.hold_next();
                let taken = tokio::time::timeout(REACH, taken).await;
                assert!(matches!(taken, Ok(Ok(()))), "no event was being delivered");
                self.kill(0..self.homes.len());
            }
            End::At(place, nth) => {
                if self.shops[one].is_some() {
                    self.kill_after(one, Duration::ZERO).await;
                }
                self.die_at(one, place, nth).await;
            }
        }
    }

    /// Starts an instance, unless it is running.
    fn start(&mut self, one: usize, failpoint: Option<&str>) {
        if self.shops[one].is_some() {
            return;
        }
        if self.homes.len() > 1 {
            let earliest = self.market.stopwatch.read();
            let latest = earliest + TAKING;
            self.upheavals.push(Death { earliest, latest });
        }
        self.shops[one] = Some(self.homes[one].start(failpoint));
    }

    /// Starts an instance if necessary, and waits until it is ready.
    async fn ready(&mut self, one: usize) {
        self.start(one, None);
        let client = self.market.client.at(self.homes[one].address);
        if let Some(shop) = &mut self.shops[one] {
            shop.ready(&client).await;
        }
    }

    async fn kill_after(&mut self, one: usize, life: Duration) {
        pace(life).await;
        self.kill(one..one + 1);
    }

    /// Kills these instances, and records one death.
    fn kill(&mut self, instances: Range<usize>) {
        let earliest = self.market.stopwatch.read();
        for mut shop in self.shops[instances].iter_mut().filter_map(Option::take) {
            shop.kill();
        }
        let latest = self.market.stopwatch.read();
        self.deaths.push(Death { earliest, latest });
    }

    async fn die_at(&mut self, one: usize, place: &str, nth: u64) {
        let mut earliest = self.market.stopwatch.read();
        self.start(one, Some(&format!("{place}:{nth}")));
        let mut shop = self.shops[one].take().expect("it was just started");
        let patience = Patience::within(REACH);
        loop {
            let latest = self.market.stopwatch.read();
            if let Some(status) = shop.ended() {
                assert!(
                    died(status),
                    "the shop ended before it reached {place}: {status}"
                );
                return self.deaths.push(Death { earliest, latest });
            }
            earliest = latest;
            patience.pause().await;
        }
    }

    /// Starts all instances, and waits until they are ready.
    async fn up(&mut self) {
        for one in 0..self.homes.len() {
            self.ready(one).await;
        }
    }

    /// Stops all instances, and waits until they have ended.
    async fn down(&mut self) {
        for shop in self.shops.iter_mut().filter_map(Option::take) {
            shop.stop().await;
        }
    }

    /// Runs the lives after the last death, each of which ends with an orderly stop.
    async fn live_on(&mut self, load: Load) -> Evidence {
        let market = Arc::clone(&self.market);
        self.up().await;
        pace(CALM).await;
        self.down().await;

        self.up().await;
        pace(CALM).await;
        market.receiver.be_kind();
        load.end().await;
        self.delivered().await;
        self.down().await;

        self.up().await;
        let mut last = Customer::new(&market, "alice", "last".to_owned(), 0);
        last.order().await;
        self.delivered().await;
        let mut evidence = Evidence {
            history: market.journal.history(),
            deaths: self.deaths.clone(),
            upheavals: self.upheavals.clone(),
            ..Evidence::default()
        };
        evidence.gather(&market.client, &self.homes).await;
        self.down().await;
        evidence.received = market.receiver.ledger();
        evidence.provider = self.providers.entries().await;
        evidence
    }

    /// Waits until everything acknowledged has been delivered, or nothing arrives any more. The
    /// checkers find what is missing.
    async fn delivered(&self) {
        let history = self.market.journal.history();
        let signups = history.intents.iter();
        let signups = signups.filter(|intent| intent.operation == Operation::Signup);
        let promised = [
            self.market.promised(),
            self.market.promised(),
            signups.count(),
        ];
        let (waited, patience) = (Stopwatch::start(), Patience::within(DRAIN * 2));
        let (mut arrived, mut last_came) = ([0; 3], Duration::ZERO);
        while waited.read() < DRAIN.min(last_came + STALL) {
            let now = self.arrived(promised[0]).await;
            if now
                .iter()
                .zip(promised)
                .all(|(now, promised)| *now >= promised)
            {
                return;
            }
            if now != arrived {
                (arrived, last_came) = (now, waited.read());
            }
            patience.pause().await;
        }
    }

    /// The number of events at this receiver and at the demo's receivers, and the number of mails.
    /// The demo's receivers are asked only if the other numbers are complete.
    async fn arrived(&self, promised: usize) -> [usize; 3] {
        let here = self.market.receiver.events();
        if here < promised {
            return [here, 0, 0];
        }
        let mut there = HashSet::new();
        for home in &self.homes {
            let events = demo_events(&self.market.client.at(home.address)).await;
            there.extend(events.iter().map(|event| event["event_id"].to_string()));
        }
        [here, there.len(), mails(&self.homes).len()]
    }
}
