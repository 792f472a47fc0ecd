//! Nemesis: injects one fault after the other, each logged before it is injected.
//!
//! A seed determines the choices. After a fixed number of faults the nemesis pauses, so that a
//! duplicate during the pause has no fault to explain it. The exhaustive storm goes through every
//! named failpoint, first alone, then each during the recovery from another.

mod injection;
mod injections;
mod plan;
mod operator;
mod restore;
mod delivering;
mod doubles;
mod memories;
mod flood;
mod silence;

use std::time::Duration;

use hapax_testkit::wait::pace;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    clients::Operation,
    deployment::{Binaries, Deployment},
    lines::{self, Lines, now},
};
pub(crate) use injection::{Injection, REPLAYED, Who};
pub(crate) use injections::Injections;
pub(crate) use operator::LEDGER;
pub(crate) use plan::{MODES, exhaustive, places};
pub(crate) use restore::UNDER_WAY;

/// Blows between two calms.
const CALM_EVERY: u64 = 25;
const CALM: Duration = Duration::from_secs(8);
/// How long a feed may take until it is as fast as on a good day, which is this.
const RECOVERS: Duration = Duration::from_secs(30);
const PROMPT: Duration = Duration::from_secs(1);
/// Number of consecutive prompt events after which delivery counts as prompt: each partition of a
/// destination has its own circuit breaker.
const CANARIES: u32 = 12;
/// How often memory and disk are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// A nemesis for a deployment.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) deployment: Deployment,
    pub(crate) binaries: Binaries,
    log: Lines,
    sizes: Lines,
    pub(crate) random: fastrand::Rng,
    deck: plan::Deck,
    pub(crate) operator: operator::Operator,
    bodies: flood::Bodies,
    looked_at: Instant,
}

impl Storm {
    /// Gathers over `deployment`, whose folder gets the logs.
    pub(crate) fn over(
        deployment: Deployment,
        binaries: Binaries,
        seed: u64,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            log: Lines::open(&deployment.folder.join("faults.jsonl"))?,
            sizes: Lines::open(&deployment.folder.join("sizes.jsonl"))?,
            operator: operator::Operator::of(&deployment.folder)?,
            bodies: flood::Bodies::default(),
            deployment,
            binaries,
            random: fastrand::Rng::with_seed(seed),
            deck: plan::Deck::default(),
            looked_at: Instant::now(),
        })
    }

    /// Injects random faults until the time is over; only the given kinds and numbers, if any are
    /// given. The faults of a seed have the same numbers in every run.
    pub(crate) async fn rage(
        &mut self,
        time: Duration,
        words: &[String],
        numbers: Option<&Injections>,
    ) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        let last = numbers.and_then(|it| it.0.last().copied());
        for number in 1..=last.unwrap_or(u64::MAX) {
            if Instant::now() > until {
                break;
            }
            let injection = plan::draw(&mut self.random, &self.deployment, &mut self.deck);
            let gap = Duration::from_millis(self.random.u64(200..2_500));
            let is_left_out = numbers.is_some_and(|it| !it.0.contains(&number));
            if is_left_out || !words.is_empty() && !words.iter().any(|it| it == injection.word()) {
                continue;
            }
            self.strike(number, &injection).await?;
            self.pause(gap).await?;
            if number % CALM_EVERY == 0 {
                self.calm().await?;
            }
        }
        Ok(())
    }

    /// Goes through these, one after the other.
    pub(crate) async fn go_through(&mut self, injections: &[Injection]) -> anyhow::Result<()> {
        for (number, injection) in (1..).zip(injections) {
            self.strike(number, injection).await?;
            self.pause(Duration::from_millis(100)).await?;
        }
        Ok(())
    }

    /// Injects one fault, and logs it; whether it had an effect.
    pub(crate) async fn strike(
        &mut self,
        number: u64,
        injection: &Injection,
    ) -> anyhow::Result<bool> {
        let mut line = injection.strike(self).await?;
        line["number"] = json!(number);
        self.log.add(&line)?;
        Ok(line["bit"] == true)
    }

    async fn calm(&mut self) -> anyhow::Result<()> {
        self.deployment.up().await?;
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

    /// Memory and disk use in bytes, and state that is invisible to receivers.
    async fn sizes(&self) -> Value {
        let deployment = &self.deployment;
        let resident: serde_json::Map<_, _> = deployment
            .shops
            .iter()
            .chain(&deployment.relays)
            .map(|it| (it.name.clone(), json!(it.resident())))
            .collect();
        let disk = match &deployment.server {
            None => {
                let size = |name| std::fs::metadata(deployment.home().join(name));
                let size = |name| size(name).map_or(0, |it| it.len());
                json!({ "rows": size("shop.db"), "wal": size("shop.db-wal") })
            }
            Some(server) => sizes_on(server).await.unwrap_or_default(),
        };
        json!({ "at": now(), "resident": resident, "disk": disk })
    }
}

/// Waits until events reach the feed as fast as without faults, in every partition; false if they
/// do not.
async fn canary(nemesis: &mut Storm) -> anyhow::Result<bool> {
    let (began, mut prompt) = (Instant::now(), 0);
    'next: while began.elapsed() < RECOVERS {
        let feed = nemesis.deployment.folder.join("feed.jsonl");
        let end = feed.metadata().map_or(0, |it| it.len());
        let operation = nemesis.operator.want(Operation::order);
        let address = nemesis.deployment.shop_address(0);
        let asked = nemesis
            .operator
            .ask(&nemesis.deployment.shops[0].name, &address, &operation);
        let Some(id) = asked.await? else { continue };
        let asked = Instant::now();
        while asked.elapsed() < PROMPT {
            if lines::has_said(&feed, end, &id)? {
                prompt += 1;
                if prompt == CANARIES {
                    return Ok(true);
                }
                continue 'next;
            }
            pace(Duration::from_millis(20)).await;
        }
        prompt = 0;
    }
    Ok(false)
}

/// Waits for this time, in which events are expected to arrive; the log line contains its start and
/// end.
async fn watch(time: Duration, line: &mut Value) {
    let from = now();
    pace(time).await;
    line["watched"] = json!([from, now()]);
}

async fn sizes_on(server: &crate::deployment::Server) -> Option<Value> {
    const ASK: &str = "SELECT json_build_object(
        'rows', pg_database_size(current_database()),
        'outbox', (SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                   WHERE relnamespace = 'hapax'::regnamespace AND relkind IN ('r', 'p')),
        'wal', (SELECT sum(size) FROM pg_ls_waldir()),
        'fenced', (SELECT count(*) FROM (
            SELECT epoch, max(epoch) OVER (PARTITION BY partition ORDER BY number) AS highest
            FROM hapax.checkpoint_log) AS log WHERE epoch < highest))::text";
    let connected = tokio_postgres::connect(&server.url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.ok()?;
    let connection = tokio::spawn(connection);
    let outcome = client.query_one(ASK, &[]).await.ok()?;
    drop(client);
    let _ended = connection.await;
    serde_json::from_str(outcome.get(0)).ok()
}
