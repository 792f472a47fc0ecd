//! Tests of the admin API with generated requests from its OpenAPI description.

use hapax_testkit::{prober::Prober, wait::eventually};
use serde_json::json;

use crate::{
    admin::Served,
    hapax::{PATIENCE, SECRET},
    store::{Home, Store, on_both_stores},
};

on_both_stores! {
    nothing_that_is_asked_of_the_admin_api_is_a_fault_or_answered_as_nobody_said,
    nor_is_anything_that_is_asked_about_what_is_there,
}

async fn nothing_that_is_asked_of_the_admin_api_is_a_fault_or_answered_as_nobody_said(on: Store) {
    let database = Home::migrated(on).await;
    let served = Served::with_tokens(&database).await;
    probe(&served).finds_nothing("").await;
    served.relay.stop().await;
}

async fn nor_is_anything_that_is_asked_about_what_is_there(on: Store) {
    let database = Home::migrated(on).await;
    database.emit("order.created", 20).await;
    let served = Served::with_tokens(&database).await;
    // The network policy blocks the address, so every event becomes a dead letter at once.
    let declared = served
        .post(
            "/destinations",
            &json!({"name": "orders", "spec": {"schedule": ["0s"], "start": "beginning",
                "sink": {"webhook": {"url": "http://10.0.0.1:9/", "secret": SECRET}}}}),
        )
        .await;
    assert_eq!(declared.status, 201, "{}", declared.text());
    eventually(PATIENCE, async || {
        let dead = served.get("/dead-letters").await;
        dead["items"].as_array().unwrap().len() == 20
    })
    .await;
    let first = served.get("/dead-letters").await["items"][0]["position"].clone();
    let many = json!({"destination": "orders", "filter": {"type": "x"}});
    let begun = served.post("/dead-letters/replay", &many).await;
    assert_eq!(begun.status, 202, "{}", begun.text());
    let there = format!(
        "[parameters]\n\"path.name\" = \"orders\"\n\"path.part\" = \"orders\"\n\"path.id\" = \"1\"\n\
         \"path.position\" = \"{first}\"\n"
    );
    let probe = probe(&served).argument("--phases").argument("fuzzing");
    // DELETE requests are excluded, because later requests would not find what they delete.
    let probe = probe.argument("--exclude-method").argument("DELETE");
    probe.finds_nothing(&there).await;
    served.relay.stop().await;
}

fn probe(served: &Served) -> Prober {
    let description = format!("{}/openapi.json", served.url());
    Prober::of(env!("CARGO_TARGET_TMPDIR"), &description)
        .header("Authorization", &format!("Bearer {}", Served::OPERATOR))
}
