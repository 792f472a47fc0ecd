//! One run: customers at work, a shop that dies and comes back, and what is left.
//!
//! A life ends after a random time, wherever the shop happens to be, or at a
//! named place inside it. After the last death the shop is asked to stop in
//! the middle of its work, and goes on until everything promised is delivered;
//! then it is asked to stop again, started once more, and given one more order.
//! None of these ends explains a delivery that is repeated.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use hapax_testkit::wait::{Patience, eventually};

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

/// How long everything promised may take to arrive once the faults are over.
const DRAIN: Duration = Duration::from_secs(30);
/// How long nothing more may arrive before the rest is given up.
const STALL: Duration = Duration::from_secs(8);
/// How long customers go on after the last death, and again after an orderly stop.
const CALM: Duration = Duration::from_secs(1);
/// How long the shop may take to reach a named place under load.
const REACH: Duration = Duration::from_secs(30);

/// How a life of the shop ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// Killed this long after its start, ready or not.
    Early(Duration),
    /// Killed this long after it was ready.
    Late(Duration),
    /// Killed by itself when it reaches the place for the nth time.
    At(&'static str, u64),
}

/// A run in progress.
#[derive(Debug)]
pub(super) struct Run {
    home: Home,
    market: Arc<Market>,
    deaths: Vec<Death>,
}

impl Run {
    /// Lets customers at a shop whose lives end like this, until all is settled.
    pub(super) async fn through(ends: &[End], seed: u64) -> (Self, Evidence) {
        let stopwatch = Stopwatch::start();
        let receiver = Receiver::start(stopwatch, seed).await;
        let home = Home::new(receiver.url());
        let market = Arc::new(Market::new(Client::of(home.address), receiver, stopwatch));
        let mut run = Self {
            home,
            market,
            deaths: Vec::new(),
        };
        let load = Load::start(&run.market, seed);
        for end in ends {
            let death = run.live(*end).await;
            run.deaths.push(death);
        }
        let evidence = run.live_on(load).await;
        (run, evidence)
    }

    /// Keeps the shop's folder and the history for whoever looks into a failure.
    pub(super) fn keep(mut self, evidence: &Evidence) -> PathBuf {
        let folder = self.home.keep();
        let history = fs::write(folder.join("history.jsonl"), evidence.history.lines());
        history.expect("the history can be written");
        folder
    }

    /// One life, to its end.
    async fn live(&self, end: End) -> Death {
        match end {
            End::Early(life) => {
                let shop = self.home.start(None);
                self.kill_after(shop, life).await
            }
            End::Late(life) => {
                let mut shop = self.home.start(None);
                shop.ready(&self.market.client).await;
                self.kill_after(shop, life).await
            }
            End::At(place, nth) => self.die_at(place, nth).await,
        }
    }

    async fn kill_after(&self, mut shop: Shop, life: Duration) -> Death {
        pass(life).await;
        let earliest = self.market.stopwatch.read();
        shop.kill();
        Death {
            earliest,
            latest: self.market.stopwatch.read(),
        }
    }

    async fn die_at(&self, place: &str, nth: u64) -> Death {
        let mut earliest = self.market.stopwatch.read();
        let mut shop = self.home.start(Some(&format!("{place}:{nth}")));
        let patience = Patience::within(REACH);
        loop {
            let latest = self.market.stopwatch.read();
            if let Some(status) = shop.ended() {
                assert!(
                    died(status),
                    "the shop ended before it reached {place}: {status}"
                );
                return Death { earliest, latest };
            }
            earliest = latest;
            patience.pause().await;
        }
    }

    /// The lives after the last death, each of which ends in order.
    async fn live_on(&self, load: Load) -> Evidence {
        let Market {
            client,
            journal,
            receiver,
            ..
        } = &*self.market;
        let mut shop = self.home.start(None);
        shop.ready(client).await;
        pass(CALM).await;
        shop.stop().await;

        let mut shop = self.home.start(None);
        shop.ready(client).await;
        pass(CALM).await;
        receiver.be_kind();
        load.end().await;
        self.delivered().await;
        shop.stop().await;

        let mut shop = self.home.start(None);
        shop.ready(client).await;
        let mut last = Customer::new(&self.market, "alice", "last".to_owned(), 0);
        last.order().await;
        self.delivered().await;
        let mut evidence = Evidence {
            history: journal.history(),
            deaths: self.deaths.clone(),
            ..Evidence::default()
        };
        evidence.gather(client, self.home.folder()).await;
        shop.stop().await;
        evidence.received = receiver.ledger();
        evidence
    }

    /// Waits until all that was promised is everywhere, or nothing more comes; others judge.
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

    /// Events here and at the demo's receiver, which is asked last, and mails.
    async fn arrived(&self, promised: usize) -> [usize; 3] {
        let here = self.market.receiver.events();
        if here < promised {
            return [here, 0, 0];
        }
        let there = demo_events(&self.market.client).await.len();
        [here, there, mails(self.home.folder()).len()]
    }
}

/// Lets this much time pass.
async fn pass(time: Duration) {
    let age = Stopwatch::start();
    eventually(time + REACH, async || age.read() >= time).await;
}
