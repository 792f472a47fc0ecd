//! Consumers that are killed at random, as is the process that serves them, while writers with slow
//! transactions commit.
//!
//! Each consumer is a process that polls over HTTP, appends what it receives to a ledger on the disk, and
//! then commits the cursor. At the end the checker compares the ledgers with the committed events. The
//! random numbers are seeded; the moments also depend on the speed of the machine.

mod writers;
mod consumer;
mod ledger;
mod checker;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use hapax::Random;
use hapax_testkit::{
    clock::seeded_random,
    port::free_port,
    postgres::Database,
    program::Program,
    wait::{answered, eventually, pace},
};
use tempfile::TempDir;
use tokio_postgres::Client;

use self::{
    consumer::{Settings, consumed},
    ledger::Received,
    writers::{Load, TENANTS},
};
use crate::hapax::{PATIENCE, Relay, migrated, start_relay};

/// The maximum time in which the events are committed and the processes are killed often enough.
const LIMIT: Duration = Duration::from_mins(8);
const COMMITTED: &str = "
    SELECT event_id::text AS event_id, aggregate_id, sequence
    FROM hapax.outbox_event WHERE tenant = $1::text ORDER BY id";
/// Starts the next rotation of the outbox, as the purge does.
const ROTATE: &str = "
    SELECT setval('hapax.outbox_event_id', (last_value >> 36) + 1 << 36)
    FROM hapax.outbox_event_id";
const ROTATIONS: usize = 4;

/// How much is written, and how often it is interrupted.
#[derive(Clone, Copy)]
struct Size {
    /// Least number of events that are committed.
    events: usize,
    /// Most events of one statement.
    batch: u64,
    /// Most events of a page.
    limit_max: u64,
    /// Least number of kills of each consumer and of the process that serves them.
    kills: usize,
}

