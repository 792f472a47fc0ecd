//! The corpus of raw requests, `smuggling/requests.http`, which says how it is read.
//!
//! The tests of request smuggling send it to the gateway, the differential test to nginx as well. The fuzz
//! target of the gateway's scanner begins with the same requests.

use std::{collections::BTreeSet, fs};

use crate::upstream::script;

/// A plain request, which the tests send after each request of the corpus on the same connection.
pub(crate) const NEXT: &[u8] = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

/// What may happen to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The service sees nothing.
    Refused,
    /// The service sees one request whose body has this length.
    Forwarded(u64),
    /// One of the two.
    Either(u64),
    /// The request has no end.
    Open,
}

/// A request of the corpus.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) expected: Expected,
    pub(crate) bytes: Vec<u8>,
}

/// The requests of the corpus.
pub(crate) fn cases() -> Vec<Case> {
    let text = fs::read_to_string(script("smuggling/requests.http")).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("=== ") {
            let (name, expected) = head.rsplit_once(" | ").unwrap();
            cases.push(Case {
                name: name.to_owned(),
                expected: expectation(expected),
                bytes: Vec::new(),
            });
        } else if let Some(case) = cases.last_mut() {
            append(&mut case.bytes, line);
        }
    }
    cases
}

fn expectation(text: &str) -> Expected {
    let (word, length) = text.split_once(' ').unwrap_or((text, "0"));
    let length = length.parse().unwrap();
    match word {
        "refused" => Expected::Refused,
        "forwarded" => Expected::Forwarded(length),
        "either" => Expected::Either(length),
        "open" => Expected::Open,
        other => panic!("unknown expectation {other}"),
    }
}

/// Appends a line with its escapes and its end.
fn append(bytes: &mut Vec<u8>, line: &str) {
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            bytes.extend(c.to_string().into_bytes());
            continue;
        }
        match rest.next() {
            // The line has no end.
            None => return,
            Some('r') => bytes.push(b'\r'),
            Some('n') => bytes.push(b'\n'),
            Some('t') => bytes.push(b'\t'),
            Some('0') => bytes.push(0),
            Some('\\') => bytes.push(b'\\'),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            Some(other) => panic!("unknown escape \\{other} in {line}"),
        }
    }
    bytes.extend(b"\r\n");
}

#[test]
fn the_corpus_of_the_fuzzer_contains_every_request() {
    let folder = fs::read_dir(script("../fuzz/corpus/wire")).unwrap();
    let inputs: BTreeSet<Vec<u8>> = folder
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    let cases = cases();
    let missing = cases.iter().filter(|case| !inputs.contains(&case.bytes));
    let missing: Vec<&str> = missing.map(|case| case.name.as_str()).collect();
    assert!(missing.is_empty(), "not in the corpus: {missing:?}");
}
