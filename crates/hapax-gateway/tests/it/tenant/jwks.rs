//! A key set from an issuer that rotates its keys, fails, lies, or is silent.

use std::{
    fs,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse as _, Response},
    routing::get,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use hapax_gateway::tenant::{
    jwks::JwksSettings,
    jwt::{JwtRefusal, JwtSettings, JwtVerifier},
};
use hapax_runtime::config::Span;
use hapax_testkit::{clock::ManualClock, wait::eventually};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

const INTERVAL: Duration = Duration::from_secs(30);
const MAX_AGE: Duration = Duration::from_hours(2);

/// The reaction of the issuer to a request.
#[derive(Clone)]
enum Behaviour {
    Keys(Value),
    Status(StatusCode),
    Redirect,
    Body(String),
    Silent,
}

/// An issuer of tokens with its server.
struct Issuer {
    url: String,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<Behaviour>>, Arc<AtomicUsize>);

impl Issuer {
    async fn start(keys: Value) -> Self {
        let behaviour = Arc::new(Mutex::new(Behaviour::Keys(keys)));
        let requests = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let shared = Shared(Arc::clone(&behaviour), Arc::clone(&requests));
        let router = Router::new()
            .route("/keys", get(respond))
            .route("/other", get(other))
            .with_state(shared);
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        Self {
            url,
            behaviour,
            requests,
            server,
        }
    }

