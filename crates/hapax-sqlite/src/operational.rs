//! Operational events on SQLite: the job that changes a row emits the event that reports the change.

use async_trait::async_trait;
use hapax::{
    Random,
    keyring::Keyring,
    operational::{Lag, Occurrence, OperationalEvents, OperationalStore},
    store::StoreError,
};
use rusqlite::{Connection, params};

use crate::{error::store_error, outbox, query, sqlite::Sqlite, writer::WriterContext};

/// Emits operational events in jobs of the writer.
#[derive(Clone, Debug)]
pub(crate) struct Emitter {
    events: OperationalEvents,
    random: Random,
    keyring: Keyring,
}

impl Emitter {
    pub(crate) fn of(store: &Sqlite) -> Self {
        Self {
            events: store.settings().operational_events.clone(),
            random: store.random().clone(),
            // The keyring of a relay only decrypts, except for what the relay writes itself.
            keyring: store.keyring().writing(),
        }
    }

    /// Appends the events of what this job has changed.
    pub(crate) fn emit(
        &self,
        ctx: &mut WriterContext,
        occurrences: Vec<Occurrence>,
    ) -> Result<(), StoreError> {
        // Most settlements report nothing.
        if occurrences.is_empty() {
            return Ok(());
        }
        let now = ctx.now();
        let sealed = self
            .events
            .build(occurrences, now, &self.random, &self.keyring);
        outbox::append(ctx, &sealed)
    }
}

#[async_trait]
impl OperationalStore for Sqlite {
    async fn record_lag(&self, lag: &Lag) -> Result<bool, StoreError> {
        let (lag, emitter) = (lag.clone(), Emitter::of(self));
        let record = move |ctx: &mut WriterContext| {
            let now = ctx.now().as_millis();
            let is_new = record_lag(&ctx.conn, &lag, now).map_err(store_error)?;
            if is_new {
                emitter.emit(ctx, vec![Occurrence::Lag(lag)])?;
            }
            Ok(is_new)
        };
        self.submit(record).await
    }
}

/// Records whether a destination lags. Returns false if that is recorded already.
fn record_lag(conn: &Connection, lag: &Lag, now: i64) -> rusqlite::Result<bool> {
    let changed = if lag.is_lagging {
        let mut begin = conn.prepare_cached(query!("operational/begin_lag"))?;
        begin.execute(params![lag.destination, now])?
    } else {
        let mut end = conn.prepare_cached(query!("operational/end_lag"))?;
        end.execute(params![lag.destination])?
    };
    Ok(changed > 0)
}
