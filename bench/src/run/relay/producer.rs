//! Producer: emits events while a relay delivers them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hapax::{
    event::Headers,
    key::Tenant,
    store::{Keys as _, Transaction as _},
};
use hapax_postgres::{Postgres, Settings};
use tokio::{task::JoinSet, time::sleep_until};

use crate::{
    receive::nanoseconds,
    relay::event,
    sources::{clock, random},
};

/// Number of writers at a fixed rate.
const WRITERS: u64 = 8;

/// A writer of events, with its own connections.
#[derive(Clone, Debug)]
pub(in crate::run) struct Producer(Postgres);

impl Producer {
    /// Opens the store.
    pub(in crate::run) async fn open(url: &str) -> anyhow::Result<Self> {
        let mut settings = Settings::new(url, clock(), random());
        settings.connections = 32;
        let store = Postgres::open(settings).await;
        Ok(Self(store.context("cannot open the store")?))
    }

    /// Emits one event in a transaction, and returns the time after its commit.
    pub(super) async fn one(&self, number: u64, tenant: Option<&Tenant>) -> anyhow::Result<u64> {
        self.some(number..number + 1, tenant).await
    }

    /// Emits several events in one transaction.
    async fn some(
        &self,
        numbers: std::ops::Range<u64>,
        tenant: Option<&Tenant>,
    ) -> anyhow::Result<u64> {
        let mut tx = self.0.begin(tenant.cloned(), Headers::new()).await?;
        for number in numbers {
            tx.emit(event(number))?;
        }
        tx.commit().await?;
        Ok(nanoseconds())
    }

    /// Emits `count` events from number `first` on at a fixed rate, one per transaction. Returns
    /// each number with the time after its commit.
    pub(super) async fn paced(
        &self,
        first: u64,
        count: u64,
        per_second: f64,
    ) -> anyhow::Result<Vec<(u64, u64)>> {
        self.paced_of(first, count, per_second, |_| None).await
    }

    /// The same with a tenant for each event, by its number.
    pub(in crate::run) async fn paced_of(
        &self,
        first: u64,
        count: u64,
        per_second: f64,
        tenant_of: impl Fn(u64) -> Option<Tenant> + Copy + Send + 'static,
    ) -> anyhow::Result<Vec<(u64, u64)>> {
        let start = Instant::now();
        let next = Arc::new(AtomicU64::new(0));
        let mut writers = JoinSet::new();
        for _ in 0..WRITERS {
            let (producer, next) = (self.clone(), Arc::clone(&next));
            writers.spawn(async move {
                let mut commits = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return anyhow::Ok(commits);
                    }
                    let due = Duration::from_secs_f64(to_f64(number) / per_second);
                    sleep_until((start + due).into()).await;
                    let number = first + number;
                    let tenant = tenant_of(number);
                    let committed = producer.one(number, tenant.as_ref()).await?;
                    commits.push((number, committed));
                }
            });
        }
        let mut all = Vec::new();
        while let Some(ended) = writers.join_next().await {
            all.extend(ended.context("a writer panicked")??);
        }
        Ok(all)
    }

    /// Emits `count` events from number `first` on as fast as possible, with `writers` tasks and
    /// `size` events per transaction.
    pub(super) async fn burst(
        &self,
        first: u64,
        count: u64,
        (writers, size): (u64, u64),
    ) -> anyhow::Result<()> {
        let next = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..writers {
            let (producer, next) = (self.clone(), Arc::clone(&next));
            tasks.spawn(async move {
                loop {
                    let from = next.fetch_add(size, Ordering::Relaxed);
                    if from >= count {
                        return anyhow::Ok(());
                    }
                    let numbers = first + from..first + count.min(from + size);
                    producer.some(numbers, None).await?;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.context("a writer panicked")??;
        }
        Ok(())
    }

    /// Begins a transaction, emits one event and leaves the transaction open.
    pub(super) async fn hold_open(&self, number: u64) -> anyhow::Result<Open> {
        let client = super::super::postgres::connect(&self.0.settings().url).await?;
        client.batch_execute("BEGIN").await?;
        let payload = event(number).payload;
        let payload = String::from_utf8_lossy(payload.bytes()).into_owned();
        let emit = "SELECT hapax.emit('order.created', $1::text)";
        let emitted = client.query(emit, &[&payload]).await;
        emitted.context("hapax.emit")?;
        Ok(Open(client))
    }
}

/// An open transaction that has written an event. It is rolled back when dropped.
#[derive(Debug)]
pub(super) struct Open(tokio_postgres::Client);

impl Open {
    /// Commits it, and returns the time after the commit.
    pub(super) async fn commit(self) -> anyhow::Result<u64> {
        self.0.batch_execute("COMMIT").await?;
        Ok(nanoseconds())
    }
}

/// A snapshot that is kept until this is dropped. VACUUM cannot remove rows that it can see.
#[derive(Debug)]
pub(super) struct Pinned(
    #[expect(dead_code, reason = "it keeps the snapshot")] tokio_postgres::Client,
);

impl Pinned {
    /// Takes a snapshot.
    pub(super) async fn take(url: &str) -> anyhow::Result<Self> {
        let client = super::super::postgres::connect(url).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()";
        client.batch_execute(begin).await?;
        Ok(Self(client))
    }
}

#[expect(clippy::cast_precision_loss, reason = "events stay far below 2^53")]
pub(in crate::run) fn to_f64(number: u64) -> f64 {
    number as f64
}
