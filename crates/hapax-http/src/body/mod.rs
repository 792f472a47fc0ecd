//! Request bodies: read once within a limit, hashed, and kept for the handler.
//!
//! The body is read as a stream within its limit, whether or not its length is announced. A body
//! that is longer than the limit for memory is written to an unnamed file, in the space that all
//! bodies share. The handler receives the same bytes. The body is hashed while it is read, so that
//! memory does not grow with it. Only JSON stays in memory, because its members have to be sorted,
//! and has its own limit.

mod canonical;
mod multipart;
mod file;
mod room;
#[cfg(fuzzing)]
pub(crate) mod fuzz;

use std::{io, sync::Arc, thread};

use axum::body::{Body, Bytes};
use futures_util::{StreamExt, stream};
use hapax::limits::{BODY_BYTES_IN_MEMORY, JSON_INLINE_BYTES};
use http::{HeaderMap, header::CONTENT_TYPE};
use http_body::Body as _;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::{fs::File, io::AsyncWriteExt, sync::oneshot, task::spawn_blocking};

use crate::{
    content::{is_json, is_multipart},
    problem::{BODY_INCOMPLETE, BODY_TOO_LARGE, JSON_INVALID, Problem, UNAVAILABLE},
    profile::FingerprintMode,
    settings::RETRY_AFTER,
};
use canonical::{JsonError, Numbers};
use file::{BodyFile, CHUNK};
use room::FileReservation;
pub(crate) use room::Room;

/// The SHA-256 of a body in the form that is part of the fingerprint.
pub(crate) type BodyHash = [u8; 32];

/// A completely read body. A copy is the same body, for a handler that has to run again.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    /// In memory.
    Memory(Bytes),
    /// In an unnamed file, with its reservation of disk space.
    File(BodyFile, OnDisk),
}

/// The reservation of disk space for a file, released after the last read.
#[derive(Clone, Debug)]
pub(crate) struct OnDisk(#[expect(dead_code, reason = "it is held")] Arc<FileReservation>);

/// The limits of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum length of any body in bytes.
    pub(crate) max: u64,
    /// Maximum length of a JSON body in bytes.
    pub(crate) json_max: u64,
}

/// Reads a body to its end, and hashes its bytes as sent. The bytes of JSON are not hashed if its
/// canonical form is.
///
/// # Errors
/// 413 as soon as the body is known to exceed its limit, 400 if it is incomplete, 503 if there is
/// no space for it.
pub(crate) async fn read(
    mut body: Body,
    headers: &HeaderMap,
    bounds: Bounds,
    mode: FingerprintMode,
    room: &Room,
) -> Result<(Kept, Sha256), Problem> {
    let json = headers.get(CONTENT_TYPE).is_some_and(is_json);
    let max = if json {
        bounds.max.min(bounds.json_max)
    } else {
        bounds.max
    };
    let announced = body.size_hint().lower();
    if announced > max {
        return Err(too_large(max, json));
    }
    let memory = match BODY_BYTES_IN_MEMORY {
        _ if json => usize::MAX,
        // The body is written to the file from its first byte.
        bytes if announced > bytes as u64 => 0,
        bytes => bytes,
    };
    let (mut length, mut hash) = (0_u64, Sha256::new());
    let mut held = PartialBody {
        announced: usize::try_from(announced).unwrap_or(usize::MAX).min(memory),
        ..PartialBody::default()
    };
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(incomplete)?.into_data() else {
            continue;
        };
        length += chunk.len() as u64;
        if length > max {
            return Err(too_large(max, json));
        }
        if !json || mode == FingerprintMode::Raw {
            hash.update(&chunk);
        }
        if !held.push_in_memory(&chunk, memory) {
            Box::pin(held.push_to_file(chunk, length, room)).await?;
        }
    }
    let kept = match held.file.take() {
        None => Kept::Memory(held.take()),
        Some(mut file) => {
            file.flush().await.map_err(unwritable)?;
            let file = BodyFile::new(file.into_std().await);
            Kept::File(file, OnDisk(Arc::new(held.place)))
        }
    };
    Ok((kept, hash))
}

impl Kept {
    /// The bytes, if they are in memory.
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(..) => None,
        }
    }

    /// The hash that is part of the fingerprint: of canonical JSON, of the parts of a multipart
    /// body, or of the bytes as sent. `folded` replaces top-level members of canonical JSON.
    pub(crate) async fn hash(
        &self,
        raw: Sha256,
        headers: &HeaderMap,
        folded: &[(&str, &str)],
        mode: FingerprintMode,
        room: &Room,
    ) -> Result<BodyHash, Problem> {
        let numbers = match mode {
            FingerprintMode::Raw => return Ok(raw.finalize().into()),
            FingerprintMode::Json => Numbers::AsSent,
            FingerprintMode::JsonSemantic => Numbers::ByValue,
        };
        let content_type = headers.get(CONTENT_TYPE);
        if let (Some(value), Self::Memory(bytes)) = (content_type, self)
            && is_json(value)
        {
            // A request without a body may have the content type of the body that it could have
            // had.
            if bytes.is_empty() {
                return Ok(Sha256::digest([]).into());
            }
            if bytes.len() <= JSON_INLINE_BYTES {
                return canonical_hash(bytes, folded, numbers).map_err(no_json);
            }
            return Box::pin(hash_apart(bytes.clone(), folded, numbers, room)).await;
        }
        if let Some(value) = content_type.filter(|value| is_multipart(value)) {
            return Box::pin(multipart::hash(self.stream(), value.as_bytes())).await;
        }
        Ok(raw.finalize().into())
    }

    /// The body for the handler.
    pub(crate) fn into_body(self) -> Body {
        match self {
            Self::Memory(bytes) => Body::from(bytes),
            Self::File(file, disk) => Body::from_stream(file.chunks().inspect(move |_| {
                // Held until the last chunk is read.
                let _held = &disk;
            })),
        }
    }

    fn stream(&self) -> stream::BoxStream<'static, io::Result<Bytes>> {
        match self {
            Self::Memory(bytes) => {
                let bytes = bytes.clone();
                stream::once(async move { Ok(bytes) }).boxed()
            }
            Self::File(file, _) => file.clone().chunks().boxed(),
        }
    }
}

