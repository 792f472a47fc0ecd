//! Fixture: sources of webhooks on a fresh SQLite store, and requests that are signed for them.
//!
//! The clock is stopped, so that a signature stays valid until a test moves it.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hapax::{
    delivery::{Frontier, Shards},
    event::{Event, Headers},
    failpoint::Failpoints,
    key::hex,
    request_log::RequestLog,
    store,
};
use hapax_gateway::ingest::{Ingest, SchemeName, Source, SourceSettings};
use hapax_sqlite::{Settings, Sqlite};
use hapax_testkit::clock::{ManualClock, seeded_random};
use http::{Request, StatusCode};
use ring::hmac;
use tempfile::TempDir;

/// A secret of the sources that have a textual one.
pub(super) const SECRET: &str = "whsec_planted";
/// The HMAC key of the source `adyen`.
pub(super) const ADYEN_KEY: &str =
    "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
/// The public URL of the source `twilio`.
pub(super) const TWILIO_URL: &str = "https://hooks.example/in/twilio";
/// The maximum length of a body of the source `stripe`.
pub(super) const BODY_MAX: usize = 2_000;

pub(super) struct Fixture {
    pub(super) store: Sqlite,
    pub(super) ingest: Ingest<Sqlite>,
    pub(super) clock: ManualClock,
    path: PathBuf,
    _folder: TempDir,
}

/// A complete response.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) status: StatusCode,
    pub(super) headers: http::HeaderMap,
    pub(super) body: String,
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::failing(Failpoints::none())
    }

    /// The sources on a store with these failpoints.
    pub(super) fn failing(failpoints: Failpoints) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = ManualClock::new();
        let path = folder.path().join("test.db");
        let store = open(&path, &clock, failpoints);
        Self {
            ingest: ingest(&store, &clock),
            store,
            clock,
            path,
            _folder: folder,
        }
    }

    /// Closes the store and opens it again, as another process does.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = open(&self.path, &self.clock, Failpoints::none());
        self.ingest = ingest(&self.store, &self.clock);
    }

    pub(super) async fn send(&self, source: &str, request: Request<Body>) -> Sent {
        send(&self.ingest, source, request).await
    }

    /// A request of Stripe, signed with `secret` at the current time.
    pub(super) fn stripe(&self, secret: &str, body: &str) -> Request<Body> {
        let now = self.clock.now().as_secs();
        let tag = hex(tag(secret.as_bytes(), format!("{now}.{body}").as_bytes()).as_ref());
        let request = Request::post("/in/stripe")
            .header("content-type", "application/json; charset=utf-8")
            .header("stripe-signature", format!("t={now},v1={tag}"));
        request.body(Body::from(body.to_owned())).unwrap()
    }

    /// The events in the outbox.
    pub(super) async fn events(&self) -> Vec<Event> {
        let (start, all) = (Frontier::default(), Shards::ALL);
        let all = store::Source::read(&self.store, &start, all, 1_000);
        let events = all.await.unwrap().events;
        events.iter().map(|it| it.event.clone()).collect()
    }
}

/// Sends a request and reads the response.
pub(super) async fn send(ingest: &Ingest<Sqlite>, source: &str, request: Request<Body>) -> Sent {
    let context = Headers::from([("correlation_id".to_owned(), "c-1".to_owned())]);
    let response: Response = ingest.receive(source, request, context).await;
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, 1_000_000).await.unwrap();
    Sent {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

impl Sent {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Checks that a request is refused, without a word about secrets.
    #[track_caller]
    pub(super) fn check_refused(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(problem["code"], code);
        assert!(!self.body.contains(SECRET), "{self:?}");
    }
}

/// A notification of Adyen with its signature.
pub(super) fn adyen_item(reference: &str) -> serde_json::Value {
    let key: Vec<u8> = (0..ADYEN_KEY.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&ADYEN_KEY[at..at + 2], 16).unwrap())
        .collect();
    let text = format!("{reference}::Merchant:order-1:1130:EUR:CAPTURE:true");
    let signature = STANDARD.encode(tag(&key, text.as_bytes()));
    serde_json::json!({ "NotificationRequestItem": {
        "additionalData": { "hmacSignature": signature },
        "amount": { "currency": "EUR", "value": 1130 },
        "eventCode": "CAPTURE",
        "merchantAccountCode": "Merchant",
        "merchantReference": "order-1",
        "pspReference": reference,
        "success": "true",
    } })
}

/// The HMAC-SHA256 of a text.
pub(super) fn tag(secret: &[u8], text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text)
}

fn open(path: &Path, clock: &ManualClock, failpoints: Failpoints) -> Sqlite {
    let mut settings = Settings::new(path, clock.clock(), seeded_random(1));
    settings.failpoints = failpoints;
    Sqlite::open(settings).unwrap()
}

fn ingest(store: &Sqlite, clock: &ManualClock) -> Ingest<Sqlite> {
    let settings = |scheme, secret: &str| SourceSettings {
        tenant: Some("shop".to_owned()),
        ..SourceSettings::new(scheme, ["rotated".into(), secret.into()])
    };
    let stripe = SourceSettings {
        event_type: Some("payments".to_owned()),
        body_max: BODY_MAX as u64,
        ..settings(SchemeName::Stripe, SECRET)
    };
    let twilio = SourceSettings {
        url: Some(TWILIO_URL.to_owned()),
        ..settings(SchemeName::Twilio, SECRET)
    };
    let adyen = SourceSettings::new(SchemeName::Adyen, [ADYEN_KEY.into()]);
    let sources = [
        ("stripe", stripe),
        ("slack", settings(SchemeName::Slack, SECRET)),
        ("twilio", twilio),
        ("adyen", adyen),
    ];
    let sources = sources.map(|(name, settings)| Source::new(name, &settings).unwrap());
    Ingest::new(store.clone(), clock.clock(), RequestLog::default(), sources)
}

/// How long a test waits for another task.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
