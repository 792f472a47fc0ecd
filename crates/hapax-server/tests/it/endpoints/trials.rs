//! Trials of the settings of an endpoint on stored events, and masked values in trials and in the log of
//! deliveries.

use std::fs;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hapax_testkit::{http::HttpReceiver, wait::eventually};
use http::Method;
use serde_json::{Value, json};

use super::{SCHEDULE, SETTINGS, Stage, body, check};
use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER},
    hapax::PATIENCE,
    store::{Store, on_both_stores},
};

const FILTER: &str = r#"{"/n": {"$gte": 2}}"#;
const ORDER: &str = r#"{"text": {"$concat": ["Order ", "$.data.n"]}}"#;

on_both_stores! {
    settings_are_tried_over_the_admin_api_and_nothing_is_changed,
    settings_are_tried_by_a_command,
    a_value_that_is_masked_stays_masked_under_the_name_that_a_mapping_gives_it,
    a_trial_with_masked_lists_and_objects_ends_as_the_delivery_does,
}

async fn settings_are_tried_over_the_admin_api_and_nothing_is_changed(on: Store) {
    let stage = with_orders(on).await;
    let served = Served::with_tokens(&stage.home).await;
    let audit = served.get("/audit").await;
    let settings = json!({"tenant": "acme", "types": ["order.*"], "filter": FILTER,
        "mapping": {"text": {"$concat": ["Order ", "$.data.n"]}}});
    let tried = served.post("/endpoints/try", &settings).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    check_tried(&tried.json().unwrap());
    // A mapping that cannot be applied says why.
    let each = json!({"tenant": "acme", "mapping": {"$each": "$.data.n", "as": "@"}, "limit": 1});
    let tried = served.post("/endpoints/try", &each).await;
    let tried = tried.json().unwrap();
    assert_eq!((&tried["tried"], &tried["failed"]), (&json!(1), &json!(1)));
    let failure = tried["items"][0]["failure"].as_str().unwrap();
    assert!(failure.contains("$.data.n is not a list"), "{failure}");
    let before = json!({"tenant": "acme", "before": tried["next"]});
    let rest = served.post("/endpoints/try", &before).await;
    let rest = rest.json().unwrap();
    assert_eq!(rest["tried"], 2, "{rest}");
    let ask = async |token: &str, body: &Value| {
        served
            .ask(token, Method::POST, "/endpoints/try", Some(body))
            .await
    };
    // A token of a tenant tries settings on the events of that tenant.
    let own = ask(ALICE, &json!({})).await.json().unwrap();
    assert_eq!(own["tried"], 3, "{own}");
    let other = ask(ALICE, &json!({"tenant": "other"})).await;
    check(&other, 404, "NOT_FOUND");
    check(&ask(VIEWER, &settings).await, 403, "AUTH.forbidden");
    for (mut body, member) in [
        (json!({"filter": {"/n": {"$gtt": 1}}}), "filter./n.$gtt"),
        (json!({"mapping": {"a": "$.database"}}), "mapping.a"),
        (json!({"types": [""]}), "types"),
        (json!({"limit": 0}), "limit"),
        (json!({"limit": 51}), "limit"),
        (json!({"before": "x"}), "before"),
    ] {
        body["tenant"] = json!("acme");
        let refused = ask(OPERATOR, &body).await;
        check(&refused, 400, "VALIDATION.member");
        assert_eq!(refused.json().unwrap()["member"], member);
    }
    check(&ask(OPERATOR, &json!({})).await, 400, "VALIDATION.member");
    assert_eq!(served.get("/audit").await, audit);
    served.relay.stop().await;
}

