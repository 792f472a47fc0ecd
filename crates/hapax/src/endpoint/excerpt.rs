//! The beginning of a request, as it is stored with its attempt: headers and body.
//!
//! In a row it is one text: a JSON object of the headers on the first line, and then the body.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::limits::ENDPOINT_EXCERPT_BYTES;

/// The headers and the beginning of the body of a request. Values of configured headers are masked
/// by the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestExcerpt {
    /// The headers, by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the body.
    pub body: Bytes,
}

impl RequestExcerpt {
    /// An excerpt of a request with this body.
    pub fn new(headers: BTreeMap<String, String>, body: &[u8]) -> Self {
        let body = Bytes::copy_from_slice(beginning(body));
        Self { headers, body }
    }

    /// The text of its column.
    pub fn encode(&self) -> Bytes {
        let mut text = serde_json::to_vec(&self.headers).unwrap_or_else(|_| b"{}".to_vec());
        text.push(b'\n');
        text.extend_from_slice(&self.body);
        text.into()
    }

    /// Reads the text of a column. A text that is not valid is an empty excerpt.
    pub fn decode(text: &[u8]) -> Self {
        let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
            return Self::default();
        };
        Self {
            headers: serde_json::from_slice(&text[..end]).unwrap_or_default(),
            body: Bytes::copy_from_slice(&text[end + 1..]),
        }
    }
}

/// The beginning of a body that is stored.
pub(super) fn beginning(body: &[u8]) -> &[u8] {
    &body[..body.len().min(ENDPOINT_EXCERPT_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_reads_back_and_its_body_is_bounded() {
        let headers = BTreeMap::from([("webhook-id".to_owned(), "a\nb".to_owned())]);
        let excerpt = RequestExcerpt::new(headers, b"{\"a\":1}\n\n");
        assert_eq!(RequestExcerpt::decode(&excerpt.encode()), excerpt);
        let long = RequestExcerpt::new(BTreeMap::new(), &[b'a'; 2 * ENDPOINT_EXCERPT_BYTES]);
        assert_eq!(long.body.len(), ENDPOINT_EXCERPT_BYTES);
        assert_eq!(RequestExcerpt::decode(b""), RequestExcerpt::default());
    }
}
