//! Tests of a customer that polls the shop for its events, on both stores.

use hapax_testkit::program::run_to_end;
use serde_json::{Value, json};

use crate::{
    relay_process::hapax,
    shop::{Home, ORDER, Shop, Store, on_both_stores},
};

on_both_stores! {
    a_customer_polls_the_events_of_its_tenant_and_goes_on_after_a_crash,
}

async fn a_customer_polls_the_events_of_its_tenant_and_goes_on_after_a_crash(on: Store) {
    let shop = Shop::start_in(Home::fresh(on).await, &[]);
    let home = shop.home();
    let url = home.url();
    let create = [
        "poll", "create", "alice", "--tenant", "alice", "--type", "order.*",
    ];
    let mut arguments = create.to_vec();
    arguments.extend(["--database", url.as_str()]);
    let created = run_to_end(hapax(&arguments)).ended(0);
    let token = created.stdout.trim();
    for (who, key) in [("demo-alice", "1"), ("demo-bob", "2"), ("demo-alice", "3")] {
        let order = shop.post_as(who, "/orders", Some(key), ORDER).await;
        assert_eq!(order.status, 201, "{}", order.text());
    }
    let first = page(&shop, token, "/poll/alice?limit=1&wait=10").await;
    assert_eq!(tenants(&first), ["alice"]);
    let commit = json!({"cursor": first["cursor"]}).to_string();
    let committed = shop
        .post_as(token, "/poll/alice/commit", None, &commit)
        .await;
    assert_eq!(committed.status, 200, "{}", committed.text());
    let second = page(&shop, token, "/poll/alice").await;
    assert_eq!(tenants(&second), ["alice"]);
    assert_ne!(first["data"][0]["id"], second["data"][0]["id"]);
    // A token of the API does not open an endpoint, nor the other way round.
    assert_eq!(shop.get("/poll/alice").await.status, 401);
    assert_eq!(shop.get_as(token, "/orders").await.status, 401);
    drop(shop);
    let shop = Shop::start_in(home, &[]);
    assert_eq!(
        page(&shop, token, "/poll/alice").await["data"],
        second["data"]
    );
}

async fn page(shop: &Shop, token: &str, path: &str) -> Value {
    let answer = shop.get_as(token, path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json().unwrap()
}

fn tenants(page: &Value) -> Vec<&str> {
    let events = page["data"].as_array().unwrap().iter();
    events
        .map(|event| event["tenant"].as_str().unwrap())
        .collect()
}
