//! Mappings of webhooks: a receiver gets the mapped body with a valid signature, an event that the mapping
//! cannot be applied to is given up and can be replayed, and a mapping is tried on stored events.

use std::fs;

use hapax::{
    event::{Headers, NewEvent, Payload},
    limits::MAPPED_BYTES_MAX,
    store::{Keys as _, Transaction as _},
};
use hapax_testkit::{http::HttpReceiver, wait::eventually};
use serde_json::{Value, json};

use crate::{
    hapax::{PATIENCE, Relay, SECRET, is_signed, run, start_relay},
    store::{Home, Store, on_both_stores},
};

const GUIDE: &str = include_str!("../../../../docs/guides/mappings.md");

on_both_stores! {
    a_receiver_gets_the_mapped_body_with_its_signature,
    the_first_example_of_the_guide_makes_the_body_that_the_guide_shows,
    an_event_that_cannot_be_mapped_is_a_dead_letter_until_the_mapping_is_changed,
    a_body_that_is_too_large_is_a_dead_letter,
    the_mapping_of_a_destination_is_tried_on_the_events_that_it_takes,
    a_mapping_with_a_name_that_appears_twice_is_not_declared,
}

async fn a_receiver_gets_the_mapped_body_with_its_signature(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    database.emit("order.created", 1).await;
    let mapping = r#"{ text = { "$concat" = ["Order ", "$.data.n"] }, id = "$.id", at = "$.timestamp", no = "$.data.no" }"#;
    let configuration = mapped(&receiver, mapping);
    let relay = start_relay(&database.url(), &configuration).await;
    let requests = receiver.received_at_least(1).await;
    let request = &requests[0];
    assert!(is_signed(request, SECRET));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    let id = request.header("webhook-id").unwrap();
    assert_eq!(
        body,
        json!({"text": "Order 1", "id": id, "at": body["at"].as_str().unwrap()})
    );
    relay.stop().await;
}

async fn the_first_example_of_the_guide_makes_the_body_that_the_guide_shows(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    emit_payload(&database, of_guide("The event with the payload `", "`")).await;
    let mapping = of_guide("[destinations.chat.sink.webhook.mapping]\n", "```");
    let url = receiver.url("/");
    let configuration = format!(
        "[destinations.orders]\n[destinations.orders.sink.webhook]\nurl = \"{url}\"\nsecret = \
         \"{SECRET}\"\nallow = [\"127.0.0.0/8\"]\n[destinations.orders.sink.webhook.mapping]\n{mapping}"
    );
    let relay = start_relay(&database.url(), &configuration).await;
    let requests = receiver.received_at_least(1).await;
    let body = str::from_utf8(&requests[0].body).unwrap();
    assert_eq!(body, of_guide("```json\n", "\n```"));
    relay.stop().await;
}

