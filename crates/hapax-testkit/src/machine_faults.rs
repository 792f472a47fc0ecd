//! Machine faults: a full disk, or a wrong clock.

use std::{
    ffi::OsString,
    fs::{self, File, Permissions},
    os::unix::fs::{FileExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// Faults of a process: a preloaded library reads them from a file and counts the writes that it
/// refuses, see `proof/torture/preload/machine_faults.c`.
#[derive(Clone, Debug)]
pub struct MachineFaults {
    library: PathBuf,
    file: PathBuf,
}

const IS_FULL: u64 = 0;
const AHEAD: u64 = 8;
const REFUSED: u64 = 16;

impl MachineFaults {
    /// Creates faults of which none is active. They are in `file`.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn none(library: &Path, file: &Path) -> Self {
        let written = fs::write(file, [0; 24]);
        // The process with the faults may run as another user.
        let written = written.and_then(|()| fs::set_permissions(file, open()));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
        Self {
            library: library.to_owned(),
            file: file.to_owned(),
        }
    }

    /// The environment of a process with these faults.
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [
            ("LD_PRELOAD", self.library.clone().into()),
            ("MACHINE_FAULTS", self.file.clone().into()),
        ]
    }

    /// Sets whether the disk is full, so that no regular file can grow.
    pub fn fill_disk(&self, is_full: bool) {
        self.write(IS_FULL, u64::from(is_full).to_ne_bytes());
    }

    /// Sets by how many nanoseconds the clock is ahead, which may be negative.
    pub fn set_clock(&self, ahead: i64) {
        self.write(AHEAD, ahead.to_ne_bytes());
    }

    /// How often a file could not grow so far.
    ///
    /// # Panics
    /// Panics if the file with the number is missing.
    pub fn refused(&self) -> u64 {
        let mut bytes = [0; 8];
        let read = File::open(&self.file).and_then(|it| it.read_exact_at(&mut bytes, REFUSED));
        read.unwrap_or_else(|error| panic!("cannot read {}: {error}", self.file.display()));
        u64::from_ne_bytes(bytes)
    }

    /// The same faults, with a copy of the library and all files below `directory`.
    pub(crate) fn none_within(directory: &Path, library: &Path) -> Self {
        let copy = directory.join("machine_faults.so");
        let copied = fs::copy(library, &copy);
        copied.unwrap_or_else(|error| panic!("cannot copy {}: {error}", library.display()));
        Self::none(&copy, &directory.join("machine_faults"))
    }

    fn write(&self, offset: u64, bytes: [u8; 8]) {
        let file = File::options().write(true).open(&self.file);
        let written = file.and_then(|it| it.write_all_at(&bytes, offset));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", self.file.display()));
    }
}

fn open() -> Permissions {
    Permissions::from_mode(0o666)
}
