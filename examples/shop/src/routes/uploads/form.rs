//! Reads the form of an upload: one part, `file`, with a file name.
//!
//! The idempotency layer has already read the whole form and checked its syntax. This module reads
//! it again and streams the file to disk. The file name is untrusted text: it is stored and shown,
//! but never becomes part of a path.

use axum::body::Body;
use hapax::store::StoreError;
use hapax_http::problem::{self, Problem};
use http::{HeaderMap, header};
use multer::{Field, Multipart};

use crate::{
    members,
    problem::{UPLOAD_DIMENSIONS, UPLOAD_TYPE},
    uploads::{Folder, NotStored, Stored, Storing, Unfit},
};

/// The name of the form's only part.
const PART: &str = "file";
/// The longest file name, in characters.
const NAME_MAX: usize = 255;
/// The `Retry-After` if the file cannot be stored.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// Stores the file of a form, and returns it with its name.
pub(super) async fn receive(
    folder: &Folder,
    headers: &HeaderMap,
    body: Body,
) -> Result<(String, Stored), Problem> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let boundary = content_type.and_then(|it| multer::parse_boundary(it.to_str().ok()?).ok());
    let boundary = boundary.ok_or_else(|| {
        Problem::new(problem::CONTENT_TYPE).detail("send multipart/form-data with one part, file")
    })?;
    let mut form = Multipart::new(body.into_data_stream(), boundary);
    let mut part = form.next_field().await.map_err(malformed)?;
    let mut part = part
        .take_if(|part| part.name() == Some(PART))
        .ok_or_else(misshapen)?;
    let name = part.file_name().ok_or_else(misshapen)?.to_owned();
    members::line(PART, &name, NAME_MAX)?;
    let storing = Storing::begin(folder).await;
    while let Some(chunk) = next(&mut part).await? {
        storing.push(chunk).await;
    }
    // The parser allows only one open part at a time.
    drop(part);
    if form.next_field().await.map_err(malformed)?.is_some() {
        return Err(misshapen());
    }
    let stored = storing.finish().await.map_err(refused)?;
    Ok((name, stored))
}

async fn next(part: &mut Field<'_>) -> Result<Option<axum::body::Bytes>, Problem> {
    part.chunk().await.map_err(malformed)
}

fn misshapen() -> Problem {
    Problem::invalid(PART, "the form must have one part, file, with a file name")
}

fn malformed(error: multer::Error) -> Problem {
    Problem::new(problem::MULTIPART_INVALID).caused_by(error)
}

fn refused(reason: NotStored) -> Problem {
    match reason {
        NotStored::Unfit(Unfit::Foreign) => Problem::new(UPLOAD_TYPE).member(PART),
        NotStored::Unfit(Unfit::Broken(how)) => Problem::new(UPLOAD_TYPE).member(PART).detail(how),
        NotStored::Unfit(Unfit::Large { width, height }) => {
            Problem::new(UPLOAD_DIMENSIONS).member(PART).detail(format!(
                "{width} x {height} is too large: at most 40 megapixels of 8 bits, or 20 of 16"
            ))
        }
        NotStored::Unfit(Unfit::Unread(error)) | NotStored::Failed(error) => {
            Problem::new(problem::UNAVAILABLE)
                .detail("the file could not be stored; nothing was changed")
                .retry_after(RETRY_AFTER)
                // The folder is part of the shop's store: the request is counted as it is if the
                // database cannot be used.
                .caused_by(StoreError::Unavailable {
                    source: error.into(),
                })
        }
    }
}
