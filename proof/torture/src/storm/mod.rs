//! The storm: one blow after the other, each in the log before the next.
//!
//! A seed makes the choices. Every so many blows it is calm for a while: whatever happens twice
//! then has no fault to blame. The exhaustive storm goes through every named place, first alone,
//! then each during the recovery from another.

mod blow;
mod blows;
mod plan;

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    lines::{Lines, now},
    town::{Binaries, Town},
};
pub(crate) use blow::{Blow, REPLAYED};
pub(crate) use blows::Blows;
pub(crate) use plan::{exhaustive, places};

/// Blows between two calms.
const CALM_EVERY: u64 = 25;
const CALM: Duration = Duration::from_secs(8);
/// How often memory and disk are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// A storm over a town.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) town: Town,
    pub(crate) binaries: Binaries,
    log: Lines,
    sizes: Lines,
    random: fastrand::Rng,
    deck: plan::Deck,
    looked_at: Instant,
}

impl Storm {
    /// Gathers over `town`, whose folder gets the logs.
    pub(crate) fn over(town: Town, binaries: Binaries, seed: u64) -> anyhow::Result<Self> {
        Ok(Self {
            log: Lines::open(&town.folder.join("faults.jsonl"))?,
            sizes: Lines::open(&town.folder.join("sizes.jsonl"))?,
            town,
            binaries,
            random: fastrand::Rng::with_seed(seed),
            deck: plan::Deck::default(),
            looked_at: Instant::now(),
        })
    }

    /// Strikes at random until the time is over, with these words and numbers alone where some
    /// are given; the numbers of a seed's blows are the same in every run.
    pub(crate) async fn rage(
        &mut self,
        time: Duration,
        words: &[String],
        numbers: Option<&Blows>,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        let last = numbers.and_then(|it| it.0.last().copied());
        for number in 1..=last.unwrap_or(u64::MAX) {
            if Instant::now() > until {
                break;
            }
            let blow = plan::draw(&mut self.random, &self.town, &mut self.deck);
            let gap = Duration::from_millis(self.random.u64(200..2_500));
            let is_left_out = numbers.is_some_and(|it| !it.0.contains(&number));
            if is_left_out || !words.is_empty() && !words.iter().any(|it| it == blow.word()) {
                continue;
            }
            self.strike(number, &blow).await?;
            self.pause(gap).await?;
            if number % CALM_EVERY == 0 {
                self.calm().await?;
            }
        }
        Ok(())
    }

    /// Goes through these, one after the other.
    pub(crate) async fn go_through(&mut self, blows: &[Blow]) -> anyhow::Result<()> {
        for (number, blow) in (1..).zip(blows) {
            self.strike(number, blow).await?;
            self.pause(Duration::from_millis(100)).await?;
        }
        Ok(())
    }

    async fn strike(&mut self, number: u64, blow: &Blow) -> anyhow::Result<()> {
        let mut line = blow.strike(self).await?;
        line["number"] = json!(number);
        self.log.add(&line)?;
        Ok(())
    }

    async fn calm(&mut self) -> anyhow::Result<()> {
        self.town.up().await?;
        let from = now();
        self.pause(CALM).await?;
        self.log
            .add(&json!({ "blow": "calm", "from": from, "until": now() }))?;
        Ok(())
    }

    async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        pace(time).await;
        if self.looked_at.elapsed() > LOOK {
            self.looked_at = Instant::now();
            self.look().await?;
        }
        Ok(())
    }

    /// Writes down what is in use.
    pub(crate) async fn look(&self) -> anyhow::Result<()> {
        self.sizes.add(&self.sizes().await)?;
        Ok(())
    }

    /// Bytes of memory and disk in use, and what no far side would see.
    async fn sizes(&self) -> Value {
        let town = &self.town;
        let resident: serde_json::Map<_, _> = town
            .shops
            .iter()
            .chain(&town.relays)
            .map(|it| (it.name.clone(), json!(it.resident())))
            .collect();
        let disk = match &town.server {
            None => {
                let size = |name| std::fs::metadata(town.home().join(name));
                let size = |name| size(name).map_or(0, |it| it.len());
                json!({ "rows": size("shop.db"), "wal": size("shop.db-wal") })
            }
            Some(server) => sizes_on(server).await.unwrap_or_default(),
        };
        json!({ "at": now(), "resident": resident, "disk": disk })
    }
}

async fn sizes_on(server: &crate::town::Server) -> Option<Value> {
    const ASK: &str = "SELECT json_build_object(
        'rows', pg_database_size(current_database()),
        'outbox', (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                   WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p')),
        'wal', (SELECT sum(size) FROM pg_ls_waldir()),
        'fenced', (SELECT count(*) FROM (
            SELECT epoch, max(epoch) OVER (PARTITION BY part ORDER BY number) AS highest
            FROM hapax.checkpoint_log) AS log WHERE epoch < highest))::text";
    let connected = tokio_postgres::connect(&server.url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.ok()?;
    let connection = tokio::spawn(connection);
    let told = client.query_one(ASK, &[]).await.ok()?;
    drop(client);
    let _ended = connection.await;
    serde_json::from_str(told.get(0)).ok()
}
