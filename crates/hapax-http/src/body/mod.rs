//! A request's body: read once, bounded, and kept for the handler.
//!
//! The body streams in under its limit, whether its length is announced or not;
//! what is longer than the memory bound goes to an unnamed file. The handler
//! gets the same bytes. While it streams it is hashed, so that memory does not
//! grow with it; JSON alone stays in memory, for its members have to be sorted.

mod canonical;
mod multipart;
#[cfg(fuzzing)]
pub(crate) mod fuzz;

use std::io::{self, SeekFrom};

use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt, stream};
use hapax::limits::BODY_BYTES_IN_MEMORY;
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
    task::yield_now,
};

use crate::{
    content::{is_json, is_multipart},
    problem::{BODY_INCOMPLETE, BODY_TOO_LARGE, JSON_INVALID, Problem, UNAVAILABLE},
    settings::RETRY_AFTER,
};

/// Bytes that are read from the file at once.
const CHUNK: usize = 64 * 1024;

/// The SHA-256 of a body, in the form in which it takes part in the fingerprint.
pub(crate) type BodyHash = [u8; 32];

/// A body that was read to its end.
#[derive(Debug)]
pub(crate) enum Kept {
    /// In memory.
    Memory(Bytes),
    /// In an unnamed file, of this length.
    File(File, u64),
}

/// Reads a body to its end, with the hash of its bytes as sent.
///
/// # Errors
/// 413 as soon as it is known to be longer than `max`, 400 when it breaks off.
pub(crate) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    max: u64,
) -> Result<(Kept, Sha256), Problem> {
    let json = headers.get(CONTENT_TYPE).is_some_and(is_json);
    let announced = body.size_hint().lower();
    if announced > max {
        return Err(too_large(max));
    }
    let memory = match BODY_BYTES_IN_MEMORY {
        _ if json => usize::MAX,
        // It goes to the file from its first byte.
        bytes if announced > bytes as u64 => 0,
        bytes => bytes,
    };
    let (mut length, mut hash, mut held) = (0_u64, Sha256::new(), Held::default());
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(incomplete)?.into_data() else {
            continue;
        };
        length += chunk.len() as u64;
        if length > max {
            return Err(too_large(max));
        }
        if !json {
            hash.update(&chunk);
        }
        if !held.push_in_memory(&chunk, memory) {
            Box::pin(held.push_to_file(chunk))
                .await
                .map_err(unwritable)?;
        }
    }
    let kept = match held.file.take() {
        None => Kept::Memory(held.take()),
        Some(mut file) => {
            file.flush().await.map_err(unwritable)?;
            Kept::File(file, length)
        }
    };
    Ok((kept, hash))
}

impl Kept {
    /// The bytes, when they are in memory.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(..) => None,
        }
    }

    /// The hash that takes part in the fingerprint: canonical JSON, multipart part by part, or
    /// the bytes as sent. `folded` replaces top-level members of JSON.
    pub(crate) async fn hash(
        &mut self,
        raw: Sha256,
        headers: &HeaderMap,
        folded: &[(&str, &str)],
    ) -> Result<BodyHash, Problem> {
        let content_type = headers.get(CONTENT_TYPE);
        if let (Some(value), Self::Memory(bytes)) = (content_type, &*self)
            && is_json(value)
        {
            // A request without a body may carry the type of the body that it could have had.
            let canonical = if bytes.is_empty() {
                Vec::new()
            } else {
                canonical::canonical(bytes, folded)
                    .map_err(|error| Problem::new(JSON_INVALID).detail(error.to_string()))?
            };
            return Ok(Sha256::digest(canonical).into());
        }
        if let Some(value) = content_type.filter(|value| is_multipart(value)) {
            let value = value.as_bytes().to_vec();
            let hash =
                async { multipart::hash(self.stream().await.map_err(unwritable)?, &value).await };
            return Box::pin(hash).await;
        }
        Ok(raw.finalize().into())
    }

    /// The same body, for a handler that has to run again.
    pub(crate) async fn again(&self) -> Result<Self, Problem> {
        Ok(match self {
            Self::Memory(bytes) => Self::Memory(bytes.clone()),
            // Both read from the start, and never at once: the place in the file is one.
            Self::File(file, length) => {
                Self::File(file.try_clone().await.map_err(unwritable)?, *length)
            }
        })
    }

    /// The body for the handler.
    pub(crate) async fn into_body(mut self) -> Result<Body, Problem> {
        match self {
            Self::Memory(bytes) => Ok(Body::from(bytes)),
            Self::File(ref mut file, length) => {
                file.seek(SeekFrom::Start(0)).await.map_err(unwritable)?;
                let Self::File(file, _) = self else {
                    unreachable!("it was a file a line above");
                };
                Ok(Body::from_stream(chunks(file.take(length))))
            }
        }
    }

    async fn stream(&mut self) -> io::Result<stream::BoxStream<'_, io::Result<Bytes>>> {
        Ok(match self {
            Self::Memory(bytes) => {
                let bytes = bytes.clone();
                stream::once(async move { Ok(bytes) }).boxed()
            }
            Self::File(file, length) => {
                file.seek(SeekFrom::Start(0)).await?;
                chunks(file.take(*length)).boxed()
            }
        })
    }
}

