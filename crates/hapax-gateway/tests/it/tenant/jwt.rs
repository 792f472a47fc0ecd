//! Tokens that were made by another implementation (`PyJWT`): each is accepted, or refused for the
//! reason that the vectors name.

use std::{fs, path::Path, time::Duration};

use hapax::{Clock, Timestamp};
use hapax_gateway::tenant::{
    jwks::JwksSettings,
    jwt::{Algorithm, JwtRefusal, JwtSettings, JwtVerifier},
};
use hapax_runtime::config::Span;
use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use serde_json::Value;
use tempfile::TempDir;

/// The vectors, and a verifier that is set up for them.
struct Vectors {
    content: Value,
    _folder: TempDir,
    verifier: JwtVerifier,
}

fn content() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/jwt.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn settings(content: &Value) -> JwtSettings {
    let text = |name: &str| content[name].as_str().unwrap().to_owned();
    JwtSettings {
        issuer: Some(text("issuer")),
        audiences: vec!["another-service".to_owned(), text("audience")],
        claim: text("claim"),
        leeway: Span(Duration::from_secs(30)),
        ..JwtSettings::default()
    }
}

fn clock(content: &Value) -> Clock {
    let now = Timestamp::from_millis(content["now"].as_i64().unwrap() * 1000);
    Clock::new(move || now)
}

/// Has to be called in a runtime.
fn vectors(algorithms: Vec<Algorithm>) -> Vectors {
    let content = content();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jwks.json");
    fs::write(&file, content["jwks"].to_string()).unwrap();
    let jwks = JwksSettings {
        file: Some(file),
        ..JwksSettings::default()
    };
    let settings = JwtSettings {
        jwks: Some(jwks),
        algorithms,
        ..settings(&content)
    };
    let verifier = JwtVerifier::new(&settings, clock(&content)).unwrap();
    Vectors {
        content,
        _folder: folder,
        verifier,
    }
}

fn list<'a>(content: &'a Value, name: &str) -> Vec<(&'a str, &'a str, Option<&'a str>)> {
    let cases = content[name].as_array().unwrap().iter();
    cases
        .map(|case| {
            let text = |name: &str| case[name].as_str();
            (
                text("name").unwrap(),
                text("token").unwrap(),
                text("refusal"),
            )
        })
        .collect()
}

#[tokio::test]
async fn every_valid_token_of_the_vectors_names_its_tenant() {
    let Vectors {
        content, verifier, ..
    } = &vectors(Vec::new());
    let accepted = list(content, "accepted");
    assert!(accepted.len() >= 20, "{}", accepted.len());
    for (name, token, _) in accepted {
        let tenant = verifier.verify(token).await;
        assert_eq!(tenant.unwrap().as_str(), "acme", "{name}");
    }
}

#[tokio::test]
async fn every_wrong_token_of_the_vectors_is_refused_for_its_reason() {
    let Vectors {
        content, verifier, ..
    } = &vectors(Vec::new());
    let refused = list(content, "refused");
    assert!(refused.len() >= 150, "{}", refused.len());
    for (name, token, expected) in refused {
        let refusal = verifier
            .verify(token)
            .await
            .map(|it| it.as_str().to_owned());
        let refusal = refusal.map_err(|refusal| format!("{refusal:?}"));
        assert_eq!(refusal, Err(expected.unwrap().to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_shared_secret_verifies_only_hs256() {
    let content = content();
    let settings = JwtSettings {
        secret: content["secret"].as_str().map(Into::into),
        algorithms: vec![Algorithm::Hs256],
        ..settings(&content)
    };
    let verifier = JwtVerifier::new(&settings, clock(&content)).unwrap();
    for (name, token, expected) in list(&content, "shared") {
        let refusal = verifier.verify(token).await.err();
        let refusal = refusal.map(|refusal| format!("{refusal:?}"));
        assert_eq!(refusal.as_deref(), expected, "{name}");
    }
}

#[tokio::test]
async fn an_algorithm_that_is_not_configured_is_refused() {
    let Vectors {
        content, verifier, ..
    } = &vectors(vec![Algorithm::Es256, Algorithm::EdDsa]);
    for (name, token, _) in list(content, "accepted").into_iter().take(9) {
        let refusal = verifier.verify(token).await.err();
        let is_configured = matches!(name, "ES256" | "EdDSA");
        let expected = (!is_configured).then_some(JwtRefusal::Algorithm);
        assert_eq!(refusal, expected, "{name}");
    }
}

#[tokio::test]
async fn the_token_is_the_only_authorization_of_its_request() {
    let Vectors {
        content, verifier, ..
    } = &vectors(Vec::new());
    let (_, token, _) = list(content, "accepted")[0];
    let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
    let mut headers = HeaderMap::new();
    assert_eq!(verifier.tenant(&headers).await, Err(JwtRefusal::Missing));
    headers.append(AUTHORIZATION, value.clone());
    assert_eq!(verifier.tenant(&headers).await.unwrap().as_str(), "acme");
    headers.append(AUTHORIZATION, value);
    assert_eq!(verifier.tenant(&headers).await, Err(JwtRefusal::Header));
    assert!(!format!("{verifier:?}").contains(token));
}
