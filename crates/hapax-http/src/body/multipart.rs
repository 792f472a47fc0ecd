//! The hash of a multipart body, part by part.
//!
//! The boundary is drawn anew by every client library on every send, so it takes
//! no part: what does is each part's name, file name, content type and content,
//! in the order in which they came. The content is hashed as it streams.

use axum::body::Bytes;
use futures_util::Stream;
use hapax::{key::FingerprintBuilder, limits::MULTIPART_PARTS_MAX};
use multer::{Field, Multipart};
use sha2::{Digest, Sha256};

use super::BodyHash;
use crate::problem::{MULTIPART_INVALID, Problem};

/// The version of this format.
const VERSION: u8 = 1;

pub(super) async fn hash<S, E>(body: S, content_type: &[u8]) -> Result<BodyHash, Problem>
where
    S: Stream<Item = Result<Bytes, E>> + Send,
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let boundary = std::str::from_utf8(content_type).ok();
    let boundary = boundary.and_then(|text| multer::parse_boundary(text).ok());
    let boundary = boundary.ok_or_else(|| {
        Problem::new(MULTIPART_INVALID).detail("the content type names no boundary")
    })?;
    let mut multipart = Multipart::new(body, boundary);
    let mut hash = FingerprintBuilder::new(VERSION);
    let mut parts = 0;
    while let Some(field) = multipart.next_field().await.map_err(malformed)? {
        parts += 1;
        if parts > MULTIPART_PARTS_MAX {
            return Err(Problem::new(MULTIPART_INVALID)
                .detail(format!("it has more than {MULTIPART_PARTS_MAX} parts")));
        }
        hash = part(hash, field).await?;
    }
    Ok(*hash.finish().as_bytes())
}

async fn part(
    hash: FingerprintBuilder,
    mut field: Field<'_>,
) -> Result<FingerprintBuilder, Problem> {
    let media_type = field.content_type().map(ToString::to_string);
    let hash = optional(hash, field.name());
    let hash = optional(hash, field.file_name());
    let hash = optional(hash, media_type.as_deref());
    let mut content = Sha256::new();
    while let Some(chunk) = field.chunk().await.map_err(malformed)? {
        content.update(&chunk);
    }
    Ok(hash.part(&content.finalize()))
}

/// A part that may be missing, which is not the same as empty.
fn optional(hash: FingerprintBuilder, text: Option<&str>) -> FingerprintBuilder {
    match text {
        Some(text) => hash.part(b"+").part(text.as_bytes()),
        None => hash.part(b"-"),
    }
}

fn malformed(error: multer::Error) -> Problem {
    Problem::new(MULTIPART_INVALID).caused_by(error)
}
