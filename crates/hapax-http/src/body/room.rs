//! Resources shared by all bodies of a service: disk space, and memory for sorting JSON.
//!
//! A body that is too long for memory reserves disk space while it arrives, and releases it when it
//! is no longer read. Long JSON is canonicalized on separate threads, a few at a time, so that the
//! service's own threads can serve other requests.

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

/// The unit of disk space in bytes. Files grow in these units.
const UNIT: u64 = 4 * 1024;
const STEP: u32 = 64;

/// The shared resources for bodies.
#[derive(Debug)]
pub(crate) struct Room {
    disk: Arc<Semaphore>,
    units: u32,
    pub(super) sorting: Arc<Semaphore>,
}

impl Room {
    /// Creates resources with this amount of disk space in bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let units = units.min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        Self {
            disk: Arc::new(Semaphore::new(units as usize)),
            units,
            sorting: Arc::new(Semaphore::new(sorters())),
        }
    }
}

/// The number of bodies that are sorted concurrently: half the number of threads, so that there are
/// cores for other requests.
fn sorters() -> usize {
    let threads = Handle::try_current().map(|it| it.metrics().num_workers());
    threads.map_or(JSON_AT_ONCE, |threads| (threads / 2).clamp(1, JSON_AT_ONCE))
}

/// The reservation of one file.
#[derive(Debug, Default)]
pub(super) struct FileReservation {
    reserved: Option<OwnedSemaphorePermit>,
    units: u32,
}

impl FileReservation {
    /// Extends the reservation to at least this length. Waits a short time if other bodies use the
    /// space.
    ///
    /// # Errors
    /// 503 if the space does not become available, or if the total space is smaller.
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
