//! Vectors of canonical JSON.

use hapax::key::hex;
use hapax_testkit::vectors::{Data, Vectors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{JsonError, Numbers, canonical};

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Input {
    body: Data,
}

#[derive(Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
enum Expect {
    Canonical {
        json: String,
        json_semantic: String,
    },
    /// Of a form that is too long for a vector, and the same in both modes.
    Hash {
        sha256: String,
    },
    Refused {
        error: String,
    },
}

#[test]
fn the_vectors_of_canonical_json_hold() {
    let vectors: Vectors<Input, Expect> = Vectors::load("canonical-json.json");
    let results = vectors.inputs().map(|input| result(&input.body)).collect();
    vectors.check(results);
}

fn result(body: &Data) -> Expect {
    let bytes = body.bytes();
    let form = |numbers| canonical(&bytes, &[], numbers);
    let (json, json_semantic) = match (form(Numbers::AsSent), form(Numbers::ByValue)) {
        (Ok(json), Ok(json_semantic)) => (json, json_semantic),
        (Err(error), Err(other)) => {
            assert_eq!(error, other, "both modes refuse the same bodies");
            return Expect::Refused {
                error: name(&error).to_owned(),
            };
        }
        forms => panic!("one mode refuses the body: {forms:?}"),
    };
    if matches!(body, Data::Members { .. }) {
        assert_eq!(json, json_semantic);
        return Expect::Hash {
            sha256: hex(&Sha256::digest(&json)[..]),
        };
    }
    Expect::Canonical {
        json: String::from_utf8(json).unwrap(),
        json_semantic: String::from_utf8(json_semantic).unwrap(),
    }
}

fn name(error: &JsonError) -> &'static str {
    match error {
        JsonError::Syntax { .. } => "syntax",
        JsonError::Duplicate { .. } => "duplicate",
        JsonError::Depth => "depth",
        JsonError::Members => "members",
    }
}
