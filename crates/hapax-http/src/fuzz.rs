//! Entry points of the fuzzers to private parsers of this crate.
//!
//! This module is compiled only for the fuzzers (`cargo x fuzz`).

use hapax::key::{HeaderError, IdempotencyKey, parse_header};

pub use crate::body::fuzz::{Refused, canonical, multipart};
use crate::header;

/// Parses the value of the `Idempotency-Key` header.
pub fn key(value: &[u8]) -> Result<String, HeaderError> {
    parse_header(value).map(std::borrow::Cow::into_owned)
}

/// Formats a key as the value of the `Idempotency-Key` header.
pub fn echo(key: &IdempotencyKey) -> Vec<u8> {
    header::echo(key).as_bytes().to_vec()
}
