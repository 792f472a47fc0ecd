//! Tests of the admin API over real HTTP, with a running relay.

use hapax_testkit::{
    http::{HttpAnswer, HttpClient, HttpReceiver, HttpReply},
    port::free_port,
    wait::eventually,
};
use http::Method;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::{
    hapax::{PATIENCE, Relay, SECRET, emit, migrated, start_relay},
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
    ) -> HttpAnswer {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("content-type", "application/json")];
        if !token.is_empty() {
            headers.push(("authorization", &bearer));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        let url = format!("{}{path}", self.url);
        self.client
            .send(method, &url, &headers, body.into())
            .await
            .unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let answer = self.ask(OPERATOR, Method::GET, path, None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json().unwrap()
    }

    /// Requests a path with the token of the tenant `acme`.
    pub(crate) async fn get_as_alice(&self, path: &str) -> HttpAnswer {
        self.ask(ALICE, Method::GET, path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> HttpAnswer {
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
        (Method::POST, "/dead-letters/replay"),
        (Method::POST, "/dead-letters/a/1/discard"),
        (Method::POST, "/deliveries/a/1/retry"),
        (Method::POST, "/jobs/1/cancel"),
        (Method::POST, "/keys/POST%20%2Forders/k/purge"),
        (Method::POST, "/sagas/s1/decide"),
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
async fn a_declared_destination_is_carried_to_and_its_secret_is_never_shown() {
    let database = migrated().await;
    let (one, two) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    // A destination that is declared at run time receives only later events.
    emit(&client, "order.created", 2).await;
    let created = served
        .post("/destinations", &declaration("orders", &one.url("/")))
        .await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(!created.text().contains(SECRET));
    emit(&client, "order.created", 3).await;
    one.received_at_least(3).await;
    assert_eq!(one.received().len(), 3, "an event of before was delivered");
    let shown = served.get("/destinations/orders").await;
    assert_eq!(shown["spec"]["sink"]["webhook"]["secret"], "***");
    assert_eq!(shown["state"], "active");
    check(
        &served
            .post("/destinations", &declaration("orders", &one.url("/")))
            .await,
        409,
        "CONFLICT.state",
    );
    change_concurrency(&served, &shown).await;
    check_start_is_kept(&served).await;
    emit(&client, "order.created", 1).await;
    one.received_at_least(4).await;
    change_url(&served, &two.url("/")).await;
    eventually(PATIENCE, async || {
        emit(&client, "order.created", 1).await;
        !two.received().is_empty()
    })
    .await;
    pause_and_resume(&served).await;
    remove(&served).await;
    assert_eq!(served.get("/destinations").await["items"], json!([]));
    check_no_secret_is_stored(&client).await;
    let audited = served.get("/audit").await;
    assert!(!audited.to_string().contains(SECRET) && !served.relay.log().contains(SECRET));
    assert_eq!(
        acts(&audited),
        [
            "create done",
            "create refused",
            "change done",
            "change refused",
            "change done",
            "pause done",
            "pause nothing",
            "resume done",
            "remove done",
            "remove_destination done",
        ]
    );
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
async fn dead_letters_are_listed_replayed_and_discarded_over_http() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500));
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    let mut body = declaration("orders", &receiver.url("/"));
    body["spec"]["schedule"] = json!(["0s"]);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    emit(&client, "order.created", 4).await;
    until_dead(&served, 4).await;
    let dead = served
        .get("/dead-letters?destination=orders&error=500&type=order.*")
        .await;
    assert_eq!(dead["items"].as_array().unwrap().len(), 4);
    let first = &dead["items"][0];
    let event = served
        .get(&format!("/events/{}", first["event_id"].as_str().unwrap()))
        .await;
    assert_eq!(event["position"], first["position"]);
    let way = &event["destinations"][0];
    assert_eq!(
        (&way["state"], &way["attempts"][0]["status"]),
        (&json!("dead"), &json!(500))
    );
    receiver.reply(HttpReply::status(200));
    replay_one(&served, first).await;
    receiver.received_at_least(5).await;
    discard_one(&served, &dead["items"][1]).await;
    let job = replay_matches(&served).await;
    receiver.received_at_least(7).await;
    eventually(PATIENCE, async || {
        served.get(&format!("/jobs/{job}")).await["state"] == "done"
    })
    .await;
    // All events are replayed, whether they were delivered or not.
    let again = json!({"destination": "orders", "filter": {"type": "order.*"}});
    assert_eq!(served.post("/events/replay", &again).await.status, 202);
    let all = receiver.received_at_least(11).await;
    let ids: std::collections::HashSet<_> = all
        .iter()
        .map(|it| it.header("webhook-id").unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 4);
    served.relay.stop().await;
}

#[tokio::test]
async fn a_token_of_a_tenant_sees_and_touches_that_tenants_rows_alone() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    receiver.reply(HttpReply::status(500).body("of the far side"));
    let served = Served::with_tokens(&database).await;
    let client = database.client().await;
    let mut body = declaration("all", &receiver.url("/"));
    body["spec"]["schedule"] = json!(["0s"]);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let emit = "SELECT hapax.emit('a', '1', tenant => t) FROM unnest(ARRAY['acme', 'other']) AS t";
    client.batch_execute(emit).await.unwrap();
    until_dead(&served, 2).await;
    check_lists_of_a_tenant(&served).await;
    let all = served.get("/dead-letters").await["items"].clone();
    check_foreign_event_is_hidden(&served, of_tenant(&all, "other")).await;
    check_foreign_destination_is_hidden(&served).await;
    let mut others = declaration("others", &receiver.url("/"));
    others["spec"]["tenant"] = json!("other");
    assert_eq!(served.post("/destinations", &others).await.status, 201);
    check_no_replay_by_another_tenant(&served).await;
    check_foreign_responses_are_hidden(&served, of_tenant(&all, "acme")).await;
    check_no_replay_to_another_tenant(&served).await;
    served.relay.stop().await;
}

#[tokio::test]
async fn a_change_reaches_two_relays_within_two_seconds() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let served = Served::with_tokens(&database).await;
    let other = start_relay(
        &database.url(),
        &format!("[secrets]\nkey = \"{KEY}\"\n[relay]\nallow = [\"127.0.0.0/8\"]\n"),
    )
    .await;
    let is_shown = async |name: &str, is: fn(&str) -> bool| {
        eventually(PATIENCE, async || {
            is(&served.relay.state(name).await) && is(&other.state(name).await)
        })
        .await;
    };
    // Only the smallest of three measured times counts, because a busy machine may delay a single
    // one.
    let (mut created, mut paused) = (Vec::new(), Vec::new());
    for name in ["one", "two", "three"] {
        let mut body = declaration(name, &receiver.url("/"));
        body["spec"]["partitions"] = json!(2);
        let began = tokio::time::Instant::now();
        assert_eq!(served.post("/destinations", &body).await.status, 201);
        is_shown(name, |it| !it.is_empty()).await;
        created.push(began.elapsed());
        let began = tokio::time::Instant::now();
        let pause = format!("/destinations/{name}/pause");
        assert_eq!(served.post(&pause, &json!({})).await.status, 204);
        is_shown(name, |it| it == "paused").await;
        paused.push(began.elapsed());
    }
    for heard in [created, paused] {
        let least = heard.iter().min().unwrap();
        assert!(least.as_secs() < 3, "{heard:?}");
    }
    served.relay.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn a_pause_holds_where_the_declaration_cannot_be_read_and_a_setting_is_not_resumed() {
    let database = migrated().await;
    let receiver = HttpReceiver::start().await;
    let served = Served::start(
        &database,
        "[destinations.filed]\npaused = true\nsink.file.path = \"/dev/null\"\n",
    )
    .await;
    let mut body = declaration("orders", &receiver.url("/"));
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    let is = async |state: &str| {
        eventually(PATIENCE, async || {
            served.relay.state("orders").await == state
        })
        .await;
    };
    is("delivering").await;
    let client = database.client().await;
    client
        .batch_execute("UPDATE hapax.declaration SET sealed = '\\x00'")
        .await
        .unwrap();
    let act = async |act: &str| {
        served
            .post(&format!("/destinations/{act}"), &json!({}))
            .await
    };
    assert_eq!(act("orders/pause").await.status, 204);
    is("paused").await;
    assert_eq!(act("orders/resume").await.status, 204);
    is("delivering").await;

    // A destination that its own declaration or configuration pauses cannot be resumed, only
    // changed.
    body["name"] = json!("later");
    body["spec"]["paused"] = json!(true);
    assert_eq!(served.post("/destinations", &body).await.status, 201);
    for (name, setting) in [("later", "declaration"), ("filed", "[destinations.filed]")] {
        let shown = served.get(&format!("/destinations/{name}")).await;
        assert_eq!(shown["state"], "paused", "{shown}");
        let refused = act(&format!("{name}/resume")).await;
        check(&refused, 409, "CONFLICT.state");
        assert!(refused.text().contains(setting), "{}", refused.text());
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
pub(crate) fn check(answer: &HttpAnswer, status: u16, code: &str) {
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

/// Changes one member and sends the rest of the declaration back as it was shown. The same version
/// cannot be changed twice.
async fn change_concurrency(served: &Served, shown: &Value) {
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["concurrency"] = json!(4);
    assert_eq!(put(served, &change).await.status, 200);
    check(&put(served, &change).await, 409, "CONFLICT.state");
}

/// The start of a destination cannot be changed.
async fn check_start_is_kept(served: &Served) {
    let shown = served.get("/destinations/orders").await;
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["start"] = json!("beginning");
    let refused = put(served, &change).await;
    check(&refused, 400, "VALIDATION.member");
    assert_eq!(refused.json().unwrap()["member"], "start");
}

/// Changes the URL of the webhook. The stored secret is not used for the new URL.
async fn change_url(served: &Served, url: &str) {
    let shown = served.get("/destinations/orders").await;
    let mut change = json!({"version": shown["version"], "spec": shown["spec"]});
    change["spec"]["sink"]["webhook"]["url"] = json!(url);
    let refused = put(served, &change).await;
    check(&refused, 400, "VALIDATION.member");
    assert_eq!(refused.json().unwrap()["member"], "sink.webhook.secret");
    change["spec"]["sink"]["webhook"]["secret"] = json!(SECRET);
    assert_eq!(put(served, &change).await.status, 200);
}

async fn put(served: &Served, change: &Value) -> HttpAnswer {
    served
        .ask(OPERATOR, Method::PUT, "/destinations/orders", Some(change))
        .await
}

/// Pauses the destination twice, and resumes it.
async fn pause_and_resume(served: &Served) {
    for pausing in [204, 204] {
        let answer = served.post("/destinations/orders/pause", &json!({})).await;
        assert_eq!(answer.status, pausing);
    }
    assert_eq!(served.get("/destinations/orders").await["state"], "paused");
    assert_eq!(
        served
            .post("/destinations/orders/resume", &json!({}))
            .await
            .status,
        204
    );
}

/// Removes the destination, and waits for the end of the job.
async fn remove(served: &Served) {
    let removed = served
        .ask(OPERATOR, Method::DELETE, "/destinations/orders", None)
        .await;
    assert_eq!(removed.status, 202, "{}", removed.text());
    let job = removed.json().unwrap()["id"].clone();
    eventually(PATIENCE, async || {
        served.get(&format!("/jobs/{job}")).await["state"] == "done"
    })
    .await;
}

async fn check_no_secret_is_stored(client: &Client) {
    let dumped = client
        .query("SELECT spec, sealed::text FROM hapax.declaration", &[])
        .await
        .unwrap();
    for row in dumped {
        let spec: Option<String> = row.get(0);
        assert!(!spec.unwrap_or_default().contains(SECRET));
    }
}

/// The actions in the audit log with their outcomes, oldest first.
fn acts(audited: &Value) -> Vec<String> {
    audited["items"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|act| {
            format!(
                "{} {}",
                act["action"].as_str().unwrap(),
                act["outcome"].as_str().unwrap()
            )
        })
        .collect()
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
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "text/plain"),
    ];
    let url = format!("{}/destinations", served.url);
    let plain = served
        .client
        .send(Method::POST, &url, &headers, "{}".into())
        .await
        .unwrap();
    check(&plain, 415, "VALIDATION.content_type");
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

/// Replays a dead letter, which can be done only once.
async fn replay_one(served: &Served, letter: &Value) {
    let replay = format!("/dead-letters/orders/{}/replay", letter["position"]);
    assert_eq!(served.post(&replay, &json!({})).await.status, 204);
    check(
        &served.post(&replay, &json!({})).await,
        409,
        "CONFLICT.state",
    );
}

/// Discards a dead letter, which needs a reason.
async fn discard_one(served: &Served, letter: &Value) {
    let discard = format!("/dead-letters/orders/{}/discard", letter["position"]);
    check(
        &served.post(&discard, &json!({"reason": ""})).await,
        400,
        "VALIDATION.member",
    );
    assert_eq!(
        served
            .post(&discard, &json!({"reason": "test"}))
            .await
            .status,
        204
    );
}

/// Counts the dead letters that match a filter, and replays them. Returns the id of the job.
async fn replay_matches(served: &Served) -> Value {
    let mut many = json!({"destination": "orders", "filter": {"type": "order.*"}, "dry_run": true});
    let counted = served.post("/dead-letters/replay", &many).await;
    let counted = counted.json().unwrap();
    assert_eq!(counted["count"], 2);
    many["dry_run"] = json!(false);
    many["seen"] = json!("an invented value");
    let wrong = served.post("/dead-letters/replay", &many).await;
    check(&wrong, 400, "VALIDATION.member");
    many["seen"] = counted["seen"].clone();
    // The keys are parsed as in every other request: these three texts are the same key.
    let mut jobs = Vec::new();
    for key in ["once", "\"once\"", "\"once\";a=1"] {
        let begun = replay_under(served, &many, &[key]).await;
        assert_eq!(begun.status, 202, "{}", begun.text());
        jobs.push(begun.json().unwrap()["id"].clone());
    }
    assert_eq!((&jobs[1], &jobs[2]), (&jobs[0], &jobs[0]));
    for keys in [&["a b"][..], &["\"once"], &["\"once\"x"], &["once", "once"]] {
        let refused = replay_under(served, &many, keys).await;
        check(&refused, 400, "VALIDATION.member");
    }
    jobs.swap_remove(0)
}

/// Starts a replay of dead letters with one header `Idempotency-Key` per text.
async fn replay_under(served: &Served, many: &Value, keys: &[&str]) -> HttpAnswer {
    let bearer = format!("Bearer {OPERATOR}");
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    headers.extend(keys.iter().map(|key| ("idempotency-key", *key)));
    let url = format!("{}/dead-letters/replay", served.url);
    let sent = served
        .client
        .send(Method::POST, &url, &headers, many.to_string().into());
    sent.await.unwrap()
}

/// The first row of this tenant.
#[track_caller]
fn of_tenant<'a>(rows: &'a Value, tenant: &str) -> &'a Value {
    let rows = rows.as_array().unwrap();
    rows.iter().find(|row| row["tenant"] == tenant).unwrap()
}

async fn check_lists_of_a_tenant(served: &Served) {
    for list in ["/events", "/deliveries", "/dead-letters"] {
        let items = served.get_as_alice(list).await.json().unwrap()["items"].clone();
        assert_eq!(items.as_array().unwrap().len(), 1, "{list}");
        assert_eq!(items[0]["tenant"], "acme");
        let foreign = served
            .get_as_alice(&format!("{list}?tenant=other"))
            .await
            .json()
            .unwrap();
        assert_eq!(foreign["items"], json!([]));
    }
}

async fn check_foreign_event_is_hidden(served: &Served, other: &Value) {
    let by_position = format!("/events/{}", other["position"]);
    check(&served.get_as_alice(&by_position).await, 404, "NOT_FOUND");
    let by_id = format!("/events/{}", other["event_id"].as_str().unwrap());
    check(&served.get_as_alice(&by_id).await, 404, "NOT_FOUND");
    let replay = format!("/dead-letters/all/{}/replay", other["position"]);
    let outcome = served
        .ask(ALICE, Method::POST, &replay, Some(&json!({})))
        .await;
    check(&outcome, 404, "NOT_FOUND");
}

async fn check_foreign_destination_is_hidden(served: &Served) {
    check(
        &served.get_as_alice("/destinations/all").await,
        404,
        "NOT_FOUND",
    );
    let many = json!({"destination": "all", "dry_run": true});
    let counted = served
        .ask(ALICE, Method::POST, "/dead-letters/replay", Some(&many))
        .await;
    assert_eq!(counted.json().unwrap()["count"], 1);
    let pause = served
        .ask(
            ALICE,
            Method::POST,
            "/destinations/all/pause",
            Some(&json!({})),
        )
        .await;
    check(&pause, 404, "NOT_FOUND");
}

/// A tenant cannot replay events to a destination of another tenant.
async fn check_no_replay_by_another_tenant(served: &Served) {
    for name in ["others", "all", "nobody"] {
        let again = json!({"destination": name});
        let outcome = served
            .ask(ALICE, Method::POST, "/events/replay", Some(&again))
            .await;
        check(&outcome, 404, "NOT_FOUND");
    }
}

/// A tenant sees where its events were delivered, but not the responses of a receiver that belongs
/// to another tenant.
async fn check_foreign_responses_are_hidden(served: &Served, own: &Value) {
    let path = format!("/events/{}", own["position"]);
    eventually(PATIENCE, async || {
        let ways = served.get(&path).await["destinations"].clone();
        let ways = ways.as_array().unwrap();
        ways.iter().any(|way| way["state"] == "passed")
    })
    .await;
    let whole = served.get(&path).await;
    assert!(whole.to_string().contains("of the far side"), "{whole}");
    let seen = served.get_as_alice(&path).await.json().unwrap();
    assert_eq!(seen["destinations"].as_array().unwrap().len(), 1, "{seen}");
    assert_eq!(seen["destinations"][0]["attempts"][0]["status"], 500);
    assert!(!seen.to_string().contains("of the far side"), "{seen}");
}

/// A destination of one tenant never receives events of another tenant, no matter who starts the
/// replay.
async fn check_no_replay_to_another_tenant(served: &Served) {
    let again = json!({"destination": "others", "filter": {"tenant": "acme"}});
    check(
        &served.post("/events/replay", &again).await,
        400,
        "VALIDATION.member",
    );
    let again = json!({"destination": "others", "dry_run": true});
    let counted = served.post("/events/replay", &again).await;
    assert_eq!(counted.json().unwrap()["count"], 1);
}
