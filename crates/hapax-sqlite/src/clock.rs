//! A clock that was ahead and is put right.
//!
//! Leases, retries and sleeping sagas are stored as moments of this machine's clock. What was stored
//! while it was ahead would stand until that moment comes, perhaps for days. A store that is opened, and
//! one that sees its clock go back, brings such moments forward: something is tried too early rather
//! than too late.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use hapax::{
    Clock, Timestamp,
    limits::{CLOCK_AHEAD, LEASE, SLEEP_AHEAD},
    store::StoreError,
};
use rusqlite::{Connection, params};

use crate::{query, sqlite::Sqlite};

/// The latest moment that a clock has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest(Arc<AtomicI64>);

impl Latest {
    /// The same clock, whose latest moment is known here.
    pub(crate) fn of(&self, clock: Clock) -> Clock {
        let latest = self.clone();
        Clock::new(move || {
            let now = clock.now();
            latest.0.fetch_max(now.as_millis(), Ordering::Relaxed);
            now
        })
    }

    fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.0.load(Ordering::Relaxed) > now.after(CLOCK_AHEAD).as_millis()
    }

    fn forget(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::Relaxed);
    }
}

impl Sqlite {
    /// Brings forward what waits for a moment that lies too far ahead, if the clock was set back.
    pub(crate) async fn heed_clock(&self) -> Result<(), StoreError> {
        let now = self.clock().now();
        if !self.latest().is_ahead_of(now) {
            return Ok(());
        }
        tracing::warn!("the clock was set back: what was to wait for a moment of it falls due");
        self.write(move |conn| bring_forward(conn, now)).await?;
        self.latest().forget(now);
        Ok(())
    }
}

/// Brings forward what waits for a moment that lies too far ahead.
pub(crate) fn bring_forward(conn: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let far = now.after(SLEEP_AHEAD).as_millis();
    let lapses = now.after(LEASE).as_millis();
    let wrong = now.after(CLOCK_AHEAD).as_millis();
    let now = now.as_millis();
    conn.execute(query!("clock/keys"), params![far, lapses])?;
    conn.execute(query!("clock/sagas"), params![now, far, lapses])?;
    conn.execute(query!("clock/deliveries"), params![now, wrong])?;
    Ok(())
}
