//! Tests of the admin API over real HTTP, with a running relay.

mod declarations;
mod dead_letters;
mod tenants;

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    port::free_port,
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    hapax::{PATIENCE, Relay, SECRET, ask, migrated, start_relay},
    store::{Home, Located, Store, on_both_stores},
};

on_both_stores! {
    who_has_no_token_is_not_let_in_and_a_viewer_does_not_act,
    without_tokens_this_machine_is_answered_and_no_page_of_a_browser,
    a_filter_that_nobody_applies_is_refused,
}

pub(crate) const OPERATOR: &str = "operator-0123456789";
pub(crate) const VIEWER: &str = "viewer-0123456789";
pub(crate) const ALICE: &str = "alice-of-acme-0123456789";
/// A key of 32 bytes in base64.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// A relay with the admin API.
pub(crate) struct Served {
    pub(crate) relay: Relay,
    url: String,
    client: HttpClient,
}

impl Served {
    /// The token of an operator.
    pub(crate) const OPERATOR: &str = OPERATOR;

    /// The base URL of the API.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn start(database: &impl Located, more: &str) -> Self {
        Self::with(database, "", more).await
    }

    /// Starts a relay with more settings in the section `[admin]`.
    pub(crate) async fn with(database: &impl Located, admin: &str, more: &str) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let configuration = format!(
            "[admin]\nlisten = \"{address}\"\n{admin}\n\
             [secrets]\nkey = \"{KEY}\"\n\
             [relay]\nallow = [\"127.0.0.0/8\"]\n\
             {more}"
        );
        let relay = start_relay(&database.located(), &configuration).await;
        Self {
            relay,
            url: format!("http://{address}/admin/v1"),
            client: HttpClient::new(),
        }
    }

    pub(crate) async fn with_tokens(database: &impl Located) -> Self {
        let tokens = format!(
            "[admin.tokens.ops]\ntoken = \"{OPERATOR}\"\nrole = \"operator\"\n\
             [admin.tokens.eve]\ntoken = \"{VIEWER}\"\nrole = \"viewer\"\n\
             [admin.tokens.alice]\ntoken = \"{ALICE}\"\nrole = \"operator\"\ntenant = \"acme\"\n"
        );
        Self::start(database, &tokens).await
    }

    pub(crate) async fn ask(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let url = format!("{}{path}", self.url);
        ask(&self.client, (method, &url), token, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.ask(OPERATOR, Method::GET, path, None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json().unwrap()
    }

    /// Requests a path with the token of the tenant `acme`.
    pub(crate) async fn get_as_alice(&self, path: &str) -> HttpResponse {
        self.ask(ALICE, Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpResponse {
        self.ask(OPERATOR, Method::POST, path, Some(body)).await
    }
}

async fn who_has_no_token_is_not_let_in_and_a_viewer_does_not_act(on: Store) {
    let database = Home::migrated(on).await;
    let served = Served::with_tokens(&database).await;
    for token in [
        "",
        "wrong",
        &OPERATOR[1..],
        &format!("{OPERATOR}x"),
        "operator",
    ] {
        let answer = served.ask(token, Method::GET, "/destinations", None).await;
        check(&answer, 401, "AUTH.invalid");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    let seen = served.ask(VIEWER, Method::GET, "/destinations", None).await;
    assert_eq!(seen.status, 200);
    assert_eq!(seen.header("cache-control"), Some("no-store"));
    for (method, path) in [
        (Method::POST, "/destinations"),
        (Method::PUT, "/destinations/a"),
        (Method::DELETE, "/destinations/a"),
        (Method::POST, "/destinations/a/pause"),
        (Method::POST, "/destinations/a/test"),
        (Method::POST, "/endpoints/a/test"),
        (Method::POST, "/filters/try"),
        (Method::POST, "/endpoints/try"),
        (Method::POST, "/dead-letters/replay"),
        (Method::POST, "/dead-letters/a/1/discard"),
        (Method::POST, "/deliveries/a/1/retry"),
        (Method::POST, "/jobs/1/cancel"),
        (Method::POST, "/keys/POST%20%2Forders/k/purge"),
        (Method::POST, "/sagas/s1/decide"),
        (Method::POST, "/unknown-outcomes/POST%20%2Forders/k/decide"),
        (Method::POST, "/nowhere"),
    ] {
        let answer = served.ask(VIEWER, method, path, Some(&json!({}))).await;
        check(&answer, 403, "AUTH.forbidden");
    }
    served.relay.stop().await;
}

async fn without_tokens_this_machine_is_answered_and_no_page_of_a_browser(on: Store) {
    let database = Home::migrated(on).await;
    let served = Served::start(&database, "").await;
    let url = format!("{}/destinations", served.url);
    let get = async |headers: &[(&str, &str)]| {
        let sent = served
            .client
            .send(Method::GET, &url, headers, Vec::new().into());
        sent.await.unwrap().status
    };
    assert_eq!(get(&[]).await, 200);
    assert_eq!(get(&[("origin", "http://evil.example")]).await, 403);
    assert_eq!(get(&[("host", "evil.example")]).await, 403);
    served.relay.stop().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_a_problem_with_a_code() {
    let database = migrated().await;
    let served = Served::with_tokens(&database).await;
    check_wrong_declarations(&served).await;
    check_wrong_filters(&served).await;
    let hostile = "/events?type=%27%3B%20DROP%20TABLE%20hapax.outbox_event--&limit=0";
    assert_eq!(served.get(hostile).await["items"], json!([]));
    check_unknown_paths(&served).await;
    check(
        &served.ask(OPERATOR, Method::PUT, "/events", None).await,
        405,
        "VALIDATION.method",
    );
    check_wrong_bodies(&served).await;
    served.relay.stop().await;
}

async fn a_filter_that_nobody_applies_is_refused(on: Store) {
    let database = Home::migrated(on).await;
    let served = Served::with_tokens(&database).await;
    for query in [
        "/events?destination=a",
        "/events?state=dead",
        "/events?error=x",
        "/events?attempts_min=1",
        "/dead-letters?state=delivered",
    ] {
        let answer = served.ask(OPERATOR, Method::GET, query, None).await;
        check(&answer, 400, "VALIDATION.member");
    }
    for filter in [json!({"error": "x"}), json!({"attempts_min": 2})] {
        let many = json!({"destination": "nobody", "filter": filter, "dry_run": true});
        let answer = served.post("/events/replay", &many).await;
        check(&answer, 400, "VALIDATION.member");
    }
    served.relay.stop().await;
}

#[tokio::test]
async fn the_description_names_every_status_that_was_seen_here() {
    let database = migrated().await;
    let served = Served::with_tokens(&database).await;
    let description = served.get("/openapi.json").await;
    assert!(description["openapi"].as_str().unwrap().starts_with("3.1"));
    let paths = description["paths"].as_object().unwrap();
    for (path, methods) in paths {
        let concrete = path
            .replace("/admin/v1", "")
            .replace("{name}", "nobody")
            .replace("{id}", "1")
            .replace("{operation}", "nothing")
            .replace("{key}", "none")
            .replace("{partition}", "nobody")
            .replace("{position}", "1");
        for (method, described) in methods.as_object().unwrap() {
            let name = method.to_uppercase();
            let method: Method = name.parse().unwrap();
            let body = json!({"destination": "nobody", "reason": "x", "version": 1, "name": "b",
                "spec": {}});
            let answer = served.ask(OPERATOR, method, &concrete, Some(&body)).await;
            let known = &described["responses"][answer.status.to_string()];
            assert!(
                known.is_object(),
                "{name} {path} answered {}: {}",
                answer.status,
                answer.text()
            );
        }
    }
    served.relay.stop().await;
}

#[track_caller]
pub(crate) fn check(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    let problem = answer.json().unwrap();
    assert_eq!(problem["code"], code);
    let page = format!("https://hapax.dev/problems/{}", code.to_lowercase());
    assert_eq!(problem["type"], page);
    assert_eq!(
        problem["request_id"].as_str(),
        answer.header("x-request-id")
    );
    assert!(problem["request_id"].is_string(), "{problem}");
}

/// A declaration of a webhook destination with this URL.
fn declaration(name: &str, url: &str) -> Value {
    json!({"name": name, "spec": {
        "sink": {"webhook": {"url": url, "secret": SECRET, "allow": ["127.0.0.0/8"]}},
    }})
}

async fn check_wrong_declarations(served: &Served) {
    let spec = |member: &str, value: Value| {
        let mut body = declaration("a", "http://127.0.0.1:1/");
        body["spec"][member] = value;
        body
    };
    for (body, member) in [
        (spec("partitions", json!(3)), "partitions"),
        (spec("evnts", json!([])), "evnts"),
        (spec("filter", json!({"/a": {"$gtt": 1}})), "filter./a.$gtt"),
        (spec("start", json!("yesterday")), "start"),
        (spec("start", json!("9999-01-31T12:00:00Z")), "start"),
        (
            spec("sink", json!({"file": {"path": "/etc/passwd"}})),
            "sink.file.path",
        ),
        (declaration("a/b", "http://127.0.0.1:1/"), "name"),
        (
            spec("sink", json!({"redis": {"url": "redis://127.0.0.1"}})),
            "sink.redis",
        ),
        // A declaration that can never work is rejected before it is stored.
        (declaration("a", "ftp://127.0.0.1:1/"), "sink.webhook.url"),
    ] {
        let answer = served.post("/destinations", &body).await;
        check(&answer, 400, "VALIDATION.member");
        assert_eq!(answer.json().unwrap()["member"], member);
    }
}

async fn check_wrong_filters(served: &Served) {
    for query in [
        "?since=yesterday",
        "?event_id=1",
        "?limit=-1",
        "?limit=x",
        "?nonsense=1",
        "?tenant=",
        "?before=x",
        "?attempts_min=-1",
    ] {
        for list in ["/events", "/deliveries", "/dead-letters"] {
            if (list, query) == ("/events", "?state=x") {
                continue;
            }
            let answer = served
                .ask(OPERATOR, Method::GET, &format!("{list}{query}"), None)
                .await;
            assert_eq!(answer.status, 400, "{list}{query}: {}", answer.text());
        }
    }
}

async fn check_unknown_paths(served: &Served) {
    for path in [
        "/events/1",
        "/events/x",
        "/jobs/7",
        "/destinations/nobody",
        "/nowhere",
        "/jobs/x",
    ] {
        check(
            &served.ask(OPERATOR, Method::GET, path, None).await,
            404,
            "NOT_FOUND",
        );
    }
}

/// Checks requests whose body is too large, no declaration, or of another media type.
async fn check_wrong_bodies(served: &Served) {
    let large = json!({"name": "a".repeat(70_000), "spec": {}});
    check(
        &served.post("/destinations", &large).await,
        413,
        "VALIDATION.body.too_large",
    );
    check(
        &served.post("/destinations", &json!([])).await,
        400,
        "VALIDATION.member",
    );
    let bearer = format!("Bearer {OPERATOR}");
    let post = async |path: &str, content_type: &str, body: &'static str| {
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", content_type),
        ];
        let url = format!("{}{path}", served.url);
        let client = &served.client;
        let sent = client.send(Method::POST, &url, &headers, body.into());
        sent.await.unwrap()
    };
    let plain = post("/destinations", "text/plain", "{}").await;
    check(&plain, 415, "VALIDATION.content_type");
    for (path, body, member) in [
        (
            "/destinations",
            r#"{"name": "a", "spec": {"sink": {"webhook": {"mapping": {"a": 1, "a": 2}}}}}"#,
            "sink.webhook.mapping.a",
        ),
        (
            "/endpoints",
            r#"{"tenant": "acme", "url": "https://a.example/", "mapping": {"a": 1, "a": 2}}"#,
            "mapping.a",
        ),
        (
            "/endpoints/try",
            r#"{"tenant": "acme", "filter": {"/n": {"$gte": 1, "$gte": 2}}}"#,
            "filter./n.$gte",
        ),
    ] {
        let twice = post(path, "application/json", body).await;
        check(&twice, 400, "VALIDATION.member");
        assert_eq!(twice.json().unwrap()["member"], member);
    }
}

/// Waits until the relay has given up this many events.
async fn until_dead(served: &Served, count: usize) {
    eventually(PATIENCE, async || {
        served.get("/dead-letters").await["items"]
            .as_array()
            .unwrap()
            .len()
            == count
    })
    .await;
}