    fn now(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn settings(&self) -> JwksSettings {
        JwksSettings {
            url: Some(self.url.clone()),
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            interval: Span(INTERVAL),
            refresh: Span(Duration::from_hours(1)),
            max_age: Span(MAX_AGE),
            timeout: Span(Duration::from_secs(5)),
            ..JwksSettings::default()
        }
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(State(Shared(behaviour, requests)): State<Shared>) -> Response {
    requests.fetch_add(1, Ordering::SeqCst);
    let behaviour = behaviour.lock().unwrap().clone();
    match behaviour {
        Behaviour::Keys(keys) => keys.to_string().into_response(),
        Behaviour::Status(status) => status.into_response(),
        Behaviour::Redirect => (StatusCode::FOUND, [(LOCATION, "/other")]).into_response(),
        Behaviour::Body(body) => body.into_response(),
        Behaviour::Silent => pending().await,
    }
}

/// Where the redirect leads: the keys of an attacker.
async fn other() -> String {
    keys(&["evil"]).to_string()
}

/// The key pair with this id.
fn pair(id: &str) -> Ed25519KeyPair {
    let mut seed = [7; 32];
    seed[..id.len()].copy_from_slice(id.as_bytes());
    Ed25519KeyPair::from_seed_unchecked(&seed).unwrap()
}

fn keys(ids: &[&str]) -> Value {
    let key = |id: &&str| {
        let x = BASE64_URL_SAFE_NO_PAD.encode(pair(id).public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": x})
    };
    json!({ "keys": ids.iter().map(key).collect::<Vec<_>>() })
}

/// A token of the tenant `acme`, which does not expire during a test.
fn token(id: &str) -> String {
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(json!({"alg": "EdDSA", "kid": id}));
    let claims = part(json!({"sub": "acme", "exp": 4_000_000_000_u64}));
    let signed = format!("{header}.{claims}");
    let signature = pair(id).sign(signed.as_bytes());
    format!(
        "{signed}.{}",
        BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref())
    )
}

fn verifier(jwks: JwksSettings, clock: &ManualClock) -> JwtVerifier {
    let settings = JwtSettings {
        jwks: Some(jwks),
        ..JwtSettings::default()
    };
    JwtVerifier::new(&settings, clock.clock()).unwrap()
}

async fn verify(verifier: &JwtVerifier, id: &str) -> Result<String, JwtRefusal> {
    let tenant = verifier.verify(&token(id)).await;
    tenant.map(|tenant| tenant.as_str().to_owned())
}

fn acme() -> String {
    "acme".to_owned()
}

#[tokio::test]
async fn a_new_key_is_read_when_a_token_names_it() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    let verifier = verifier(issuer.settings(), &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    issuer.now(Behaviour::Keys(keys(&["b"])));
    // The set was read just now.
    assert_eq!(verify(&verifier, "b").await, Err(JwtRefusal::UnknownKey));
    assert_eq!(issuer.requests(), 1);
    clock.advance(INTERVAL);
    assert_eq!(verify(&verifier, "b").await, Ok(acme()));
    assert_eq!(verify(&verifier, "a").await, Err(JwtRefusal::UnknownKey));
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test]
async fn a_flood_of_unknown_keys_is_one_read() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    let verifier = verifier(issuer.settings(), &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    clock.advance(INTERVAL);
    let ids: Vec<String> = (0..500).map(|number| format!("x{number}")).collect();
    let flood = join_all(ids.iter().map(|id| verify(&verifier, id))).await;
    assert!(flood.iter().all(|it| *it == Err(JwtRefusal::UnknownKey)));
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    assert_eq!(issuer.requests(), 2);
}

#[tokio::test]
async fn a_source_that_fails_or_lies_does_not_replace_the_keys() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    let settings = JwksSettings {
        timeout: Span(Duration::from_secs(2)),
        ..issuer.settings()
    };
    let verifier = verifier(settings, &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    let failures = [
        Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Behaviour::Status(StatusCode::NO_CONTENT),
        Behaviour::Redirect,
        Behaviour::Body("<html>".to_owned()),
        Behaviour::Body(String::new()),
        Behaviour::Keys(json!({ "keys": [] })),
        Behaviour::Keys(json!({ "keys": [{"kty": "oct", "kid": "evil", "k": "AAAA"}] })),
        Behaviour::Body(format!("{}{}", keys(&["evil"]), " ".repeat(1024 * 1024))),
        Behaviour::Body(format!(
            "{{\"keys\":[],{}",
            &keys(&["evil"]).to_string()[1..]
        )),
        Behaviour::Silent,
    ];
    for (done, failure) in failures.into_iter().enumerate() {
        issuer.now(failure);
        clock.advance(INTERVAL);
        assert_eq!(
            verify(&verifier, "evil").await,
            Err(JwtRefusal::UnknownKey),
            "{done}"
        );
        assert_eq!(verify(&verifier, "a").await, Ok(acme()), "{done}");
        assert_eq!(issuer.requests(), done + 2, "{done}");
    }
}

#[tokio::test]
async fn keys_are_not_used_when_they_are_too_old_and_come_back_with_their_source() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    let verifier = verifier(issuer.settings(), &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    issuer.now(Behaviour::Status(StatusCode::BAD_GATEWAY));
    clock.advance(MAX_AGE.saturating_sub(Duration::from_millis(1)));
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    clock.advance(Duration::from_millis(1));
    assert_eq!(
        verify(&verifier, "a").await,
        Err(JwtRefusal::KeysUnavailable)
    );
    issuer.now(Behaviour::Keys(keys(&["a"])));
    assert_eq!(
        verify(&verifier, "a").await,
        Err(JwtRefusal::KeysUnavailable)
    );
    clock.advance(INTERVAL);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
}

#[tokio::test]
async fn keys_are_read_regularly_without_a_token() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    let settings = JwksSettings {
        refresh: Span(Duration::from_millis(10)),
        ..issuer.settings()
    };
    let verifier = verifier(settings, &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    issuer.now(Behaviour::Keys(keys(&["b"])));
    // The clock is stopped, so an unknown key never starts a read.
    eventually(Duration::from_secs(20), async || {
        verify(&verifier, "b").await == Ok(acme())
    })
    .await;
}

#[tokio::test]
async fn a_url_without_tls_is_read_only_from_networks_that_are_allowed() {
    let (issuer, clock) = (Issuer::start(keys(&["a"])).await, ManualClock::new());
    for allow in [Vec::new(), vec!["10.0.0.0/8".parse().unwrap()]] {
        let settings = JwksSettings {
            allow,
            ..issuer.settings()
        };
        let verifier = verifier(settings, &clock);
        assert_eq!(
            verify(&verifier, "a").await,
            Err(JwtRefusal::KeysUnavailable)
        );
    }
    assert_eq!(issuer.requests(), 0);
}

#[tokio::test]
async fn a_file_is_read_again_and_a_broken_one_changes_nothing() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), ManualClock::new());
    let file = folder.path().join("keys.json");
    fs::write(&file, keys(&["a"]).to_string()).unwrap();
    let settings = JwksSettings {
        file: Some(file.clone()),
        ..JwksSettings::default()
    };
    let verifier = verifier(settings, &clock);
    assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    for broken in ["", "{\"keys\":["] {
        fs::write(&file, broken).unwrap();
        clock.advance(INTERVAL);
        assert_eq!(verify(&verifier, "b").await, Err(JwtRefusal::UnknownKey));
        assert_eq!(verify(&verifier, "a").await, Ok(acme()));
    }
    fs::remove_file(&file).unwrap();
    clock.advance(INTERVAL);
    assert_eq!(verify(&verifier, "b").await, Err(JwtRefusal::UnknownKey));
    fs::write(&file, keys(&["a", "b"]).to_string()).unwrap();
    clock.advance(INTERVAL);
    assert_eq!(verify(&verifier, "b").await, Ok(acme()));
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let clock = ManualClock::new();
    let refused = |change: fn(&mut JwksSettings)| {
        let mut jwks = JwksSettings {
            url: Some("https://issuer.example/keys?key=secret".to_owned()),
            ..JwksSettings::default()
        };
        assert!(!format!("{jwks:?}").contains("secret"));
        change(&mut jwks);
        let settings = JwtSettings {
            jwks: Some(jwks),
            ..JwtSettings::default()
        };
        JwtVerifier::new(&settings, clock.clock()).unwrap_err()
    };
    assert!(refused(|it| it.url = None).contains("jwks.url"));
    assert!(refused(|it| it.file = Some("/keys".into())).contains("jwks.url"));
    assert!(refused(|it| it.url = Some("ftp://h/".to_owned())).contains("url"));
    assert!(refused(|it| it.url = Some("https://a:b@h/".to_owned())).contains("url"));
    assert!(refused(|it| it.interval = Span(Duration::ZERO)).contains("jwks.interval"));
    assert!(refused(|it| it.timeout = Span(Duration::ZERO)).contains("jwks.timeout"));
    assert!(refused(|it| it.max_age = it.refresh).contains("jwks.max_age"));
    assert!(refused(|it| it.ca = Some("/dev/null".into())).contains("ca"));
}
