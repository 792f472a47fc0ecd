//! Media types of bodies, as the layer distinguishes them.

use http::HeaderValue;

/// Whether the media type is JSON: `application/json` or any `+json`.
pub(crate) fn is_json(value: &HeaderValue) -> bool {
    let media_type = media_type(value.as_bytes());
    let ends_with = |suffix: &[u8]| {
        media_type.len() > suffix.len()
            && media_type[media_type.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    };
    media_type.eq_ignore_ascii_case(b"application/json") || ends_with(b"+json")
}

/// Whether the media type is `multipart/form-data`.
pub(crate) fn is_multipart(value: &HeaderValue) -> bool {
    media_type(value.as_bytes()).eq_ignore_ascii_case(b"multipart/form-data")
}

/// Returns the content type without its parameters.
pub(crate) fn media_type(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
    value[..end].trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_type_or_its_suffix() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "a/b+json ;x",
        ] {
            assert!(is_json(&HeaderValue::from_str(json).unwrap()), "{json}");
        }
        for other in ["text/json2", "application/jsonl", "text/plain; a=+json", ""] {
            assert!(!is_json(&HeaderValue::from_str(other).unwrap()), "{other}");
        }
    }
}
