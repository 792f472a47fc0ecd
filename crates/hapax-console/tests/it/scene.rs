//! Fixture: a console on a fresh database, with rows of every kind.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::{BoxFuture, ready};
use hapax::{
    Clock, Random, Timestamp,
    admin::{
        Actor, AdminError, Configured, EndpointDelivery, EndpointDraft, EndpointOperations,
        EndpointPatch, EndpointWithSecret, TenantEndpoint,
    },
    delivery::AttemptOutcome,
    relay::Destination,
    sink::{Offer, Outcome, Receipt, Sink, SinkError},
};
use hapax_console::{Console, Given, Role, Setting, Settings, Tokens, test_events};
use hapax_postgres::{Postgres, Schema};
pub(crate) use hapax_testkit::clock::system_clock as clock;
use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    postgres::Database,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::net::TcpListener;
use tokio_postgres::Client;

pub(crate) const OPERATOR: &str = "operator-0123456789";
pub(crate) const VIEWER: &str = "viewer-0123456789";
pub(crate) const ALICE: &str = "alice-of-acme-0123456789";
/// The value of every column that accepts any text.
pub(crate) const EVIL: &str = "<script>alert('x')</script>";

/// Rows of every kind: an event that was not delivered to any destination, a dead letter of `mail`,
/// an event that is blocked by the dead letter, keys, messages, sagas and a paused destination.
/// There are also rows of another tenant.
const ROWS: &str = include_str!("rows.sql");

/// A type that every tenant sees, and one that is internal.
#[cfg(feature = "catalogue")]
const CATALOGUE: &str = r#"{
    "title": "Shop",
    "version": "1.2.0",
    "events": [
        {
            "type": "order.created",
            "description": "A customer has placed an order.",
            "versions": [{
                "version": 1,
                "schema": {"type": "object", "properties": {"amount": {"type": "integer"}}},
                "examples": [{"amount": 500}]
            }]
        },
        {
            "type": "order.scored",
            "description": "The risk of an order.",
            "flags": ["internal"],
            "versions": [{"version": 1, "schema": true}]
        }
    ]
}"#;

/// A console that accepts connections.
pub(crate) struct Scene {
    /// The database is dropped together with the scene.
    _database: Database,
    pub(crate) address: SocketAddr,
    pub(crate) console: Console,
    pub(crate) client: Client,
    http: HttpClient,
    /// How far the clock of the console is ahead, in milliseconds.
    ahead: Arc<AtomicI64>,
}

/// A receiver that accepts all events or declines all of them.
struct Receiver {
    accepts: bool,
}

impl Sink for Receiver {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn deliver<'a>(&'a self, offers: &'a [Offer]) -> BoxFuture<'a, Vec<Outcome>> {
        let outcome = |_: &Offer| {
            let receipt = Receipt {
                status: Some(204),
                ..Receipt::default()
            };
            let declined = SinkError::declined("status_4xx", "no such field");
            self.accepts.then_some(receipt).ok_or(declined)
        };
        Box::pin(ready(offers.iter().map(outcome).collect()))
    }
}

/// A signed-in browser.
pub(crate) struct Browser<'a> {
    scene: &'a Scene,
    cookie: String,
}

impl Scene {
    /// Creates a console with tokens for an operator, a viewer, and an operator of one tenant.
    pub(crate) async fn with_tokens() -> Self {
        Self::open(settings(tokens())).await
    }

    /// Creates the same console for browsers that use TLS.
    pub(crate) async fn over_tls() -> Self {
        let mut settings = settings(tokens());
        settings.https = true;
        Self::open(settings).await
    }

    /// Creates a console without tokens, which accepts local requests only.
    pub(crate) async fn local() -> Self {
        Self::open(settings(Tokens::default())).await
    }

    /// Creates a console without tokens, in a process without metrics and without a configuration.
    pub(crate) async fn quiet() -> Self {
        let mut settings = settings(Tokens::default());
        settings.metrics = None;
        settings.configured.clear();
        Self::open(settings).await
    }

    /// Creates a console without tokens and without a catalogue.
    #[cfg(feature = "catalogue")]
    pub(crate) async fn without_a_catalogue() -> Self {
        let mut settings = settings(Tokens::default());
        settings.catalogue = None;
        Self::open(settings).await
    }

    /// Moves the clock of the console on, so that the next page reads its figures again.
    pub(crate) fn move_on(&self) {
        self.ahead.fetch_add(3_000, Ordering::SeqCst);
    }

