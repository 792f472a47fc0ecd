//! The ledger file: one JSON object per line, fsynced before the response is sent.
//!
//! If a crash left an incomplete last line, opening the ledger cuts it off: no response was sent
//! for it. Any other line that cannot be read is an error, because the provider cannot have written
//! it. Only one process at a time can open the file.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use serde::{Serialize, de::DeserializeOwned};

/// An open ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    /// The length of all complete lines, in bytes.
    length: u64,
    /// Whether a write failed and could not be rolled back, so the file's content is unknown.
    is_broken: bool,
}

impl Ledger {
    /// Opens the ledger at `path` and returns it with its records.
    pub(crate) fn open<R: DeserializeOwned>(path: &Path) -> io::Result<(Self, Vec<R>)> {
        if let Some(folder) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let mut file = options.open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another process has the ledger open"),
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (records, whole) = read(&bytes)?;
        if whole < bytes.len() {
            let torn = bytes.len() - whole;
            let shown = path.display();
            let _unread = writeln!(io::stderr(), "{shown}: cut off {torn} bytes of a torn line");
            file.set_len(whole as u64)?;
        }
        file.sync_all()?;
        sync_folder(path)?;
        let length = whole as u64;
        let is_broken = false;
        Ok((
            Self {
                file,
                length,
                is_broken,
            },
            records,
        ))
    }

    /// Returns whether the file may hold a record that is not in memory.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Marks the ledger as broken, as a failed write does.
    #[cfg(test)]
    pub(crate) fn break_it(&mut self) {
        self.is_broken = true;
    }

    /// Appends a record; once this returns, the record survives a crash.
    pub(crate) fn append(&mut self, record: &impl Serialize) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other(
                "an earlier write failed: restart is required",
            ));
        }
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        if let Err(error) = written.and_then(|()| self.file.sync_data()) {
            // The next record must not be appended to an incomplete line.
            let undone = self.file.set_len(self.length);
            self.is_broken = undone.and_then(|()| self.file.sync_data()).is_err();
            return Err(error);
        }
        self.length += line.len() as u64;
        Ok(())
    }
}

/// Returns the records and the length of their lines in bytes.
fn read<R: DeserializeOwned>(bytes: &[u8]) -> io::Result<(Vec<R>, usize)> {
    let (mut records, mut whole) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let end = whole + line.len();
        match serde_json::from_slice(line) {
            Ok(record) if line.ends_with(b"\n") => records.push(record),
            Err(error) if end < bytes.len() => {
                let number = records.len() + 1;
                let error_chain = format!("line {number} of the ledger cannot be read: {error}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, error_chain));
            }
            // The last line is incomplete.
            _ => break,
        }
        whole = end;
    }
    Ok((records, whole))
}

/// Syncs the folder of the ledger, so that the entry of a new file survives a crash.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_last_line_is_cut_off_and_the_next_record_stands_behind_the_last_whole_one() {
        for torn in ["{\"n\":", "7", "\0\0\0\0", "garbage\n"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("ledger");
            std::fs::write(&path, format!("1\n2\n{torn}")).unwrap();
            let (mut ledger, records) = Ledger::open::<u64>(&path).unwrap();
            assert_eq!(records, [1, 2], "{torn:?}");
            ledger.append(&3).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n3\n");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_in_the_middle_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        std::fs::write(&path, "1\nx\n3\n").unwrap();
        let error = Ledger::open::<u64>(&path).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\nx\n3\n");
    }

    #[test]
    fn a_ledger_has_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let _open = Ledger::open::<u64>(&path).unwrap();
        assert!(Ledger::open::<u64>(&path).is_err());
    }
}
