//! One process, one store: the lock that a second opener meets.
//!
//! SQLite would let two processes write in turn, but ids, groups and claims are kept in order by
//! a single writer thread. The operating system holds the lock, so it ends with its process
//! however that ends; the file itself stays, because deleting it would race with the next opener.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
};

use crate::error::OpenError;

/// Holds the database for this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Lock {
    /// Takes the lock beside `database`, or says at once that another has it.
    pub(crate) fn take(database: &Path) -> Result<Self, OpenError> {
        let unavailable = |source: std::io::Error| OpenError::Unavailable {
            path: database.to_owned(),
            source: source.into(),
        };
        let mut options = private();
        options.read(true);
        let named = named(database).map_err(unavailable)?;
        let file = options.open(beside(&named)).map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
                path: database.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(unavailable(source)),
        }
    }
}

/// The file that a path leads to: whoever comes to it by a link meets the same lock, and so does
/// who comes by one that leads to no file yet. An empty file is a database with nothing in it.
fn named(database: &Path) -> std::io::Result<PathBuf> {
    match fs::canonicalize(database) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            private().open(database)?;
            fs::canonicalize(database)
        }
        named => named,
    }
}

/// For writing, and made when missing, for its owner alone: stored answers and payloads are in the
/// database in the clear. SQLite makes the log and the index beside a database as it finds that.
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
