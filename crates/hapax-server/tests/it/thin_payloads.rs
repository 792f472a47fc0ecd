//! Thin payloads: a receiver is sent the id of an event, verifies the signature, and fetches the event
//! with a token of its tenant.

use std::fs;

use bytes::Bytes;
use hapax_testkit::{
    http::{HttpClient, HttpReceiver, HttpResponse},
    port::free_port,
    postgres::Database,
    program::ProgramOutput,
};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::hapax::{SECRET, hapax, is_signed, migrated, run_to_end, start_relay};

const SETTINGS: &str = "[relay]\nnode = \"one\"\nlease = \"1s\"\n\
    [secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n\
    [destinations.customers]\nsink.endpoints = {}\n";

/// A database, and a configuration with links to the listener of consumers.
struct Stage {
    database: Database,
    folder: TempDir,
    configuration: String,
    /// The URL of the listener.
    door: String,
    client: HttpClient,
}

impl Stage {
    /// `links` is whether endpoints may be thin.
    async fn new(links: bool, more: &str) -> Self {
        let (database, folder) = (migrated().await, tempfile::tempdir().unwrap());
        let address = format!("127.0.0.1:{}", free_port());
        let events_url = format!("events_url = \"http://{address}/events/\"\n");
        let configuration = format!(
            "{SETTINGS}[poll]\nlisten = \"{address}\"\n\
             [endpoints]\nallow = [\"127.0.0.0/8\"]\n{}{}",
            if links { events_url.as_str() } else { "" },
            more.replace("EVENTS_URL", &format!("http://{address}/events"))
        );
        fs::write(folder.path().join("hapax.toml"), &configuration).unwrap();
        Self {
            database,
            folder,
            configuration,
            door: format!("http://{address}"),
            client: HttpClient::new(),
        }
    }

    fn run(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = hapax(arguments);
        command
            .args(["--database", &self.database.url(), "--config"])
            .arg(self.folder.path().join("hapax.toml"));
        run_to_end(command)
    }

    /// Creates a thin endpoint of the tenant `acme`. Returns its secret.
    fn create(&self, url: &str) -> ProgramOutput {
        self.run(&[
            "endpoints",
            "create",
            "--tenant",
            "acme",
            "--url",
            url,
            "--payload",
            "thin",
            "--json",
        ])
    }

    /// A token for the events of a tenant.
    fn token(&self, tenant: &str) -> String {
        let created = self.run(&["poll", "create", tenant, "--tenant", tenant]);
        created.ended(0).stdout.trim().to_owned()
    }

    async fn emit(&self, tenant: &str) {
        const EMIT: &str = "
            INSERT INTO hapax.outbox_event (event_id, type, tenant, payload, headers, created_at)
            VALUES (gen_random_uuid(), 'order.created', $1, '{ \"amount\": 500.0 }', '{}', now())";
        let client = self.database.client().await;
        client.execute(EMIT, &[&tenant]).await.unwrap();
    }

    async fn get(&self, url: &str, token: &str) -> HttpResponse {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let sent = self.client.send(Method::GET, url, &headers, Bytes::new());
        sent.await.unwrap()
    }
}

#[tokio::test]
async fn a_thin_body_is_verified_and_its_event_is_fetched_by_its_tenant_alone() {
    let stage = Stage::new(true, "").await;
    let receiver = HttpReceiver::start().await;
    let created = stage.create(&receiver.url("/")).ended(0).json();
    assert_eq!(created["endpoint"]["payload"], "thin");
    let secret = created["secret"].as_str().unwrap();
    let (own, foreign) = (stage.token("acme"), stage.token("other"));
    let relay = start_relay(&stage.database.url(), &stage.configuration).await;
    stage.emit("acme").await;
    let requests = receiver.received_at_least(1).await;
    assert!(is_signed(&requests[0], secret));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    let data = &body["data"];
    assert_eq!(body["type"], "order.created");
    assert_eq!(
        (&data["tenant"], &data["created_at"]),
        (&json!("acme"), &body["timestamp"])
    );
    assert_eq!(data["id"], requests[0].header("webhook-id").unwrap());
    let members = data.as_object().unwrap().len();
    assert_eq!(members, 4, "{data}");
    // The receiver follows the link.
    let link = data["url"].as_str().unwrap();
    let fetched = stage.get(link, &own).await;
    assert_eq!(fetched.status, 200, "{}", fetched.text());
    assert_eq!(fetched.header("cache-control"), Some("no-store"));
    assert!(
        fetched.text().contains("\"data\":{ \"amount\": 500.0 }"),
        "{}",
        fetched.text()
    );
    let event: Value = fetched.json().unwrap();
    assert_eq!(
        (&event["id"], &event["tenant"]),
        (&data["id"], &json!("acme"))
    );
    // Another tenant gets what it gets for an id that does not exist.
    let absent = format!("{}/events/019b0c9e-6f0a-7c3e-8a53-0a4f6f6c1e21", stage.door);
    let refused = stage.get(link, &foreign).await;
    let missing = stage.get(&format!("{absent}?position=1"), &foreign).await;
    for answer in [&refused, &missing] {
        assert_eq!(answer.status, 404, "{}", answer.text());
    }
    assert_eq!(without_id(&refused), without_id(&missing));
    for bad in ["", "hxp_", &own[1..]] {
        assert_eq!(stage.get(link, bad).await.status, 401, "{bad}");
    }
    let odd = format!("{}/events/nothing?position=x", stage.door);
    assert_eq!(stage.get(&odd, &own).await.status, 404);
    relay.stop().await;
}

#[tokio::test]
async fn an_endpoint_is_not_thin_without_the_beginning_of_its_links() {
    let stage = Stage::new(false, "").await;
    let refused = stage.create("https://acme.example/hooks");
    assert!(refused.stderr.contains("events_url"), "{}", refused.stderr);
    assert_ne!(refused.code, Some(0));
}

#[tokio::test]
async fn a_destination_is_thin_if_its_webhook_says_so() {
    let receiver = HttpReceiver::start().await;
    let destination = format!(
        "[destinations.orders]\nevents = [\"order.*\"]\nsink.webhook = {{ url = \"{}\", secret = \
         \"{SECRET}\", allow = [\"127.0.0.0/8\"], payload = \"thin\", events_url = \
         \"EVENTS_URL\" }}\n",
        receiver.url("/")
    );
    let stage = Stage::new(false, &destination).await;
    let token = stage.token("acme");
    stage.emit("acme").await;
    let relay = start_relay(&stage.database.url(), &stage.configuration).await;
    let requests = receiver.received_at_least(1).await;
    assert!(is_signed(&requests[0], SECRET));
    let body: Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert!(body["data"].get("amount").is_none(), "{body}");
    let fetched = stage
        .get(body["data"]["url"].as_str().unwrap(), &token)
        .await;
    assert_eq!(fetched.status, 200, "{}", fetched.text());
    relay.stop().await;
}

/// A problem without the id of its request.
fn without_id(answer: &HttpResponse) -> Value {
    let mut problem: Value = answer.json().unwrap();
    let members = problem.as_object_mut().unwrap();
    members.retain(|name, _| {
        matches!(
            name.as_str(),
            "type" | "title" | "status" | "code" | "detail"
        )
    });
    problem
}
