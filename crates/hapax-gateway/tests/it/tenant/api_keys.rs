//! API keys in headers, and a file of keys that changes.

use std::{fs, path::Path, time::Duration};

use axum::response::IntoResponse as _;
use hapax::key::Tenant;
use hapax_gateway::tenant::api_keys::{ApiKeyRefusal, ApiKeySettings, ApiKeys, NewApiKey};
use hapax_http::Problem;
use hapax_runtime::config::Span;
use hapax_testkit::{clock::ManualClock, wait::eventually};
use http::{HeaderMap, HeaderValue, header::WWW_AUTHENTICATE};
use ring::rand::SystemRandom;

fn made(tenant: &str) -> NewApiKey {
    NewApiKey::make(&Tenant::new(tenant).unwrap(), &SystemRandom::new()).unwrap()
}

fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn tenant(keys: &ApiKeys, key: &NewApiKey) -> Result<String, ApiKeyRefusal> {
    let found = keys.tenant(&headers("x-api-key", &[&key.key]));
    found.map(|tenant| tenant.as_str().to_owned())
}

fn with_file(path: &Path) -> ApiKeySettings {
    ApiKeySettings {
        header: Some("X-Api-Key".to_owned()),
        file: Some(path.to_owned()),
        refresh: Span(Duration::from_millis(5)),
        ..ApiKeySettings::default()
    }
}

#[test]
fn a_key_is_a_bearer_token_or_a_header_and_exactly_one() {
    let key = made("acme");
    let mut settings = ApiKeySettings {
        keys: vec![key.entry.clone()],
        ..ApiKeySettings::default()
    };
    let clock = ManualClock::new();
    let bearer = ApiKeys::new(&settings, clock.clock()).unwrap();
    settings.header = Some("X-Api-Key".to_owned());
    let header = ApiKeys::new(&settings, clock.clock()).unwrap();
    let token = format!("Bearer {}", key.key);
    let authorization = headers("authorization", &[&token]);
    let own = headers("x-api-key", &[&key.key]);
    assert_eq!(bearer.tenant(&authorization).unwrap().as_str(), "acme");
    assert_eq!(header.tenant(&own).unwrap().as_str(), "acme");
    assert_eq!(bearer.tenant(&own), Err(ApiKeyRefusal::Missing));
    assert_eq!(header.tenant(&authorization), Err(ApiKeyRefusal::Missing));
    let twice = headers("x-api-key", &[&key.key, &key.key]);
    assert_eq!(header.tenant(&twice), Err(ApiKeyRefusal::Header));
    let spaced = headers("x-api-key", &[&format!("{} x", key.key)]);
    assert_eq!(header.tenant(&spaced), Err(ApiKeyRefusal::Unknown));
    let shown = format!("{bearer:?}{header:?}{settings:?}");
    assert!(!shown.contains(&key.entry.hash[7..]) && !shown.contains(&key.key));
}

#[test]
fn a_refusal_is_a_401_with_a_challenge() {
    for refusal in [
        ApiKeyRefusal::Missing,
        ApiKeyRefusal::Unknown,
        ApiKeyRefusal::Expired,
    ] {
        let response = Problem::from(refusal).into_response();
        assert_eq!(response.status(), 401);
        assert!(response.headers().contains_key(WWW_AUTHENTICATE));
    }
}

#[tokio::test]
async fn a_changed_file_is_used_and_a_broken_one_is_not() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let path = folder.path().join("keys.toml");
    let (one, two) = (made("acme"), made("beta"));
    fs::write(&path, one.lines()).unwrap();
    let keys = ApiKeys::new(&with_file(&path), clock.clock()).unwrap();
    assert_eq!(tenant(&keys, &one), Ok("acme".to_owned()));
    assert_eq!(tenant(&keys, &two), Err(ApiKeyRefusal::Unknown));

    let replace = |text: &str| {
        let next = folder.path().join("next.toml");
        fs::write(&next, text).unwrap();
        fs::rename(next, &path).unwrap();
    };
    replace(&format!("{}disabled = true\n{}", one.lines(), two.lines()));
    eventually(Duration::from_secs(20), async || {
        tenant(&keys, &two) == Ok("beta".to_owned())
    })
    .await;
    assert_eq!(tenant(&keys, &one), Err(ApiKeyRefusal::Disabled));

    // A broken file between two good ones: the last good one counts at the end.
    replace("[[keys]]\nid = 1\n");
    replace(&one.lines());
    eventually(Duration::from_secs(20), async || keys.count() == 1).await;
    assert_eq!(tenant(&keys, &one), Ok("acme".to_owned()));
}

#[tokio::test]
async fn a_file_that_is_broken_at_the_start_is_an_error_without_a_hash() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let path = folder.path().join("keys.toml");
    let lines = made("acme").lines();
    let hash = &made("acme").entry.hash[7..];
    for content in [
        format!("{lines}unknown = 1\n"),
        format!("{lines}{lines}"),
        format!("[[keys]]\nid = \"0123456789ab\"\nhash = \"{hash}\"\ntenant = \"a\"\n"),
        format!("[[keys]]\nhash = \"{hash}\n"),
    ] {
        fs::write(&path, &content).unwrap();
        let error = ApiKeys::new(&with_file(&path), clock.clock()).unwrap_err();
        assert!(!error.contains(hash), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(ApiKeys::new(&with_file(&path), clock.clock()).is_err());
    let folder = with_file(folder.path());
    assert!(ApiKeys::new(&folder, clock.clock()).is_err());
    assert!(ApiKeys::new(&ApiKeySettings::default(), clock.clock()).is_err());
}
