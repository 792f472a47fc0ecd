//! The form that an upload comes in: one part, `file`, with a file name.
//!
//! The layer in front has read it to its end and found it well-formed; here it
//! streams once more, to the disk. The name is a stranger's text: it is kept
//! and shown, and never becomes part of a path.

use axum::body::Body;
use hapax_http::problem::{self, Problem};
use http::{HeaderMap, header};
use multer::{Field, Multipart};

use crate::{
    members,
    problem::{UPLOAD_DIMENSIONS, UPLOAD_TYPE},
    uploads::{Folder, NotStored, Stored, Storing, Unfit},
};

/// The one part of the form.
const PART: &str = "file";
/// Characters of a file's name.
const NAME_MAX: usize = 255;
/// How soon a disk that failed may be asked again.
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
    // Only one part at a time can be held.
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
    Problem::invalid(PART, "the form has one part, file, with a file name")
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
                "{width} x {height} is more than 40 megapixels of 8 bits, or 20 of 16"
            ))
        }
        NotStored::Unfit(Unfit::Unread(error)) | NotStored::Failed(error) => {
            Problem::new(problem::UNAVAILABLE)
                .detail("the file could not be kept; nothing was changed")
                .retry_after(RETRY_AFTER)
                .caused_by(error)
        }
    }
}
