//! What the fuzzers call, and nobody else: readers that are private here, as they are.
//!
//! It is there where the fuzzers are built (`cargo x fuzz`), and nowhere else.

use hapax::key::{HeaderError, IdempotencyKey, parse_header};

pub use crate::body::fuzz::{Refused, canonical, multipart};
use crate::header;

/// The key that the value of a header names.
pub fn key(value: &[u8]) -> Result<String, HeaderError> {
    parse_header(value).map(std::borrow::Cow::into_owned)
}

/// The value of the header that names a key.
pub fn echo(key: &IdempotencyKey) -> Vec<u8> {
    header::echo(key).as_bytes().to_vec()
}
