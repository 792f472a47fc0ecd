//! Polling endpoints as operators and consumers use them: `hapax poll`, the admin API, and the listener
//! of consumers.

mod kills;
mod seeks;

use hapax_testkit::{
    http::{HttpClient, HttpResponse},
    port::free_port,
    postgres::Database,
};
use http::Method;
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER},
    hapax::{Relay, ask, migrated, run, start_relay},
};

/// A relay without destinations, with a listener for consumers.
struct Door {
    relay: Relay,
    url: String,
    client: HttpClient,
}

impl Door {
    async fn open(database: &Database) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let configuration = format!("[poll]\nlisten = \"{address}\"\n");
        Self {
            relay: start_relay(&database.url(), &configuration).await,
            url: format!("http://{address}"),
            client: HttpClient::new(),
        }
    }

    async fn get(&self, token: &str, path: &str) -> HttpResponse {
        self.send(Method::GET, token, path, None).await
    }

    async fn post(&self, token: &str, path: &str, body: &Value) -> HttpResponse {
        self.send(Method::POST, token, path, Some(body)).await
    }

    async fn send(
        &self,
        method: Method,
        token: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpResponse {
        let url = format!("{}{path}", self.url);
        ask(&self.client, (method, &url), token, body).await
    }

    /// A page, which must be returned.
    async fn page(&self, token: &str, path: &str) -> Value {
        let answer = self.get(token, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json().unwrap()
    }
}

#[tokio::test]
async fn a_consumer_polls_commits_and_goes_on_after_a_crash() {
    let database = migrated().await;
    let token = create(
        &database,
        "acme",
        &["--tenant", "acme", "--type", "order.*"],
    );
    let client = database.client().await;
    let door = Door::open(&database).await;
    emit(&client, "acme", "order.created", "{ \"n\": 1.0 }").await;
    emit(&client, "other", "order.created", "{}").await;
    emit(&client, "acme", "refund.created", "{}").await;
    emit(&client, "acme", "order.updated", "2").await;
    let first = door.get(&token, "/poll/acme?limit=1").await;
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("cache-control"), Some("no-store"));
    assert!(
        first.text().contains("\"data\":{ \"n\": 1.0 }"),
        "{}",
        first.text()
    );
    let first: Value = first.json().unwrap();
    let event = &first["data"][0];
    assert_eq!(
        (&event["type"], &event["tenant"]),
        (&json!("order.created"), &json!("acme"))
    );
    assert_eq!(first["has_more"], true);
    let commit = json!({"cursor": first["cursor"]});
    let committed = door.post(&token, "/poll/acme/commit", &commit).await;
    assert_eq!(committed.status, 200, "{}", committed.text());
    // The process is killed between the fetch of the next page and its commit.
    let second = door.page(&token, "/poll/acme").await;
    assert_eq!(types(&second), ["order.updated"]);
    door.relay.kill();
    let door = Door::open(&database).await;
    let again = door.page(&token, "/poll/acme").await;
    assert_eq!(again["data"], second["data"]);
    let commit = json!({"cursor": second["cursor"]});
    assert_eq!(
        door.post(&token, "/poll/acme/commit", &commit).await.status,
        200
    );
    // Going back has to be asked for.
    let back = json!({"cursor": first["cursor"]});
    let refused = door.post(&token, "/poll/acme/commit", &back).await;
    check(&refused, 409, "CONFLICT.polling.behind");
    let back = json!({"cursor": first["cursor"], "seek": true});
    assert_eq!(
        door.post(&token, "/poll/acme/commit", &back).await.status,
        200
    );
    let sought = door
        .post(&token, "/poll/acme/seek", &json!({"to": "now"}))
        .await;
    assert_eq!(sought.status, 200, "{}", sought.text());
    let none = door.page(&token, "/poll/acme").await;
    assert_eq!(
        (&none["data"], &none["has_more"]),
        (&json!([]), &json!(false))
    );
    door.relay.stop().await;
}

