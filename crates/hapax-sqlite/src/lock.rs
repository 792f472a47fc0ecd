//! The lock file that keeps a second process from opening the store.
//!
//! SQLite would let two processes write in turn, but ids, groups and claims rely on a single writer
//! thread. The operating system holds the lock, so it is released when the process ends, even after
//! a crash. The file itself stays, because deleting it would race with the next process.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use crate::error::OpenError;

/// Holds the database for this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Lock {
    /// Locks the file beside `database`, and fails if another store holds the lock.
    pub(crate) fn take(database: &Path) -> Result<Self, OpenError> {
        let unavailable = |source: std::io::Error| OpenError::Unavailable {
            path: database.to_owned(),
            source: source.into(),
        };
        let mut options = private();
        options.read(true);
        let named = named(database).map_err(unavailable)?;
        let file = options.open(beside(&named)).map_err(unavailable)?;
        for is_last in [false, false, false, true] {
            match file.try_lock() {
                Ok(()) => {
                    // The notes of a former process do not apply to this one.
                    file.set_len(0).map_err(unavailable)?;
                    return Ok(Self(file));
                }
                Err(TryLockError::WouldBlock) if !is_last => pause(),
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(source)) => return Err(unavailable(source)),
            }
        }
        Err(OpenError::InUse {
            path: database.to_owned(),
        })
    }
}

/// Whether a store of any process has the database open.
///
/// It takes the lock for a moment, together with others who ask, to see whether that is possible. A
/// store that is being opened at that moment tries again.
pub fn is_held(database: &Path) -> bool {
    let file = fs::canonicalize(database).and_then(|named| File::open(beside(&named)));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Notes in the lock file that a relay of this process, which has the database open, delivers the
/// events of the store. Relays with a node name send heartbeats instead.
pub(crate) fn note_relay(database: &Path) {
    let note = || fs::write(beside(&fs::canonicalize(database)?), RELAY);
    if let Err(error) = note() {
        tracing::warn!(
            error = %error,
            "the lock file cannot be written: other processes do not know that a relay is running"
        );
    }
}

/// Whether a process has the database open and its relay is running.
pub fn has_relay(database: &Path) -> bool {
    let noted = fs::canonicalize(database).and_then(|named| fs::read(beside(&named)));
    noted.is_ok_and(|noted| noted == RELAY) && is_held(database)
}

/// The content of the lock file while a relay without a node name runs.
const RELAY: &[u8] = b"relay\n";

/// Waits until a process that only asks for the lock has released it again.
#[expect(
    clippy::disallowed_methods,
    reason = "the operating system reports no event when a lock is free"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Resolves the links in a path, so that all paths to a database lead to the same lock. If the file
/// does not exist, it is created, so that a link to it resolves as well: an empty file is a valid
/// empty database.
fn named(database: &Path) -> std::io::Result<PathBuf> {
    match fs::canonicalize(database) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            private().open(database)?;
            fs::canonicalize(database)
        }
        named => named,
    }
}

/// Options that open a file for writing and create it if it is missing. Only its owner may read the
/// file: stored responses and payloads are in the database in the clear. SQLite gives the log and
/// the index beside a database the same permissions as the database.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
