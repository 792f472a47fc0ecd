//! Tests of checkouts: either shipped and captured, or voided without effects.

use futures_util::future::join_all;
use hapax_testkit::http::HttpResponse;
use serde_json::Value;

use crate::{
    shop::{
        Home, Shop, Store, bought, check_replays, ended, lasting, on_both_stores, problem, refuses,
    },
    simulated_providers::Providers,
};

on_both_stores! {
    a_checkout_ships_and_captures_once,
    a_declined_card_is_a_refusal_that_gives_the_stock_back,
    an_address_that_cannot_be_reached_voids_the_card,
    the_last_one_in_stock_is_sold_once,
    twenty_duplicates_are_one_checkout,
    an_answer_that_is_always_lost_is_found_by_asking,
    a_card_that_never_answers_is_not_charged,
    a_checkout_is_its_tenants_alone,
    without_providers_nothing_is_begun,
}

async fn a_checkout_ships_and_captures_once(on: Store) {
    let (shop, providers) = shop(on).await;
    let answer = shop
        .post("/checkouts", Some("c"), &cart("tok_ok", "DE"))
        .await;
    let checkout = bought(&shop, &answer).await;
    let id = checkout["id"].as_str().unwrap();
    assert!(id.starts_with("chk_"), "{id}");
    assert_eq!(
        answer.header("location"),
        Some(format!("/checkouts/{id}").as_str())
    );
    let steps = checkout["steps"].as_array().unwrap();
    let names: Vec<_> = steps
        .iter()
        .map(|step| step["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["reserve", "authorize", "ship", "capture", "notify"]);
    assert!(
        steps
            .iter()
            .all(|step| step["state"] == "done" && step["attempts"] == 1)
    );
    assert!(
        steps[1]["provider_ref"]
            .as_str()
            .unwrap()
            .starts_with("auth_")
    );
    check(&providers, [1, 0, 1, 0], 1).await;
    let ledger: Value = shop.get("/ledger").await.json().unwrap();
    assert_eq!(ledger["entries"].as_array().unwrap().len(), 1);
    assert_eq!(ledger["entries"][0]["amount"], 2_200);
    assert_eq!(ledger["entries"][0]["charge_id"], steps[3]["provider_ref"]);
    let events = shop.received("checkout.completed", 1).await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        shop.get(&format!("/checkouts/{id}")).await.json().unwrap(),
        checkout
    );
    let again = shop
        .post("/checkouts", Some("c"), &cart("tok_ok", "DE"))
        .await;
    check_replays(&again, &answer);
}

async fn a_declined_card_is_a_refusal_that_gives_the_stock_back(on: Store) {
    let (shop, providers) = shop(on).await;
    let rare = r#"[{"sku":"sku_rare","quantity":1}]"#;
    for attempt in 0..2 {
        let key = format!("c{attempt}");
        let declined = cart_of(rare, "tok_declined", "DE");
        let answer = shop.post("/checkouts", Some(&key), &declined).await;
        failed(&shop, &answer, 402, "PROVIDER.card.declined").await;
        let again = shop.post("/checkouts", Some(&key), &declined).await;
        assert_eq!(again.header("idempotency-status"), Some("replayed"));
    }
    check(&providers, [0, 0, 0, 0], 0).await;
    let failed = shop.received("checkout.failed", 2).await;
    assert_eq!(failed.len(), 2);
    let sold = shop
        .post("/checkouts", Some("sold"), &cart_of(rare, "tok_ok", "DE"))
        .await;
    bought(&shop, &sold).await;
}

async fn an_address_that_cannot_be_reached_voids_the_card(on: Store) {
    let (shop, providers) = shop(on).await;
    let answer = shop
        .post("/checkouts", Some("c"), &cart("tok_ok", "ZZ"))
        .await;
    failed(&shop, &answer, 409, "CONFLICT.checkout.failed").await;
    check(&providers, [1, 1, 0, 0], 0).await;
    let ledger: Value = shop.get("/ledger").await.json().unwrap();
    assert!(ledger["entries"].as_array().unwrap().is_empty());
}

async fn the_last_one_in_stock_is_sold_once(on: Store) {
    let (shop, providers) = shop(on).await;
    let rare = cart_of(r#"[{"sku":"sku_rare","quantity":1}]"#, "tok_ok", "DE");
    let keys: Vec<_> = (0..5).map(|number| format!("c{number}")).collect();
    let buy = |key| shop.post("/checkouts", Some(key), &rare);
    let answers = join_all(keys.iter().map(|key| buy(key.as_str()))).await;
    let mut sold = 0;
    for answer in &answers {
        match answer.status {
            201 => sold += 1,
            // The saga took longer than the caller waits.
            202 => match ended(&shop, answer).await["state"].as_str() {
                Some("completed") => sold += 1,
                state => assert_eq!(state, Some("failed")),
            },
            _ => drop(problem(answer, 409, "CONFLICT.stock.out")),
        }
    }
    assert_eq!(sold, 1);
    check(&providers, [1, 0, 1, 0], 1).await;
}

async fn twenty_duplicates_are_one_checkout(on: Store) {
    let (shop, providers) = shop(on).await;
    let body = cart("tok_ok", "DE");
    let answers = join_all((0..20).map(|_| shop.post("/checkouts", Some("c"), &body))).await;
    let (firsts, others): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|it| matches!(it.status, 201 | 202));
    assert!(!firsts.is_empty());
    for answer in &firsts {
        assert_eq!(lasting(answer), lasting(firsts[0]));
    }
    for answer in others {
        problem(answer, 409, "CONFLICT.idempotency.in_progress");
    }
    bought(&shop, firsts[0]).await;
    check(&providers, [1, 0, 1, 0], 1).await;
    let other = shop
        .post("/checkouts", Some("c"), &cart("tok_slow", "DE"))
        .await;
    problem(&other, 409, "CONFLICT.idempotency.payload_mismatch");
}

async fn an_answer_that_is_always_lost_is_found_by_asking(on: Store) {
    let (shop, providers) = shop(on).await;
    let body = cart("tok_timeout_applied", "DE");
    let answer = shop.post("/checkouts", Some("c"), &body).await;
    let checkout = ended(&shop, &answer).await;
    assert_eq!(checkout["state"], "completed", "{checkout}");
    check(&providers, [1, 0, 1, 0], 1).await;
}

async fn a_card_that_never_answers_is_not_charged(on: Store) {
    let (shop, providers) = shop(on).await;
    let answer = shop
        .post("/checkouts", Some("c"), &cart("tok_5xx", "DE"))
        .await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    assert!(answer.header("retry-after").is_some());
    let checkout = ended(&shop, &answer).await;
    assert_eq!(checkout["state"], "failed", "{checkout}");
    check(&providers, [0, 0, 0, 0], 0).await;
    let again = shop
        .post("/checkouts", Some("c"), &cart("tok_5xx", "DE"))
        .await;
    assert_eq!(lasting(&again), lasting(&answer));
}

async fn a_checkout_is_its_tenants_alone(on: Store) {
    let (shop, _providers) = shop(on).await;
    let answer = shop
        .post("/checkouts", Some("c"), &cart("tok_ok", "DE"))
        .await;
    let location = answer.header("location").unwrap();
    problem(&shop.get_as("demo-bob", location).await, 404, "NOT_FOUND");
    problem(&shop.get("/checkouts/chk_none").await, 404, "NOT_FOUND");
    for (body, member) in [
        (cart_of("[]", "tok_ok", "DE"), "items"),
        (cart("4242", "DE"), "card"),
        (cart("tok_ok", "Germany"), "address.country"),
    ] {
        refuses(&shop.post("/checkouts", Some("bad"), &body).await, member);
    }
    problem(
        &shop.post("/checkouts", None, &cart("tok_ok", "DE")).await,
        400,
        "VALIDATION.idempotency_key.missing",
    );
}

async fn without_providers_nothing_is_begun(on: Store) {
    let flags = ["--no-demo", "--token", "demo-alice=alice"];
    let shop = Shop::start(on, &flags).await;
    let answer = shop
        .post("/checkouts", Some("c"), &cart("tok_ok", "DE"))
        .await;
    problem(&answer, 503, "DEPENDENCY.unavailable");
}

async fn shop(on: Store) -> (Shop, std::sync::Arc<Providers>) {
    let home = Home::with_providers(on).await;
    let providers = home.providers();
    (Shop::start_in(home, &["--wait", "10s"]), providers)
}

fn cart(card: &str, country: &str) -> String {
    let items = r#"[{"sku":"sku_tea","quantity":2},{"sku":"sku_mug","quantity":1}]"#;
    cart_of(items, card, country)
}

fn cart_of(items: &str, card: &str, country: &str) -> String {
    format!(
        r#"{{"items":{items},"card":"{card}","address":{{"name":"Ann","line1":"Way 1","city":"Ulm","postal_code":"89073","country":"{country}"}}}}"#
    )
}

/// Checks that a checkout failed. The reason is checked if the response came before the saga was
/// put off.
async fn failed(shop: &Shop, answer: &HttpResponse, status: u16, code: &str) {
    if answer.status == 202 {
        assert_eq!(ended(shop, answer).await["state"], "failed");
    } else {
        problem(answer, status, code);
    }
}

/// Checks the numbers of authorizations, voids, captures and refunds, and of parcels that were not
/// cancelled.
async fn check(providers: &Providers, made: [usize; 4], parcels: usize) {
    let mut found = [0; 4];
    for (place, kind) in ["authorization", "void", "capture", "refund"]
        .iter()
        .enumerate()
    {
        found[place] = providers.made(kind).await.len();
    }
    assert_eq!(found, made);
    let back = providers.shipped("cancellation").await;
    assert_eq!(providers.shipped("shipment").await - back, parcels);
}
