//! The folder of uploaded files, which the instances of a shop share.
//!
//! The name of a file is the SHA-256 of its bytes, in hex; the name of a draft ends in `.part`. An
//! upload holds a shared lock on the folder while it stores a file, and the sweep holds an
//! exclusive lock. Therefore no file is swept while an upload finds that it already exists.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use hapax::{Clock, Random, Timestamp, key::hex};
use tokio::sync::Semaphore;

use crate::files;

/// The most files written at the same time; each takes a thread and a share of the disk.
const STORING: usize = 8;

/// The folder of a shop's uploads.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: Arc<Path>,
    clock: Clock,
    random: Random,
    pub(super) storing: Arc<Semaphore>,
}

impl Folder {
    /// Opens the folder at `path`, and creates it if it is missing.
    pub(crate) fn open(path: PathBuf, clock: Clock, random: Random) -> io::Result<Self> {
        files::make_folder(&path)?;
        Ok(Self {
            path: path.into(),
            clock,
            random,
            storing: Arc::new(Semaphore::new(STORING)),
        })
    }

    /// Returns the path of the file with this hash.
    pub(crate) fn file(&self, sha256: &str) -> PathBuf {
        self.path.join(sha256)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a unique path for a draft.
    pub(super) fn draft(&self) -> PathBuf {
        let [high, low] = [self.random.bits(), self.random.bits()].map(u64::to_be_bytes);
        self.path.join(format!("{}{}.part", hex(&high), hex(&low)))
    }

    /// Takes the shared lock, which keeps the sweep out until the returned file is dropped.
    pub(super) fn held(&self) -> io::Result<File> {
        let lock = self.lock()?;
        lock.lock_shared()?;
        Ok(lock)
    }

    /// Takes the exclusive lock, which is held until the returned file is dropped.
    pub(super) fn held_alone(&self) -> io::Result<File> {
        let lock = self.lock()?;
        lock.lock()?;
        Ok(lock)
    }

    /// Sets the modification time of an existing file to now, so that it is not swept.
    pub(super) fn touch(&self, path: &Path) -> io::Result<()> {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        File::open(path)?.set_modified(now)
    }

    /// Returns whether the file at `path` was not modified for at least `age`.
    pub(super) fn is_older(&self, path: &Path, age: Duration) -> io::Result<bool> {
        let touched = Timestamp::from(fs::metadata(path)?.modified()?);
        Ok(self.clock.now().since(touched) >= age)
    }

    /// Syncs the folder, so that a new name survives a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.path.join(".lock");
        File::options()
            .create(true)
            .mode(0o600)
            .truncate(false)
            .write(true)
            .open(path)
    }
}
