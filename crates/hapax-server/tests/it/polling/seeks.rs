//! Positions of polling endpoints that operators move with `hapax poll seek` and the admin API.

use http::Method;
use serde_json::{Value, json};

use super::check;
use crate::{
    admin::{ALICE, OPERATOR, Served, VIEWER},
    hapax::{ProgramOutput, run},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    a_command_moves_a_position_back_and_on,
    the_admin_api_moves_a_position,
}

async fn a_command_moves_a_position_back_and_on(on: Store) {
    let home = Home::migrated(on).await;
    home.emit("order.created", 2).await;
    let poll = |arguments: &[&str]| poll(&home, arguments);
    poll(&["create", "all", "--all-tenants"]).ended(0);
    let shown = poll(&["show", "all", "--json"]).ended(0).json();
    let newest = position(&shown);
    let seek = |to: &str, more: &[&str]| {
        let arguments = [&["seek", "all", "--to", to][..], more].concat();
        poll(&arguments)
    };
    seek("yesterday", &["--yes"]).ended(2);
    seek("2100-01-01T00:00:00Z", &["--yes"]).ended(2);
    // There is no terminal at which the question could be answered.
    seek("beginning", &[]).ended(4);
    let shown = poll(&["show", "all", "--json"]).ended(0).json();
    assert_eq!(position(&shown), newest);
    let moved = seek("beginning", &["--yes", "--json"]).ended(0).json();
    assert!(position(&moved) < newest, "{moved}");
    let moved = seek("now", &["--yes", "--json"]).ended(0).json();
    assert_eq!(position(&moved), newest);
    let moved = seek("2020-01-31T12:00:00Z", &["--yes", "--json"]);
    assert!(position(&moved.ended(0).json()) < newest);
    poll(&["seek", "nowhere", "--to", "now", "--yes"]).ended(3);
}

async fn the_admin_api_moves_a_position(on: Store) {
    let home = Home::migrated(on).await;
    home.emit("order.created", 2).await;
    poll(&home, &["create", "acme", "--tenant", "acme"]).ended(0);
    poll(&home, &["create", "all", "--all-tenants"]).ended(0);
    let served = Served::with_tokens(&home).await;
    let newest = position(&served.get("/polling-endpoints/all").await);
    let seek = async |token: &str, name: &str, to: &Value| {
        let path = format!("/polling-endpoints/{name}/seek");
        served.ask(token, Method::POST, &path, Some(to)).await
    };
    let beginning = json!({"to": "beginning"});
    let refused = seek(VIEWER, "all", &beginning).await;
    check(&refused, 403, "AUTH.forbidden");
    let refused = seek(ALICE, "all", &beginning).await;
    check(&refused, 404, "NOT_FOUND");
    let refused = seek(OPERATOR, "nowhere", &beginning).await;
    check(&refused, 404, "NOT_FOUND");
    for bad in [
        json!({}),
        json!({"to": "yesterday"}),
        json!({"to": "2100-01-01T00:00:00Z"}),
        json!({"to": "now", "from": "beginning"}),
    ] {
        assert_eq!(seek(OPERATOR, "all", &bad).await.status, 400, "{bad}");
    }
    let unchanged = served.get("/polling-endpoints/all").await;
    assert_eq!(position(&unchanged), newest);
    let moved = seek(OPERATOR, "all", &beginning).await;
    assert_eq!(moved.status, 200, "{}", moved.text());
    assert!(position(&moved.json().unwrap()) < newest);
    let own = seek(ALICE, "acme", &beginning).await;
    assert_eq!(own.status, 200, "{}", own.text());
    let audited = served.get("/audit").await;
    let acts = audited["items"].as_array().unwrap().iter();
    let seeks: Vec<_> = acts.filter(|it| it["action"] == "seek").collect();
    assert_eq!(seeks.len(), 2, "{audited}");
    assert_eq!(seeks[1]["detail"]["to"], "beginning", "{audited}");
    assert_eq!(seeks[1]["detail"]["from"], newest, "{audited}");
    served.relay.stop().await;
}

fn poll(home: &Home, arguments: &[&str]) -> ProgramOutput {
    let url = home.url();
    let all = [&["poll"][..], arguments, &["--database", &url]].concat();
    run(&all)
}

#[track_caller]
fn position(endpoint: &Value) -> i64 {
    let position = endpoint["position"].as_i64();
    position.unwrap_or_else(|| panic!("no position: {endpoint}"))
}
