//! The customer portal of a relay: links, sessions, endpoints, and what is refused.

mod pages;
mod trials;

use std::fs;

use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpResponse},
    port::free_port,
    program::ProgramOutput,
};
use http::Method;
use serde_json::{Value, json};

use crate::{
    hapax::{Relay, hapax, run_to_end, start_relay},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_link_opens_the_portal_and_an_endpoint_is_added_changed_and_deleted,
    what_belongs_to_another_tenant_is_answered_as_if_it_did_not_exist,
    a_test_event_is_sent_and_a_private_address_is_refused,
}

const KEY: &str = "0123456789abcdef0123456789abcdef";
const SETTINGS: &str = "[relay]\nnode = \"one\"\n\
    [secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
    [destinations.customers]\nsink.endpoints = {}\n\
    [endpoints]\nper_tenant = 3\n";
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// A relay that serves the admin API and the portal.
struct Stage {
    home: Home,
    relay: Relay,
    api: String,
    url: String,
    client: HttpClient,
}

/// A browser with the session of a link.
struct Browser<'a> {
    stage: &'a Stage,
    cookie: String,
}

impl Stage {
    async fn new(on: Store) -> Self {
        Self::with(on, "", "").await
    }

    /// A stage with more settings of `[portal]`, and more in the section `[endpoints]`.
    async fn with(on: Store, portal: &str, endpoints: &str) -> Self {
        let home = Home::migrated(on).await;
        let (api, address) = (free_port(), free_port());
        let (api, address) = (format!("127.0.0.1:{api}"), format!("127.0.0.1:{address}"));
        let configuration = format!(
            "{SETTINGS}{endpoints}[admin]\nlisten = \"{api}\"\n[portal]\nlisten = \"{address}\"\n\
             url = \"http://{address}\"\nkey = \"{KEY}\"\n{portal}\n"
        );
        Self {
            relay: start_relay(&home.url(), &configuration).await,
            home,
            api: format!("http://{api}"),
            url: format!("http://{address}"),
            client: HttpClient::new(),
        }
    }

    async fn ask_link(&self, body: &Value) -> HttpResponse {
        let url = format!("{}/admin/portal-links", self.api);
        let headers = [("content-type", "application/json")];
        let asked = self.client.post(&url, &headers, body.to_string());
        asked.await.unwrap()
    }

    async fn link(&self, tenant: &str, rights: &str) -> String {
        let body = json!({"tenant": tenant, "rights": rights});
        let answer = self.ask_link(&body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json().unwrap()["url"].as_str().unwrap().to_owned()
    }

    async fn open(&self, tenant: &str, rights: &str) -> Browser<'_> {
        let link = self.link(tenant, rights).await;
        let answer = self.client.get(&link).await.unwrap();
        assert_eq!(answer.status, 303, "{}", answer.text());
        assert_eq!(answer.header("location"), Some("/portal"));
        let header = answer.header("set-cookie").unwrap();
        let (cookie, _) = header.split_once(';').unwrap();
        Browser {
            stage: self,
            cookie: cookie.to_owned(),
        }
    }

    /// The lines of the audit log, the newest first.
    async fn audit(&self) -> Vec<Value> {
        let url = format!("{}/admin/v1/audit", self.api);
        let answer = self.client.get(&url).await.unwrap();
        let page = answer.json().unwrap();
        page["items"].as_array().unwrap().clone()
    }
}