/// A body while it is read. A single chunk is kept as it is; several chunks are copied together,
/// because a chunk keeps its whole read buffer alive, even for a single byte.
#[derive(Default)]
struct PartialBody {
    /// The number of bytes expected in memory.
    announced: usize,
    first: Bytes,
    joined: Vec<u8>,
    file: Option<File>,
    place: FileReservation,
}

impl PartialBody {
    /// Keeps a chunk in memory. Returns false if the body is or becomes too long for that.
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

    /// Copies the first chunk to the buffer of the rest.
    fn join(&mut self) {
        if self.joined.is_empty() {
            // Growing by doubling would use up to twice the memory, and three times while copying.
            self.joined.reserve_exact(self.announced);
        }
        self.joined
            .extend_from_slice(&std::mem::take(&mut self.first));
    }

    /// Appends to the file, whose length is `length` afterwards.
    async fn push_to_file(
        &mut self,
        chunk: Bytes,
        length: u64,
        room: &Room,
    ) -> Result<(), Problem> {
        self.place.grow(room, length).await?;
        self.write(chunk).await.map_err(unwritable)
    }

    async fn write(&mut self, chunk: Bytes) -> io::Result<()> {
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

    /// Takes the bytes that are in memory.
    fn take(&mut self) -> Bytes {
        if !self.first.is_empty() {
            return std::mem::take(&mut self.first);
        }
        std::mem::take(&mut self.joined).into()
    }
}

async fn unnamed_file() -> io::Result<std::fs::File> {
    spawn_blocking(tempfile::tempfile)
        .await
        .map_err(io::Error::other)?
}

/// JSON in canonical form, with numbers as they were sent; `None` if the bytes are not JSON.
///
/// # Errors
/// 400 if parsers could read the JSON differently, or if it is nested too deep or too large.
pub(crate) async fn canonical_json(bytes: &Bytes, room: &Room) -> Result<Option<String>, Problem> {
    let canonical = if bytes.len() <= JSON_INLINE_BYTES {
        canonical::canonical(bytes, &[], Numbers::AsSent)
    } else {
        let json = bytes.clone();
        let canonical = move || canonical::canonical(&json, &[], Numbers::AsSent);
        Box::pin(apart(room, canonical)).await?
    };
    match canonical {
        Ok(json) => String::from_utf8(json).map(Some).map_err(Problem::internal),
        Err(JsonError::Syntax { .. }) => Ok(None),
        Err(error) => Err(no_json(error)),
    }
}

/// The hash of JSON in canonical form.
fn canonical_hash(
    json: &[u8],
    folded: &[(&str, &str)],
    numbers: Numbers,
) -> Result<BodyHash, JsonError> {
    Ok(Sha256::digest(canonical::canonical(json, folded, numbers)?).into())
}

/// Computes [`canonical_hash`] on a separate thread.
async fn hash_apart(
    json: Bytes,
    folded: &[(&str, &str)],
    numbers: Numbers,
    room: &Room,
) -> Result<BodyHash, Problem> {
    let owned = folded
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let owned: Vec<(String, String)> = owned.collect();
    let hash = move || {
        let folded: Vec<_> = owned
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        canonical_hash(&json, &folded, numbers)
    };
    apart(room, hash).await?.map_err(no_json)
}

/// Sorts JSON on a separate thread. The number of concurrent calls is limited.
///
/// The thread ends with the call. The threads of the runtime's blocking pool would live longer,
/// there can be hundreds of them, and the allocator would keep the memory of a body for each.
async fn apart<R: Send + 'static>(
    room: &Room,
    sort: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Problem> {
    let turn = Arc::clone(&room.sorting).acquire_owned().await;
    let turn = turn.expect("the semaphore is never closed");
    let (send, sorted) = oneshot::channel();
    let sort = move || {
        let result = sort();
        // Held to the end, even if the client has disconnected and nothing receives the result.
        drop(turn);
        let _received = send.send(result);
    };
    let thread = thread::Builder::new().name("hapax-json".to_owned());
    thread.spawn(sort).map_err(no_thread)?;
    sorted.await.map_err(Problem::internal)
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn no_json(error: JsonError) -> Problem {
    Problem::new(JSON_INVALID).detail(error.to_string())
}

fn too_large(max: u64, json: bool) -> Problem {
    let of = if json { " of JSON" } else { "" };
    Problem::new(BODY_TOO_LARGE).detail(format!("this operation takes at most {max} bytes{of}"))
}

fn no_thread(error: io::Error) -> Problem {
    Problem::new(UNAVAILABLE)
        .detail("the body could not be processed; nothing was changed, try again")
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}

fn incomplete(error: axum::Error) -> Problem {
    Problem::new(BODY_INCOMPLETE).caused_by(error)
}

fn unwritable(error: io::Error) -> Problem {
    Problem::new(UNAVAILABLE)
        .detail(
            "the body could not be written to a temporary file (its disk may be full); \
             nothing was changed, try again",
        )
        .retry_after(RETRY_AFTER)
        .caused_by(error)
}
