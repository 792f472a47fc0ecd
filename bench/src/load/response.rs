//! Minimal parser of HTTP/1.1 responses for the load generator.
//!
//! It reads the status, the lengths of head and body, and whether the response was replayed. Every
//! service that is measured sends a `Content-Length`. A response without it is an error, and so is
//! anything else that is not HTTP/1.1.

/// Maximum size of a head in bytes. The services of the benchmarks send much less.
const HEAD_MAX: usize = 64 * 1024;
/// Maximum size of a body in bytes. A page of a list is much smaller.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// The head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// Length of the head in bytes, including the empty line.
    pub(crate) length: usize,
    /// Length of the body in bytes.
    pub(crate) body: usize,
    /// Whether it contains `Idempotency-Status: replayed`, with or without parameters.
    pub(crate) replayed: bool,
}

/// Why a response cannot be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResponseError {
    /// The bytes are not an HTTP/1.1 response.
    #[error("the response is not valid HTTP/1.1")]
    Malformed,
    /// The response has no `Content-Length`.
    #[error("the response has no content length")]
    Unbounded,
    /// Head or body is longer than the maximum.
    #[error("the response is too large")]
    TooLarge,
}

/// Parses the head at the start of `bytes`; `None` if it is not complete.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Head>, ResponseError> {
    let Some(first) = line_end(bytes, 0)? else {
        return Ok(None);
    };
    let mut head = Head {
        status: status(&bytes[..first])?,
        length: 0,
        body: 0,
        replayed: false,
    };
    let mut has_length = matches!(head.status, 204 | 304);
    let mut at = first;
    while let Some(end) = line_end(bytes, at)? {
        let line = &bytes[at..end - 2];
        at = end;
        match line.first() {
            None => {
                head.length = end;
                return if has_length {
                    Ok(Some(head))
                } else {
                    Err(ResponseError::Unbounded)
                };
            }
            Some(b'c' | b'C') => {
                if let Some(value) = value_of(line, b"content-length") {
                    head.body = number(value)?;
                    has_length = true;
                }
            }
            Some(b'i' | b'I') => {
                if let Some(value) = value_of(line, b"idempotency-status") {
                    head.replayed = is_replayed(value);
                }
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

/// The end of the line that starts at `at`, including its CRLF.
fn line_end(bytes: &[u8], at: usize) -> Result<Option<usize>, ResponseError> {
    match bytes[at..].iter().position(|&byte| byte == b'\n') {
        Some(0) => Err(ResponseError::Malformed),
        Some(feed) if bytes[at + feed - 1] != b'\r' => Err(ResponseError::Malformed),
        Some(feed) => Ok(Some(at + feed + 1)),
        None if bytes.len() > HEAD_MAX => Err(ResponseError::TooLarge),
        None => Ok(None),
    }
}

fn status(line: &[u8]) -> Result<u16, ResponseError> {
    let digits = line
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .ok_or(ResponseError::Malformed)?;
    let status = number(digits)?;
    u16::try_from(status)
        .ok()
        .filter(|s| *s >= 200)
        .ok_or(ResponseError::Malformed)
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Whether the status is `replayed`. The gateway adds a parameter, such as `upstream=opaque`.
fn is_replayed(value: &[u8]) -> bool {
    value.split(|byte| *byte == b';').next() == Some(b"replayed")
}

fn number(digits: &[u8]) -> Result<usize, ResponseError> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ResponseError::Malformed);
    }
    let mut number = 0_usize;
    for digit in digits {
        number = number
            .saturating_mul(10)
            .saturating_add(usize::from(digit - b'0'));
    }
    if number > BODY_MAX {
        Err(ResponseError::TooLarge)
    } else {
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "HTTP/1.1 201 Created\r\ncontent-length: 5\r\n\
                          Idempotency-Status: replayed\r\netag: \"1\"\r\n\r\nhello";

    #[track_caller]
    fn check(text: &str, expected: Result<Option<Head>, ResponseError>) {
        assert_eq!(parse(text.as_bytes()), expected);
    }

    #[test]
    fn a_whole_answer_says_its_status_its_lengths_and_that_it_was_replayed() {
        let length = ANSWER.len() - 5;
        check(
            ANSWER,
            Ok(Some(Head {
                status: 201,
                length,
                body: 5,
                replayed: true,
            })),
        );
    }

    #[test]
    fn a_replay_of_the_gateway_has_a_parameter() {
        assert!(is_replayed(b"replayed; upstream=opaque"));
        assert!(is_replayed(b"replayed"));
        assert!(!is_replayed(b"stored; upstream=opaque"));
        assert!(!is_replayed(b"replayed-later"));
    }

    #[test]
    fn a_head_that_is_cut_anywhere_is_waited_for() {
        for cut in 0..ANSWER.len() - 5 {
            check(&ANSWER[..cut], Ok(None));
        }
    }

    #[test]
    fn names_of_headers_match_in_any_case_and_only_whole() {
        let text = "HTTP/1.1 200 OK\r\nCONTENT-LENGTH:3\r\ncontent-lengthy: 9\r\n\r\n";
        let head = Head {
            status: 200,
            length: text.len(),
            body: 3,
            replayed: false,
        };
        check(text, Ok(Some(head)));
    }

    #[test]
    fn an_answer_without_content_needs_no_length() {
        let text = "HTTP/1.1 204 No Content\r\n\r\n";
        let head = Head {
            status: 204,
            length: text.len(),
            body: 0,
            replayed: false,
        };
        check(text, Ok(Some(head)));
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        use ResponseError::{Malformed, TooLarge, Unbounded};
        check("HTTP/1.1 200 OK\r\n\r\n", Err(Unbounded));
        check("SSH-2.0-OpenSSH\r\n", Err(Malformed));
        check("HTTP/1.1 100 Continue\r\n\r\n", Err(Malformed));
        check("HTTP/1.1 200 OK\ncontent-length: 1\n\n", Err(Malformed));
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            Err(Malformed),
        );
        check(
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
            Err(TooLarge),
        );
        check(&"x".repeat(HEAD_MAX + 1), Err(TooLarge));
    }
}
