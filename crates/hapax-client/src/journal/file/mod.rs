//! A journal in a file: one line for each key, synced before anything is sent under the key.
//!
//! Every access takes the lock of `FILE.lock`, so that several processes can share a journal. Two
//! processes that perform the same operation at the same time use the same key, and neither removes
//! it while the other is running. The lock is a lock of the operating system and ends with the
//! process that holds it; no process waits for it longer than [`JOURNAL_LOCK`]. The file is read
//! completely for each access, which is fine for a program that sends occasionally. Finished
//! entries are removed when the file has grown.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use hapax::{
    Clock, Timestamp,
    key::IdempotencyKey,
    limits::{JOURNAL_BYTES, JOURNAL_BYTES_MAX, JOURNAL_LOCK},
    sink::BoxError,
};
use tokio::task::spawn_blocking;

use super::{
    Begun, Intent, Journal,
    record::{Open, Record, Unfinished},
};

/// A journal in a file.
#[derive(Clone, Debug)]
pub struct FileJournal {
    path: PathBuf,
    clock: Clock,
}

impl FileJournal {
    /// Uses the journal at `path`, which is created when it is needed for the first time.
    pub fn new(path: impl Into<PathBuf>, clock: Clock) -> Self {
        let path = path.into();
        Self { path, clock }
    }
}

impl Journal for FileJournal {
    fn begin<'a>(
        &'a self,
        intent: &'a Intent,
        fresh: IdempotencyKey,
    ) -> BoxFuture<'a, Result<Begun, BoxError>> {
        let (path, intent, now) = (self.path.clone(), intent.clone(), self.clock.now());
        Box::pin(async move { spawn_blocking(move || begin(&path, &intent, fresh, now)).await? })
    }

    fn finish<'a>(
        &'a self,
        _intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        let (path, key, now) = (self.path.clone(), key.clone(), self.clock.now());
        Box::pin(async move { spawn_blocking(move || finish(&path, &key, now)).await? })
    }

    fn withdraw<'a>(
        &'a self,
        _intent: &'a Intent,
        key: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        let (path, key, now) = (self.path.clone(), key.clone(), self.clock.now());
        Box::pin(async move { spawn_blocking(move || withdraw(&path, &key, now)).await? })
    }
}

fn begin(
    path: &Path,
    intent: &Intent,
    fresh: IdempotencyKey,
    now: Timestamp,
) -> Result<Begun, BoxError> {
    let _lock = lock(path)?;
    let mut open = Opened::at(path)?;
    if let Some(first) = open.unfinished.first_of(intent) {
        let begun = Begun {
            key: IdempotencyKey::new(first.key.as_str())?,
            is_resumed: true,
            age: open.unfinished.age(first, now),
        };
        if open.unfinished.is_shared(begun.key.as_str()) {
            // The process that wrote it may have died before it synced the file.
            open.file.sync_all()?;
        } else {
            // The process that started it may still be running, and must not remove the key while
            // this run uses it.
            let again = Record::Open(Open::new(intent, begun.key.as_str(), now));
            open.append(&again)?;
        }
        return Ok(begun);
    }
    open.shorten(path)?;
    let record = Record::Open(Open::new(intent, fresh.as_str(), now));
    open.append(&record)?;
    Ok(Begun::now(fresh))
}

fn finish(path: &Path, key: &IdempotencyKey, now: Timestamp) -> Result<(), BoxError> {
    let _lock = lock(path)?;
    Opened::at(path)?.mark_finished(key, now)
}

fn withdraw(path: &Path, key: &IdempotencyKey, now: Timestamp) -> Result<(), BoxError> {
    let _lock = lock(path)?;
    let mut open = Opened::at(path)?;
    if open.unfinished.is_shared(key.as_str()) {
        return Ok(());
    }
    open.mark_finished(key, now)
}

/// Interval at which a lock that another process holds is tried again.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Waits for the lock, which is released when the returned value is dropped.
#[expect(
    clippy::disallowed_methods,
    reason = "the system has no lock with a time limit, only a try; this thread may block"
)]
fn lock(path: &Path) -> Result<File, BoxError> {
    let path = beside(path, ".lock");
    let lock = options().truncate(false).open(&path)?;
    let began = Instant::now();
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::Error(error)) => return Err(error.into()),
            Err(TryLockError::WouldBlock) if began.elapsed() < JOURNAL_LOCK => {
                thread::sleep(LOCK_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                let (path, waited) = (path.display(), JOURNAL_LOCK.as_secs());
                return Err(format!("another process has held {path} for {waited} s").into());
            }
        }
    }
}

/// A journal under its lock.
struct Opened {
    file: File,
    unfinished: Unfinished,
    bytes: u64,
}

impl Opened {
    fn at(path: &Path) -> Result<Self, BoxError> {
        let mut file = options().truncate(false).open(path)?;
        let bytes = file.metadata()?.len();
        if bytes > JOURNAL_BYTES_MAX {
            return Err(format!(
                "{} is {bytes} bytes long, at most {JOURNAL_BYTES_MAX} are allowed",
                path.display()
            )
            .into());
        }
        // The process that created or renamed the file may have died before it synced the folder.
        sync_folder(path)?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let unfinished = Unfinished::read(&text)?;
        if unfinished.whole < text.len() {
            file.set_len(unfinished.whole as u64)?;
        }
        Ok(Self {
            file,
            unfinished,
            bytes,
        })
    }

    /// Removes finished entries if that saves enough space.
    fn shorten(&mut self, path: &Path) -> Result<(), BoxError> {
        if self.bytes < JOURNAL_BYTES {
            return Ok(());
        }
        let other = beside(path, ".new");
        let mut file = options().truncate(true).open(&other)?;
        for open in &self.unfinished.open {
            file.write_all(Record::Open(open.clone()).line().as_bytes())?;
        }
        file.sync_all()?;
        fs::rename(&other, path)?;
        sync_folder(path)?;
        self.file = file;
        Ok(())
    }

    fn mark_finished(&mut self, key: &IdempotencyKey, now: Timestamp) -> Result<(), BoxError> {
        let (key, at_ms) = (key.as_str().to_owned(), now.as_millis());
        self.append(&Record::Done { key, at_ms })
    }

    fn append(&mut self, record: &Record) -> Result<(), BoxError> {
        self.file.seek(io::SeekFrom::End(0))?;
        self.file.write_all(record.line().as_bytes())?;
        self.file.sync_all()?;
        Ok(())
    }
}

/// Opens a file for reading and writing and creates it if it does not exist. Only the owner can
/// read it, because URLs may contain secrets.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Syncs the folder of the file, if the system can sync folders.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
