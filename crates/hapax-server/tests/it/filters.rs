//! Filters of destinations: in the configuration, in declarations, and tried on stored events.

use std::{collections::BTreeSet, fs};

use hapax_testkit::{http::HttpReceiver, wait::eventually};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER, check},
    hapax::{PATIENCE, SECRET, run, start_relay, webhook},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_destination_gets_the_events_that_match_its_filter_and_an_operator_offers_it_the_others,
    a_filter_is_declared_shown_and_changed,
    a_filter_is_tried_by_a_verb,
    a_filter_is_tried_over_the_admin_api,
}

async fn a_destination_gets_the_events_that_match_its_filter_and_an_operator_offers_it_the_others(
    on: Store,
) {
    let database = Home::migrated(on).await;
    let receiver = HttpReceiver::start().await;
    database.emit("order.created", 5).await;
    let configuration = format!(
        "{}filter = {{ \"/n\" = {{ \"$gt\" = 3 }}, aggregate_type = \"order\" }}\n",
        webhook("orders", &receiver.url("/"))
    );
    let relay = start_relay(&database.url(), &configuration).await;
    let numbers = || -> BTreeSet<i64> {
        let bodies = receiver.received().into_iter().map(|it| it.body);
        let number = |body: &[u8]| {
            let body: Value = serde_json::from_slice(body).unwrap();
            body["data"]["n"].as_i64().unwrap()
        };
        bodies.map(|body| number(&body[..])).collect()
    };
    receiver.received_at_least(2).await;
    let (url, config) = (database.url(), relay.file("hapax.toml"));
    let files = ["--config", config.to_str().unwrap(), "--database", &url];
    let shown = || {
        let show = ["destinations", "show", "orders", "--json"];
        run(&[&show[..], &files].concat()).ended(0).json()["counts"].clone()
    };
    eventually(PATIENCE, async || shown()["backlog"] == 0).await;
    assert_eq!(numbers(), BTreeSet::from([4, 5]));
    assert_eq!(
        (&shown()["parked"], &shown()["dead"]),
        (&json!(0), &json!(0))
    );

    // What an operator asks for is offered even if the filter does not match.
    let offer = ["events", "replay", "--destination", "orders", "--yes"];
    run(&[&offer[..], &files].concat()).ended(0);
    eventually(PATIENCE, async || {
        numbers() == BTreeSet::from([1, 2, 3, 4, 5])
    })
    .await;
    relay.stop().await;
}

async fn a_filter_is_declared_shown_and_changed(on: Store) {
    let database = Home::migrated(on).await;
    let folder = tempfile::tempdir().unwrap();
    let key = "[secrets]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n";
    let config = write(&folder, "hapax.toml", key);
    let url = database.url();
    let call = |arguments: &[&str]| {
        let database = ["--json", "--config", &config, "--database", &url];
        run(&[&["destinations"][..], arguments, &database].concat())
    };
    let spec = |filter: &Value| {
        let spec = json!({"filter": filter, "sink": {
            "webhook": {"url": "https://example.com/", "secret": SECRET}}});
        write(&folder, "spec.json", &spec.to_string())
    };
    let wrong = spec(&json!({"$or": [{"/amount": {"$gte": "x", "$gtt": 1}}]}));
    let refused = call(&["create", "orders", "--spec", &wrong, "--yes"]).ended(2);
    let place = "filter.$or[0]./amount.$gtt is an unknown operator: did you mean $gt?";
    assert!(refused.stderr.contains(place), "{refused:?}");
    // A text keeps every digit.
    let exact = json!("{\"/amount\": {\"$gte\": 12345678901234567890.125}}");
    let created = call(&["create", "orders", "--spec", &spec(&exact), "--yes"]).ended(0);
    let version = created.json()["version"].to_string();
    let shown = call(&["show", "orders"]).ended(0).json();
    assert_eq!(shown["spec"]["filter"], exact);
    let other = json!({"/amount": {"$gte": 100}});
    let change = ["change", "orders", "--version", &version, "--yes", "--spec"];
    let spec = spec(&other);
    call(&[&change[..], &[spec.as_str()]].concat()).ended(0);
    let shown = call(&["show", "orders"]).ended(0).json();
    assert_eq!(shown["spec"]["filter"], other);
}

