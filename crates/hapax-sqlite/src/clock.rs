//! Recovery from a clock that was ahead and was corrected.
//!
//! Leases, retries and sleeping sagas are stored as times of this machine's clock. Times that were
//! stored while the clock was ahead would not be reached for a long time, perhaps days. The store
//! brings such times forward when it is opened and when it detects that its clock was set back: an
//! early attempt is better than a late one.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use hapax::{
    Clock, Timestamp,
    limits::{CLOCK_AHEAD, LEASE, SLEEP_AHEAD},
};
use rusqlite::{Connection, params};

use crate::query;

/// The latest time that a clock has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest(Arc<AtomicI64>);

impl Latest {
    /// Returns a clock with the same time, which records its latest time here.
    pub(crate) fn of(&self, clock: Clock) -> Clock {
        let latest = self.clone();
        Clock::new(move || {
            let now = clock.now();
            latest.0.fetch_max(now.as_millis(), Ordering::Relaxed);
            now
        })
    }

    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.0.load(Ordering::Relaxed) > now.after(CLOCK_AHEAD).as_millis()
    }

    pub(crate) fn forget(&self, now: Timestamp) {
        self.0.store(now.as_millis(), Ordering::Relaxed);
    }
}

/// Brings leases, retries and sagas forward whose times are too far in the future.
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
