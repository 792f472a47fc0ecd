//! Where uploaded files lie: one folder, shared by the instances of a shop.
//!
//! A file is named after the SHA-256 of its bytes, in hex; a draft of one ends
//! in `.part`. Whoever keeps a file holds the folder's lock together with
//! others, whoever sweeps holds it alone, so that a file is never swept while
//! somebody finds that it is there already.

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

/// Files that are written at once: each takes a thread and a share of the disk.
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
    /// The folder at `path`, made when it is missing.
    pub(crate) fn open(path: PathBuf, clock: Clock, random: Random) -> io::Result<Self> {
        files::make_folder(&path)?;
        Ok(Self {
            path: path.into(),
            clock,
            random,
            storing: Arc::new(Semaphore::new(STORING)),
        })
    }

    /// The file with these bytes.
    pub(crate) fn file(&self, sha256: &str) -> PathBuf {
        self.path.join(sha256)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A name for a draft that nobody else has.
    pub(super) fn draft(&self) -> PathBuf {
        let [high, low] = [self.random.bits(), self.random.bits()].map(u64::to_be_bytes);
        self.path.join(format!("{}{}.part", hex(&high), hex(&low)))
    }

    /// Holds the folder against whoever sweeps, until the file is dropped.
    pub(super) fn held(&self) -> io::Result<File> {
        let lock = self.lock()?;
        lock.lock_shared()?;
        Ok(lock)
    }

    /// Holds the folder alone, until the file is dropped.
    pub(super) fn held_alone(&self) -> io::Result<File> {
        let lock = self.lock()?;
        lock.lock()?;
        Ok(lock)
    }

    /// Lets a file that is there already count as new.
    pub(super) fn touch(&self, path: &Path) -> io::Result<()> {
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or(0);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        File::open(path)?.set_modified(now)
    }

    /// Whether what is at `path` has been left alone for at least `age`.
    pub(super) fn is_older(&self, path: &Path, age: Duration) -> io::Result<bool> {
        let touched = Timestamp::from(fs::metadata(path)?.modified()?);
        Ok(self.clock.now().since(touched) >= age)
    }

    /// Sees to it that a name which was just given is there after a power cut.
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