#[tokio::test]
async fn a_poll_that_waits_is_answered_with_an_event_of_another_process() {
    let database = migrated().await;
    let token = create(&database, "acme", &["--tenant", "acme"]);
    let client = database.client().await;
    let door = Door::open(&database).await;
    let emitted = async {
        // The poll has begun when its endpoint was noted as polled.
        let noted = "SELECT count(*) FROM hapax.poll_endpoint WHERE last_polled_at IS NOT NULL";
        let began = async || {
            let row = client.query_one(noted, &[]).await.unwrap();
            row.get::<_, i64>(0) == 1
        };
        hapax_testkit::wait::eventually(crate::hapax::PATIENCE, began).await;
        emit(&client, "acme", "a", "{}").await;
    };
    let (page, ()) = tokio::join!(door.page(&token, "/poll/acme?wait=30"), emitted);
    assert_eq!(types(&page), ["a"]);
    door.relay.stop().await;
}

#[tokio::test]
async fn the_listener_of_consumers_opens_nothing_else() {
    let database = migrated().await;
    let token = create(&database, "acme", &["--tenant", "acme"]);
    let other = create(&database, "other", &["--tenant", "other"]);
    let door = Door::open(&database).await;
    let unknown = door.get(&token, "/poll/nowhere").await;
    check(&unknown, 401, "AUTH.invalid");
    for wrong in ["", "x", &token[1..], &other, "hxp_"] {
        let refused = door.get(wrong, "/poll/acme").await;
        check(&refused, 401, "AUTH.invalid");
        let (one, two) = (refused.json().unwrap(), unknown.json().unwrap());
        assert_eq!(one["detail"], two["detail"], "{wrong}");
        let refused = door.post(wrong, "/poll/acme/commit", &json!({})).await;
        check(&refused, 401, "AUTH.invalid");
    }
    for path in [
        "/admin/v1/destinations",
        "/admin/v1/openapi.json",
        "/metrics",
        "/console",
        "/",
    ] {
        check(&door.get(&token, path).await, 404, "NOT_FOUND");
    }
    check(
        &door.post(&token, "/poll/acme", &json!({})).await,
        405,
        "VALIDATION.method",
    );
    for query in [
        "limit=0",
        "limit=501",
        "wait=31",
        "limit=x",
        "cursr=x",
        "cursor=x",
    ] {
        let refused = door.get(&token, &format!("/poll/acme?{query}")).await;
        check(&refused, 400, "VALIDATION.member");
    }
    let foreign = door.page(&other, "/poll/other").await["cursor"].clone();
    let foreign = format!("/poll/acme?cursor={}", foreign.as_str().unwrap());
    check(&door.get(&token, &foreign).await, 400, "VALIDATION.member");
    let bad = json!({"to": "yesterday"});
    let refused = door.post(&token, "/poll/acme/seek", &bad).await;
    check(&refused, 400, "VALIDATION.member");
    door.relay.stop().await;
}