const SHORT: Size = Size {
    events: 3_000,
    batch: 5,
    limit_max: 100,
    kills: 4,
};
const LONG: Size = Size {
    events: 100_000,
    batch: 20,
    limit_max: 500,
    kills: 30,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn killed_consumers_receive_every_event_once_for_each_commit_of_their_cursor() {
    if !consumed().await {
        check(SHORT).await;
    }
}

mod long {
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn killed_consumers_receive_a_hundred_thousand_events() {
        super::check(super::LONG).await;
    }
}

async fn check(size: Size) {
    let mut run = Run::start(size).await;
    let load = Arc::clone(&run.load);
    let mut writers = Vec::new();
    for seed in 0..8 {
        let client = run.database.client().await;
        let written = writers::write(client, seeded_random(seed), size.batch, Arc::clone(&load));
        writers.push(tokio::spawn(written));
    }
    answered(LIMIT, run.interrupt()).await;
    load.is_over.store(true, Ordering::SeqCst);
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    fs::write(run.folder.path().join("done"), "").unwrap();
    let client = run.database.client().await;
    let mut was_late = false;
    for consumer in &mut run.consumers {
        answered(LIMIT, consumer.drained()).await;
        was_late |= consumer.check(&client).await;
    }
    assert!(was_late, "no transaction committed late");
    run.relay.take().unwrap().stop().await;
}

/// The processes of a run.
struct Run {
    size: Size,
    database: Database,
    /// The ledgers and logs of the consumers, and the file that says that the writers have ended.
    folder: TempDir,
    configuration: String,
    relay: Option<Relay>,
    /// How often the relay was killed.
    kills: usize,
    consumers: Vec<Consumer>,
    load: Arc<Load>,
    random: Random,
}

/// A consumer of one tenant's events.
struct Consumer {
    tenant: &'static str,
    settings: Settings,
    log: PathBuf,
    program: Program,
    /// How often it was killed.
    kills: usize,
}

impl Run {
    async fn start(size: Size) -> Self {
        let database = migrated().await;
        let folder = tempfile::tempdir().unwrap();
        writers::create_table(&database.client().await).await;
        let address = format!("127.0.0.1:{}", free_port());
        let configuration = format!("[poll]\nlisten = \"{address}\"\n");
        let mut consumers = Vec::new();
        for (number, tenant) in (0..).zip(TENANTS) {
            let settings = Settings {
                url: format!("http://{address}/poll/{tenant}"),
                token: super::create(&database, tenant, &["--tenant", tenant]),
                ledger: folder.path().join(format!("{tenant}.ledger")),
                done: folder.path().join("done"),
                keeps_cursor: number == 0,
                limit_max: size.limit_max,
                seed: 1_000_000 * number,
            };
            let log = folder.path().join(format!("{tenant}.log"));
            consumers.push(Consumer {
                tenant,
                program: settings.start(&log),
                settings,
                log,
                kills: 0,
            });
        }
        Self {
            size,
            relay: Some(start_relay(&database.url(), &configuration).await),
            database,
            folder,
            configuration,
            kills: 0,
            consumers,
            load: Arc::default(),
            random: seeded_random(70),
        }
    }

    /// Kills processes at random and starts them again, until enough is written and interrupted.
    /// Meanwhile the outbox rotates.
    async fn interrupt(&mut self) {
        let client = self.database.client().await;
        let mut rotations = 0;
        while !self.is_enough() {
            pace(Duration::from_millis(20 + self.random.bits() % 200)).await;
            let target = self.random.bits() % 4;
            match self.consumers.get_mut(usize::try_from(target).unwrap()) {
                Some(consumer) => consumer.restart(),
                None => self.restart_relay().await,
            }
            let committed = self.load.committed.load(Ordering::SeqCst);
            let part = self.size.events / (ROTATIONS + 1);
            if rotations < ROTATIONS && committed > part * (rotations + 1) {
                client.batch_execute(ROTATE).await.unwrap();
                rotations += 1;
            }
        }
    }

    async fn restart_relay(&mut self) {
        self.relay.take().unwrap().kill();
        self.kills += 1;
        self.relay = Some(start_relay(&self.database.url(), &self.configuration).await);
    }

    /// Whether everything was killed often enough, at least once between the ledger of a consumer and the
    /// commit of its cursor.
    fn is_enough(&self) -> bool {
        let is_killed = |kills: usize| kills >= self.size.kills;
        self.load.committed.load(Ordering::SeqCst) >= self.size.events
            && is_killed(self.kills)
            && self.consumers.iter().all(|it| is_killed(it.kills))
            && self.consumers.iter().any(Consumer::has_repeats)
    }
}

impl Consumer {
    fn restart(&mut self) {
        let has_ended = self.program.has_ended();
        assert!(!has_ended, "{} ended: {}", self.tenant, self.program.log());
        self.program.kill();
        self.kills += 1;
        self.settings.seed += 1;
        self.program = self.settings.start(&self.log);
    }

    /// Waits until it has received everything and has ended. It may take long on a busy machine, so only
    /// a ledger that does not grow any more is too late.
    async fn drained(&mut self) {
        while !self.program.has_ended() {
            let length = self.ledger_length();
            eventually(PATIENCE, async || {
                self.program.has_ended() || self.ledger_length() > length
            })
            .await;
        }
        let status = self.program.ended().await;
        assert!(status.success(), "{status} {}", self.program.log());
    }

    /// The size of the ledger in bytes.
    fn ledger_length(&self) -> u64 {
        fs::metadata(&self.settings.ledger).map_or(0, |file| file.len())
    }

    fn has_repeats(&self) -> bool {
        checker::has_repeats(&ledger::read(&self.settings.ledger))
    }

    /// Compares the ledger with the committed events. Returns whether an event was received after one
    /// with a higher position, because its transaction committed late.
    async fn check(&self, client: &Client) -> bool {
        let rows = client.query(COMMITTED, &[&self.tenant]).await.unwrap();
        let events = rows.iter().map(|row| {
            let (id, aggregate): (String, String) = (row.get("event_id"), row.get("aggregate_id"));
            Received::new(&id, self.tenant, &aggregate, row.get("sequence"))
        });
        let committed: Vec<_> = events.collect();
        let entries = ledger::read(&self.settings.ledger);
        let keeps_cursor = self.settings.keeps_cursor;
        let report = checker::check(self.tenant, &committed, &entries, keeps_cursor);
        let first: Vec<_> = report.violations.iter().take(10).collect();
        assert!(first.is_empty(), "{}: {first:?}", self.tenant);
        report.is_late
    }
}
