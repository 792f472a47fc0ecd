//! Receives a file: writes and hashes it chunk by chunk, checks its header, and stores it once.
//!
//! One thread writes the file. It is fed through a short channel, so memory holds only a few chunks
//! of a file of any length. Before the upload is reported as stored, the file is synced and renamed
//! to the hash of its bytes, and the folder is synced. If the upload is aborted, the draft is
//! deleted.

use std::{
    fs::{self, File},
    io::{self, BufReader, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use axum::body::Bytes;
use hapax::key::hex;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::{JoinHandle, spawn_blocking},
};

use super::{
    folder::Folder,
    header::{self, Header, Unfit},
};

/// The most chunks that wait to be written.
const CHUNKS: usize = 4;

/// A stored file.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    pub(crate) header: Header,
}

/// The reason why a file was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// The file is not an image that the shop accepts.
    Unfit(Unfit),
    /// The file could not be written.
    Failed(io::Error),
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct Storing {
    /// The chunks, and then `None` if the file is complete; if the channel closes without it, the
    /// file is incomplete.
    chunks: mpsc::Sender<Option<Bytes>>,
    stored: JoinHandle<Result<Stored, NotStored>>,
}

impl Storing {
    /// Starts a file; waits while the maximum number of files are being written.
    pub(crate) async fn begin(folder: &Folder) -> Self {
        let slot = folder.storing.clone().acquire_owned().await;
        let slot = slot.expect("the semaphore is never closed");
        let (chunks, coming) = mpsc::channel(CHUNKS);
        let folder = folder.clone();
        let stored = spawn_blocking(move || store(folder, coming, slot));
        Self { chunks, stored }
    }

    /// Appends a chunk to the file.
    pub(crate) async fn push(&self, chunk: Bytes) {
        // If the writing thread has ended, `finish` returns its error.
        let _ended = self.chunks.send(Some(chunk)).await;
    }

    /// Stores the file, if it is an image that the shop accepts.
    pub(crate) async fn finish(self) -> Result<Stored, NotStored> {
        let _ended = self.chunks.send(None).await;
        let stored = self.stored.await;
        stored.map_err(|error| NotStored::Failed(io::Error::other(error)))?
    }
}

fn store(
    folder: Folder,
    mut coming: mpsc::Receiver<Option<Bytes>>,
    _slot: OwnedSemaphorePermit,
) -> Result<Stored, NotStored> {
    let mut draft = Draft::begin(folder)?;
    loop {
        match coming.blocking_recv() {
            Some(Some(chunk)) => draft.push(&chunk)?,
            Some(None) => break,
            None => return Err(io::Error::from(io::ErrorKind::Interrupted).into()),
        }
    }
    let header = draft.header()?;
    let bytes = draft.bytes;
    let sha256 = draft.keep()?;
    Ok(Stored {
        sha256,
        bytes,
        header,
    })
}

/// A draft on disk, which is deleted when it is dropped, unless it was stored.
struct Draft {
    folder: Folder,
    path: PathBuf,
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Draft {
    fn begin(folder: Folder) -> io::Result<Self> {
        let path = folder.draft();
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self {
            folder,
            path,
            file,
            hash: Sha256::new(),
            bytes: 0,
        })
    }

    fn push(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.file.write_all(chunk)?;
        self.hash.update(chunk);
        self.bytes += chunk.len() as u64;
        Ok(())
    }

    fn header(&mut self) -> Result<Header, NotStored> {
        self.file.rewind()?;
        header::read(&mut BufReader::new(&self.file)).map_err(NotStored::Unfit)
    }

    /// Renames the draft to its hash, unless a file with these bytes exists; returns the hash.
    fn keep(mut self) -> io::Result<String> {
        let name = hex(&std::mem::take(&mut self.hash).finalize());
        let kept = self.folder.file(&name);
        let _held = self.folder.held()?;
        match fs::metadata(&kept) {
            Ok(there) if there.len() == self.bytes => self.folder.touch(&kept)?,
            _ => {
                self.file.sync_all()?;
                fs::rename(&self.path, &kept)?;
            }
        }
        // Also if the file existed: the upload that renamed it may not have synced the folder yet.
        self.folder.sync()?;
        Ok(name)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // A stored draft has been renamed, so this removes nothing.
        let _gone = fs::remove_file(&self.path);
    }
}

impl From<io::Error> for NotStored {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        time::Duration,
    };

    use hapax::{Clock, Random, Timestamp};
    use hapax_testkit::wait::eventually;
    use tempfile::TempDir;

    use super::*;

    /// A file with a valid header.
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x03\0\0\0\x04\x08\x02\0\0\0";

    #[tokio::test]
    async fn a_file_is_there_under_its_hash_once_it_is_finished() {
        let (folder, _directory) = open();
        let stored = store(&folder).await.unwrap();
        assert_eq!(stored.bytes, PNG.len() as u64);
        assert_eq!(stored.sha256, hex(&Sha256::digest(PNG)));
        assert_eq!(fs::read(folder.file(&stored.sha256)).unwrap(), PNG);
        let again = store(&folder).await.unwrap();
        assert_eq!(names(&folder), [".lock", &again.sha256]);
    }

    #[tokio::test]
    async fn whoever_goes_away_before_the_end_leaves_nothing() {
        let (folder, _directory) = open();
        let storing = Storing::begin(&folder).await;
        storing.push(Bytes::from_static(PNG)).await;
        eventually(Duration::from_secs(5), async || names(&folder).len() == 1).await;
        drop(storing);
        eventually(Duration::from_secs(5), async || names(&folder).is_empty()).await;
    }

    #[tokio::test]
    async fn a_file_that_is_not_taken_leaves_nothing() {
        let (folder, _directory) = open();
        let storing = Storing::begin(&folder).await;
        storing.push("GIF89a".into()).await;
        let refused = storing.finish().await;
        assert!(
            matches!(refused, Err(NotStored::Unfit(Unfit::Foreign))),
            "{refused:?}"
        );
        assert_eq!(names(&folder), [""; 0]);
    }

    async fn store(folder: &Folder) -> Result<Stored, NotStored> {
        let storing = Storing::begin(folder).await;
        for chunk in PNG.chunks(7) {
            storing.push(Bytes::from_static(chunk)).await;
        }
        storing.finish().await
    }

    fn open() -> (Folder, TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let drawn = AtomicU64::new(0);
        let random = Random::new(move || drawn.fetch_add(1, Ordering::Relaxed));
        let clock = Clock::new(|| Timestamp::from_millis(1_700_000_000_000));
        let folder = Folder::open(directory.path().join("uploads"), clock, random);
        (folder.unwrap(), directory)
    }

    fn names(folder: &Folder) -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}