async fn an_event_that_cannot_be_mapped_is_a_dead_letter_until_the_mapping_is_changed(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    database.emit("order.created", 1).await;
    let wrong = mapped(&receiver, r#"{ "$each" = "$.data.n", as = "@" }"#);
    let relay = start_relay(&database.url(), &wrong).await;
    let reason = "the mapping cannot be applied: $.data.n is not a list";
    until_dead(&database, &relay, reason).await;
    assert!(receiver.received().is_empty());
    // The mapping of the next attempt is the new one.
    let right = mapped(&receiver, r#"{ number = "$.data.n" }"#);
    fs::write(relay.file("hapax.toml"), right).unwrap();
    relay.signal("HUP");
    eventually(PATIENCE, async || {
        let again = ["dead-letters", "replay-all", "--destination", "orders"];
        command(&database, &relay, &[&again[..], &["--yes"]].concat());
        !receiver.received().is_empty()
    })
    .await;
    let request = &receiver.received()[0];
    assert_eq!(&request.body[..], br#"{"number":1}"#);
    assert!(is_signed(request, SECRET));
    relay.stop().await;
}

async fn a_body_that_is_too_large_is_a_dead_letter(on: Store) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    // The body is {"text":"..."}.
    let largest = MAPPED_BYTES_MAX - 11;
    for bytes in [largest, largest + 1] {
        emit_text(&database, bytes).await;
    }
    let configuration = mapped(&receiver, r#"{ text = "$.data.text" }"#);
    let relay = start_relay(&database.url(), &configuration).await;
    let reason = "the mapping cannot be applied: the result has more than 262144 bytes";
    until_dead(&database, &relay, reason).await;
    let requests = receiver.received_at_least(1).await;
    let sizes: Vec<_> = requests.iter().map(|it| it.body.len()).collect();
    assert_eq!(sizes, [MAPPED_BYTES_MAX]);
    relay.stop().await;
}

async fn the_mapping_of_a_destination_is_tried_on_the_events_that_it_takes(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 3).await;
    database.emit("refund.created", 1).await;
    let folder = tempfile::tempdir().unwrap();
    let receiver = HttpReceiver::start().await;
    let config = folder.path().join("hapax.toml");
    let configuration = mapped(&receiver, r#"{ number = "$.data.n", type = "$.type" }"#);
    fs::write(&config, configuration).unwrap();
    let url = database.url();
    let files = ["--config", config.to_str().unwrap(), "--database", &url];
    let map = |more: &[&str]| {
        let map = ["destinations", "map", "orders", "--json"];
        run(&[&map[..], &files, more].concat()).ended(0).json()
    };
    let tried = map(&[]);
    assert_eq!((&tried["tried"], &tried["failed"]), (&json!(3), &json!(0)));
    let newest = &tried["items"][0];
    assert_eq!(
        newest["body"],
        json!({"number": 3, "type": "order.created"})
    );
    let topic = folder.path().join("topic.toml");
    let sns = "[destinations.orders.sink.sns]\n\
        topic_arn = \"arn:aws:sns:us-east-1:123456789012:a\"\n\
        access_key_id = \"a\"\nsecret_access_key = \"a\"\n";
    fs::write(&topic, sns).unwrap();
    let files_of_topic = ["--config", topic.to_str().unwrap(), "--database", &url];
    let map_topic = ["destinations", "map", "orders"];
    let refused = run(&[&map_topic[..], &files_of_topic].concat()).ended(2);
    let reason = "only webhooks and endpoints can have one, and not the sink sns";
    assert!(refused.stderr.contains(reason), "{refused:?}");
    let first = map(&["--limit", "2"]);
    assert_eq!(first["items"].as_array().unwrap().len(), 2, "{first}");
    let rest = map(&["--before", first["next"].as_str().unwrap()]);
    assert_eq!(rest["items"][0]["body"]["number"], 1, "{rest}");
    assert!(receiver.received().is_empty());
}

async fn a_mapping_with_a_name_that_appears_twice_is_not_declared(on: Store) {
    let database = Home::migrated(on).await;
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("orders.json");
    let twice = r#"{"sink": {"webhook": {"mapping": {"a": 1, "a": 2}}}}"#;
    fs::write(&spec, twice).unwrap();
    let (url, spec) = (database.url(), spec.to_str().unwrap());
    let create = ["destinations", "create", "orders", "--spec", spec];
    let refused = run(&[&create[..], &["--database", &url]].concat()).ended(2);
    let problem = "duplicate field `a`";
    assert!(refused.stderr.contains(problem), "{refused:?}");
}

/// A destination whose webhook has this mapping, in TOML.
fn mapped(receiver: &HttpReceiver, mapping: &str) -> String {
    let url = receiver.url("/");
    format!(
        "[destinations.orders]\nevents = [\"order.*\"]\nsink.webhook = {{ url = \"{url}\", secret = \
         \"{SECRET}\", allow = [\"127.0.0.0/8\"], mapping = {mapping} }}\n"
    )
}

/// The text of the guide between the first `before` and the next `after`.
fn of_guide(before: &str, after: &str) -> &'static str {
    let (_, text) = GUIDE.split_once(before).unwrap();
    text.split_once(after).unwrap().0
}

/// Emits an event with a long text. On SQLite, no relay may be running.
async fn emit_text(database: &Home, bytes: usize) {
    let payload = json!({ "text": "x".repeat(bytes) });
    emit_payload(database, &payload.to_string()).await;
}

/// Emits an event with this payload. On SQLite, no relay may be running.
async fn emit_payload(database: &Home, payload: &str) {
    match database {
        Home::File(_) => {
            let store = database.sqlite();
            let mut tx = store.begin(None, Headers::new()).await.unwrap();
            let payload = Payload::Json(payload.to_owned());
            tx.emit(NewEvent::new("order.created", payload)).unwrap();
            tx.commit().await.unwrap();
            store.close().await.unwrap();
        }
        Home::Server(server) => {
            const EMIT: &str = "SELECT hapax.emit('order.created', $1, 'order', 'o1')";
            let client = server.client().await;
            client.execute(EMIT, &[&payload]).await.unwrap();
        }
    }
}

/// Waits until the only dead letter has this reason.
async fn until_dead(database: &Home, relay: &Relay, reason: &str) {
    eventually(PATIENCE, async || {
        let listed = command(database, relay, &["dead-letters", "list", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let items = listed["items"].as_array().unwrap();
        items.len() == 1 && items[0].to_string().contains(reason)
    })
    .await;
}

/// Runs a command beside a relay. Returns its output.
fn command(database: &Home, relay: &Relay, arguments: &[&str]) -> String {
    let (url, config) = (database.url(), relay.file("hapax.toml"));
    let files = ["--config", config.to_str().unwrap(), "--database", &url];
    run(&[arguments, &files].concat()).ended(0).stdout
}
