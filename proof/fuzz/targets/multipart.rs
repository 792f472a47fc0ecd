//! Fuzz target for multipart bodies: any bytes have a fingerprint, or are rejected.
//!
//! The first line of the input is the content type, the rest is the body. The fingerprint depends
//! neither on how the body is cut into chunks nor on its boundary.
#![no_main]

use bytes::Bytes;
use hapax_http::fuzz::multipart;
use libfuzzer_sys::fuzz_target;

/// The boundary of the seeds, and another one with a different length.
const BOUNDARY: &str = "b7c1";
const OTHER: &str = "----another.boundary";

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == b'\n');
    let (content_type, body) = data.split_at(end.unwrap_or(data.len()));
    let body = body.get(1..).unwrap_or_default();
    let whole = multipart(vec![Bytes::copy_from_slice(body)], content_type);
    let sizes = if body.len() <= 256 { [1, 5] } else { [5, 64] };
    for size in sizes {
        let cut = body.chunks(size).map(Bytes::copy_from_slice).collect();
        assert_eq!(
            multipart(cut, content_type),
            whole,
            "in chunks of {size} bytes"
        );
    }
    if content_type == of_boundary(BOUNDARY).as_bytes()
        && let Some(other) = with_other_boundary(body)
    {
        let content_type = of_boundary(OTHER);
        let other = multipart(vec![other.into()], content_type.as_bytes());
        assert_eq!(other, whole, "with another boundary");
    }
});

fn of_boundary(boundary: &str) -> String {
    format!("multipart/form-data; boundary={boundary}")
}

/// Replaces the boundary of the body, if every occurrence of it is a delimiter. An occurrence after
/// an empty line is the beginning of a part's content.
fn with_other_boundary(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let delimits = |before: &str| {
        before == "--" || before.ends_with("\r\n--") && !before.ends_with("\r\n\r\n--")
    };
    let is_apart = text
        .match_indices(BOUNDARY)
        .all(|(at, _)| delimits(&text[..at]));
    (is_apart && !text.contains("another")).then(|| text.replace(BOUNDARY, OTHER).into_bytes())
}
