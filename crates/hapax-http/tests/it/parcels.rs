//! A service whose handlers insert parcels, on a separate PostgreSQL database.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use hapax_postgres::Postgres;
use hapax_testkit::{
    clock::{seeded_random, system_clock},
    postgres::Database,
};

use crate::stage::Sent;

pub(crate) const TABLE: &str = "CREATE TABLE parcel (id text PRIMARY KEY)";
pub(crate) const INSERT: &str = "INSERT INTO parcel VALUES ($1)";
/// The primary key of the table.
pub(crate) const ID: &str = "parcel_pkey";

/// How often the handlers have run.
pub(crate) type Runs = Arc<AtomicUsize>;

/// A service on PostgreSQL.
pub(crate) struct Service {
    pub(crate) database: Database,
    pub(crate) runs: Runs,
    accepted: &'static str,
}

impl Service {
    /// `accepted` is the table of its keys or of its messages.
    pub(crate) async fn new(accepted: &'static str) -> Self {
        let service = Self {
            database: Database::fresh().await,
            runs: Runs::default(),
            accepted,
        };
        let store = service.store().await;
        let made = store.migrate("test", &[(1, "parcel", TABLE)]).await;
        made.unwrap();
        service
    }

    /// A store with separate connections.
    pub(crate) async fn store(&self) -> Postgres {
        open(self.database.url()).await
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// How many parcels, events, and keys or messages are committed.
    pub(crate) async fn stored(&self) -> [i64; 3] {
        let stored = format!(
            "SELECT (SELECT count(*) FROM parcel),
                (SELECT count(*) FROM hapax.outbox_event),
                (SELECT count(*) FROM hapax.{})",
            self.accepted
        );
        let row = self.database.client().await.query_one(&stored, &[]).await;
        let row = row.unwrap();
        [row.get(0), row.get(1), row.get(2)]
    }
}

/// Opens a store with this URL.
pub(crate) async fn open(url: String) -> Postgres {
    let (clock, random) = (system_clock(), seeded_random(1));
    let settings = hapax_postgres::Settings::new(url, clock, random);
    Postgres::open(settings).await.unwrap()
}

/// Checks the status of a response and its header `idempotency-status`.
#[track_caller]
pub(crate) fn check(sent: &Sent, status: u16, idempotency: Option<&str>) {
    let text = String::from_utf8_lossy(&sent.body);
    assert_eq!(sent.status, status, "{text}");
    assert_eq!(sent.idempotency(), idempotency, "{text}");
}