#[tokio::test]
async fn an_endpoint_that_is_polled_too_often_is_slowed_down() {
    let database = migrated().await;
    let token = create(&database, "acme", &["--tenant", "acme"]);
    let door = Door::open(&database).await;
    let mut limited = None;
    for _ in 0..1_000 {
        let answer = door.get(&token, "/poll/acme").await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let limited = limited.expect("a thousand polls in a row are too many");
    check(&limited, 429, "RATE_LIMIT.exceeded");
    assert_eq!(limited.header("retry-after"), Some("1"));
    door.relay.stop().await;
}

#[tokio::test]
async fn an_operator_creates_rotates_and_removes_endpoints() {
    let database = migrated().await;
    let url = database.url();
    let poll = |arguments: &[&str]| {
        let mut all = vec!["poll"];
        all.extend_from_slice(arguments);
        all.extend(["--database", url.as_str()]);
        run(&all)
    };
    poll(&["create", "acme"]).ended(2);
    poll(&["create", "a/b", "--tenant", "acme"]).ended(2);
    let first = create(&database, "acme", &["--tenant", "acme"]);
    poll(&["create", "acme", "--tenant", "acme"]).ended(4);
    let listed = poll(&["list", "--json"]).ended(0).json();
    assert_eq!(listed["items"][0]["name"], "acme");
    assert!(!listed.to_string().contains("hxp_"), "{listed}");
    let rotated = poll(&["rotate", "acme", "--overlap", "0s", "--yes", "--json"]);
    let second = rotated.ended(0).json()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let door = Door::open(&database).await;
    check(&door.get(&first, "/poll/acme").await, 401, "AUTH.invalid");
    door.page(&second, "/poll/acme").await;
    poll(&["remove", "acme", "--yes"]).ended(0);
    check(&door.get(&second, "/poll/acme").await, 401, "AUTH.invalid");
    poll(&["show", "acme"]).ended(3);
    door.relay.stop().await;
}

#[tokio::test]
async fn the_admin_api_shows_a_token_once_and_keeps_tenants_apart() {
    let database = migrated().await;
    let served = Served::with_tokens(&database).await;
    let path = "/polling-endpoints";
    let body = |name: &str, tenant: &str| json!({"name": name, "tenant": tenant});
    let created = served.post(path, &body("acme", "acme")).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let token = created.json().unwrap()["token"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(token.starts_with("hxp_"));
    let created = served.post(path, &body("other", "other")).await;
    assert_eq!(created.status, 201, "{}", created.text());
    check(
        &served.post(path, &body("acme", "acme")).await,
        409,
        "CONFLICT.state",
    );
    for bad in [json!({"name": "x"}), body("x", "a\nb")] {
        check(&served.post(path, &bad).await, 400, "VALIDATION.member");
    }
    let listed = served.get(path).await;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert!(!listed.to_string().contains(&token));
    let own = served.get_as_alice(path).await.json().unwrap();
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
    assert_eq!(own["items"][0]["name"], "acme");
    check(
        &served.get_as_alice("/polling-endpoints/other").await,
        404,
        "NOT_FOUND",
    );
    let rotate = json!({"overlap_seconds": 60});
    for (token, status) in [(VIEWER, 403), (OPERATOR, 200), (ALICE, 404)] {
        let path = "/polling-endpoints/other/rotate";
        let rotated = served.ask(token, Method::POST, path, Some(&rotate)).await;
        assert_eq!(rotated.status, status, "{}", rotated.text());
    }
    let removed = served.ask(OPERATOR, Method::DELETE, "/polling-endpoints/acme", None);
    assert_eq!(removed.await.status, 204);
    let audited = served.get("/audit").await;
    let acts = audited["items"].as_array().unwrap().iter();
    let acts: Vec<_> = acts.map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(acts, ["remove", "rotate", "create", "create", "create"]);
    assert!(!audited.to_string().contains(&token));
    served.relay.stop().await;
}

/// Creates an endpoint with the command, and returns its token.
fn create(database: &Database, name: &str, arguments: &[&str]) -> String {
    let url = database.url();
    let mut all = vec!["poll", "create", name, "--database", url.as_str()];
    all.extend_from_slice(arguments);
    let created = run(&all).ended(0);
    created.stdout.trim().to_owned()
}

async fn emit(client: &Client, tenant: &str, kind: &str, payload: &str) {
    const EMIT: &str = "
        INSERT INTO hapax.outbox_event
            (event_id, type, tenant, aggregate_type, aggregate_id, payload, headers, created_at)
        VALUES (gen_random_uuid(), $1::text, $2::text, 'order', '1', $3::text, '{}', now())";
    let emitted = client.execute(EMIT, &[&kind, &tenant, &payload]).await;
    emitted.unwrap();
}

fn types(page: &Value) -> Vec<&str> {
    let events = page["data"].as_array().unwrap().iter();
    events
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[track_caller]
fn check(answer: &HttpResponse, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.json().unwrap()["code"], code, "{}", answer.text());
}