fn chunks<R>(reader: R) -> impl Stream<Item = io::Result<Bytes>>
where
    R: tokio::io::AsyncRead + Unpin,
{
    stream::try_unfold(reader, |mut reader| async move {
        // Whoever reads ahead for as long as there is something must not read all of it.
        yield_now().await;
        let mut chunk = Vec::with_capacity(CHUNK);
        let read = reader.read_buf(&mut chunk).await?;
        Ok((read > 0).then(|| (Bytes::from(chunk), reader)))
    })
}

/// A body while it is read: as it came where it came in one piece, and else copied together, for a
/// chunk keeps alive what it was read with, which for a byte is many.
#[derive(Default)]
struct Held {
    first: Bytes,
    joined: Vec<u8>,
    file: Option<File>,
}

impl Held {
    /// Keeps a chunk in memory; false when the body is, or becomes, too long for that.
    fn push_in_memory(&mut self, chunk: &Bytes, memory: usize) -> bool {
        let length = self.first.len() + self.joined.len();
        let fits = self.file.is_none() && length + chunk.len() <= memory;
        if fits && length == 0 {
            self.first = chunk.clone();
        } else if fits {
            self.join();
            self.joined.extend_from_slice(chunk);
        }
        fits
    }

    /// Copies what came first to where the rest goes.
    fn join(&mut self) {
        self.joined
            .extend_from_slice(&std::mem::take(&mut self.first));
    }

    async fn push_to_file(&mut self, chunk: Bytes) -> io::Result<()> {
        let mut file = if let Some(file) = self.file.take() {
            file
        } else {
            let mut file = File::from_std(unnamed_file().await?);
            file.set_max_buf_size(CHUNK);
            file
        };
        for held in [self.take(), chunk] {
            file.write_all(&held).await?;
        }
        self.file = Some(file);
        Ok(())
    }

    /// What is in memory, which it gives away.
    fn take(&mut self) -> Bytes {
        if !self.first.is_empty() {
            return std::mem::take(&mut self.first);
        }
        std::mem::take(&mut self.joined).into()
    }
}

async fn unnamed_file() -> io::Result<std::fs::File> {
    tokio::task::spawn_blocking(tempfile::tempfile)
        .await
        .map_err(io::Error::other)?
}

fn too_large(max: u64) -> Problem {
    Problem::new(BODY_TOO_LARGE).detail(format!("this operation takes at most {max} bytes"))
}

fn incomplete(error: axum::Error) -> Problem {
    Problem::new(BODY_INCOMPLETE).caused_by(error)
}

fn unwritable(error: io::Error) -> Problem {
    Problem::new(UNAVAILABLE)
        .detail("the body could not be kept; nothing was changed")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}
