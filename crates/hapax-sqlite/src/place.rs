//! Whether a path still leads to the database that was opened.
//!
//! Whoever puts another file in its place, or deletes it, leaves this process with one that has no
//! name: what it writes there is gone when it ends. So it writes nothing more.

use std::{fs, io, path::PathBuf};

/// A file, and the path that led to it.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    id: Id,
}

#[cfg(unix)]
type Id = (u64, u64);
#[cfg(not(unix))]
type Id = ();

impl Place {
    /// The file that `path` leads to now.
    pub(crate) fn of(path: PathBuf) -> io::Result<Self> {
        let id = id(&path)?;
        Ok(Self { path, id })
    }

    /// Whether the path still leads to it.
    pub(crate) fn is_there(&self) -> bool {
        match id(&self.path) {
            Ok(id) => id == self.id,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

#[cfg(unix)]
fn id(path: &PathBuf) -> io::Result<Id> {
    use std::os::unix::fs::MetadataExt as _;
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Elsewhere a file that is open cannot be replaced.
#[cfg(not(unix))]
fn id(path: &PathBuf) -> io::Result<Id> {
    fs::metadata(path).map(drop)
}