    async fn open(mut console: Settings) -> Self {
        let ahead = Arc::new(AtomicI64::new(0));
        let (ours, by) = (console.clock.clone(), Arc::clone(&ahead));
        console.clock = Clock::new(move || {
            let ahead = by.load(Ordering::SeqCst);
            Timestamp::from_millis(ours.now().as_millis() + ahead)
        });
        let database = Database::fresh().await;
        let random = Random::new(|| 7);
        let mut settings = hapax_postgres::Settings::new(database.url(), clock(), random);
        settings.schema = Schema::Apply;
        let store = Postgres::open(settings).await.unwrap();
        let client = database.client().await;
        client.batch_execute(ROWS).await.unwrap();
        if !console.configured.is_empty() {
            let destinations = [("held", true), ("mail", false)];
            let destinations = destinations
                .map(|(name, accepts)| Destination::new(name, Arc::new(Receiver { accepts })));
            let random = Random::new(|| 7);
            let offers = test_events(Arc::new(store.clone()), &destinations, clock(), random);
            console.test_events = Some(offers);
            console.endpoints = Some(Arc::new(Host));
        }
        let console = Console::new(store, console);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = console.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let http = HttpClient::new();
        Self {
            _database: database,
            address,
            console,
            client,
            http,
            ahead,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sends a request with exactly these headers.
    pub(crate) async fn send(
        &self,
        method: http::Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpResponse {
        let body = body.to_owned();
        let url = self.url(path);
        let sent = self.http.send(method, &url, headers, body.into());
        sent.await.unwrap()
    }

    /// Signs in with a token.
    pub(crate) async fn sign_in(&self, token: &str) -> Browser<'_> {
        let mut browser = Browser {
            scene: self,
            cookie: String::new(),
        };
        let page = browser.get("/console/login").await;
        browser.cookie = cookie_of(&page);
        let form = format!("seal={}&token={token}", seal_of(&page));
        let answer = browser.post("/console/login", &form).await;
        assert_eq!(answer.status, 303, "{}", answer.text());
        browser.cookie = cookie_of(&answer);
        browser
    }

    /// Counts the rows of a table that match a condition.
    pub(crate) async fn count(&self, from: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {from}");
        self.client.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

impl Browser<'_> {
    /// Requests a page.
    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        let cookie = self.cookie.as_str();
        let headers = [("cookie", cookie)];
        let headers = if cookie.is_empty() { &[][..] } else { &headers };
        self.scene.send(http::Method::GET, path, headers, "").await
    }

    /// Returns the text of a page, which must exist.
    pub(crate) async fn see(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// Sends a form as a browser does.
    pub(crate) async fn post(&self, path: &str, form: &str) -> HttpResponse {
        let origin = format!("http://{}", self.scene.address);
        self.post_from(path, form, Some(&origin)).await
    }

    pub(crate) async fn post_from(
        &self,
        path: &str,
        form: &str,
        origin: Option<&str>,
    ) -> HttpResponse {
        let mut headers = vec![
            ("cookie", self.cookie.as_str()),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        headers.extend(origin.map(|origin| ("origin", origin)));
        self.scene
            .send(http::Method::POST, path, &headers, form)
            .await
    }

    /// Opens the form of an operation and confirms it with a reason.
    pub(crate) async fn act(&self, ask: &str) -> HttpResponse {
        let page = self.get(&format!("/console/act?{ask}")).await;
        assert_eq!(page.status, 200, "{ask}: {}", page.text());
        let asked: Vec<&str> = ask
            .split('&')
            .filter_map(|pair| pair.split_once('=').map(|(name, _)| name))
            .chain(["request_key"])
            .collect();
        let form = form_of(&page);
        let said = form.split('&').filter(|pair| {
            let name = pair.split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| !asked.contains(&name))
        });
        let said = said.collect::<Vec<_>>().join("&");
        let form = format!(
            "{said}&{ask}&reason=because+of+a+test&request_key=k-{}",
            ask.len()
        );
        self.post("/console/act", &form).await
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }
}

/// Returns the cookie of a response as a request header contains it.
pub(crate) fn cookie_of(answer: &HttpResponse) -> String {
    let line = answer.header("set-cookie").expect("a cookie");
    line.split(';').next().unwrap_or_default().to_owned()
}

/// Returns the CSRF token of a page's forms.
pub(crate) fn seal_of(answer: &HttpResponse) -> String {
    field_of(answer, "seal")
}

/// Returns the value of a hidden field.
pub(crate) fn field_of(answer: &HttpResponse, name: &str) -> String {
    let fields = hidden(&answer.text());
    let found = fields.into_iter().find(|(known, _)| known == name);
    found.expect("a form with this field").1
}

/// Returns the hidden fields of an operation's form as a browser sends them.
pub(crate) fn form_of(answer: &HttpResponse) -> String {
    let text = answer.text();
    let (_, form) = text.split_once("class=\"act\"").expect("a form");
    let (form, _) = form.split_once("</form>").expect("its end");
    let coded = |value: &str| utf8_percent_encode(value, NON_ALPHANUMERIC).to_string();
    let fields = hidden(form).into_iter();
    let fields = fields.map(|(name, value)| format!("{name}={}", coded(&value)));
    fields.collect::<Vec<_>>().join("&")
}

fn hidden(html: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for field in html.split("type=\"hidden\" name=\"").skip(1) {
        let (name, rest) = field.split_once("\" value=\"").expect("a value");
        let value = rest.split('"').next().unwrap_or_default();
        let value = value
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&quot;", "\"")
            .replace("&#39;", "'")
            .replace("&amp;", "&");
        found.push((name.to_owned(), value));
    }
    found
}

/// The host of the console, which sends test events. The console asks it for nothing else.
struct Host;

#[async_trait]
impl EndpointOperations for Host {
    async fn create(
        &self,
        _: &Actor,
        _: &str,
        _: EndpointDraft,
    ) -> Result<EndpointWithSecret, AdminError> {
        Err(unasked())
    }

    async fn update(
        &self,
        _: &Actor,
        _: &str,
        _: &str,
        _: EndpointPatch,
    ) -> Result<TenantEndpoint, AdminError> {
        Err(unasked())
    }

    async fn rotate(
        &self,
        _: &Actor,
        _: &str,
        _: &str,
        _: Option<i64>,
        _: Duration,
    ) -> Result<EndpointWithSecret, AdminError> {
        Err(unasked())
    }

    async fn reveal(&self, _: &Actor, _: &str, _: &str) -> Result<String, AdminError> {
        Err(unasked())
    }

    async fn set_disabled(
        &self,
        _: &Actor,
        _: &str,
        _: &str,
        _: Option<String>,
    ) -> Result<TenantEndpoint, AdminError> {
        Err(unasked())
    }

    async fn test(&self, _: &Actor, _: &str, id: &str) -> Result<EndpointDelivery, AdminError> {
        Ok(tested(id))
    }
}

fn unasked() -> AdminError {
    AdminError::conflict("the console does not do this")
}

/// The attempt of a test event, which every endpoint except `ep_gone` accepts.
fn tested(id: &str) -> EndpointDelivery {
    let (outcome, status) = match id {
        "ep_gone" => (AttemptOutcome::Rejected, 410),
        _ => (AttemptOutcome::Delivered, 204),
    };
    EndpointDelivery {
        event_id: "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21".to_owned(),
        kind: "hapax.test".to_owned(),
        state: "delivered".to_owned(),
        next_at: None,
        attempt: 1,
        started_at: clock().now(),
        duration: Duration::from_millis(12),
        outcome,
        status: Some(status),
        error: None,
        request_headers: BTreeMap::from([("webhook-id".to_owned(), "msg_test".to_owned())]),
        request_body: Some("{\"test\":true}".to_owned()),
        response: Some("{\"email\":\"ann@example.com\"}".to_owned()),
    }
}

fn tokens() -> Tokens {
    let given = |name, token, role, tenant| Given {
        name,
        token,
        role,
        tenant,
    };
    let tokens = Tokens::of([
        given("ops", OPERATOR, Role::Operator, None),
        given("eve", VIEWER, Role::Viewer, None),
        given("alice", ALICE, Role::Operator, Some("acme")),
    ]);
    tokens.unwrap()
}

fn settings(tokens: Tokens) -> Settings {
    let metrics = || {
        "hapax_idempotency_requests_total{operation=\"POST /orders\",outcome=\"replayed\"} 3\n\
         hapax_relay_breaker_open{destination=\"hooks\"} 1\n"
            .to_owned()
    };
    let mut settings = Settings::new(clock());
    settings.tokens = tokens;
    settings.metrics = Some(Arc::new(metrics));
    settings.effective = vec![Setting {
        name: "relay.lease".to_owned(),
        value: "5s".to_owned(),
        origin: "default".to_owned(),
    }];
    settings.explained_in = Some("hapax-configuration");
    let held = Configured {
        paused: true,
        ..Configured::default()
    };
    #[cfg(feature = "catalogue")]
    {
        let catalogue = hapax::catalogue::Catalogue::parse(CATALOGUE).unwrap();
        settings.catalogue = Some((catalogue, std::collections::BTreeSet::new()));
    }
    settings.configured = [("held".to_owned(), held)].into();
    settings
}
