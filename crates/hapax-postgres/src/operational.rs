//! Operational events on PostgreSQL: the transaction that changes a row emits the event that reports
//! the change.

use async_trait::async_trait;
use hapax::{
    operational::{Lag, Occurrence, OperationalStore},
    outbox::BuiltEvent,
    store::StoreError,
};

use crate::{emit::Columns, postgres::Postgres, query, value::Param, work::Work};

/// The events of what the current transaction changes, encoded.
pub(crate) fn sealed(store: &Postgres, occurrences: Vec<Occurrence>) -> Vec<BuiltEvent> {
    if occurrences.is_empty() {
        return Vec::new();
    }
    let settings = store.settings();
    // The keyring of a relay only decrypts, except for what the relay writes itself.
    let keyring = store.keyring().writing();
    let now = store.clock().now();
    let events = &settings.operational_events;
    events.build(occurrences, now, store.random(), &keyring)
}

/// Emits the events of what a transaction has changed.
pub(crate) async fn emit(
    work: &mut Work<'_>,
    occurrences: Vec<Occurrence>,
) -> Result<(), StoreError> {
    let sealed = sealed(work.store(), occurrences);
    if sealed.is_empty() {
        return Ok(());
    }
    let events: Vec<&BuiltEvent> = sealed.iter().collect();
    let columns = Columns::of(&events);
    work.ask(query!("outbox/emit"), &columns.params())
        .await
        .map(drop)
}

#[async_trait]
impl OperationalStore for Postgres {
    async fn record_lag(&self, lag: &Lag) -> Result<bool, StoreError> {
        let (destination, time) = (lag.destination.as_str(), self.time());
        let mut work = Work::begin(self).await?;
        let changed = if lag.is_lagging {
            let params: [&dyn Param; 2] = [&destination, &time];
            work.ask(query!("operational/begin_lag"), &params).await?
        } else {
            let params: [&dyn Param; 1] = [&destination];
            work.ask(query!("operational/end_lag"), &params).await?
        };
        if changed.is_empty() {
            work.rollback().await;
            return Ok(false);
        }
        emit(&mut work, vec![Occurrence::Lag(lag.clone())]).await?;
        work.commit().await?;
        Ok(true)
    }
}
