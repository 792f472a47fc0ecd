//! Fuzz target for the check of the gateway's connections: for any bytes, in any parts, the check knows
//! where each request ends.
//!
//! The corpus begins with the requests of `proof/gateway/smuggling`. The outcome does not depend on how the bytes
//! are cut. After each complete request, as httparse and the rules of RFC 9112 read it, the check still refuses a
//! bare LF in the next head: no request hides the next one from it, or ends it.
#![no_main]

#[path = "../../../crates/hapax-gateway/src/wire/scanner.rs"]
#[allow(dead_code, reason = "the gateway uses the rest")]
mod scanner;

use libfuzzer_sys::fuzz_target;
use scanner::{Ambiguity, Scanner};

/// A head that is refused wherever a head is expected.
const REFUSED: &[u8] = b"GET / HTTP/1.1\n";
/// The maximum number of headers that hyper reads.
const HEADERS_MAX: usize = 100;
/// The maximum number of digits of the size of a chunk. hyper accepts more, if they are zeros.
const DIGITS_MAX: usize = 15;

fuzz_target!(|sent: &[u8]| {
    let whole = scan(sent, usize::MAX);
    for size in [1, 7] {
        assert_eq!(scan(sent, size), whole, "in pieces of {size} bytes");
    }
    let mut end = 0;
    while let Some(length) = request(&sent[end..]) {
        end += length;
        if scan(&sent[..end], usize::MAX).is_err() {
            break;
        }
        let next = [&sent[..end], REFUSED].concat();
        assert_eq!(
            scan(&next, usize::MAX),
            Err(Ambiguity::BareLf),
            "after {end} bytes"
        );
    }
});

/// Checks bytes that arrive in pieces of this size.
fn scan(sent: &[u8], size: usize) -> Result<(), Ambiguity> {
    let mut scanner = Scanner::new();
    sent.chunks(size).try_for_each(|piece| scanner.scan(piece))
}

/// The length of the request at the beginning, if it is complete and its length is beyond doubt.
fn request(sent: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(sent) else {
        return None;
    };
    let (mut length, mut coding): (Option<usize>, Option<&[u8]>) = (None, None);
    for header in request.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            let number = decimal(header.value)?;
            if length.is_some_and(|known| known != number) {
                return None;
            }
            length = Some(number);
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            coding = Some(header.value);
        }
    }
    let body = &sent[head..];
    let length = match coding {
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => chunked(body)?,
        Some(_) => return None,
        None => length.unwrap_or(0),
    };
    (length <= body.len()).then_some(head + length)
}

fn decimal(digits: &[u8]) -> Option<usize> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// The length of a chunked body, with its trailers.
fn chunked(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = line(&body[at..])?;
        at += line.len() + 2;
        let size = chunk_size(line)?;
        if size == 0 {
            break;
        }
        let end = body.get(at + size..)?;
        end.strip_prefix(b"\r\n")?;
        at += size + 2;
    }
    loop {
        let line = line(&body[at..])?;
        at += line.len() + 2;
        if line.is_empty() {
            return Some(at);
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<usize> {
    let digits = line.iter().take_while(|it| it.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let is_end = matches!(rest.trim_ascii_start().first(), None | Some(b';'));
    let is_size = (1..=DIGITS_MAX).contains(&digits.len()) && is_end;
    let text = std::str::from_utf8(digits).ok().filter(|_| is_size)?;
    usize::from_str_radix(text, 16).ok()
}

/// The bytes before the first CR and LF.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some(&bytes[..end])
}
