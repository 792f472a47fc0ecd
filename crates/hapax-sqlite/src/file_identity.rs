//! Checks whether a path still leads to the database that was opened.
//!
//! If another program replaces or deletes the file, this process keeps a file without a name, whose
//! contents are lost when the process ends. The writer therefore stops writing.

use std::{fs, io, path::PathBuf};

/// A path and the file that it led to when the store was opened.
#[derive(Debug)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    id: Id,
}

#[cfg(unix)]
type Id = (u64, u64);
#[cfg(not(unix))]
type Id = ();

impl FileIdentity {
    /// The file that `path` leads to now.
    pub(crate) fn of(path: PathBuf) -> io::Result<Self> {
        let id = id(&path)?;
        Ok(Self { path, id })
    }

    /// Whether the path still leads to that file.
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

/// On other systems an open file cannot be replaced.
#[cfg(not(unix))]
fn id(path: &PathBuf) -> io::Result<Id> {
    fs::metadata(path).map(drop)
}
