//! What all bodies of a service may take together: disk, and memory for JSON that is sorted.
//!
//! A body that is too long for the memory reserves its place on the disk as it
//! comes, and gives it back when nobody reads it any more. Long JSON is brought
//! into its canonical form on threads that may block, a few at a time: the
//! service's own threads answer others meanwhile.

use std::sync::Arc;

use hapax::limits::{JSON_AT_ONCE, WAIT};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    problem::{Problem, UNAVAILABLE},
    settings::RETRY_AFTER,
};

/// Bytes of one unit of disk; a file grows by so many units at once.
const UNIT: u64 = 4 * 1024;
const STEP: u32 = 64;

/// The room for bodies.
#[derive(Debug)]
pub(crate) struct Room {
    disk: Arc<Semaphore>,
    units: u32,
    pub(super) sorting: Semaphore,
}

impl Room {
    /// Room for so many bytes of bodies on the disk.
    pub(crate) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let units = units.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self {
            disk: Arc::new(Semaphore::new(units as usize)),
            units,
            sorting: Semaphore::new(sorters()),
        }
    }
}

/// How many bodies are sorted at once: half as many as the service has threads, so that there are
/// cores for others.
fn sorters() -> usize {
    let threads = Handle::try_current().map(|it| it.metrics().num_workers());
    threads.map_or(JSON_AT_ONCE, |threads| (threads / 2).clamp(1, JSON_AT_ONCE))
}

/// The place of one file.
#[derive(Debug, Default)]
pub(super) struct Place {
    reserved: Option<OwnedSemaphorePermit>,
    units: u32,
}

impl Place {
    /// Makes it at least so long; waits a little where the disk is taken by other bodies.
    ///
    /// # Errors
    /// 503 when they do not give way, or when there is less room than that for all of them.
    pub(super) async fn grow(&mut self, room: &Room, bytes: u64) -> Result<(), Problem> {
        let needed = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if needed <= self.units {
            return Ok(());
        }
        let more = (needed - self.units).max(STEP.min(room.units.saturating_sub(self.units)));
        let reserving = Arc::clone(&room.disk).acquire_many_owned(more);
        let Ok(Ok(permit)) = timeout(WAIT, reserving).await else {
            return Err(Problem::new(UNAVAILABLE)
                .detail("too many long bodies are being received; nothing was changed, try again")
                .retry_after(RETRY_AFTER));
        };
        self.units += more;
        match &mut self.reserved {
            Some(reserved) => reserved.merge(permit),
            None => self.reserved = Some(permit),
        }
        Ok(())
    }
}