impl Browser<'_> {
    async fn send(&self, method: Method, path: &str, origin: &str, form: &str) -> HttpResponse {
        let url = format!("{}{path}", self.stage.url);
        let headers = [("cookie", self.cookie.as_str()), ("origin", origin), FORM];
        let sent = self
            .stage
            .client
            .send(method, &url, &headers, form.to_owned().into());
        sent.await.unwrap()
    }

    async fn get(&self, path: &str) -> HttpResponse {
        self.send(Method::GET, path, "", "").await
    }

    /// The text of a page.
    async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    /// The CSRF token of the session.
    async fn seal(&self) -> String {
        value_of(&self.page("/portal/endpoints/new").await, "seal")
    }

    /// Sends a form of a page of this session.
    async fn post(&self, path: &str, form: &str) -> HttpResponse {
        let form = format!("seal={}&{form}", self.seal().await);
        self.send(Method::POST, path, &self.stage.url, &form).await
    }

    /// Adds an endpoint, and returns its id and its secret.
    async fn add(&self, url: &str) -> (String, String) {
        let nonce = value_of(&self.page("/portal/endpoints/new").await, "nonce");
        let form = format!("nonce={nonce}&url={url}&types=order.*");
        let answer = self.post("/portal/endpoints", &form).await;
        let text = answer.text();
        assert_eq!(answer.status, 200, "{text}");
        assert!(text.contains("<h1>Endpoint created</h1>"), "{text}");
        let (_, rest) = text.split_once("id=\"secret\">").unwrap();
        let (secret, _) = rest.split_once('<').unwrap();
        let (_, rest) = text.split_once("href=\"/portal/endpoints/ep_").unwrap();
        let (id, _) = rest.split_once('"').unwrap();
        (format!("ep_{id}"), secret.to_owned())
    }
}

/// The value of a hidden field.
fn value_of(page: &str, name: &str) -> String {
    let (_, rest) = page
        .split_once(&format!("name=\"{name}\" value=\""))
        .unwrap_or_else(|| panic!("no field {name}: {page}"));
    rest.split_once('"').unwrap().0.to_owned()
}

async fn a_link_opens_the_portal_and_an_endpoint_is_added_changed_and_deleted(on: Store) {
    let stage = Stage::new(on).await;
    let alice = stage.open("alice", "write").await;
    assert!(
        alice
            .page("/portal")
            .await
            .contains("There are no endpoints")
    );
    let (id, secret) = alice.add("https%3A%2F%2Falice.example%2Fhooks").await;
    assert!(secret.starts_with("whsec_"), "{secret}");
    let path = format!("/portal/endpoints/{id}");
    let page = alice.page(&path).await;
    assert!(page.contains("https://alice.example/hooks") && page.contains("order.*"));
    assert!(!page.contains("whsec_"), "a secret is shown on demand only");
    let shown = alice.post(&format!("{path}/reveal"), "").await;
    assert!(shown.text().contains(&secret));
    let version = value_of(&page, "version");
    let change = "url=https%3A%2F%2Falice.example%2Fother&types=refund.*&description=Mine";
    let changed = alice
        .post(&path, &format!("version={version}&{change}"))
        .await;
    let saved = format!("{path}?done=saved");
    assert_eq!(
        (changed.status, changed.header("location")),
        (303, Some(saved.as_str()))
    );
    let refused = alice
        .post(&path, &format!("version={version}&{change}"))
        .await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let page = alice.page(&saved).await;
    assert!(page.contains("The changes are saved.") && page.contains("/other"));
    let version = value_of(&page, "version");
    let rotate = format!("version={version}&overlap=1h");
    let rotated = alice.post(&format!("{path}/rotate"), &rotate).await.text();
    assert!(rotated.contains("<h1>Secret rotated</h1>") && !rotated.contains(&secret));
    let again = alice.post(&format!("{path}/rotate"), &rotate).await;
    assert_eq!(again.status, 409, "a form that is sent twice rotates once");
    for (action, said) in [
        ("disable", "The endpoint is disabled."),
        ("enable", "The endpoint is enabled."),
    ] {
        let answer = alice.post(&format!("{path}/{action}"), "").await;
        let to = answer.header("location").unwrap();
        assert!(alice.page(to).await.contains(said), "{action}");
    }
    let unconfirmed = alice.post(&format!("{path}/delete"), "").await;
    assert_eq!(unconfirmed.status, 400, "{}", unconfirmed.text());
    let deleted = alice.post(&format!("{path}/delete"), "confirm=yes").await;
    assert_eq!(deleted.status, 303);
    assert_eq!(alice.get(&path).await.status, 404);
    let lines = stage.audit().await;
    let of_alice = |action: &str| {
        lines.iter().any(|it| {
            it["actor"] == "portal:alice" && it["action"] == action && it["outcome"] == "done"
        })
    };
    for action in [
        "create", "reveal", "change", "rotate", "disable", "enable", "delete",
    ] {
        assert!(of_alice(action), "{action}: {lines:?}");
    }
    assert!(
        lines
            .iter()
            .any(|it| it["action"] == "link" && it["object"] == "portal alice")
    );
    stage.relay.stop().await;
}

