//! Tests of an application: a store in a temporary folder with a manual clock, and the events that
//! the application emitted.
//!
//! ```
//! use hapax::{event::{Headers, NewEvent}, store::{Keys as _, Transaction as _}};
//! use hapax_testkit::application::{Embedded, emitted};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), hapax::store::StoreError> {
//! let embedded = Embedded::open();
//! let mut tx = embedded.store.begin(None, Headers::new()).await?;
//! tx.emit(NewEvent::json("order.created", &1))?;
//! tx.commit().await?;
//!
//! let events = emitted(&embedded.store).await;
//! assert_eq!(events[0].event.kind, "order.created");
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use hapax::{
    Random,
    delivery::{Frontier, Shards},
    outbox::OutboxEvent,
    store::Source,
};
use hapax_sqlite::{Settings, Sqlite};
use tempfile::TempDir;

use crate::clock::{ManualClock, seeded_random};

/// Maximum number of events of one read.
const READ: usize = 1_000;

/// An embedded store of one test. Its database is deleted when the value is dropped.
#[derive(Debug)]
pub struct Embedded {
    /// The store.
    pub store: Sqlite,
    /// The clock of the store. A test advances it instead of waiting.
    pub clock: ManualClock,
    /// The random numbers of the store, which are the same in every run.
    pub random: Random,
    _folder: TempDir,
}

impl Embedded {
    /// Opens a new, empty store.
    ///
    /// # Panics
    /// Panics if the temporary folder cannot be written.
    pub fn open() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let (clock, random) = (ManualClock::new(), seeded_random(1));
        let path = folder.path().join("test.db");
        let settings = Settings::new(path, clock.clock(), random.clone());
        let store = Sqlite::open(settings).expect("a new database can be opened");
        Self {
            store,
            clock,
            random,
            _folder: folder,
        }
    }
}

/// Reads all committed events of a store that its retention has not deleted, the oldest first.
///
/// # Panics
/// Panics if the store cannot be read.
pub async fn emitted<S: Source>(store: &S) -> Vec<Arc<OutboxEvent>> {
    let (mut events, mut frontier) = (Vec::new(), Frontier::default());
    loop {
        let batch = store.read(&frontier, Shards::ALL, READ).await;
        let batch = batch.expect("the outbox of a test can be read");
        if batch.events.is_empty() {
            return events;
        }
        events.extend(batch.events);
        frontier = batch.frontier;
    }
}
