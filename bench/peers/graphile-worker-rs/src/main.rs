//! graphile_worker (Rust): drains jobs that do nothing, with the settings of graphile_worker's
//! benchmark.
//!
//! `fill URL JOBS` creates the schema and the jobs; `drain URL JOBS QUEUES` prints
//! `{"seconds": ...}`: the time from the first fetch until every job is done and committed.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext,
    WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

const FILL: u64 = 10_000;
const CONNECTIONS: u32 = 20;
/// The settings of the library's own benchmark.
const CONCURRENCY: usize = 500;
const LOCAL_QUEUE: usize = 5_000;
const BATCH_DELAY: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Nothing {
    n: u64,
    customer_id: String,
    amount: u32,
    currency: String,
    note: String,
}

#[derive(Clone, Debug)]
struct Done(Arc<AtomicU64>);

impl TaskHandler for Nothing {
    const IDENTIFIER: &'static str = "nothing";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(done) = context.get_ext::<Done>() {
            done.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() -> Anyhow<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [part, url, jobs, more @ ..] = &arguments[..] else {
        return Err("graphile-worker-rs fill|drain URL JOBS [QUEUES]".into());
    };
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect(url)
        .await?;
    let jobs: u64 = jobs.parse()?;
    if part == "fill" {
        return fill(pool, jobs).await;
    }
    let queues = more.first().map_or(Ok(1), |queues| queues.parse())?;
    drain(pool, jobs, queues).await
}

async fn fill(pool: PgPool, jobs: u64) -> Anyhow<()> {
    let worker = WorkerOptions::default()
        .pg_pool(pool)
        .define_job::<Nothing>()
        .init()
        .await?;
    let utils = worker.create_utils();
    for first in (0..jobs).step_by(FILL as usize) {
        let batch = (first..jobs.min(first + FILL)).map(|n| RawJobSpec {
            identifier: Nothing::IDENTIFIER.to_owned(),
            payload: serde_json::json!({
                "n": n, "customer_id": "cus_bench", "amount": 1299, "currency": "EUR",
                "note": "two mugs, blue",
            }),
            spec: JobSpec::default(),
        });
        utils.add_raw_jobs(&batch.collect::<Vec<_>>()).await?;
    }
    Ok(())
}

async fn drain(pool: PgPool, jobs: u64, queues: usize) -> Anyhow<()> {
    let done = Done(Arc::default());
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .concurrency(CONCURRENCY)
        .poll_interval(Duration::from_millis(5))
        .complete_job_batch_delay(BATCH_DELAY)
        .local_queue(
            LocalQueueConfig::default()
                .with_size(LOCAL_QUEUE / queues.max(1))
                .with_queue_count(queues.max(1)),
        )
        .add_extension(done.clone())
        .define_job::<Nothing>()
        .init()
        .await?;
    let worker = Arc::new(worker);
    let start = Instant::now();
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await.map_err(|error| error.to_string()) }
    });
    while done.0.load(Ordering::Relaxed) < jobs {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // Every job has run. The shutdown commits the last completions.
    worker.request_shutdown();
    running.await??;
    let seconds = start.elapsed().as_secs_f64();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM graphile_worker._private_jobs")
        .fetch_one(&pool)
        .await?;
    let done = done.0.load(Ordering::Relaxed);
    if done != jobs || left != 0 {
        return Err(format!("{done} jobs were done of {jobs}, and {left} are left").into());
    }
    println!("{{\"seconds\": {seconds}}}");
    Ok(())
}