async fn what_belongs_to_another_tenant_is_answered_as_if_it_did_not_exist(on: Store) {
    let stage = Stage::new(on).await;
    let alice = stage.open("alice", "write").await;
    let bob = stage.open("bob", "write").await;
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    let none = format!("ep_{}", "0".repeat(32));
    let event = "019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21";
    let with = |id: &str, end: &str| format!("/portal/endpoints/{id}{end}");
    for end in ["", "/deliveries", "/deliveries?state=failed"] {
        let (one, other) = (
            bob.get(&with(&id, end)).await,
            bob.get(&with(&none, end)).await,
        );
        assert_eq!((one.status, other.status), (404, 404), "{end}");
        assert_eq!(one.body, other.body, "{end}");
    }
    let delivery = |id: &str| format!("/portal/deliveries/{id}/{event}");
    let (one, other) = (
        bob.get(&delivery(&id)).await,
        bob.get(&delivery(&none)).await,
    );
    assert_eq!((one.status, &one.body), (404, &other.body));
    let change = "version=1&url=https%3A%2F%2Fbob.example%2F";
    for (end, form) in [
        ("", change),
        ("", "version=1&action=try"),
        ("/enable", ""),
        ("/disable", ""),
        ("/delete", "confirm=yes"),
        ("/delete", ""),
        ("/rotate", "version=1&overlap=0s"),
        ("/reveal", ""),
        ("/test", ""),
        ("/replay", "since=1d"),
        ("/replay", "event_id=019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21"),
    ] {
        // The tenant is in the session, and nothing else names it.
        let form = format!("{form}&tenant=alice&sub=alice");
        let one = bob.post(&with(&id, end), &form).await;
        let other = bob.post(&with(&none, end), &form).await;
        assert_eq!(
            (one.status, other.status),
            (404, 404),
            "{end}: {}",
            one.text()
        );
        assert_eq!(one.body, other.body, "{end}");
    }
    assert!(
        bob.page("/portal?tenant=alice")
            .await
            .contains("There are no endpoints")
    );
    assert!(
        alice
            .page(&with(&id, ""))
            .await
            .contains("https://alice.example/")
    );
    let lines = stage.audit().await;
    let changed = |it: &&Value| it["actor"] == "portal:bob" && it["outcome"] == "done";
    assert_eq!(lines.iter().filter(changed).count(), 0, "{lines:?}");
    stage.relay.stop().await;
}

