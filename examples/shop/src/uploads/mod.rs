//! Storage of uploaded images, and the job that makes their thumbnails.
//!
//! A file is stored once, under the SHA-256 of its bytes, before the row that names it is committed
//! (`folder`, `draft`). A crash between the two leaves a file without a row, which `sweep` deletes.
//! The request reads only the header of the image (`header`); the job that makes the thumbnails
//! decodes the rest (`thumbnail`, `job`).

mod folder;
mod draft;
mod header;
mod thumbnail;
mod job;
mod sweep;

pub(crate) use draft::{NotStored, Stored, Storing};
pub(crate) use folder::Folder;
pub(crate) use header::Unfit;
pub(crate) use job::{DECODED, sink};
pub(crate) use sweep::{SWEEP, sweep};
pub(crate) use thumbnail::SIZES;

/// The largest upload including its form, in bytes.
pub(crate) const UPLOAD_BYTES_MAX: u64 = 32 * 1024 * 1024;
