//! Hash of a multipart body, part by part.
//!
//! The boundary is not hashed, because every client library generates a new one for every request.
//! The name, file name, content type and content of each part are hashed, in the order of arrival.
//! The content is hashed as a stream; the head of a part is kept in memory, within a limit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::body::Bytes;
use futures_util::{Stream, StreamExt};
use hapax::{
    key::FingerprintBuilder,
    limits::{BODY_BYTES_IN_MEMORY, MULTIPART_PARTS_MAX},
    sink::BoxError,
};
use multer::{Field, Multipart};
use sha2::{Digest, Sha256};

use super::BodyHash;
use crate::problem::{MULTIPART_INVALID, Problem};

/// The version of this format.
const VERSION: u8 = 1;

/// Computes the hash of a multipart body.
///
/// # Errors
/// 400 if the body is not valid multipart, or a part has no name.
pub(super) async fn hash<S, E>(body: S, content_type: &[u8]) -> Result<BodyHash, Problem>
where
    S: Stream<Item = Result<Bytes, E>> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let boundary = std::str::from_utf8(content_type).ok();
    let boundary = boundary.and_then(|text| multer::parse_boundary(text).ok());
    let boundary = boundary.ok_or_else(|| {
        Problem::new(MULTIPART_INVALID).detail("the content type has no boundary")
    })?;
    let ahead = Ahead::default();
    let mut multipart = Multipart::new(ahead.bounding(body), boundary);
    let mut hash = FingerprintBuilder::new(VERSION);
    let mut parts = 0;
    while let Some(field) = multipart.next_field().await.map_err(malformed)? {
        ahead.has_moved();
        parts += 1;
        if parts > MULTIPART_PARTS_MAX {
            return Err(Problem::new(MULTIPART_INVALID)
                .detail(format!("it has more than {MULTIPART_PARTS_MAX} parts")));
        }
        // If a part has no head, the parser interprets the beginning of its content as the head.
        // The bytes that it drops would not be hashed.
        if field.name().is_none() {
            return Err(Problem::new(MULTIPART_INVALID).detail("a part has no name"));
        }
        hash = part(hash, field, &ahead).await?;
    }
    Ok(*hash.finish().as_bytes())
}

async fn part(
    hash: FingerprintBuilder,
    mut field: Field<'_>,
    ahead: &Ahead,
) -> Result<FingerprintBuilder, Problem> {
    let media_type = field.content_type().map(ToString::to_string);
    let hash = optional(hash, field.name());
    let hash = optional(hash, field.file_name());
    let hash = optional(hash, media_type.as_deref());
    let mut content = Sha256::new();
    while let Some(chunk) = field.chunk().await.map_err(malformed)? {
        ahead.has_moved();
        content.update(&chunk);
    }
    Ok(hash.part(&content.finalize()))
}

/// Bytes read since the parser last made progress.
///
/// The head of a part is kept in memory until it ends. Without this limit a head that never ends
/// would fill the memory.
#[derive(Default)]
struct Ahead(Arc<AtomicUsize>);

impl Ahead {
    fn bounding<S, E>(&self, body: S) -> impl Stream<Item = Result<Bytes, BoxError>> + use<S, E>
    where
        S: Stream<Item = Result<Bytes, E>>,
        E: Into<BoxError>,
    {
        let read = Arc::clone(&self.0);
        body.map(move |chunk| {
            let chunk = chunk.map_err(Into::into)?;
            // A body that is already in memory arrives as one chunk.
            if read.fetch_add(chunk.len(), Ordering::Relaxed) > BODY_BYTES_IN_MEMORY {
                let problem =
                    format!("the head of a part is longer than {BODY_BYTES_IN_MEMORY} bytes");
                return Err(problem.into());
            }
            Ok(chunk)
        })
    }

    fn has_moved(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// An optional value. A missing value differs from an empty one.
fn optional(hash: FingerprintBuilder, text: Option<&str>) -> FingerprintBuilder {
    match text {
        Some(text) => hash.part(b"+").part(text.as_bytes()),
        None => hash.part(b"-"),
    }
}

fn malformed(error: multer::Error) -> Problem {
    Problem::new(MULTIPART_INVALID).caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{FutureExt, stream};

    use super::*;

    #[test]
    fn a_head_that_does_not_end_is_refused_before_it_fills_the_memory() {
        let read = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&read);
        let endless = stream::repeat_with(move || {
            let first = counted.fetch_add(1, Ordering::Relaxed) == 0;
            let chunk = if first { "--b\r\nx: " } else { HEAD };
            Ok::<_, Infallible>(Bytes::from_static(chunk.as_bytes()))
        });
        let refused = hash(endless, b"multipart/form-data; boundary=b").now_or_never();
        let refused = refused.expect("the body is never pending").unwrap_err();
        assert_eq!(refused.code(), MULTIPART_INVALID);
        let held = read.load(Ordering::Relaxed) * HEAD.len();
        assert!(held <= 2 * BODY_BYTES_IN_MEMORY, "{held}");
    }

    #[test]
    fn a_part_without_a_head_or_a_name_is_refused() {
        for part in [
            "\r\namount=1\r\n\r\nx",
            "\r\n\r\n--b",
            "content-type: text/plain\r\n\r\nx",
            "content-disposition: form-data\r\n\r\nx",
            "\r\ncontent-disposition: form-data; name=a\r\n\r\nx",
        ] {
            assert!(hash_of(part).is_err(), "{part:?}");
        }
        hash_of("content-disposition: form-data; name=a\r\n\r\nx").unwrap();
        hash_of("content-disposition: form-data; name=\"\"\r\n\r\n").unwrap();
    }

    fn hash_of(part: &str) -> Result<BodyHash, Problem> {
        let body = Bytes::from(format!("--b\r\n{part}\r\n--b--"));
        let body = stream::iter([Ok::<_, Infallible>(body)]);
        let hash = hash(body, b"multipart/form-data; boundary=b").now_or_never();
        hash.expect("the body is never pending")
    }

    const HEAD: &str = match std::str::from_utf8(&[b'x'; 64 * 1024]) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    };
}