async fn settings_are_tried_by_a_command(on: Store) {
    let stage = with_orders(on).await;
    let file = |name: &str, text: &str| {
        let path = stage.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (filter, mapping) = (file("filter.json", FILTER), file("mapping.json", ORDER));
    let ask = ["try", "--tenant", "acme", "--type", "order.*"];
    let files = ["--filter", &filter, "--mapping", &mapping];
    let ask = [&ask[..], &files].concat();
    let tried = stage.run(&[&ask[..], &["--json"]].concat()).ended(0);
    check_tried(&tried.json());
    let table = stage.run(&ask).ended(0).stdout;
    for said in ["FAILS AT", "Order 4", "/n.$gte", "1 of 3 events match"] {
        assert!(table.contains(said), "{said}: {table}");
    }
    let wrong = file("wrong.json", "{");
    let wrong = ["try", "--tenant", "acme", "--mapping", &wrong];
    let refused = stage.run(&wrong).ended(2);
    let problem = "mapping is not valid JSON";
    assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    let twice = ["try", "--tenant", "a", "--mapping", "-", "--filter", "-"];
    stage.run(&twice).ended(2);
    stage
        .run(&["try", "--tenant", "acme", "--limit", "51"])
        .ended(2);
}

async fn a_value_that_is_masked_stays_masked_under_the_name_that_a_mapping_gives_it(on: Store) {
    let masks = format!("{SETTINGS}{SCHEDULE}[admin]\nmask = [\"n\"]\n");
    let stage = Stage::of(on, masks).await;
    let receiver = HttpReceiver::start().await;
    let mapping = r#"{"total": "$.data.n", "said": {"$concat": ["n is ", "$.data.n"]}}"#;
    let (id, _) = stage.create("acme", &receiver.url("/"), &["--mapping", mapping]);
    stage.emit("acme", "order.created", 7531).await;
    let relay = stage.relay().await;
    // The receiver gets the value.
    let requests = receiver.received_at_least(1).await;
    assert_eq!(
        body(&requests[0]),
        json!({"total": 7531, "said": "n is 7531"})
    );
    eventually(PATIENCE, async || {
        !stage.deliveries("acme", &id, &[]).is_empty()
    })
    .await;
    let attempts = stage.deliveries("acme", &id, &[]);
    let masked = json!({"total": "***", "said": "n is ***"});
    let shown = attempts[0]["request_body"].as_str().unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    assert_eq!(shown, masked, "{attempts:?}");
    relay.stop().await;
    let file = stage.folder.path().join("mapping.json");
    fs::write(&file, mapping).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [
        &["map", &id, "--tenant", "acme", "--json"][..],
        &["try", "--tenant", "acme", "--mapping", file, "--json"],
    ] {
        let tried = stage.run(arguments).ended(0).json();
        assert_eq!(tried["items"][0]["body"], masked, "{tried}");
        assert!(!tried.to_string().contains("7531"), "{tried}");
    }
}

async fn a_trial_with_masked_lists_and_objects_ends_as_the_delivery_does(on: Store) {
    let stage = Stage::new(on).await;
    let (good, bad) = (HttpReceiver::start().await, HttpReceiver::start().await);
    let payload = json!({"token": {"a": "TOPSECRET"}, "tokens": [{"x": "TOPSECRET"}, {"x": 2}]});
    let list = r#"{"$each": "$.data.tokens", "as": "@.x"}"#;
    let text = r#"{"$concat": ["t=", "$.data.token"]}"#;
    let (listed, _) = stage.create("acme", &good.url("/"), &["--mapping", list]);
    let (failing, _) = stage.create("acme", &bad.url("/"), &["--mapping", text]);
    stage.emit_payload("acme", "order.created", &payload).await;
    let map = |id: &str| {
        let tried = stage.run(&["map", id, "--tenant", "acme", "--json"]);
        let tried = tried.ended(0).json();
        assert!(!tried.to_string().contains("TOPSECRET"), "{tried}");
        tried
    };
    let shown = json!(["***", "***"]);
    let tried = map(&listed);
    assert_eq!((&tried["tried"], &tried["failed"]), (&json!(1), &json!(0)));
    assert_eq!(tried["items"][0]["body"], shown, "{tried}");
    let tried = map(&failing);
    assert_eq!((&tried["tried"], &tried["failed"]), (&json!(1), &json!(1)));
    let reason = "$.data.token is not a text or a number";
    let failure = tried["items"][0]["failure"].as_str().unwrap();
    assert!(failure.contains(reason), "{failure}");

    let relay = stage.relay().await;
    let requests = good.received_at_least(1).await;
    assert_eq!(body(&requests[0]), json!(["TOPSECRET", 2]));
    let mut attempts = [Vec::new(), Vec::new()];
    eventually(PATIENCE, async || {
        attempts = [&listed, &failing].map(|id| stage.deliveries("acme", id, &[]));
        attempts.iter().all(|it| !it.is_empty())
    })
    .await;
    let sent = attempts[0][0]["request_body"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(sent).unwrap(), shown);
    let error = attempts[1][0]["error"].as_str().unwrap();
    assert!(error.contains(reason), "{error}");
    assert!(bad.received().is_empty());
    relay.stop().await;
}

#[tokio::test]
async fn a_tenant_with_two_trials_has_no_third_and_leaves_places_to_others() {
    let stage = Stage::new(Store::Sqlite).await;
    let members = (0..70_000).map(|at| (format!("zz{at}"), json!(1)));
    let large = Value::Object(members.collect());
    for _ in 0..20 {
        stage.emit_payload("acme", "order.created", &large).await;
    }
    stage.emit("other", "order.created", 1).await;
    let served = Served::with_tokens(&stage.home).await;
    let filter = json!({"filter": {"/zz1": 1}});
    let ask = |path| served.ask(ALICE, Method::POST, path, Some(&filter));
    let paths = ["/endpoints/try", "/filters/try", "/endpoints/try"];
    let mut trials: FuturesUnordered<_> = paths.into_iter().map(ask).collect();
    // Two of them look at all events of acme, which takes much longer than a refusal.
    let refused = trials.next().await.unwrap();
    check(&refused, 429, "RATE_LIMIT.exceeded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(served.relay.get("/readyz").await.status, 200);
    let newest = json!({"filter": {"/n": 1}, "events": {"limit": 1}});
    for (path, body) in [
        ("/endpoints/try", json!({"tenant": "other"})),
        ("/filters/try", newest),
    ] {
        let tried = served.post(path, &body).await;
        assert_eq!(tried.status, 200, "{path}: {}", tried.text());
        assert_eq!(tried.json().unwrap()["matched"], 1, "{path}");
    }
    for tried in trials.collect::<Vec<_>>().await {
        assert_eq!(tried.status, 200, "{}", tried.text());
    }
    let last = json!({"tenant": "acme", "limit": 1});
    let tried = served.post("/endpoints/try", &last).await;
    assert_eq!(tried.status, 200, "{}", tried.text());
    served.relay.stop().await;
}

/// A stage with three events of acme, and one of another tenant.
async fn with_orders(on: Store) -> Stage {
    let stage = Stage::new(on).await;
    for (tenant, kind, n) in [
        ("acme", "order.created", 1),
        ("acme", "refund.created", 2),
        ("other", "order.created", 3),
        ("acme", "order.paid", 4),
    ] {
        stage.emit(tenant, kind, n).await;
    }
    stage
}

/// Checks a trial of [`FILTER`] and [`ORDER`] on the orders of acme.
#[track_caller]
fn check_tried(tried: &Value) {
    let items = tried["items"].as_array().unwrap().iter();
    let items: Vec<_> = items
        .map(|it| (&it["matches"], &it["fails_at"], &it["body"]["text"]))
        .collect();
    let (yes, no, null) = (json!(true), json!(false), Value::Null);
    let expected = [
        (&yes, &null, &json!("Order 4")),
        (&no, &json!("types"), &null),
        (&no, &json!("/n.$gte"), &null),
    ];
    assert_eq!(items, expected, "{tried}");
    let counts = (&tried["tried"], &tried["matched"], &tried["failed"]);
    assert_eq!(counts, (&json!(3), &json!(1), &json!(0)), "{tried}");
}
