//! Writers whose transactions stay open for random times, and are sometimes rolled back.
//!
//! A transaction locks its aggregate and numbers its events. So the numbers of the committed events of an
//! aggregate have no gaps and are in the order of the commits.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use hapax::Random;
use tokio_postgres::Client;

pub(super) const TENANTS: [&str; 3] = ["ann", "bob", "cleo"];
/// Aggregates of each tenant.
const AGGREGATES: u64 = 4;
/// The last number of each aggregate.
const CREATE: &str = "CREATE TABLE aggregate (name text PRIMARY KEY, last bigint NOT NULL)";
const EMIT: &str = "
    WITH numbered AS (
        INSERT INTO aggregate (name, last) VALUES ($2::text, $3::bigint)
        ON CONFLICT (name) DO UPDATE SET last = aggregate.last + $3::bigint
        RETURNING last
    )
    INSERT INTO hapax.outbox_event
        (event_id, type, tenant, aggregate_type, aggregate_id, sequence, payload, headers, created_at)
    SELECT gen_random_uuid(), 'a', $1::text, 'key', $2::text, number, '{}', '{}', now()
    FROM numbered, generate_series(numbered.last - $3::bigint + 1, numbered.last) AS number
    ORDER BY number";

/// The progress of the writers, and the signal that ends them.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Number of committed events.
    pub(super) committed: AtomicUsize,
    pub(super) is_over: AtomicBool,
}

pub(super) async fn create_table(client: &Client) {
    client.batch_execute(CREATE).await.unwrap();
}

/// Writes until the load is over.
pub(super) async fn write(client: Client, random: Random, batch: u64, load: Arc<Load>) {
    let below = |end: u64| random.bits() % end;
    while !load.is_over.load(Ordering::SeqCst) {
        client.batch_execute("BEGIN").await.unwrap();
        let tenant = TENANTS[usize::try_from(below(3)).unwrap()];
        let aggregate = format!("{tenant}-{}", below(AGGREGATES));
        let mut written = 0;
        for _ in 0..=below(3) {
            let count = i64::try_from(1 + below(batch)).unwrap();
            let emitted = client.execute(EMIT, &[&tenant, &aggregate, &count]).await;
            written += usize::try_from(emitted.unwrap()).unwrap();
            let millis = match below(100) {
                0 => 300,
                1..30 => below(60),
                _ => continue,
            };
            let sleep = format!("SELECT pg_sleep({millis} / 1000.0)");
            client.batch_execute(&sleep).await.unwrap();
        }
        if below(4) == 0 {
            client.batch_execute("ROLLBACK").await.unwrap();
        } else {
            client.batch_execute("COMMIT").await.unwrap();
            load.committed.fetch_add(written, Ordering::SeqCst);
        }
    }
}
