//! A body in an unnamed file, which every run of a handler reads from its start.
//!
//! All readers of a file share its position, and a run that has ended may leave a read behind, or a
//! task that still reads. So each reader keeps its own position, and each read sets the position of
//! the file first, one read at a time.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{Arc, Mutex, PoisonError},
};

use axum::body::Bytes;
use futures_util::{Stream, stream};
use tokio::task::{spawn_blocking, yield_now};

/// Number of bytes per read.
pub(super) const CHUNK: usize = 64 * 1024;

/// A file that is completely written. Its copies are the same file.
#[derive(Clone, Debug)]
pub(crate) struct BodyFile(Arc<Mutex<File>>);

impl BodyFile {
    /// A body that consists of the whole file.
    pub(super) fn new(file: File) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }

    /// The body, from its start.
    pub(super) fn chunks(self) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
        stream::try_unfold((self, 0_u64), |(file, from)| async move {
            // Yield, so that a caller that reads ahead while data is available does not read the
            // whole file.
            yield_now().await;
            let reading = file.clone();
            let read = spawn_blocking(move || reading.read(from)).await;
            let chunk = read.map_err(io::Error::other)??;
            let next = from + chunk.len() as u64;
            Ok::<_, io::Error>((!chunk.is_empty()).then_some((chunk, (file, next))))
        })
    }

    /// Reads a chunk; it is empty at the end of the file.
    fn read(&self, from: u64) -> io::Result<Bytes> {
        let locked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file: &File = &locked;
        file.seek(SeekFrom::Start(from))?;
        let mut chunk = Vec::with_capacity(CHUNK);
        file.take(CHUNK as u64).read_to_end(&mut chunk)?;
        Ok(chunk.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use futures_util::{FutureExt, StreamExt, TryStreamExt};

    use super::*;

    /// A run has ended while it was reading, and another one reads the body.
    #[tokio::test]
    async fn every_reader_reads_the_whole_body_whatever_the_others_do() {
        let body: Vec<u8> = (0..CHUNK * 5 / 2)
            .map(|number| u8::try_from(number % 251).unwrap())
            .collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&body).unwrap();
        let file = BodyFile::new(file);
        for polls in 0..50 {
            let mut left = file.clone().chunks().boxed();
            for _ in 0..polls {
                let _polled = left.next().now_or_never();
                yield_now().await;
            }
            let mut beside = file.clone().chunks().boxed();
            let first = beside.next().await.unwrap().unwrap();
            drop(left);
            let read: Vec<Bytes> = file.clone().chunks().try_collect().await.unwrap();
            assert!(read.concat() == body, "after {polls} polls");
            let rest: Vec<Bytes> = beside.try_collect().await.unwrap();
            assert!(
                [first]
                    .into_iter()
                    .chain(rest)
                    .flatten()
                    .eq(body.iter().copied())
            );
        }
    }
}
