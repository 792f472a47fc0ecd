//! Flushes of the database file: whether its content can still be relied upon.
//!
//! After a flush that fails, the operating system may have dropped pages that it could not write.
//! SQLite counts some of them as merged: it reads them from the database file and not from the log,
//! and may find an earlier content. Whatever is written after such a read would be damaged, too.
//! Therefore nothing is read or written any more. The log has all pages, and a restart merges it
//! from its start.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use hapax::store::StoreError;

use crate::error::unavailable;

/// Whether all flushes of the database file have succeeded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flushes {
    have_failed: Arc<AtomicBool>,
}

impl Flushes {
    /// Fails if a flush has failed. Called after a read, and before a commit.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.have_failed.load(Ordering::SeqCst) {
            return Err(unavailable(
                "the database file could not be flushed: check the disk, then restart",
            ));
        }
        Ok(())
    }

    /// Records that a flush has failed.
    pub(crate) fn fail(&self) {
        self.have_failed.store(true, Ordering::SeqCst);
    }
}