async fn a_test_event_is_sent_and_a_private_address_is_refused(on: Store) {
    let receiver = HttpReceiver::start().await;
    let url = receiver
        .url("/hooks")
        .replace(':', "%3A")
        .replace('/', "%2F");
    let stage = Stage::new(on).await;
    let alice = stage.open("alice", "write").await;
    let refused = alice.post("/portal/endpoints", &format!("url={url}")).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("Nothing was saved."));
    stage.relay.stop().await;

    let stage = Stage::with(on, "", "allow = [\"127.0.0.0/8\"]\n").await;
    let alice = stage.open("alice", "write").await;
    let (id, _) = alice.add(&url).await;
    let tested = alice
        .post(&format!("/portal/endpoints/{id}/test"), "")
        .await
        .text();
    assert!(
        tested.contains("The endpoint accepted the test event."),
        "{tested}"
    );
    assert_eq!(receiver.received_at_least(1).await[0].path, "/hooks");
    for number in 1..3 {
        alice.add(&format!("{url}%3F{number}")).await;
    }
    let full = alice.post("/portal/endpoints", &format!("url={url}")).await;
    assert_eq!(full.status, 409, "{}", full.text());
    let page = alice.page("/portal").await;
    assert_eq!(
        page.matches("href=\"/portal/endpoints/ep_").count(),
        3,
        "{page}"
    );
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_refused_without_its_seal_its_origin_and_its_rights() {
    let stage = Stage::new(Store::Sqlite).await;
    let alice = stage.open("alice", "write").await;
    let other = stage.open("alice", "write").await;
    let (id, _) = alice.add("https%3A%2F%2Falice.example%2F").await;
    let path = format!("/portal/endpoints/{id}/disable");
    let (own, seal) = (stage.url.clone(), alice.seal().await);
    for (origin, form) in [
        (own.as_str(), String::new()),
        (&own, "seal=".to_owned()),
        (&own, format!("seal={}", other.seal().await)),
        ("https://evil.example", format!("seal={seal}")),
        ("null", format!("seal={seal}")),
        ("", format!("seal={seal}")),
    ] {
        let answer = alice.send(Method::POST, &path, origin, &form).await;
        assert_eq!(answer.status, 403, "{origin} {form}: {}", answer.text());
    }
    let reader = stage.open("alice", "read").await;
    for path in ["/portal", &format!("/portal/endpoints/{id}")] {
        let page = reader.page(path).await;
        assert!(
            page.contains("alice.example") && page.contains("read only"),
            "{page}"
        );
        assert!(
            !page.contains("<form") && !page.contains("whsec_"),
            "{page}"
        );
    }
    assert_eq!(reader.get("/portal/endpoints/new").await.status, 403);
    for action in [
        "disable", "reveal", "rotate", "delete", "test", "replay", "enable",
    ] {
        let path = format!("/portal/endpoints/{id}/{action}");
        let form = format!("seal={seal}&confirm=yes");
        let answer = reader.send(Method::POST, &path, &own, &form).await;
        assert_eq!(answer.status, 403, "{action}: {}", answer.text());
    }
    assert!(
        alice
            .page(&format!("/portal/endpoints/{id}"))
            .await
            .contains(">enabled<")
    );
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_valid_opens_nothing_and_says_nothing() {
    let stage = Stage::new(Store::Sqlite).await;
    let link = stage.link("alice", "write").await;
    let (start, token) = link.split_once("token=").unwrap();
    assert_eq!(start, format!("{}/portal/open?", stage.url));
    let (signed, tag) = token.rsplit_once('.').unwrap();
    let (_, claims) = signed.split_once('.').unwrap();
    // {"alg":"none"}
    let none = format!("eyJhbGciOiJub25lIn0.{claims}.");
    let mut pages = Vec::new();
    for token in [
        String::new(),
        "x".to_owned(),
        signed.to_owned(),
        format!("{signed}."),
        format!("{signed}.{}", tag.chars().rev().collect::<String>()),
        none,
        format!("{token}{}", "A".repeat(4_000)),
    ] {
        let answer = stage
            .client
            .get(&format!("{start}token={token}"))
            .await
            .unwrap();
        assert_eq!(answer.status, 401, "{token}");
        assert!(answer.header("set-cookie").is_none());
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        pages.push(answer.body);
        let cookie = format!("hapax_portal={}", &token[..token.len().min(4_000)]);
        let headers = [("cookie", cookie.as_str())];
        let url = format!("{}/portal", stage.url);
        let asked = stage.client.send(Method::GET, &url, &headers, "".into());
        assert_eq!(asked.await.unwrap().status, 401, "{token}");
    }
    pages.dedup();
    assert_eq!(pages.len(), 1, "the reason is not said");
    assert!(!String::from_utf8_lossy(&pages[0]).contains("alice"));
    stage.client.get(&link).await.unwrap();
    assert!(!stage.relay.log().contains(tag), "the token is logged");
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_brand_is_text_and_frames_are_those_of_the_settings() {
    let stage = Stage::new(Store::Sqlite).await;
    let link = stage.link("alice", "read").await;
    let answer = stage.client.get(&link).await.unwrap();
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["HttpOnly", "Path=/portal;", "SameSite=Lax", "Max-Age="] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");
    assert_eq!(answer.header("x-frame-options"), Some("DENY"));
    stage.relay.stop().await;

    let evil = "<script>alert('x')</script>";
    let portal = format!(
        "name = \"{evil}\"\ncolour = \"#0b6e4f\"\nlogo = \"https://cdn.example/a.svg?<b>\"\n"
    );
    let refused = refused(&portal);
    assert!(refused.contains("portal.logo"), "{refused}");
    let portal = format!(
        "name = \"{evil}\"\ncolour = \"#0b6e4f\"\nlogo = \"https://cdn.example/a.svg\"\n\
         embed = [\"https://app.example\"]\n"
    );
    let stage = Stage::with(Store::Sqlite, &portal, "").await;
    let answer = stage
        .client
        .get(&stage.link("alice", "read").await)
        .await
        .unwrap();
    let cookie = answer.header("set-cookie").unwrap();
    assert!(
        cookie.ends_with("SameSite=None; Secure; Partitioned"),
        "{cookie}"
    );
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.ends_with("frame-ancestors https://app.example"),
        "{policy}"
    );
    assert!(
        policy.contains("img-src 'self' https://cdn.example;"),
        "{policy}"
    );
    assert_eq!(answer.header("x-frame-options"), None);
    let body = json!({"tenant": "alice", "name": evil});
    let link = stage.ask_link(&body).await.json().unwrap();
    let answer = stage
        .client
        .get(link["url"].as_str().unwrap())
        .await
        .unwrap();
    let (cookie, _) = answer
        .header("set-cookie")
        .unwrap()
        .split_once(';')
        .unwrap();
    let browser = Browser {
        stage: &stage,
        cookie: cookie.to_owned(),
    };
    let page = browser.page("/portal").await;
    assert!(
        !page.contains("<script>") && page.contains("&lt;script&gt;"),
        "{page}"
    );
    let (_, rest) = page.split_once("/portal/assets/brand-").unwrap();
    let (name, _) = rest.split_once('"').unwrap();
    let style = browser.page(&format!("/portal/assets/brand-{name}")).await;
    assert!(style.contains("#0b6e4f"), "{style}");
    stage.relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_a_link_and_without_a_portal_there_is_none() {
    let stage = Stage::new(Store::Sqlite).await;
    for body in [
        json!({}),
        json!({"tenant": "alice", "rights": "admin"}),
        json!({"tenant": "alice", "expires_in": "30s"}),
        json!({"tenant": "alice", "expires_in": "25h"}),
        json!({"tenant": ""}),
        json!({"tenant": "a\nb"}),
        json!({"tenant": "alice", "other": 1}),
    ] {
        let answer = stage.ask_link(&body).await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    }
    let settings = format!("[portal]\nurl = \"{}\"\nkey = \"{KEY}\"\n", stage.url);
    let link = ["portal", "link", "--tenant", "alice", "--rights", "read"];
    let printed = command(&stage.home, &settings, &link).ended(0).stdout;
    let opened = stage.client.get(printed.trim()).await.unwrap();
    assert_eq!(opened.status, 303, "{}", opened.text());
    let none = command(&stage.home, "", &link).ended(2);
    assert!(none.stderr.contains("portal.url"), "{none:?}");
    stage.relay.stop().await;

    let home = Home::migrated(Store::Sqlite).await;
    let api = format!("127.0.0.1:{}", free_port());
    let relay = start_relay(&home.url(), &format!("[admin]\nlisten = \"{api}\"\n")).await;
    let url = format!("http://{api}/admin/v1/portal-links");
    let headers = [("content-type", "application/json")];
    let asked = HttpClient::new();
    let asked = asked.post(&url, &headers, r#"{"tenant":"alice"}"#);
    let answer = asked.await.unwrap();
    assert_eq!(answer.status, 409, "{}", answer.text());
    relay.stop().await;
}

/// Runs a command with this configuration.
fn command(home: &Home, configuration: &str, arguments: &[&str]) -> ProgramOutput {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    fs::write(&path, configuration).unwrap();
    let mut command = hapax(arguments);
    command
        .args(["--database", &home.url(), "--config"])
        .arg(&path);
    run_to_end(command)
}

/// The error of a configuration with these settings of `[portal]`.
fn refused(portal: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hapax.toml");
    let text = format!("[portal]\nurl = \"https://a.example\"\nkey = \"{KEY}\"\n{portal}");
    fs::write(&path, text).unwrap();
    let mut check = hapax(&["config", "check", "--database", "sqlite:x.db", "--config"]);
    check.arg(&path);
    run_to_end(check).ended(2).stderr
}
