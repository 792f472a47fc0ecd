//! Which requests need a valid credential: all of them, or only those with a key.

use bytes::Bytes;
use hapax::key::Tenant;
use hapax_gateway::{
    config::{CredentialRule, Route, RouteProtocol},
    tenant::{
        TenantSettings,
        api_keys::{ApiKeySettings, NewApiKey},
        certificate::CertificateSettings,
        jwt::{Algorithm, JwtSettings},
    },
};
use hapax_testkit::http::HttpResponse;
use http::Method;
use ring::rand::SystemRandom;

use crate::{
    stage::{Stage, check_problem, settings},
    upstream::{Reply, Upstream, ok},
};

/// The header lines of a request.
type Lines<'a> = &'a [(&'a str, &'a str)];

const KEY: (&str, &str) = ("idempotency-key", "k");
const UPGRADE: Lines<'static> = &[("connection", "Upgrade"), ("upgrade", "websocket")];

#[tokio::test]
async fn every_request_needs_a_valid_credential() {
    for (name, tenant) in sources() {
        let upstream = upstream().await;
        let stage = Stage::new(&upstream, |route| route.tenant = Some(tenant)).await;
        let wrong = ("authorization", "Bearer hapax_000000000000_wrong");
        let requests: [(Method, Lines<'_>); 8] = [
            (Method::GET, &[]),
            (Method::GET, &[wrong]),
            (Method::GET, UPGRADE),
            (Method::OPTIONS, &[]),
            (Method::DELETE, &[]),
            (Method::POST, &[]),
            (Method::POST, &[wrong]),
            (Method::POST, &[KEY]),
        ];
        for (method, lines) in requests {
            let what = format!("{name} {method} {lines:?}");
            let answer = send(&stage, method, lines).await;
            assert_eq!(answer.status, 401, "{what}");
            assert!(answer.headers.contains_key("www-authenticate"), "{what}");
        }
        assert_eq!(upstream.ledger(), Vec::<String>::new(), "{name}");
    }
}

#[tokio::test]
async fn a_valid_credential_passes_and_stays_with_the_gateway() {
    let upstream = Upstream::start(|received| {
        let has_secret = received.header("authorization").is_some();
        Reply::Bytes(ok("200 OK", &has_secret.to_string()))
    })
    .await;
    let (key, tenant) = api_keys();
    let stage = Stage::new(&upstream, |route| route.tenant = Some(tenant)).await;
    let token = format!("Bearer {}", key.key);
    let credential = ("authorization", token.as_str());
    let requests: [(Method, Lines<'_>); 3] = [
        (Method::GET, &[credential]),
        (Method::POST, &[credential]),
        (Method::POST, &[credential, KEY]),
    ];
    for (method, lines) in requests {
        let answer = send(&stage, method, lines).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "false"));
    }
    assert_eq!(upstream.ledger().len(), 3);
}

#[tokio::test]
async fn a_message_of_mcp_needs_a_credential_before_it_is_read() {
    let upstream = upstream().await;
    let (_, tenant) = api_keys();
    let stage = Stage::new(&upstream, |route| {
        route.tenant = Some(tenant);
        route.protocol = RouteProtocol::Mcp;
    })
    .await;
    let answer = send(&stage, Method::POST, &[]).await;
    check_problem(&answer, 401, "AUTH.missing");
    assert_eq!(upstream.ledger(), Vec::<String>::new());
}

#[tokio::test]
async fn a_route_may_demand_a_credential_of_protected_requests_only() {
    let upstream = upstream().await;
    let mut settings = settings(&[&upstream.url()]);
    (_, settings.tenant) = api_keys();
    let mut open = Route::new("/orders", "service");
    open.credential = Some(CredentialRule::WithKey);
    settings.routes.insert("open".to_owned(), open);
    let stage = Stage::with(&settings).await;
    for method in [Method::GET, Method::POST] {
        assert_eq!(send(&stage, method, &[]).await.status, 200);
    }
    let refused = send(&stage, Method::POST, &[KEY]).await;
    check_problem(&refused, 401, "AUTH.missing");
    let other = format!("{}/other", stage.url);
    assert_eq!(stage.client.get(&other).await.unwrap().status, 401);
    assert_eq!(upstream.ledger().len(), 2);
}

#[tokio::test]
async fn the_gateway_may_demand_a_credential_of_protected_requests_only() {
    let upstream = upstream().await;
    let mut settings = settings(&[&upstream.url()]);
    (_, settings.tenant) = api_keys();
    settings.credential = CredentialRule::WithKey;
    let stage = Stage::with(&settings).await;
    assert_eq!(send(&stage, Method::GET, &[]).await.status, 200);
    assert_eq!(send(&stage, Method::POST, &[KEY]).await.status, 401);
}

#[test]
fn a_rule_without_a_credential_is_refused() {
    let mut settings = settings(&["http://127.0.0.1:8000"]);
    let route = settings.routes.get_mut("all").unwrap();
    route.credential = Some(CredentialRule::Always);
    let wrong = settings.check().unwrap_err().to_string();
    assert!(wrong.contains("gateway.routes.all.credential"), "{wrong}");
}

/// The sources that verify a credential.
fn sources() -> [(&'static str, TenantSettings); 3] {
    let jwt = JwtSettings {
        secret: Some("x".repeat(32).into()),
        algorithms: vec![Algorithm::Hs256],
        ..JwtSettings::default()
    };
    let certificate = TenantSettings::Certificate(CertificateSettings::default());
    [
        ("api_keys", api_keys().1),
        ("jwt", TenantSettings::Jwt(Box::new(jwt))),
        ("certificate", certificate),
    ]
}

/// An API key, and the source that knows it.
fn api_keys() -> (NewApiKey, TenantSettings) {
    let key = NewApiKey::make(&Tenant::new("acme").unwrap(), &SystemRandom::new()).unwrap();
    let settings = ApiKeySettings {
        keys: vec![key.entry.clone()],
        ..ApiKeySettings::default()
    };
    (key, TenantSettings::ApiKeys(settings))
}

async fn upstream() -> Upstream {
    Upstream::start(|_| Reply::Bytes(ok("200 OK", "{}"))).await
}

async fn send(stage: &Stage, method: Method, lines: Lines<'_>) -> HttpResponse {
    let url = format!("{}/orders", stage.url);
    let body = if method == Method::POST {
        Bytes::from_static(b"{}")
    } else {
        Bytes::new()
    };
    let answer = stage.client.send(method, &url, lines, body).await;
    answer.unwrap()
}
