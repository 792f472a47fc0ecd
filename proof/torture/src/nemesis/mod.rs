//! Nemesis: injects one fault after the other, each logged before it is injected.
//!
//! A seed determines the choices. After a fixed number of faults the nemesis pauses, so that a
//! duplicate during the pause has no fault to explain it. An exhaustive run goes through every
//! failpoint, first alone, then each during the recovery from another.

mod injection;
mod injections;
mod shop_failpoints;
mod plan;
mod operator;
mod restore;
mod delivering;
mod duplicate_nodes;
mod early_conflicts;
mod stale_caches;
mod flood;
mod unresolved;
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
pub(crate) use injection::{Injection, REPLAY_WINDOW, Who};
pub(crate) use injections::Injections;
pub(crate) use operator::LEDGER;
pub(crate) use plan::{MODES, exhaustive, failpoints};
pub(crate) use restore::IN_PROGRESS;

/// Number of faults between two calm intervals.
const CALM_EVERY: u64 = 25;
const CALM: Duration = Duration::from_secs(8);
/// How long the feed may take until deliveries are prompt again.
const RECOVERS: Duration = Duration::from_secs(30);
/// The longest time of a prompt delivery.
const PROMPT: Duration = Duration::from_secs(1);
/// Number of consecutive prompt events after which delivery counts as prompt: each partition of a
/// destination has its own circuit breaker.
const CANARIES: u32 = 12;
/// How often memory and disk use are measured.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// The nemesis of a deployment.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) deployment: Deployment,
    pub(crate) binaries: Binaries,
    log: Lines,
    sizes: Lines,
    pub(crate) random: fastrand::Rng,
    deck: plan::Deck,
    pub(crate) operator: operator::Operator,
    bodies: flood::Bodies,
    measured_at: Instant,
}

impl Nemesis {
    /// A nemesis whose logs are in the folder of the deployment.
    pub(crate) fn new(
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
            measured_at: Instant::now(),
        })
    }

    /// Injects random faults until the time is over; only the given kinds and numbers, if any are
    /// given. The faults of a seed have the same numbers in every run.
    pub(crate) async fn inject_random(
        &mut self,
        time: Duration,
        kinds: &[String],
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
            if is_left_out || !kinds.is_empty() && !kinds.iter().any(|it| it == injection.kind()) {
                continue;
            }
            self.inject(number, &injection).await?;
            self.pause(gap).await?;
            if number % CALM_EVERY == 0 {
                self.calm().await?;
            }
        }
        Ok(())
    }

    /// Injects these faults, one after the other.
    pub(crate) async fn inject_all(&mut self, injections: &[Injection]) -> anyhow::Result<()> {
        for (number, injection) in (1..).zip(injections) {
            self.inject(number, injection).await?;
            self.pause(Duration::from_millis(100)).await?;
        }
        Ok(())
    }

    /// Injects one fault, and logs it; whether it took effect.
    pub(crate) async fn inject(
        &mut self,
        number: u64,
        injection: &Injection,
    ) -> anyhow::Result<bool> {
        let mut line = injection.inject(self).await?;
        line["number"] = json!(number);
        self.log.add(&line)?;
        Ok(line["took_effect"] == true)
    }

    async fn calm(&mut self) -> anyhow::Result<()> {
        self.deployment.up().await?;
        let from = now();
        self.pause(CALM).await?;
        self.log
            .add(&json!({ "fault": "calm", "from": from, "until": now() }))?;
        Ok(())
    }

    async fn pause(&mut self, time: Duration) -> anyhow::Result<()> {
        pace(time).await;
        if self.measured_at.elapsed() > MEASURE_EVERY {
            self.measured_at = Instant::now();
            self.measure().await?;
        }
        Ok(())
    }

    /// Records memory and disk use.
    pub(crate) async fn measure(&self) -> anyhow::Result<()> {
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
async fn canary(nemesis: &mut Nemesis) -> anyhow::Result<bool> {
    let (began, mut prompt) = (Instant::now(), 0);
    'next: while began.elapsed() < RECOVERS {
        let feed = nemesis.deployment.folder.join("feed.jsonl");
        let end = feed.metadata().map_or(0, |it| it.len());
        let operation = nemesis.operator.new_operation(Operation::order);
        let address = nemesis.deployment.shop_address(0);
        let sent = nemesis
            .operator
            .send(&nemesis.deployment.shops[0].name, &address, &operation);
        let Some(id) = sent.await? else { continue };
        let sent_at = Instant::now();
        while sent_at.elapsed() < PROMPT {
            if lines::contains(&feed, end, &id)? {
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
    const SIZES: &str = "SELECT json_build_object(
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
    let outcome = client.query_one(SIZES, &[]).await.ok()?;
    drop(client);
    let _ended = connection.await;
    serde_json::from_str(outcome.get(0)).ok()
}
