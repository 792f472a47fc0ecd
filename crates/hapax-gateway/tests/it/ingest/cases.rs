//! Requests that the providers' libraries have made and judged (`tests/vectors/make.mjs`).
//!
//! The recorded ones are in `tests/vectors/cases.json`. The same check judges those that the
//! libraries make while the tests run (`libraries`).

use std::{collections::BTreeMap, time::Duration};

use hapax::Timestamp;
use hapax_gateway::ingest::{
    SchemeName, Source, SourceSettings,
    signature::{Presented, TimeBound, Verified},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

/// A request with the judgement of the library.
#[derive(Debug, Deserialize)]
struct Case {
    library: String,
    version: String,
    name: String,
    scheme: SchemeName,
    secret: String,
    headers: BTreeMap<String, String>,
    body: String,
    query: Option<String>,
    url: Option<String>,
    /// The id of the event, if the library or the documentation says what it is.
    id: Option<String>,
    time: i64,
    valid: bool,
}

#[test]
fn every_recorded_request_is_judged_as_its_library_has_judged_it() {
    check(include_str!("../../vectors/cases.json"));
}

/// Checks that every request is judged as its library has judged it, and that every library has
/// accepted and refused some.
#[track_caller]
pub(super) fn check(json: &str) {
    let cases: Vec<Case> = serde_json::from_str(json).unwrap();
    let mut judged: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for case in &cases {
        let verified = verify(case);
        assert_eq!(verified.is_ok(), case.valid, "{case:#?} {verified:?}");
        if let (Ok(Verified::Events(events)), Some(id)) = (verified, &case.id) {
            assert_eq!(&events[0].id, id, "{case:#?}");
        }
        judged.entry(&case.library).or_default()[usize::from(case.valid)] += 1;
    }
    assert_eq!(judged.len(), LIBRARIES, "{judged:?}");
    let both = |counts: &[usize; 2]| counts.iter().all(|count| *count > 0);
    assert!(judged.values().all(both), "{judged:?}");
}

/// The number of libraries in `packages.txt`.
const LIBRARIES: usize = 7;

fn verify(case: &Case) -> Result<Verified, String> {
    assert!(!case.version.is_empty() && !case.name.is_empty());
    let secrets = [case.secret.as_str().into()];
    let settings = SourceSettings {
        url: case.url.clone(),
        ..SourceSettings::new(case.scheme, secrets)
    };
    let source = Source::new("case", &settings).unwrap();
    let mut headers = HeaderMap::new();
    for (name, value) in &case.headers {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let presented = Presented {
        headers: &headers,
        query: case.query.as_deref(),
        body: case.body.as_bytes(),
    };
    let time = TimeBound {
        now: Timestamp::from_millis(case.time * 1000),
        tolerance: Duration::from_mins(5),
    };
    let verified = source.scheme().verify(&presented, time);
    verified.map_err(|refusal| refusal.to_string())
}
