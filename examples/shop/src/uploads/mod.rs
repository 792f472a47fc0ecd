//! Uploaded pictures: files by their content, and what is made of them.
//!
//! A file is kept once, under the SHA-256 of its bytes, before the row that
//! names it is committed (`folder`, `draft`): a crash between the two leaves a
//! file that nobody names, which is swept (`sweep`). What a picture claims to
//! be is read from its header at once (`header`); the rest is found out by the
//! job that makes thumbnails of it (`thumbnail`, `job`).

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

/// Bytes of one upload, its form included.
pub(crate) const UPLOAD_BYTES_MAX: u64 = 32 * 1024 * 1024;