async fn a_filter_is_tried_by_a_verb(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 3).await;
    database.emit("order.paid", 3).await;
    let folder = tempfile::tempdir().unwrap();
    let file = write(&folder, "filter.json", "{\"/n\": {\"$in\": [2, 3.0]}}");
    let url = database.url();
    let call = |file: &str, arguments: &[&str]| {
        let filter = ["destinations", "filter", "--filter", file];
        run(&[&filter[..], &["--database", &url], arguments].concat())
    };
    let tried = call(&file, &["--json", "--type", "order.paid"])
        .ended(0)
        .json();
    let counts = (&tried["tried"], &tried["matched"], &tried["unreadable"]);
    assert_eq!(counts, (&json!(3), &json!(2), &json!(0)), "{tried}");
    let last = &tried["items"][2];
    assert_eq!(
        (&last["matches"], &last["fails_at"]),
        (&json!(false), &json!("/n.$in"))
    );
    let first = call(&file, &["--json", "--limit", "4"]).ended(0).json();
    assert_eq!(first["items"].as_array().unwrap().len(), 4);
    let before = first["next"].as_str().unwrap();
    let rest = call(&file, &["--json", "--before", before]).ended(0).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 2);
    let table = call(&file, &[]).ended(0).stdout;
    assert!(
        table.contains("MATCHES") && table.contains("4 of 6 events match"),
        "{table}"
    );
    let csv = call(&file, &["--csv"]).ended(0).stdout;
    assert!(
        csv.starts_with("id,type,created,matches,fails_at\n"),
        "{csv}"
    );
    assert_eq!(csv.lines().count(), 7, "{csv}");
    let wrong = write(&folder, "wrong.json", "{\"/n\": {\"$between\": 1}}");
    let refused = call(&wrong, &[]).ended(2);
    assert!(
        refused
            .stderr
            .contains("/n.$between is an unknown operator"),
        "{refused:?}"
    );
    call("/nowhere/at/all", &[]).ended(2);
    call(&file, &["--limit", "1001"]).ended(2);
}

async fn a_filter_is_tried_over_the_admin_api(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 3).await;
    let served = Served::with_tokens(&database).await;
    let body = json!({"filter": {"/n": {"$gte": 2}}, "events": {"type": "order.*", "limit": 2}});
    let tried = served.post("/filters/try", &body).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    let tried = tried.json().unwrap();
    assert_eq!(
        (&tried["tried"], &tried["matched"]),
        (&json!(2), &json!(2)),
        "{tried}"
    );
    let text = json!({"filter": "{\"/n\": 1e0}"});
    let tried = served.post("/filters/try", &text).await.json().unwrap();
    assert_eq!(
        (&tried["tried"], &tried["matched"]),
        (&json!(3), &json!(1)),
        "{tried}"
    );
    // The events have no tenant, so a tenant sees none of them.
    let body = json!({"filter": {"/n": 1}});
    let ask = async |token: &str| {
        let asked = served.ask(token, Method::POST, "/filters/try", Some(&body));
        asked.await
    };
    assert_eq!(ask(ALICE).await.json().unwrap()["tried"], 0);
    check(&ask(VIEWER).await, 403, "AUTH.forbidden");
    for (body, member) in [
        (json!({"filter": {"/n": {"$gtt": 1}}}), "filter./n.$gtt"),
        (
            json!({"filter": {"/n": 1}, "events": {"limit": 1001}}),
            "limit",
        ),
        (
            json!({"filter": {"/n": 1}, "events": {"state": "dead"}}),
            "state",
        ),
    ] {
        let refused = served.ask(OPERATOR, Method::POST, "/filters/try", Some(&body));
        let refused = refused.await;
        check(&refused, 400, "VALIDATION.member");
        assert_eq!(refused.json().unwrap()["member"], member);
    }
    served.relay.stop().await;
}

/// Writes a file, and returns its path.
fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
