//! Builds the request from the command line.

use std::{
    fs::File,
    io::{self, Read as _},
};

use hapax::key::IdempotencyKey;
use hapax_client::Request;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header::CONTENT_TYPE};

use super::Args;
use crate::{
    command::Failure,
    environment,
    output::{USAGE, note},
};

/// Maximum size of a body in bytes. It is kept in memory for further attempts.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads the request from the command line, and its body from a file or standard input.
pub(super) fn read(args: &Args) -> Result<Request, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::new(USAGE, error.to_string());
    let method = match (&args.method, &args.data) {
        (Some(method), _) => Method::from_bytes(method.as_bytes())
            .map_err(|_| usage(&format!("{method:?} is not a valid method")))?,
        (None, Some(_)) => Method::POST,
        (None, None) => Method::GET,
    };
    let has_key = [Method::POST, Method::PATCH].contains(&method);
    let mut request = Request::new(method, &args.url).map_err(|error| usage(&error))?;
    let headers = headers(&args.headers)?;
    for (name, value) in &headers {
        let value = value.to_str().unwrap_or_default();
        request = request
            .header(name.as_str(), value)
            .map_err(|error| usage(&error))?;
    }
    if let Some(data) = &args.data {
        let body = body(data)?;
        request = if headers.contains_key(CONTENT_TYPE) {
            request.body(body)
        } else {
            request.json(body)
        };
    }
    if args.anew {
        request = request.anew();
    }
    if let Some(key) = &args.key {
        let key = IdempotencyKey::new(key.as_str());
        let key = key.map_err(|error| usage(&format!("--key: {error}")))?;
        request = request.key(key);
    } else if args.journal.is_none() && has_key {
        // A user who interrupts the command needs the key, because it is not stored anywhere else.
        let key = IdempotencyKey::mint(&environment::random());
        note(format!("--key {}", key.as_str()));
        request = request.key(key);
    }
    Ok(request)
}

fn headers(lines: &[String]) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for line in lines {
        let wrong = |why: &str| Failure::new(USAGE, format!("--header {line:?}: {why}"));
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| wrong("no colon in it"))?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| wrong("no name of a header"))?;
        match name.as_str() {
            "idempotency-key" => return Err(wrong("the key is given by --key")),
            "idempotency-attempt" => return Err(wrong("the attempts are counted")),
            "x-request-timeout" => return Err(wrong("the time is given by --timeout")),
            _ => {}
        }
        let value: HeaderValue = value
            .trim()
            .parse()
            .map_err(|_| wrong("no value of a header"))?;
        let Ok(_) = value.to_str() else {
            return Err(wrong("not ASCII"));
        };
        headers.append(name, value);
    }
    Ok(headers)
}

/// The bytes of `--data`.
fn body(data: &str) -> Result<Vec<u8>, Failure> {
    let Some(path) = data.strip_prefix('@') else {
        return Ok(data.as_bytes().to_vec());
    };
    let wrong =
        |error: &dyn std::fmt::Display| Failure::new(USAGE, format!("--data {data}: {error}"));
    let taken = if path == "-" {
        take(io::stdin().lock())
    } else {
        File::open(path).and_then(take)
    };
    let body = taken.map_err(|error| wrong(&error))?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(wrong(&format!("longer than {BODY_BYTES_MAX} bytes")));
    }
    Ok(body)
}

fn take(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    from.take(BODY_BYTES_MAX + 1).read_to_end(&mut body)?;
    Ok(body)
}
