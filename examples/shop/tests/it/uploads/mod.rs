//! Uploads: one file, one row, one pair of thumbnails, whatever happens on the way.

mod picture;
mod sent;
mod kept;
mod refused;
mod hostile;
mod storm;
pub(crate) mod crash;
mod swept;
mod shared;
mod memory;
