//! The vectors of services: what the packages for other languages have to do alike.
//!
//! `sdk/vectors/README.md` describes the files. `UPDATE_EXPECT=1` writes them.

mod key;
mod fingerprints;
mod stored;
mod problems;

use hapax_http::{FingerprintMode, Profile};
use hapax_testkit::vectors::Data;
use http::{HeaderName, HeaderValue, Request};
use serde::{Deserialize, Serialize};

use crate::stage::Sent;

/// A refusal in a vector.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    status: u16,
    code: String,
}

impl Refusal {
    fn of(sent: &Sent) -> Self {
        Self {
            status: sent.status.as_u16(),
            code: sent.json()["code"].as_str().unwrap().to_owned(),
        }
    }
}

fn profile(name: &str) -> Profile {
    let mut all = Profile::ALL.into_iter();
    all.find(|profile| profile.as_str() == name).unwrap()
}

fn mode(name: &str) -> FingerprintMode {
    let mut all = FingerprintMode::ALL.into_iter();
    all.find(|mode| mode.as_str() == name).unwrap()
}

/// A header line of a vector.
fn line((name, value): &(String, Data)) -> (HeaderName, HeaderValue) {
    let value = HeaderValue::from_bytes(&value.bytes()).unwrap();
    (HeaderName::from_bytes(name.as_bytes()).unwrap(), value)
}

/// Adds header lines to a request.
fn with_lines<B>(mut request: Request<B>, lines: &[(String, Data)]) -> Request<B> {
    for (name, value) in lines.iter().map(line) {
        request.headers_mut().append(name, value);
    }
    request
}
